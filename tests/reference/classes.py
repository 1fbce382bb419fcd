"""Softmax, label prices and target prices as cone programs for cvxpy and Clarabel."""

import warnings

import cvxpy as cp
import numpy as np

DUAL = {1: "inf", 1.5: 3, 2: 2, np.inf: 1}


def least(objective, constraints=()):
    """Return the least value."""
    problem = cp.Problem(cp.Minimize(objective), list(constraints))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value)


def softmax(X, y, K, p, delta, weights=None):
    """Return the least mean cross-entropy plus delta times the largest pair norm."""
    n, d = X.shape
    weights = np.full(n, 1 / n) if weights is None else weights
    B, b = cp.Variable((d, K)), cp.Variable((1, K))
    Z = X @ B + np.ones((n, 1)) @ b
    own = cp.sum(cp.multiply(np.eye(K)[y], Z), axis=1)
    pairs = [(k, j) for k in range(K) for j in range(k)]
    t = cp.Variable()
    bound = [cp.norm(B[:, k] - B[:, j], DUAL[p]) <= t for k, j in pairs]
    mean = weights @ (cp.log_sum_exp(Z, axis=1) - own)
    return least(mean + delta * t, [*bound, cp.sum(b) == 0])


def label_price(X, y, loss, order, p, kappa, delta):
    """Return min lam delta + mean max(psi(m), psi(-m) - lam kappa); logistic at order 1 only."""
    n, d = X.shape
    beta, b, lam, e = cp.Variable(d), cp.Variable(), cp.Variable(pos=True), cp.Variable(n)
    m, w = cp.multiply(y, X @ beta + b), cp.norm(beta, DUAL[p])
    price = lam * kappa
    if order == 1:
        plain = cp.logistic if loss == "logistic" else lambda v: cp.pos(1 + v)
        rows = [lam >= w, e >= plain(-m), e >= plain(m) - price]
    elif loss == "hinge":
        q = cp.Variable()
        rows = [cp.quad_over_lin(w, lam) <= q, e >= 0, e >= 1 - m + q / 4]
        rows.append(e >= 1 + m + q / 4 - price)
    else:
        h = cp.Variable()
        rows = [cp.quad_over_lin(w, lam) <= h, h <= 1]
        for i in range(n):
            rows.append(e[i] >= cp.quad_over_lin(cp.pos(1 - m[i]), 1 - h))
            rows.append(e[i] >= cp.quad_over_lin(cp.pos(1 + m[i]), 1 - h) - price)
    return least(lam * delta + cp.sum(e) / n, rows)


def target_price(X, y, loss, order, p, kappa, delta):
    """Return the least worst-case risk where targets move at the price kappa."""
    n, d = X.shape
    beta, b = cp.Variable(d), cp.Variable()
    e, w = y - X @ beta - b, cp.norm(beta, DUAL[p])
    both = cp.hstack([w, kappa**-0.5])
    name = type(loss).__name__
    if name == "Squared":
        return least(cp.norm(e, 2) / np.sqrt(n) + np.sqrt(delta) * cp.norm(both, 2)) ** 2
    if order == 2 and name == "Absolute":
        return least(cp.sum(cp.abs(e)) / n + np.sqrt(delta) * cp.norm(both, 2))
    if order == 1:
        return least(_mean_loss(loss, e, n) + delta * loss.lipschitz * cp.maximum(w, 1 / kappa))
    if name == "Quantile":
        s, q, tau = cp.Variable(pos=True), cp.Variable(), loss.tau
        mean = _mean_loss(loss, e + (2 * tau - 1) * s, n)
        return least(delta * q / 4 + tau * (1 - tau) * s + mean, [cp.quad_over_lin(both, s) <= q])
    # Huber: phi = min over u of u^2/(2g) + M |e - u| + M^2 h/2, q = g - h = 1 - w^2/(2 lam)
    lam, nu, u = cp.Variable(pos=True), cp.Variable(), cp.Variable(n)
    g, h, t = cp.Variable(pos=True), cp.Variable(pos=True), cp.Variable(n)
    rows = [cp.quad_over_lin(both, lam) <= 2 * nu, g - h == 1 - nu]
    rows += [t[i] >= cp.quad_over_lin(u[i], g) for i in range(n)]
    mean = cp.sum(t / 2 + loss.M * cp.abs(e - u)) / n
    return least(lam * delta + mean + loss.M**2 * h / 2, rows)


def _mean_loss(loss, e, n):
    name = type(loss).__name__
    if name == "Absolute":
        return cp.sum(cp.abs(e)) / n
    if name == "Huber":
        return cp.sum(cp.huber(e, loss.M)) / (2 * n)
    return cp.sum(cp.maximum(loss.tau * e, (loss.tau - 1) * e)) / n
