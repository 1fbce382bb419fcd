"""The rows of a problem, touched only through products: the one module that reads X.

``row_space`` reduces wide rows to their span, in which a minimiser lies: few rows need no more
coordinates than rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr
from sklearn.utils.extmath import safe_sparse_dot

from .arrays import (
    CHUNK,
    adjoint_of_rows,
    as_float,
    beside,
    full,
    gram_of_rows,
    library,
    namespace,
    numpy,
    pick,
    product_of_rows,
    require_dense,
)

Array = NDArray[Any]


def written_product(A: Any, B: Any) -> Array:
    """Return AB of two sparse matrices as a dense float64 array.

    scikit-learn adds the terms up where they belong, without a sparse product in between, where
    both are of one precision.
    """
    found = safe_sparse_dot(A, B, dense_output=True) if A.dtype == B.dtype else (A @ B).toarray()
    return np.asarray(found, dtype=float)


#: Columns up to which matrices of d x d entries are formed; above they are structured.
WRITTEN_UP_TO = 2_000
#: The same from fewer rows than columns.
FEW_ROWS_UP_TO = 256
#: Rows of more than ``WRITTEN_UP_TO`` columns or features that a cost is learned from at most: a
#: table of all pairs of rows takes part.
WIDE_UP_TO = 1_000
#: Products of pairs of entries within rows that are kept.
PRODUCTS_UP_TO = 2_000_000
#: Entries of a block of rows that is cast, centred or scaled at a time: 2 MiB.
BLOCK_ENTRIES = 2**18


def is_wide(X: Any) -> bool:
    """Whether rows teach structured matrices: of many columns, or of more than there are rows."""
    n, d = X.shape
    return bool(d > WRITTEN_UP_TO or (d > FEW_ROWS_UP_TO and n < d))


def as_dense(X: Any) -> Array:
    """Return X as a dense array, where it is."""
    if library(X) is not None:
        return X
    if not hasattr(X, "toarray"):
        return np.asarray(X)
    require_dense(*X.shape)
    return np.asarray(X.toarray())


class Design:
    r"""The rows :math:`z_i = L'(x_i - \bar x)`, :math:`z_i'\theta = (x_i - \bar x)'\beta`.

    They are never formed: L acts on the coefficients (:math:`\beta = L\theta`), the centre on the
    products.

    ``X`` is a dense float array or CSR matrix of shape (n, d), ``factor`` is L (None: identity) and
    ``center`` the vector subtracted (None: zero). A factor that is structured (it has ``rows``)
    is applied to the rows, which stay sparse where X is; theta has then as many entries as L has
    columns.
    Vectors may be batched as columns. Blocks of float32 rows are cast to float64 as they are used.
    Rows on a device stay there, as do arrays with an entry per row; coefficients, pulls Z'r and
    Gram matrices are NumPy (``otdro.arrays``).
    """

    def __init__(self, X: Any, factor: Any = None, center: Array | None = None) -> None:
        # L and the centre as given, for coefficients
        self._lift, self.origin = factor, center
        if hasattr(factor, "rows"):
            center = None if center is None else factor.pull(center)
            X, factor = factor.rows(X), None
        self.X, self.factor, self.center = X, factor, center
        self.n, self.d = X.shape
        self.sparse = bool(sparse.issparse(X))
        self._away = library(X) is not None
        self._direct = not self._away and (self.sparse or X.dtype == np.float64)

    def rows(self, index: Array) -> Design:
        """Return the design of some rows, with the same factor and centre."""
        part = Design(pick(self.X, index), self.factor, self.center)
        part._lift, part.origin = self._lift, self.origin
        return part

    @cached_property
    def uncentred(self) -> Design:
        """The rows L'x, without a centre."""
        return Design(self.X, self.factor)

    @property
    def offset(self) -> Array:
        """|L|'|c|, what is subtracted from each column."""
        if self.center is None:
            return np.zeros(self.d)
        size = np.abs(numpy(self.center))
        return size if self.factor is None else np.abs(self.factor).T @ size

    @property
    def left_of_squares(self) -> float:
        """The share of the squared centre that centring leaves of a constant column.

        Dense rows are centred before they are squared, sparse ones after.
        """
        share = self.n * np.finfo(float).eps
        return share if self.sparse else share**2

    @property
    def rounding(self) -> Array:
        """What is left of the mean square of a column that is constant; 0 without a centre."""
        return self.offset**2 * self.left_of_squares

    def problems(self, index: Array) -> Design:
        """Return the rows of some problems of a batch: all have these."""
        return self

    @cached_property
    def _transposed(self) -> Any:
        """X' of sparse rows, a view that takes longer to make than to use."""
        return self.X.T

    def lifted(self, theta: Array) -> Array:
        """Return L theta, L the factor that acts on coefficients."""
        return theta if self.factor is None else self.factor @ theta

    def coef(self, theta: Array) -> Array:
        """Return beta = L theta."""
        return theta if self._lift is None else self._lift @ theta

    def _pull(self, g: Array) -> Array:
        """Return L'g."""
        return g if self.factor is None else self.factor.T @ g

    def scores(self, theta: Array) -> Array:
        """Return Z theta, shape (n,) or (n, B)."""
        if theta.ndim == 2 and theta.shape[1] == 1:
            return self.scores(theta[:, 0])[:, None]
        beta = self.lifted(theta)
        if self._direct and not self.sparse and beta.ndim == 2 and self.n > beta.shape[1]:
            # the scores of a problem are next to each other
            z: Array = (beta.T @ self.X.T).T
        elif self._direct:
            z = self.X @ beta
        elif self._away:
            z = product_of_rows(self.X, beta)
        else:
            z = np.concatenate([block @ beta for _, block in self._blocks(center=False)])
        if self.center is not None:
            z -= beside(self.center @ beta, z)
        return z

    def adjoint(self, r: Array) -> Array:
        """Return Z'r, shape (d,) or (d, B)."""
        if r.ndim == 2 and r.shape[1] == 1:
            return self.adjoint(r[:, 0])[:, None]
        if self.sparse:
            g: Array = self._transposed @ r
        elif self._direct:
            g = self.X.T @ r
        elif self._away:
            g = adjoint_of_rows(self.X, r)
        else:
            g = sum(
                (block.T @ r[rows] for rows, block in self._blocks(center=False)),
                np.zeros((self.d, *r.shape[1:])),
            )
        if self.center is not None:
            total = numpy(r.sum(0))
            g -= self.center[:, None] * total if r.ndim == 2 else self.center * total
        return self._pull(g)

    def gram(self, D: Array) -> Array:
        """Return Z' diag(D) Z for D >= 0, shape (d, d), or (B, d, d) for D of shape (n, B)."""
        return self.moments(D)[0] if D.ndim == 1 or D.shape[1] == 1 else self._gram_batch(D)

    def moments(self, D: Array) -> tuple[Array, Array]:
        """Return Z' diag(D) Z and Z'D for D >= 0, shapes as of ``gram`` and ``adjoint``.

        Of one column they come from one pass over the rows.
        """
        if D.ndim == 2:
            if D.shape[1] > 1:
                return self._gram_batch(D), self.adjoint(D)
            G, s = self.moments(D[:, 0])
            return G[None], s[:, None]
        G, s = self._sparse_moments(D) if self.sparse else self._dense_moments(D, center=False)
        return self._of_design(G, s, D)

    def _of_design(self, G: Array, s: Array, D: Array) -> tuple[Array, Array]:
        """Return the moments of the rows z from those of x, G = X' diag(D) X and s = X'D."""
        if self.center is not None:
            c, total = self.center, float(D.sum())
            # sum D (x - c)(x - c)' = sum D xx' - vc' - cv', v = s - total c/2
            M = np.outer(s - total / 2 * c, c)
            G = G - M
            G -= M.T
            s = s - total * c
            # where the mean dwarfs the spread, subtracting squares loses digits: centre the rows
            if not self.sparse and not np.all(np.diag(G) > self._lost_digits * total * c**2):
                G, s = self._dense_moments(D, center=True)
        return (G if self.factor is None else self.factor.T @ G @ self.factor), self._pull(s)

    @property
    def _lost_digits(self) -> float:
        """The share of the squares below which what centring leaves of them has too few digits."""
        return 1e-2 if self._away and self.X.dtype != namespace(self.X).float64 else 1e-4

    def _sparse_moments(self, D: Array) -> tuple[Array, Array]:
        """Return X' diag(D) X and X'D."""
        X = self.X.tocsr()
        values = X.data * np.repeat(D, np.diff(X.indptr))
        scaled = sparse.csr_array((values, X.indices, X.indptr), shape=X.shape)
        return written_product(self._transposed, scaled), np.asarray(self._transposed @ D)

    def _dense_moments(self, D: Array, center: bool) -> tuple[Array, Array]:
        """Return X' diag(D) X and X'D, of centred rows if asked; equal entries of D scale both."""
        if self._away:
            s, at = adjoint_of_rows(self.X, D), self.center if center else None
            return gram_of_rows(self.X, D, at), s if at is None else s - float(D.sum()) * at
        G, s = np.zeros((self.d, self.d)), np.zeros(self.d)
        equal, root = D[0] if D.min() == D.max() else None, np.sqrt(D)
        room: Array | None = None
        for rows, block in self._blocks(center):
            if equal is None:
                # all blocks are scaled in one place: new memory takes as long as the product
                room = np.empty_like(block) if room is None else room
                S = np.multiply(block, root[rows, None], out=room[: len(block)])
                s += root[rows] @ S
            else:
                S = block
                s += np.ones(len(S)) @ S
            G += S.T @ S
        return (G, s) if equal is None else (equal * G, equal * s)

    def _gram_batch(self, D: Array) -> Array:
        B = D.shape[1]
        if not self.sparse and self.n * self.d**2 <= PRODUCTS_UP_TO:
            return numpy(D.T @ self._row_products).reshape(B, self.d, self.d)
        # one by one, by symmetry
        return np.stack([self.gram(D[:, b]) for b in range(B)])

    @cached_property
    def _row_products(self) -> Array:
        """The products of all pairs of entries of each row z_i, shape (n, d^2)."""
        Z = self.dense()
        return (Z[:, :, None] * Z[:, None, :]).reshape(self.n, -1)

    def squared_norms(self) -> Array:
        """Return |z_i|^2 of every row."""
        if self.sparse and self.factor is None:
            squares = np.asarray(self.X.multiply(self.X).sum(axis=1), dtype=float).ravel()
            if self.center is None:
                return squares
            shifted = squares - 2 * (self.X @ self.center) + self.center @ self.center
            return np.maximum(shifted, 0.0)
        found = full(self.n, 0.0, self.X)
        for rows, block in self._blocks(center=True):
            Z = block if self.factor is None else block @ beside(self.factor, block)
            found[rows] = namespace(Z).linalg.vecdot(Z, Z)
        return found

    def kernel(self, rows: slice = slice(None)) -> Array:
        """Return ZZ', shape (n, n), or some of its rows."""
        if self.sparse and self.factor is None:
            # what certificates rest on is added up in float64
            X = self.X.astype(np.float64, copy=False)
            K = written_product(X if rows == slice(None) else X[rows], X.T)
            if self.center is not None:
                # (x - c)'(y - c) = x'y - x'c - c'y + c'c
                s = self.X @ self.center
                K += self.center @ self.center - s
                K -= s[rows, None]
            return K
        if self.factor is not None or self._away:
            Z = self.dense()
            return Z[rows] @ Z.T
        K = np.zeros((len(range(*rows.indices(self.n))), self.n))
        step = max(1, BLOCK_ENTRIES // self.n)
        for start in range(0, self.d, step):
            columns = slice(start, start + step)
            Z = np.asarray(self.X[:, columns], dtype=float)
            Z = Z if self.center is None else Z - self.center[columns]
            K += Z[rows] @ Z.T
        return K

    def gram_squares(self, D: Array) -> Array:
        """Return the sums (B,) of the squared entries of Z' diag(D) Z for D >= 0 of shape (n, B).

        They are D'(K o K)D with the kernel K = ZZ', where that is smaller or d x d is too much.
        """
        if self.d < self.n and self.d <= WRITTEN_UP_TO:
            return (self.gram(D) ** 2).sum(axis=(1, 2))
        total = np.zeros(D.shape[1])
        step = max(1, WRITTEN_UP_TO**2 // self.n)
        for start in range(0, self.n, step):
            rows = slice(start, start + step)
            total += numpy((D[rows] * (self.kernel(rows) ** 2 @ D)).sum(0))
        return total

    def dense(self) -> Array:
        """Return Z itself as a float64 array, for factorisations that need it."""
        X = as_float(as_dense(self.X))
        Z = X if self.center is None else X - beside(self.center, X)
        return Z if self.factor is None else Z @ beside(self.factor, X)

    def _blocks(self, center: bool) -> Iterator[tuple[slice, Array]]:
        step = max(1, (CHUNK if self._away else BLOCK_ENTRIES) // max(1, self.d))
        for start in range(0, self.n, step):
            rows = slice(start, min(start + step, self.n))
            block = as_float(as_dense(self.X[rows]))
            shifted = center and self.center is not None
            yield rows, (block - beside(self.center, block) if shifted else block)


def model_scores(X: Any, coef: Array, intercept: Any) -> Array:
    """Return X coef + b: (n, *b.shape) for coefficients of shape (*b.shape, d)."""
    flat = np.reshape(coef, (-1, X.shape[1])).T
    scores = Design(X).scores(flat).reshape(X.shape[0], *np.shape(intercept))
    return scores + beside(intercept, scores)


def mean(X: Any, weights: Array) -> Array:
    """Return the weighted mean row of X, for weights with sum 1."""
    return Design(X).adjoint(weights)


def column_scale(X: Any, weights: Array) -> Array:
    """Return the weighted standard deviation of every column, 0 for one that is constant."""
    weights = beside(weights, X)
    center = mean(X, weights)
    # a sum of n terms is right to n eps: what is left of a constant column is no deviation
    rounding = X.shape[0] * np.finfo(float).eps
    if sparse.issparse(X):
        rows: Any = X
        square = np.asarray(rows.multiply(rows).T @ weights)
        variance, least = square - center**2, rounding * square
    else:
        design, variance = Design(X, center=center), np.zeros(X.shape[1])
        for part, block in design._blocks(center=True):
            variance += numpy(weights[part] @ block**2)
        least = (rounding * numpy(center)) ** 2
    return np.where(variance > least, np.sqrt(np.maximum(variance, 0.0)), 0.0)


#: Rows up to which wide ones are reduced to their span.
REDUCE_UP_TO = 5_000
#: Entries of Z up to which a wide one is decomposed itself, without its kernel.
DECOMPOSE_UP_TO = 500_000
#: The same for a problem without a penalty.
PLAIN_UP_TO = 50_000_000
#: Rows up to which singular values tell the directions that no row has: problems of more do not
#: start from solutions over other rows, which may go there, and take a triangular factor.
SINGULAR_UP_TO = 150


class Span:
    """The span of the rows of Z as theta = V eta with orthonormal columns of V (d, rank)."""

    def __init__(self, basis: Array) -> None:
        self.basis = basis

    def lift(self, eta: Array) -> Array:
        """Return V eta."""
        return self.basis @ eta

    def drop(self, theta: Array) -> Array:
        """Return V'theta."""
        return self.basis.T @ theta


class KernelSpan(Span):
    """The same with V = Z'W, never formed: W = U/s from the kernel ZZ' = U s^2 U'."""

    def __init__(self, design: Design, W: Array) -> None:
        self.design, self.W = design, W

    def lift(self, eta: Array) -> Array:
        """Return Z'(W eta)."""
        return self.design.adjoint(self.W @ beside(eta, self.W))

    def drop(self, theta: Array) -> Array:
        """Return W'(Z theta)."""
        return numpy(self.W.T @ self.design.scores(theta))


def row_space(design: Design, plain: bool = False) -> tuple[Design, Span]:
    """Return the design with rows Z V and the span V of the rows of Z.

    A minimiser of any function of Z theta and ||theta||_2 lies in that span: theta = V eta, with
    equal norms. Small rows are decomposed themselves, others through their kernel, which leaves
    out directions below the root of the rounding of the longest. A ``plain`` problem, without a
    penalty, may need those and takes the kernel only where the rows would be too many numbers.
    """
    if design.n * design.d > (PLAIN_UP_TO if plain else DECOMPOSE_UP_TO):
        return _kernel_space(design)
    Z = design.dense()
    if design.n > SINGULAR_UP_TO and not plain and isinstance(Z, np.ndarray):
        # Z = R'V' for n <= d rows; the transpose of a copy in the order of its rows is decomposed
        # in place
        V, R = qr(np.array(Z, order="C").T, mode="economic", overwrite_a=True, check_finite=False)
        return Design(np.ascontiguousarray(R.T)), Span(V)
    U, s, Vt = namespace(Z).linalg.svd(Z, full_matrices=False)
    s, Vt = numpy(s), numpy(Vt)
    keep = s > 1e-14 * max(s[0], np.finfo(float).tiny) if len(s) else np.zeros(0, dtype=bool)
    keep[:1] = True
    return Design(U[:, keep] * beside(s[keep], U)), Span(Vt[keep].T)


def _kernel_space(design: Design) -> tuple[Design, Span]:
    K = design.kernel()
    square, U = namespace(K).linalg.eigh(K)
    square = numpy(square)
    noise = design.n * np.finfo(float).eps * max(square[-1], np.finfo(float).tiny)
    keep = square > noise
    keep[-1:] = True
    s = beside(np.sqrt(np.maximum(square[keep], noise)), U)
    Z = U[:, keep] * s
    # eigenvectors come column by column, products read rows
    rows = np.ascontiguousarray(Z) if isinstance(Z, np.ndarray) else Z
    return Design(rows), KernelSpan(design, U[:, keep] / s)


# How far out a row or a number may count: beyond a fence it is taken as lying on the fence.

#: The fence about a centre, in medians of the distance from it.
ROW_FENCE = 6.0
#: The fence about 0, in upper quartiles of the size.
NUMBER_FENCE = 4.0
#: Rounds in which centre and fence settle at most; each takes most of an outlier's pull away.
ROUNDS = 20


def row_shares(X: Any, weights: Array | None = None) -> tuple[Array, Array]:
    r"""Return the centre c and :math:`f_i = \min(1, r/\|x_i - c\|)`, r = 6 medians of the distance.

    The row :math:`c + f_i(x_i - c)` is on or inside the fence of radius r, and
    :math:`c = \sum_i \pi_i f_i x_i / \sum_i \pi_i f_i`: Huber's estimate of the centre.
    """
    n = X.shape[0]
    pi = full(n, 1 / n, X) if weights is None else weights / weights.sum()
    f = full(n, 1.0, X)
    for _ in range(ROUNDS):
        center = Design(X).adjoint(pi * f) / float(pi @ f)
        distance = Design(X, center=center).squared_norms() ** 0.5
        fence = ROW_FENCE * float(weighted_quantile(distance[:, None], pi, 0.5)[0])
        if fence == 0:
            # half of the rows are one row: nothing says what is far
            return center, full(n, 1.0, X)
        before, f = f, fence / namespace(distance).maximum(distance, fence)
        if (before == f).all():
            break
    return center, f


def fenced_rows(X: Any) -> Any:
    """Return the rows, those outside the fence of ``row_shares`` moved onto it.

    Sparse rows are drawn to 0 and not to the centre, so that they stay sparse: they are then no
    farther from the centre than the fence plus the centre's own length.
    """
    center, f = row_shares(X)
    if f.min() == 1:
        return X
    if hasattr(X, "toarray"):
        return sparse.csr_array(X.multiply(f[:, None]))
    center = beside(center, X)
    return center + f[:, None] * (X - center)


def fenced(v: Array, weights: Array) -> Array:
    """Return v (n, m), in each column cut at 4 upper quartiles of the size on either side."""
    fence = NUMBER_FENCE * weighted_quantile(abs(v), weights, 0.75)
    xp = namespace(v)
    # a column of which three quarters are 0 has no scale
    fence = xp.where(fence > 0, fence, np.inf)
    return xp.minimum(xp.maximum(v, -fence), fence)


def column_spreads(X: Array, weights: Array) -> tuple[Array, Array]:
    """Return the standard deviations of the columns, each fenced about its median, and whether
    the column has upper quartiles of its own: one of which three quarters are one number has none.

    Its fence is six medians of the deviations that are not 0, as of an indicator its few ones.
    """
    v = X - weighted_quantile(X, weights, 0.5)
    size = abs(v)
    fence = NUMBER_FENCE * weighted_quantile(size, weights, 0.75)
    has_quartiles = fence > 0
    for j in np.flatnonzero(~has_quartiles):
        away = (size[:, j] > 0) & (weights > 0)
        if away.any():
            fence[j] = ROW_FENCE * weighted_quantile(size[away, j, None], weights[away], 0.5)[0]
    v = np.clip(v, -fence, fence)
    pi = weights / weights.sum()
    return np.sqrt(pi @ (v - pi @ v) ** 2), has_quartiles


def weighted_quantile(v: Array, weights: Array, q: float) -> Array:
    """Return the least value in each column of v (n, m) below which the weights reach q."""
    xp = namespace(v)
    if len(weights) and weights.min() == weights.max():
        last = max(int(np.ceil(q * len(weights) * (1 - 1e-12))) - 1, 0)
        ordered = np.partition(v, last, axis=0) if xp is np else xp.sort(v, axis=0)
        return ordered[last]
    order = xp.argsort(v, axis=0)
    # rounding must not lift the quantile of equal weights by a place
    reached = weights[order].cumsum(0) >= q * weights.sum() * (1 - 1e-12)
    place = xp.take_along_axis(order, xp.argmax(as_float(reached), axis=0)[None], axis=0)
    quantile: Array = xp.take_along_axis(v, place, axis=0)[0]
    return quantile
