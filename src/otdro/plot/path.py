"""The path: risks and fold scores against delta, with the delta that was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import NDArray

from ..radius.grid import over_classes
from ..radius.profile import theory_delta
from .display import Display
from .drawing import LINES, OTHER, label_axes, legend

Array = NDArray[Any]


@dataclass(eq=False)
class PathDisplay(Display):
    """Empirical and robust risk along ``deltas``, fold scores, the chosen delta and theory's.

    Best made by ``from_estimator``.

    Parameters
    ----------
    deltas : ndarray of shape (m,)
        The radii.
    empirical_risk, robust_risk : ndarray of shape (m,)
        The mean loss and the worst case along them.
    score, score_se : ndarray of shape (m,), default=None
        Fold scores and their standard errors.
    chosen, theory : float, default=None
        Deltas to be marked: the one chosen, and that of the profile.
    score_is_loss : bool, default=True
        Whether the score is the negative loss of held-out rows; it is then drawn, with its sign
        changed, beside the risks. Another score gets an axis of its own.

    Attributes
    ----------
    ax_, figure_, empirical_, robust_, score_, score_band_, chosen_, theory_, score_ax_
        What ``plot`` drew; None for what is not drawn.
    """

    deltas: Array
    empirical_risk: Array
    robust_risk: Array
    score: Array | None = None
    score_se: Array | None = None
    chosen: float | None = None
    theory: float | None = None
    score_is_loss: bool = True

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, theory: bool = True) -> Self:
        """Draw the path of an estimator that chose delta by folds (``delta="cv"``).

        One-vs-rest risks are means over the classes.

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            A fitted estimator.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        theory : bool, default=True
            Whether to mark the delta of the profile theory too, where the loss and the cost have
            one and the training rows are at hand.
        """
        path = path_of(estimator)
        return cls(
            path.deltas,
            over_classes(path.empirical_risk),
            over_classes(path.robust_risk),
            score=path.score_mean,
            score_se=path.score_se,
            chosen=estimator.delta_,
            theory=_theory(estimator) if theory else None,
            score_is_loss=estimator.scoring is None,
        ).plot(ax=ax)

    def _draw(self) -> None:
        """Draw against delta on a logarithmic axis."""
        self.ax_.set_xscale("log")
        style = {"color": LINES[0], "linewidth": 1.8}
        self.robust_ = self.ax_.plot(self.deltas, self.robust_risk, label="robust risk", **style)[0]
        self.empirical_ = self.ax_.plot(
            self.deltas, self.empirical_risk, color=OTHER, linestyle="--", label="empirical risk"
        )[0]
        label_axes(self.ax_, "delta (bound on the mean cost of moves)", "risk")
        self._plot_score()
        self.chosen_ = self._mark(self.chosen, "chosen delta", "-")
        self.theory_ = self._mark(self.theory, "theory's delta", ":")
        shown = [self.robust_, self.empirical_, self.score_, self.chosen_, self.theory_]
        handles = [artist for artist in shown if artist is not None]
        legend(self.ax_, handles=handles)

    def _plot_score(self) -> None:
        self.score_ = self.score_band_ = self.score_ax_ = None
        if self.score is None:
            return
        ax, sign, label = self.ax_, -1, "loss of held-out rows"
        if not self.score_is_loss:
            ax, sign, label = self.ax_.twinx(), 1, "score of held-out rows"
            ax.spines["top"].set_visible(False)
            ax.set_ylabel(label)
            self.score_ax_ = ax
        mean = sign * self.score
        self.score_ = ax.plot(self.deltas, mean, color=LINES[1], linestyle="-.", label=label)[0]
        if self.score_se is not None:
            band = (mean - self.score_se, mean + self.score_se)
            self.score_band_ = ax.fill_between(
                self.deltas, *band, color=LINES[1], alpha=0.15, linewidth=0
            )

    def _mark(self, delta: float | None, label: str, linestyle: str) -> Any:
        if delta is None or delta <= 0:
            return None
        colour = "black" if linestyle == "-" else OTHER
        return self.ax_.axvline(
            delta, color=colour, linewidth=1, linestyle=linestyle, label=label, zorder=0
        )


def path_of(estimator: Any) -> Any:
    """Return the path of a fitted estimator; say how to get one where there is none."""
    path = getattr(estimator, "path_", None)
    if path is None:
        raise ValueError(
            f"{type(estimator).__name__} has no path_: it was fitted with "
            f"delta={estimator.delta!r}. Fit it with delta='cv'."
        )
    return path


def _theory(estimator: Any) -> float | None:
    """Return the delta of the profile theory, None where it has nothing to say."""
    from ..problem import Sample

    problems = getattr(estimator, "_problems", None)
    if problems is None or len(problems) > 1:
        return None
    p = problems[0]
    sample = Sample(p.X, [p.y], p.weights, p.loss, p.fit_intercept)
    try:
        return theory_delta(sample, p.ball.cost, p.ball.order, estimator.confidence)
    except ValueError:
        return None
