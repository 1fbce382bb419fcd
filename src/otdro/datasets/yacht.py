"""Yacht hydrodynamics: residuary resistance from the shape of the hull (UCI)."""

from .base import Spec

SPEC = Spec(
    name="yacht",
    title="yacht resistance",
    file="reg_yacht.csv.gz",
    shape=(308, 6),
    task="regression",
    sha256="2c3a6ae76cfa90785be14c92ae31031f0d15f65a4b3649a4eef8e361684f46e8",
)
