"""Heart disease at four hospitals, the columns that all of them recorded (UCI)."""

from .base import Spec

SPEC = Spec(
    name="heart4",
    title="heart disease at four hospitals",
    file="shift/heart4.csv.gz",
    shape=(852, 11),
    counts=(463, 389),
    environments=4,
    sha256="c2c8a2d13e2086ca3c5bf06420a63f8e4145dd13ab88dbe528de2017a40d0ef4",
)
