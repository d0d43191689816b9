"""Axes that a notebook shows as their picture; imports matplotlib."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib.axes import Axes

DOTS_PER_INCH = 100


class ShownAxes(Axes):
    """Axes whose figure pyplot does not know: a notebook that gets them shows the whole figure."""

    def _repr_png_(self) -> bytes:
        figure: Any = self.get_figure(root=True)
        picture = BytesIO()
        figure.savefig(picture, format="png", dpi=DOTS_PER_INCH)
        return picture.getvalue()
