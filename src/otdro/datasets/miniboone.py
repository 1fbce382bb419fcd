"""MiniBooNE: electron neutrinos (signal, +1) or muon neutrinos (-1) (UCI)."""

from .base import Spec

SPEC = Spec(
    name="MB",
    title="MiniBooNE particle identification",
    file="mb.csv.gz",
    shape=(130064, 50),
    counts=(36499, 93565),
    aliases=("miniboone",),
    openml=("MiniBooNE", 41150),
)
