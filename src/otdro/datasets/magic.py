"""MAGIC gamma telescope: gamma (+1) or hadron (-1) showers (UCI)."""

from .base import Spec

SPEC = Spec(
    name="Magic",
    title="MAGIC gamma telescope",
    file="magic.csv.gz",
    shape=(19020, 10),
    counts=(12332, 6688),
    aliases=("magic-telescope", "MagicTelescope"),
    openml=("MagicTelescope", 1120),
    sha256="f2617b0b850c93046818b0ba1e3cd1c3a9d130f02b2b714676c07f6135d9b5d4",
)
