"""Concrete compressive strength from the mixture and the age (UCI)."""

from .base import Spec

SPEC = Spec(
    name="concrete",
    title="concrete strength",
    file="reg_concrete.csv.gz",
    shape=(1030, 8),
    task="regression",
    sha256="95cb952ae1ade7d55b866083620d52d512ccc12cabf2d5b48f19e558ffce6fd3",
)
