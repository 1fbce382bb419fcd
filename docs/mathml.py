"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

#: Words of LaTeX that docutils does not know, in words that it does.
PLAIN = {r"\lVert": r"\|", r"\rVert": r"\|", r"\big": "", r"\tfrac": r"\frac"}


def mathml(formula: str, *, block: bool) -> str:
    """Return the MathML of a formula in LaTeX."""
    for word, plain in PLAIN.items():
        formula = formula.replace(word, plain)
    try:
        return tex2mathml(formula, as_block=block)
    except MathError as error:
        raise ExtensionError(f"{error} in the formula {formula}") from error


def inline(self: Any, node: nodes.math) -> None:
    """Write a formula of a line of text."""
    self.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def display(self: Any, node: nodes.math_block) -> None:
    """Write a formula of its own line; one with an empty line in it is several."""
    for part in re.split(r"\n\s*\n", node.astext().strip()):
        self.body.append(f'<div class="formula">{mathml(part, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Make it the way formulas are written."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.config.html_math_renderer = "mathml"
