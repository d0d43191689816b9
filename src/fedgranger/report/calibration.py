"""Picture of a calibration study (matplotlib, extra `plot`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedgranger.errors import ConfigError

__all__ = ["draw_calibration"]

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#888888"


def draw_calibration(
    path: Path, null_p: Mapping[str, np.ndarray], coverage: Mapping[str, tuple[float, float]]
) -> None:
    """Histogram and QQ plot of null p-values per setting, and coverage with its error.

    Args:
        path: file to write (svg, png or pdf by its ending).
        null_p: p-values of edges that do not exist, per setting.
        coverage: mean and Monte Carlo standard error, per setting.
    """
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise ConfigError(
            "drawing needs matplotlib; install it with: pip install 'fedgranger[plot]'"
        ) from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    num = len(null_p)
    figure, axes = plt.subplots(
        num + 1, 2, figsize=(8, 2.4 * num + 0.5 * num + 1.6), squeeze=False, layout="constrained"
    )
    for (name, p), (left, right) in zip(null_p.items(), axes, strict=False):
        p = np.sort(p[~np.isnan(p)])
        left.hist(p, bins=20, range=(0, 1), density=True, color=BLUE, alpha=0.8)
        left.axhline(1, color=ORANGE, lw=1.5)
        left.set(xlabel="p", ylabel="density")
        left.set_title(f"{name}: p of absent edges", fontsize=10)
        expected = (np.arange(len(p)) + 0.5) / len(p)
        right.plot(-np.log10(expected), -np.log10(p), ".", ms=3, color=BLUE)
        limit = -np.log10(expected[0])
        right.plot([0, limit], [0, limit], color=ORANGE, lw=1.5)
        right.set(xlabel="expected −log10 p", ylabel="observed −log10 p")
        right.set_title("against the uniform", fontsize=10)
    gridspec = axes[-1, 0].get_gridspec()
    for axis in axes[-1]:
        axis.remove()
    last = figure.add_subplot(gridspec[-1, :])
    names = list(coverage)
    means = np.array([coverage[name][0] for name in names])
    errors = np.array([coverage[name][1] for name in names])
    last.axvline(0.95, color=ORANGE, lw=1.5)
    last.errorbar(means, range(len(names)), xerr=1.96 * errors, fmt="o", color=BLUE, capsize=3)
    last.set_yticks(range(len(names)), names)
    last.set_title("coverage of 95 % intervals, with its Monte Carlo error", fontsize=10)
    last.set(xlabel="coverage", ylim=(len(names) - 0.5, -0.5))
    last.grid(axis="x", color=GREY, alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
