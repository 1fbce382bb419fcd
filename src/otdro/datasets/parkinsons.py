"""Parkinson's disease from recordings of the voice, in blocks of subjects (UCI)."""

from .base import Spec

SPEC = Spec(
    name="parkinsons",
    title="Parkinson's disease from voice",
    file="shift/parkinsons.csv.gz",
    shape=(195, 22),
    counts=(147, 48),
    environments=8,
    sha256="ba69dd0cebf9a03f4987a740afd4e2f3dccba5be5fce60ebf80420ca7b23c6ac",
)
