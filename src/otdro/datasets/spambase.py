"""Spambase: word and character frequencies of mails, spam (+1) or not (UCI)."""

from .base import Spec

SPEC = Spec(
    name="SB",
    title="spambase",
    file="sb.csv.gz",
    shape=(4601, 57),
    counts=(1813, 2788),
    aliases=("spambase",),
    openml=("spambase", 44),
    sha256="8a4a4a65358d8f2fb9426fef0ca9add58054dacd2a0bd87e68b8daf2af459af9",
)
