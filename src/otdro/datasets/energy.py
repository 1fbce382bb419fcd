"""Energy efficiency: heating load from the shape of a building (UCI)."""

from .base import Spec

SPEC = Spec(
    name="energy",
    title="heating load",
    file="reg_energy.csv.gz",
    shape=(768, 8),
    task="regression",
    sha256="f1b4ffffca1a4a6cbf7a814738731cb60bf9a7721b56e754e20cdca07a9ef9a0",
)
