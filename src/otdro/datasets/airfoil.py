"""Airfoil self-noise: sound pressure from frequency, angle, chord, speed and thickness (UCI)."""

from .base import Spec

SPEC = Spec(
    name="airfoil",
    title="airfoil sound pressure",
    file="reg_airfoil.csv.gz",
    shape=(1503, 5),
    task="regression",
    sha256="c81f5682ec4c6190b48a305ece2e5fab6906f8fbb87f007a2a85fc2e6902d9d2",
)
