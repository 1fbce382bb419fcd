"""The record of an audit for a reviewer: what was measured, on what, by which software, when."""

from __future__ import annotations

import hashlib
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from ..arrays import numpy

if TYPE_CHECKING:
    from .auditing import Audit

#: The version of the record; it rises where a key changes its meaning.
SCHEMA = 1
#: The packages beside otdro whose versions a record names.
PACKAGES = ("numpy", "scipy", "scikit-learn", "joblib")
#: The parts of a document that ``changes`` compares, with what a reader calls them.
COMPARED = {
    ("record", "data", "sha256"): "the audited rows",
    ("record", "model", "sha256"): "the coefficients of the model",
    ("record", "metric"): "the metric",
    ("record", "conditions"): "the conditions",
    ("record", "seed"): "the seed",
    ("record", "versions"): "the software",
    ("accuracy",): "the accuracy without moves",
    ("constant_accuracy",): "the accuracy of a constant model",
    ("breaking_points",): "the breaking points",
    ("groups_breaking",): "the breaking points of groups",
    ("classes_breaking",): "the breaking points of classes",
}

#: The parts that are compared by their hashes.
HASHED = ("the audited rows", "the coefficients of the model")


def audit_record(audit: Audit) -> dict[str, Any]:
    """Return metric, conditions, hashes, versions, seed and date, in JSON's own types."""
    right = "its class has the largest score"
    if audit.tau is not None:
        right = "the prediction is within tau of the target"
    model = audit.model
    seed = audit.random_state
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "metric": {
            "name": "least accuracy over every distribution within transport cost delta",
            "right": f"a row is right if {right}",
            "tau": audit.tau,
            "threshold": audit.constant_accuracy(),
            "threshold_is": "the accuracy of the best constant model",
        },
        "conditions": {
            "cost": repr(audit.cost),
            "order": audit.order,
            "space": audit.space,
            "label_cost": _finite(audit.label_cost),
            "target_cost": _finite(audit.target_cost),
            "fitted_delta": audit.fitted_delta,
        },
        "data": {
            "rows": len(audit.weights),
            "columns": len(audit.names),
            "sha256": _hash(audit.X, audit.target, audit.weights),
        },
        "model": {
            "loss": type(model.loss).__name__,
            "sha256": _hash(model.coef, model.intercept),
        },
        "versions": {
            "otdro": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
        "seed": seed if seed is None or isinstance(seed, int) else repr(seed),
    }


def _finite(value: Any) -> Any:
    """Return None for what is infinite, as JSON has it."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _hash(*arrays: Any) -> str:
    """Return the SHA-256 of the numbers of some arrays, as float64 in row order."""
    digest = hashlib.sha256()
    for array in arrays:
        parts = [array]
        if hasattr(array, "tocsr"):
            rows = array.tocsr()
            parts = [rows.data, rows.indices, rows.indptr]
        for part in parts:
            values = np.ascontiguousarray(numpy(part), dtype=np.float64)
            digest.update(repr(values.shape).encode())
            digest.update(values.tobytes())
    return digest.hexdigest()


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return in sentences what differs between two documents of ``Audit.to_dict``.

    The date is no difference. A document without a record is refused.
    """
    for document in (old, new):
        schema = document.get("record", {}).get("schema")
        if schema != SCHEMA:
            raise ValueError(
                f"a document of an audit has a record of schema {SCHEMA}, this one has {schema}: "
                "write it again with this version of otdro."
            )
    sentences = []
    for path, name in COMPARED.items():
        before, after = old, new
        for key in path:
            before, after = before[key], after[key]
        sentences += _differences(name, before, after)
    return sentences


def _differences(name: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, list) and isinstance(after, list):
        # lines of a table, each with its name as the first value
        before, after = ({str(next(iter(line.values()))): line for line in part}
                         for part in (before, after))  # fmt: skip
    if isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys([*before, *after])
        parts = [_differences(f"{name}, {k}", before.get(k), after.get(k)) for k in keys]
        return [sentence for part in parts for sentence in part]
    before, after = _finite(before), _finite(after)
    numbers = isinstance(before, float) and isinstance(after, float)
    if before == after or (numbers and isclose(before, after)):
        return []
    if isinstance(before, dict) or isinstance(after, dict):
        return [f"{name}: {'only before' if after is None else 'new'}."]
    if name in HASHED:
        return [f"{name} are others."]
    return [f"{name}: {_text(before)}, now {_text(after)}."]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
