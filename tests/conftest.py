"""Settings of the whole suite: one thread, and hypothesis without randomness or deadlines."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "otdro",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("otdro")
