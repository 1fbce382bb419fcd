"""a9a: the Adult census data in 123 binary columns, training part (UCI, LIBSVM)."""

from .base import Spec

SPEC = Spec(
    name="a9a",
    title="Adult census, encoded",
    file="a9a.csv.gz",
    shape=(32561, 123),
    counts=(7841, 24720),
    sparse=True,
    sha256="45a1782b9d719cf372ced93d59644567ffbc5c55916b06213977956963b2cb0b",
)
