"""What drifted, as HTML."""

from __future__ import annotations

from typing import Any

from .markup import name


def drifted(found: Any) -> str:
    """Return the drift of new rows, or how to measure it."""
    if found is None:
        return (
            "<p>No new rows were given. <code>otdro audit MODEL DATA --target COL --new NEW"
            "</code>, or <code>otdro.audit(model, X, y, new=new)</code>, measures how far new "
            "rows are from these and whether the model is still certified there.</p>"
        )
    return f"<pre>{name(str(found), 4000)}</pre>"
