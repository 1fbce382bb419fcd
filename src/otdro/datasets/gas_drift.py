"""Six gases from 16 sensors that drift over 36 months, by batches (UCI)."""

from .base import Spec

SPEC = Spec(
    name="gas_drift",
    title="gas sensor drift",
    file="shift/gas_drift.csv.gz",
    shape=(6697, 128),
    environments=8,
    sha256="fbcc42d802f467cb1801250ce66f0029238b262bae06e9f6682b2fedcf1fc1eb",
)
