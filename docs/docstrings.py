"""What the pages of the API leave out of docstrings, and what they add to them."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Any

from otdro.metrics import MetricLearner

#: A learner's docstring refers to its base class where it would repeat it.
REFERENCE = re.compile(r"\s*(?:Other p|P)arameters (?:and attributes )?as in ``MetricLearner``\.")


def home(member: Any) -> str:
    """Return the module that a member of a class was written in."""
    inner = getattr(member, "fget", None) or getattr(member, "func", None) or member
    return str(getattr(inner, "__module__", ""))


def skip_foreign(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> Any:
    """Leave out what a class inherits from other packages: they document it."""
    return True if callable(member) and not home(member).startswith("otdro") else None


def sections(text: str) -> dict[str, str]:
    """Return the parts of a docstring by their headings; the first has none."""
    parts = re.split(r"^(\w+)\n-+\n", text, flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def spell_out(text: str) -> str:
    """Return a docstring with the parameters and attributes of the base that it refers to."""
    found = sections(REFERENCE.sub("", text))
    base = sections(cleandoc(MetricLearner.__doc__ or ""))
    for head in ("Parameters", "Attributes"):
        found[head] = f"{found.get(head, '').strip()}\n{base[head].strip()}\n"
    lead = found.pop("").strip()
    return "\n\n".join([lead, *(f"{h}\n{'-' * len(h)}\n{t.strip()}" for h, t in found.items())])


def complete(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Replace a reference to the base class by what it refers to."""
    text = "\n".join(lines)
    if REFERENCE.search(text):
        lines[:] = spell_out(text).splitlines()


def setup(app: Any) -> None:
    """Join the hooks; docstrings are completed before numpydoc reads them."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-docstring", complete, priority=100)
