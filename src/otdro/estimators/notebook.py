"""What a notebook shows of a fitted estimator beside its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Classes whose risks are listed.
MOST = 6


def fitted_figures(estimator: Any) -> str:
    """Return one line of HTML with delta and the risks of a fit, nothing before it."""
    if not hasattr(estimator, "robust_risk_"):
        return ""
    figures = [
        ("delta", estimator.delta_),
        ("robust risk", estimator.robust_risk_),
        ("empirical risk", estimator.empirical_risk_),
        ("gap", estimator.gap_),
    ]
    shown = "; ".join(f"{name} <b>{_listed(value)}</b>" for name, value in figures)
    return f'<p style="font-family: monospace; margin: 0.3em 0">{shown}</p>'


def _listed(value: Any) -> str:
    values = np.ravel(value)
    more = ", …" if len(values) > MOST else ""
    return ", ".join(f"{v:.4g}" for v in values[:MOST]) + more
