"""What all pictures on one Axes share."""

from __future__ import annotations

from typing import Any, Self

from .drawing import axes_or_new


class Display:
    """A picture: its data are attributes, and so is what ``plot`` draws."""

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw the picture.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self
        """
        self.ax_ = axes_or_new(ax)
        self.figure_ = self.ax_.figure
        self._draw()
        return self

    def _draw(self) -> None:
        raise NotImplementedError
