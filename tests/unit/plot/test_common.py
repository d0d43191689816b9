"""What holds for every plot: axes, pyplot, names, matplotlib that is missing, the gallery."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text

import fedgranger as fg
from fedgranger.errors import ConfigError
from fedgranger.manifest_types import Manifest
from fedgranger_research.studies.drawing import draw_calibration

P = np.linspace(0.01, 0.99, 30)
DOCS = Path(__file__).parents[3] / "docs"


def rca(result, **options):
    count = len(result.clients)
    table = {"client": result.clients, "score": 1.0, "probability": np.full(count, 1 / count)}
    return fg.plot.rca(pd.DataFrame(table), **options)


def bands(result, **options):
    parts = [result.edges().assign(start=f"step {k}", end=f"step {k + 9}") for k in (0, 5, 10)]
    found = result.inference._replace(over_time=pd.concat(parts, ignore_index=True))
    return fg.plot.bands(replace(result, inference=found), **options)


def responses(result, **options):
    pairs = list(result.edges()[["cause", "effect"]].itertuples(index=False, name=None))[:3]
    curve = {"value": [0.0, 1.0, 0.5], "low": [0.0, 0.5, 0.0], "high": [0.0, 1.5, 1.0]}
    sensors = {"cause_sensor": "P [bar]", "effect_sensor": "V [mm/s]"}
    facts = {
        "responses": dict.fromkeys((f"{cause} -> {effect}" for cause, effect in pairs), curve),
        "sensor_responses": {f"{pairs[0][0]} -> {pairs[0][1]}": curve | sensors},
    }
    return fg.plot.responses(replace(result, manifest=Manifest.of({"inference": facts})), **options)


DRAW = {
    "bands": bands,
    "graph": fg.plot.graph,
    "heatmap": fg.plot.heatmap,
    "heatmap-q": lambda result, **o: fg.plot.heatmap(result, value="q_value", **o),
    "forest": fg.plot.forest,
    "entries": lambda result, **o: fg.plot.forest(result, entries=result.clients[:2], **o),
    "trace": lambda result, **o: fg.plot.trace(result, client=result.clients[0], **o),
    "covariance": lambda result, **o: fg.plot.trace(
        result, quantity="granger_cov", client=result.clients[0], **o
    ),
    "qq": lambda result, **o: fg.plot.qq(P, distribution="uniform", **o),
    "calibration": lambda result, **o: fg.plot.calibration(dict.fromkeys(result.clients, P), **o),
    "rca": rca,
    "responses": responses,
}
every_plot = pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)


def test_every_function_is_drawn_here():
    assert set(fg.plot.__all__) <= set(DRAW)


@every_plot
def test_returns_axes_of_a_figure_unknown_to_pyplot(draw, result):
    settings = dict(plt.rcParams)
    tables = result.edges().copy(), result.trace.copy(), result.uncertainty.table.copy()
    ax = draw(result)
    assert isinstance(ax, Axes)
    assert hasattr(ax, "_repr_png_")
    assert plt.get_fignums() == []
    assert dict(plt.rcParams) == settings
    after = result.edges(), result.trace, result.uncertainty.table
    for old, new in zip(tables, after, strict=True):
        pd.testing.assert_frame_equal(old, new)


def test_a_notebook_shows_the_picture(result):
    """By the method that IPython asks an object for, and by IPython where it is installed."""
    png = fg.plot.graph(result)._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 5000
    assert plt.get_fignums() == []


def test_ipython_finds_the_picture(result):
    formatters = pytest.importorskip("IPython.core.formatters", reason="IPython is not installed")
    shown, _ = formatters.DisplayFormatter().format(fg.plot.graph(result))
    assert shown["image/png"].startswith(b"\x89PNG")


@every_plot
def test_draws_into_given_axes(draw, result):
    figure, (left, right) = plt.subplots(1, 2)
    try:
        assert draw(result, ax=right) is right
        assert [*right.lines, *right.patches, *right.images] != []
        assert [*left.lines, *left.patches, *left.images] == []
        assert right.get_figure() is figure
        assert plt.get_fignums() == [figure.number]
    finally:
        plt.close(figure)


@every_plot
def test_hostile_names_are_written_as_they_are(draw, hostile, tmp_path):
    """Warnings are errors here: a formula that cannot be read or a missing glyph would raise."""
    ax = draw(hostile)
    ax.figure.savefig(tmp_path / "plot.png", dpi=50)
    shown = [t for t in ax.get_figure().findobj(Text) if "$x_{1}$" in t.get_text()]
    if draw not in (DRAW["qq"],):
        assert shown
    assert not any(t.get_parse_math() for t in shown)


@every_plot
def test_other_things_than_axes_are_refused(draw, result):
    with pytest.raises(ConfigError, match=r"ax is str; give matplotlib Axes"):
        draw(result, ax="axes")


@every_plot
def test_missing_matplotlib_says_what_to_install(draw, result, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"drawing needs matplotlib; install it with: pip"):
        draw(result)


def test_importing_fedgranger_does_not_import_matplotlib():
    code = "import sys, fedgranger as fg; fg.plot.graph; print('matplotlib' in sys.modules)"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert outcome.stdout.strip() == "False", outcome.stderr


def test_study_picture_is_built_on_these_plots(tmp_path):
    rng = np.random.default_rng(0)
    null_p = {"base $T$": rng.uniform(size=100), "other": np.append(rng.uniform(size=50), np.nan)}
    coverage = {"base $T$": (0.95, 0.01), "other": (0.93, 0.02)}
    draw_calibration(tmp_path / "calibration.svg", null_p, coverage)
    assert (tmp_path / "calibration.svg").stat().st_size > 10_000
    assert plt.get_fignums() == []


def test_gallery_shows_every_function():
    text = (DOCS / "gallery.md").read_text()
    blocks = dict(re.findall(r"```python ([\w-]+)\n(.*?)```", text, flags=re.DOTALL))
    for name in fg.plot.__all__:
        assert f"fg.plot.{name}(" in blocks[name]
    for name in blocks.keys() - {"setup"}:
        path = DOCS / "images" / f"gallery-{name}.png"
        assert f"images/{path.name}" in text
        assert path.stat().st_size < 120_000


def test_all_edges_that_were_asked_for_are_drawn(make_result):
    """There are more edges than colours; a colour then comes again."""
    edges = 12
    ax = bands(make_result("abcd"), max_edges=edges)
    assert len([line for line in ax.lines if " → " in line.get_label()]) == edges
    assert ax.get_title() == ""
    assert bands(make_result("abcd"), max_edges=8).get_title() == "the 8 most certain of 12 edges"
