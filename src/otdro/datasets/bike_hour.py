"""Bicycles rented per hour, by quarters (UCI)."""

from .base import Spec

SPEC = Spec(
    name="bike_hour",
    title="bike rentals",
    file="shift/bike_hour.csv.gz",
    shape=(17379, 36),
    task="regression",
    environments=8,
    sha256="cb07a59fdfceeff8f8916e68b57465428366aac1d91a17c49fb1896c510d54ee",
)
