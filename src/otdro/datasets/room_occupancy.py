"""A room occupied or not, from sensors, by days (UCI)."""

from .base import Spec

SPEC = Spec(
    name="room_occupancy",
    title="room occupancy",
    file="shift/room_occupancy.csv.gz",
    shape=(10129, 16),
    counts=(1901, 8228),
    environments=7,
    sha256="be7778469f189a8db4c3690d7599184e07a349cd09e63625a217d8b31d538caa",
)
