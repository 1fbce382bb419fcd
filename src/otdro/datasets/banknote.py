"""Banknote authentication: wavelet features of images of genuine and forged notes (UCI)."""

from .base import Spec

SPEC = Spec(
    name="BN",
    title="banknote authentication",
    file="bn.csv.gz",
    shape=(1372, 4),
    counts=(610, 762),
    aliases=("banknote", "banknote-authentication"),
    openml=("banknote-authentication", 1462),
    sha256="bc15f2927ffc7ccb853710364e1cda900d764c39704aeceea3ddf4f5dd5382fb",
)
