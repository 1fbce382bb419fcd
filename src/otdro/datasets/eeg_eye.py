"""Eyes closed or open from an EEG of two minutes, in blocks of time (UCI)."""

from .base import Spec

SPEC = Spec(
    name="eeg_eye",
    title="EEG eye state",
    file="shift/eeg_eye.csv.gz",
    shape=(14976, 14),
    counts=(6722, 8254),
    environments=10,
    sha256="f2d7d9c9ed55975edc7f9b3da084f17e15910c1cf212e9929fa29667f20bbdc9",
)
