"""The graph picture: which edges, which direction, nothing outside, nothing unescaped."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from fedgranger.errors import DataError
from fedgranger.report.graph import draw_graph
from fedgranger.report.layout import curve_between, place_clients

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    "quotes \" and ' here",
    "R&D <b>",
    "nul\x00 \x1b end",
]


def make_edges(names, is_edge=None, seed=0):
    rng = np.random.default_rng(seed)
    pairs = [(c, e) for c in names for e in names if c != e]
    return pd.DataFrame(
        {
            "cause": [c for c, _ in pairs],
            "effect": [e for _, e in pairs],
            "strength": rng.uniform(0.01, 1.0, len(pairs)),
            "statistic": np.nan,
            "df": np.nan,
            "p_value": np.nan,
            "q_value": np.nan,
            "is_edge": is_edge if is_edge is not None else [None] * len(pairs),
        }
    )


def plants(count):
    return [f"plant_{index:02d}" for index in range(count)]


def edge_groups(svg):
    return [g for g in ET.fromstring(svg).iter(f"{SVG}g") if g.get("class") == "fg-edge"]


def title_of(group):
    title = group.find(f"{SVG}title")
    assert title is not None
    return title.text


def line_of(group):
    line = group.find(f"{SVG}path")
    assert line is not None
    return line


def line_ends(group):
    """First and last point of the edge's path."""
    start, rest = line_of(group).get("d")[1:].split(" Q")
    return [tuple(map(float, p.split(","))) for p in (start, rest.split(" ")[1])]


def client_centres(svg, names):
    circles = list(ET.fromstring(svg).iter(f"{SVG}circle"))
    assert len(circles) == len(names)
    return {
        name: (float(c.get("cx", "nan")), float(c.get("cy", "nan")))
        for name, c in zip(names, circles, strict=True)
    }


@pytest.mark.parametrize("count", [1, 2, 3, 6, 20, 64])
def test_untested_draws_nothing_unless_the_strongest_are_asked_for(count):
    names = plants(count)
    edges = make_edges(names)
    bare = draw_graph(names, edges)
    assert edge_groups(bare) == []
    assert "(nothing was tested)" in bare
    most = math.ceil(1.5 * count)
    groups = edge_groups(draw_graph(names, edges, max_edges=most))
    expected = edges.nlargest(min(most, len(edges)), "strength")
    texts = {f"{r.cause} → {r.effect}: strength {r.strength:.3f}" for r in expected.itertuples()}
    assert {title_of(g) for g in groups} == texts
    assert len(groups) == len(texts)


def test_max_edges_is_honoured_and_zero_strength_is_no_edge():
    names = plants(5)
    edges = make_edges(names)
    assert len(edge_groups(draw_graph(names, edges, max_edges=3))) == 3
    assert edge_groups(draw_graph(names, edges.assign(strength=0.0), max_edges=3)) == []


@pytest.mark.parametrize("dtype", [object, bool, float, "boolean"])
def test_tested_draws_exactly_the_supported(dtype):
    names = plants(4)
    flags = pd.Series([k % 3 == 0 for k in range(12)], dtype=dtype)
    edges = make_edges(names, flags)
    groups = edge_groups(draw_graph(names, edges, max_edges=1))
    expected = edges[[k % 3 == 0 for k in range(12)]]
    assert {title_of(g).split(":")[0] for g in groups} == {
        f"{r.cause} → {r.effect}" for r in expected.itertuples()
    }


def test_tested_without_any_supported_draws_none():
    names = plants(3)
    svg = draw_graph(names, make_edges(names, [False] * 6))
    assert edge_groups(svg) == []
    assert "No edges are drawn" in svg


@pytest.mark.parametrize("count", [2, 3, 7, 20, 64])
def test_arrow_points_at_effect(count):
    names = plants(count)
    edges = make_edges(names, [True] * (count * (count - 1)))
    svg = draw_graph(names, edges)
    centres = client_centres(svg, names)
    for group in edge_groups(svg):
        cause, effect = title_of(group).split(":")[0].split(" → ")
        start, end = line_ends(group)
        head = group.find(f"{SVG}polygon")
        assert head is not None
        tip, *base = (tuple(map(float, p.split(","))) for p in head.get("points", "").split())
        assert math.dist(start, centres[cause]) < math.dist(start, centres[effect])
        assert math.dist(end, centres[effect]) < math.dist(end, centres[cause])
        assert math.dist(tip, centres[effect]) < min(math.dist(b, centres[effect]) for b in base)


@pytest.mark.parametrize("count", [2, 3, 6, 20, 64])
def test_opposite_edges_lie_apart_and_clear_of_other_clients(count):
    layout = place_clients(plants(count))
    for other in range(1, count):
        there, back = (curve_between(layout, *pair, 2.0) for pair in ((0, other), (other, 0)))
        assert math.dist(bezier(there, 0.5), bezier(back, 0.5)) > 4
        for share in np.linspace(0, 1, 41):
            for third in set(range(count)) - {0, other}:
                gap = math.dist(bezier(there, share), layout.positions[third])
                assert gap > layout.node_radius


def bezier(curve, share):
    weights = (1 - share) ** 2, 2 * share * (1 - share), share**2
    points = (curve.start, curve.control, curve.end)
    return tuple(sum(w * p[k] for w, p in zip(weights, points, strict=True)) for k in (0, 1))


def test_width_is_proportional_to_strength():
    edges = pd.DataFrame(
        {"cause": ["a", "b"], "effect": ["b", "a"], "strength": [0.8, 0.4], "is_edge": True}
    )
    by_title = {title_of(g): g for g in edge_groups(draw_graph(["a", "b"], edges))}
    strong, weak = by_title["a → b: strength 0.800"], by_title["b → a: strength 0.400"]
    ratio = float(line_of(strong).get("stroke-width")) / float(line_of(weak).get("stroke-width"))
    assert ratio == pytest.approx(2)
    assert float(strong.get("opacity", "nan")) > float(weak.get("opacity", "nan"))


@pytest.mark.parametrize("standalone", [True, False])
def test_hostile_names_are_escaped(standalone):
    svg = draw_graph(HOSTILE, make_edges(HOSTILE), standalone=standalone)
    root = ET.fromstring(svg)
    svg.encode("utf-8")
    assert "<script" not in svg
    assert "<b>" not in svg
    prefix = SVG if standalone else ""
    assert not list(root.iter(f"{prefix}script"))
    titles = [t.text for t in root.iter(f"{prefix}title")]
    assert set(HOSTILE[:3]) <= set(titles)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 12, 20, 64])
@pytest.mark.parametrize("letter", ["i", "W", "界"])
@pytest.mark.parametrize("length", [1, 12, 30, 80])
def test_labels_inside_view_and_off_the_clients(count, letter, length):
    names = [f"{index:02d}" + letter * length for index in range(count)]
    root = ET.fromstring(draw_graph(names, make_edges(names)))
    left, top, width, height = map(float, root.get("viewBox", "").split())
    size = float(root.get("font-size", "nan"))
    advance = {"i": 0.28, "W": 0.95, "界": 1.0}[letter] * size
    circles = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(f"{SVG}circle")]
    radius = float(next(root.iter(f"{SVG}circle")).get("r"))
    for text in root.iter(f"{SVG}text"):
        for line in text.iter(f"{SVG}tspan"):
            assert len(line.text) <= 30
            for x, y in line_points(text, line, advance * len(line.text), size):
                assert left <= x <= left + width
                assert top <= y <= top + height
                assert all(math.dist((x, y), centre) > radius for centre in circles)


def line_points(text, line, width, size):
    """Points along the top, middle and bottom of a line of text, turned as the text is."""
    x, y = float(line.get("x")), float(line.get("y"))
    start = x - {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor")]
    turn = text.get("transform", "rotate(0 0 0)")[7:-1].split()
    angle, cx, cy = math.radians(float(turn[0])), float(turn[1]), float(turn[2])
    for px in np.linspace(start, start + width, 9):
        for py in (y - 0.75 * size, y - 0.3 * size, y + 0.2 * size):
            dx, dy = px - cx, py - cy
            yield (
                cx + dx * math.cos(angle) - dy * math.sin(angle),
                cy + dx * math.sin(angle) + dy * math.cos(angle),
            )


def test_long_name_is_cut_in_the_label_and_whole_in_the_title():
    name = "north_wing_pump_house_pressure_sensor_07"
    root = ET.fromstring(draw_graph([name, "b"], make_edges([name, "b"])))
    labels = ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]
    assert labels[0] == "north_wing_pump_hou…_sensor_07"
    assert name in [t.text for t in root.iter(f"{SVG}title")]


def test_standalone_has_name_space_size_style_and_description():
    names = plants(3)
    root = ET.fromstring(draw_graph(names, make_edges(names), max_edges=2))
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert root.get("width")
    assert "prefers-color-scheme: dark" in root.findtext(f"{SVG}style", "")
    assert root.findtext(f"{SVG}title") == root.get("aria-label")
    assert "→" in root.findtext(f"{SVG}desc", "")
    inline = draw_graph(names, make_edges(names), standalone=False)
    assert "xmlns" not in inline
    assert "<style" not in inline


def test_same_input_same_text():
    names = plants(6)
    assert draw_graph(names, make_edges(names)) == draw_graph(names, make_edges(names))


def test_arguments_are_not_changed():
    names, edges = plants(3), make_edges(plants(3))
    before = edges.copy(deep=True)
    draw_graph(names, edges)
    pd.testing.assert_frame_equal(edges, before)


@pytest.mark.parametrize(
    ("clients", "edges", "message"),
    [
        ([], make_edges(["a", "b"]), "no clients"),
        (["a", "a"], make_edges(["a", "b"]), "'a' is given more than once"),
        (["a", "c"], make_edges(["a", "b"], [True, True]), "client 'b', who is not in the list"),
        (["a", "b"], pd.DataFrame({"cause": ["a"]}), "effect, strength missing"),
        (["a", "b"], make_edges(["a", "b"], ["yes", "no"]), "is_edge holds 'yes'"),
    ],
)
def test_errors_say_what_is_wrong(clients, edges, message):
    with pytest.raises(DataError, match=message):
        draw_graph(clients, edges)


def test_negative_max_edges_is_refused():
    with pytest.raises(DataError, match="max_edges is -1"):
        draw_graph(["a", "b"], make_edges(["a", "b"]), max_edges=-1)
