"""Electricity price in New South Wales up or down, by quarters."""

from .base import Spec

SPEC = Spec(
    name="elec2",
    title="electricity price",
    file="shift/elec2.csv.gz",
    shape=(45312, 6),
    counts=(19237, 26075),
    environments=11,
    sha256="d9956bfdf84f610a2d50d722bc7b7726f3e266c6faed8adcd5151bddcd3afc96",
)
