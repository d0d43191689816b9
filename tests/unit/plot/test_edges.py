"""Graph, heat map and forest show what the tables of edges and entries say."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

import fedgranger as fg
from fedgranger.errors import ConfigError, RunError
from fedgranger.plot.circle import bend, client_angles
from fedgranger.plot.graph import CONFIDENCE


def arrows(ax):
    return [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]


def client_places(ax):
    (places,) = [line for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata())]
    return np.column_stack(places.get_data())


def arrow_pairs(ax, clients):
    """(cause, effect) of every arrow, by the clients nearest to its ends."""
    places = client_places(ax)
    ends = [arrow._posA_posB for arrow in arrows(ax)]
    nearest = [[np.linalg.norm(places - at, axis=1).argmin() for at in pair] for pair in ends]
    return {(clients[tail], clients[head]) for tail, head in nearest}


@pytest.mark.parametrize(
    ("alpha", "correction"),
    [(1e-4, "bh"), (0.01, "bh"), (0.05, "bh"), (0.9, "bh"), (0.05, "holm"), (0.05, "none")],
)
def test_graph_has_one_arrow_per_supported_edge(result, alpha, correction):
    table = result.edges(alpha=alpha, correction=correction)
    table = table.loc[table["is_edge"].to_numpy(dtype=bool)]
    ax = fg.plot.graph(result, alpha=alpha, correction=correction)
    assert len(arrows(ax)) == len(table)
    assert arrow_pairs(ax, result.clients) == set(zip(table["cause"], table["effect"], strict=True))


def test_graph_levels_differ(result):
    few, many = (len(arrows(fg.plot.graph(result, alpha=alpha))) for alpha in (1e-4, 0.9))
    assert few < many


def test_graph_width_is_strength_and_colour_is_confidence(result):
    table = result.edges(alpha=0.9)
    table = table.loc[table["is_edge"].to_numpy(dtype=bool)].sort_values("strength")
    drawn = arrows(fg.plot.graph(result, alpha=0.9))
    widths = np.array([arrow.get_linewidth() for arrow in drawn])
    strengths = table["strength"].to_numpy()
    is_wide = widths > 1.001 * widths.min()
    np.testing.assert_allclose(
        widths[is_wide] / widths[-1], strengths[is_wide] / strengths[-1], rtol=1e-9
    )
    wanted = [next(c for end, c in CONFIDENCE if q <= end) for q in table["q_value"]]
    assert [to_hex(arrow.get_edgecolor()) for arrow in drawn] == wanted
    assert len(set(wanted)) > 2


def test_graph_without_tests_draws_no_arrow(make_result):
    result = make_result(has_tests=False)
    ax = fg.plot.graph(result)
    assert arrow_pairs(ax, result.clients) == set()
    assert ax.get_title() == "nothing was tested"


def test_a_single_client_has_no_edges(make_result):
    result = make_result(["solo"], has_tests=False, has_uncertainty=False)
    assert arrows(fg.plot.graph(result)) == []
    assert np.isnan(heat_cells(fg.plot.heatmap(result))).all()
    with pytest.raises(RunError, match=r"no pairs of clients"):
        fg.plot.forest(result)


@pytest.mark.parametrize("count", [2, 6, 20, 64])
def test_graph_names_lie_inside_and_apart(make_result, count):
    names = [f"machine-{k}" for k in range(count)]
    ax = fg.plot.graph(make_result(names, has_uncertainty=False), alpha=1e-6)
    figure = ax.get_figure()
    figure.draw_without_rendering()
    assert [text.get_text() for text in ax.texts] == names
    whole = figure.bbox
    for text in ax.texts:
        box = text.get_window_extent()
        assert whole.x0 <= box.x0 <= box.x1 <= whole.x1
        assert whole.y0 <= box.y0 <= box.y1 <= whole.y1
    if count <= 6:
        boxes = [text.get_window_extent() for text in ax.texts]
        assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    assert min(text.get_fontsize() for text in ax.texts) >= 7


def test_graph_long_names_leave_room_for_the_circle(hostile):
    ax = fg.plot.graph(hostile)
    figure = ax.get_figure()
    figure.draw_without_rendering()
    for text in ax.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
    at = ax.transData.transform(client_places(ax))
    assert np.ptp(at[:, 0]) > 0.4 * figure.bbox.width


@pytest.mark.parametrize("count", [2, 6, 20, 64])
def test_both_directions_lie_apart_and_clear_of_other_clients(count):
    """The middles of two opposite curves differ, and no curve comes near a third client."""
    angles = client_angles(count)
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    share = np.linspace(0, 1, 101)[:, None]

    def curve(tail, head, has_opposite):
        p, q = places[tail], places[head]
        turn = bend(tail, head, count, has_opposite=has_opposite)
        control = (p + q) / 2 + turn * np.array([(q - p)[1], -(q - p)[0]])
        return (1 - share) ** 2 * p + 2 * share * (1 - share) * control + share**2 * q

    for head in range(1, count):
        there, back = curve(0, head, True), curve(head, 0, True)
        assert np.linalg.norm(there[50] - back[50]) > 0.06
        for line in (there, back, curve(0, head, False), curve(head, 0, False)):
            others = np.delete(places, [0, head], axis=0)
            if len(others):
                distance = np.linalg.norm(line[:, None] - others, axis=2).min()
                assert distance > 0.04


def heat_cells(ax):
    return np.ma.filled(np.ma.asarray(ax.images[0].get_array(), dtype=float), np.nan)


@pytest.mark.parametrize("value", ["strength", "q_value"])
def test_heatmap_rows_are_effects_and_columns_causes(result, value):
    ax = fg.plot.heatmap(result, value=value)
    cells = heat_cells(ax)
    place = {name: k for k, name in enumerate(result.clients)}
    for row in result.edges().itertuples():
        assert cells[place[row.effect], place[row.cause]] == getattr(row, value)
    assert np.isnan(np.diag(cells)).all()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("cause", "effect")
    assert [text.get_text() for text in ax.get_yticklabels()] == list(result.clients)
    bar = ax.images[0].colorbar
    assert bar is not None
    assert bar.ax.get_ylabel()


@pytest.mark.parametrize(("count", "alpha"), [(6, 0.05), (6, 0.5), (20, 0.05)])
def test_heatmap_marks_exactly_the_supported_edges(make_result, count, alpha):
    result = make_result([f"p{k}" for k in range(count)], has_uncertainty=False)
    ax = fg.plot.heatmap(result, alpha=alpha)
    table = result.edges(alpha=alpha)
    table = table.loc[table["is_edge"].to_numpy(dtype=bool)]
    (marks,) = [c for c in ax.collections if c.get_label() == "_supported"]
    places = [(round(float(y) + 0.1), int(x)) for x, y in marks.get_offsets()]
    names = {(result.clients[n], result.clients[m]) for m, n in places}
    assert names == set(zip(table["cause"], table["effect"], strict=True))
    assert len(places) == len(names)


def test_heatmap_writes_numbers_for_few_clients_only(make_result):
    few, many = (make_result([f"p{k}" for k in range(n)]) for n in (6, 20))
    written = sorted(text.get_text() for text in fg.plot.heatmap(few).texts)
    assert written == sorted(f"{x:.2f}" for x in few.edges()["strength"])
    assert not fg.plot.heatmap(many).texts


def test_heatmap_of_fedgc_has_no_marks(result):
    ax = fg.plot.heatmap(result, estimate="fedgc")
    table = result.edges(estimate="fedgc")
    assert np.nanmax(heat_cells(ax)) == table["strength"].max()
    assert not any(len(c.get_offsets()) for c in ax.collections)


def test_heatmap_crosses_pairs_left_out(make_result):
    pairs = (("plant00", "plant01"), ("plant02", "plant03"))
    result = make_result(couplings=pairs)
    result.inference.edges.loc[2:, "p_value"] = np.nan
    ax = fg.plot.heatmap(result)
    (crosses,) = [c for c in ax.collections if c.get_label() == "_untested"]
    assert len(crosses.get_offsets()) == result.edges()["p_value"].isna().sum() == 28


def forest_intervals(ax):
    segments = np.array(ax.collections[0].get_segments())
    return {int(s[0, 1]): (s[0, 0], s[1, 0]) for s in segments}


def forest_markers(ax, *, is_filled):
    for line in ax.lines:
        if line.get_marker() == "o" and (line.get_markerfacecolor() != "white") == is_filled:
            return dict(zip(line.get_ydata().astype(int), line.get_xdata(), strict=True))
    return {}


@pytest.mark.parametrize("sort", ["certainty", "strength", "clients"])
def test_forest_draws_strength_and_interval(result, sort):
    table = result.edges(sort=sort == "certainty")
    if sort == "strength":
        table = table.sort_values("strength", ascending=False)
    table = table.head(12).reset_index(drop=True)
    ax = fg.plot.forest(result, max_edges=12, sort=sort)
    names = [f"{c} → {e}" for c, e in zip(table["cause"], table["effect"], strict=True)]
    assert [text.get_text() for text in ax.get_yticklabels()] == names
    filled, hollow = (forest_markers(ax, is_filled=flag) for flag in (True, False))
    assert {k for k in filled} == set(np.flatnonzero(table["is_edge"].to_numpy(dtype=bool)))
    drawn = filled | hollow
    assert [drawn[k] for k in range(12)] == list(table["strength"])
    intervals = forest_intervals(ax)
    assert ax.get_xscale() == "linear"
    assert [intervals[k] for k in range(12)] == list(
        zip(table["ci_low"], table["ci_high"], strict=True)
    )


def test_forest_is_logarithmic_when_strengths_differ_much(result):
    table = result.inference.edges
    table.loc[0, ["strength", "ci_low", "ci_high"]] = [1e-3, 0.0, 2e-3]
    ax = fg.plot.forest(result, sort="clients")
    assert ax.get_xscale() == "log"
    border = ax.get_xlim()[0]
    assert 0 < border < 1e-3
    assert forest_intervals(ax)[0] == (border, 2e-3)
    (cut,) = [line for line in ax.lines if line.get_marker() == "<"]
    assert set(cut.get_ydata()) == set(np.flatnonzero(table["ci_low"] == 0))


def test_forest_of_entries(result):
    ax = fg.plot.forest(result, entries=("plant02", "plant04"))
    table = result.entries()
    block = table.loc[(table["cause"] == "plant02") & (table["effect"] == "plant04")]
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "(0, 0)",
        "(0, 1)",
        "(1, 0)",
        "(1, 1)",
    ]
    assert list(forest_intervals(ax).values()) == list(
        zip(block["ci_low"], block["ci_high"], strict=True)
    )
    excludes = (block["ci_low"] > 0) | (block["ci_high"] < 0)
    assert set(forest_markers(ax, is_filled=True)) == set(np.flatnonzero(excludes))
    assert ax.get_title() == "plant02 → plant04"


def test_forest_without_tests_is_refused(make_result):
    with pytest.raises(RunError, match=r"nothing was tested"):
        fg.plot.forest(make_result(has_tests=False), max_edges=5)


@pytest.mark.parametrize("name", ["graph", "heatmap", "forest"])
def test_wrong_levels_are_refused(result, make_result, name):
    draw = getattr(fg.plot, name)
    with pytest.raises(ConfigError, match=r"alpha is 1.5; it must lie between 0 and 1"):
        draw(result, alpha=1.5)
    with pytest.raises(ConfigError, match=r"correction is 'bonf'; choose one of"):
        draw(result, correction="bonf")
    with pytest.raises(RunError, match=r"alpha=0.1 needs tests"):
        draw(make_result(has_tests=False), alpha=0.1)
    with pytest.raises(RunError, match=r"result is str; give what fg.fit"):
        draw("run")


def test_wrong_options_are_refused(result, make_result):
    with pytest.raises(ConfigError, match=r"value is 'q'; choose one of strength, q_value"):
        fg.plot.heatmap(result, value="q")
    with pytest.raises(RunError, match=r"value='q_value' needs tests"):
        fg.plot.heatmap(make_result(has_tests=False), value="q_value")
    with pytest.raises(ConfigError, match=r"max_edges is 0; give a whole number"):
        fg.plot.forest(result, max_edges=0)
    with pytest.raises(ConfigError, match=r"sort is 'size'; choose one of"):
        fg.plot.forest(result, sort="size")
    with pytest.raises(RunError, match=r"no client 'nobody'; the run has plant00"):
        fg.plot.forest(result, entries=("nobody", "plant01"))
    with pytest.raises(RunError, match=r"names 'plant01' twice"):
        fg.plot.forest(result, entries=("plant01", "plant01"))
    with pytest.raises(ConfigError, match=r"entries is 'plant01'; give two names"):
        fg.plot.forest(result, entries="plant01")


def test_graph_fits_small_axes_of_others(make_result):
    figure = Figure(figsize=(3, 3))
    result = make_result([f"p{k}" for k in range(20)], has_uncertainty=False)
    ax = fg.plot.graph(result, alpha=1e-4, ax=figure.subplots())
    figure.draw_without_rendering()
    for text in ax.texts:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
