"""Scores of red and white wines (UCI)."""

from .base import Spec

SPEC = Spec(
    name="wine_quality",
    title="wine quality",
    file="shift/wine_quality.csv.gz",
    shape=(6497, 11),
    task="regression",
    environments=2,
    sha256="f929bce3a646aaadd1a0b478f8499b9cbfa0de518e0991f44ff4d27e1ba475fc",
)
