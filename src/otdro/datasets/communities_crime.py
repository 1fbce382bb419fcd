"""Violent crimes in communities of the USA, by regions (UCI)."""

from .base import Spec

SPEC = Spec(
    name="communities_crime",
    title="communities and crime",
    file="shift/communities_crime.csv.gz",
    shape=(1993, 100),
    task="regression",
    environments=9,
    sha256="a5be257f8f9870e9bd89ece8e5d05049913a56927f03ef86ca0ac06b25acc497",
)
