"""Pictures of a result and of its honesty, with matplotlib (extra `plot`).

Every function draws one plot into `ax` and returns it. Without `ax` it makes a figure of its own,
apart from pyplot: a notebook shows it when it is the last line of a cell (or with `display(ax)`), a
script saves it with `ax.figure.savefig(...)`. Pass `ax=plt.gca()` to see it in a window.
"""

from fedgranger.plot.bands import bands
from fedgranger.plot.calibration import calibration, qq
from fedgranger.plot.forest import forest
from fedgranger.plot.graph import graph
from fedgranger.plot.heatmap import heatmap
from fedgranger.plot.rca import rca
from fedgranger.plot.responses import responses
from fedgranger.plot.trace import trace


def __dir__() -> list[str]:
    """The pictures; what an editor proposes."""
    return sorted(__all__)


__all__ = ["bands", "calibration", "forest", "graph", "heatmap", "qq", "rca", "responses", "trace"]
