"""a9a: the Adult census data in 123 binary columns, test part (UCI, LIBSVM)."""

from .base import Spec

SPEC = Spec(
    name="a9a_test",
    title="Adult census, encoded, test part",
    file="a9a_test.csv.gz",
    shape=(16281, 123),
    counts=(3846, 12435),
    sparse=True,
    sha256="ecacbf3a7adddc08c5c2426816f4a60d73acc0bd1acb49cdf95f94a47949a27f",
)
