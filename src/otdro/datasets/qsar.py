"""QSAR biodegradation: ready (+1) or not ready (-1) biodegradable chemicals (UCI)."""

from .base import Spec

SPEC = Spec(
    name="QSAR",
    title="QSAR biodegradation",
    file="qsar.csv.gz",
    shape=(1055, 41),
    counts=(356, 699),
    aliases=("qsar-biodeg",),
    openml=("qsar-biodeg", 1494),
    sha256="9475c1a98b95727fde7cc7cf459b4da7e10a40e961ed01dd0916c43ef52825fa",
)
