"""The report page: true numbers, nothing from outside, nothing unescaped."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
import pytest

import fedgranger.report
from fedgranger.errors import DataError, RunError
from fedgranger.report.html import _templates, render_report, write_report
from fedgranger.text import printable
from tests.fake_runs import made_manifest, made_trace, pairs_of, table_of

HOSTILE = ["<script>alert(1)</script>", "quotes \" and ' here", "R&D <img src=x>"]
EMPTY_TRACE = made_trace([])


class Page(HTMLParser):
    """Collects tags, table rows and all text of a page."""

    def __init__(self, text):
        super().__init__()
        self.is_cell = False
        self.tags, self.rows, self.texts, self.attributes = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        self.is_cell = tag in ("td", "th")
        if self.is_cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.is_cell = False

    def handle_data(self, data):
        self.texts.append(data)
        if self.is_cell:
            self.rows[-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def make_edges(names, tested=False, seed=0):
    rng = np.random.default_rng(seed)
    size = len(pairs_of(names))
    p_values = np.sort(rng.uniform(0, 1, size)) ** 4
    tests = {
        "ci_low": rng.uniform(0.0, 0.01, size),
        "ci_high": rng.uniform(1.0, 1.2, size),
        "statistic": rng.uniform(0, 90, size),
        "df": 4,
        "p_value": p_values,
        "q_value": np.minimum(1, 2 * p_values),
        "is_edge": 2 * p_values < 0.05,
    }
    tests = tests if tested else dict.fromkeys(tests)
    return table_of(names, strength=rng.uniform(0.01, 1.0, size), **tests)


def make_manifest(names):
    facts = {"num_sensors": 3, "state_dim": 2, "state_model": "subspace", "missing_share": 0.0123}
    sizes = {"up_per_step": 48, "down_per_step": 32, "bytes_up": 9_600_000, "bytes_down": 6400}
    manifest = made_manifest(
        names,
        facts,
        created="2026-01-02",
        command=["fedgranger", "fit", "my data.csv"],
        seed=7,
        data={"num_steps": 500, "notes": ["two <gaps>"]},
        training={
            "window": 20,
            "passes": 12,
            "rounds": 120,
            "status": "pass limit",
            "criterion": "loss change < 1e-4",
            "converged": False,
            "step_sizes": {n: {"local": 0.01, "feedback": 0.003, "server": 5e-4} for n in names},
            "step_size_reason": "largest stable",
            "seconds": 1.23,
        },
        bytes=dict.fromkeys(names, sizes),
        inference={"warnings": ["states <nearly> collinear"]},
        config={"window": 20, "standardise": True},
    )
    for name, found in manifest["data"]["clients"].items():
        found["notes"] = [f"note of {name}"]
    return manifest


def table_after(page, first_heading):
    """Rows of the table whose heading row starts with the given words."""
    start = next(k for k, row in enumerate(page.rows) if row[: len(first_heading)] == first_heading)
    width = len(page.rows[start])
    rows = []
    for row in page.rows[start + 1 :]:
        if len(row) != width or row[0] in ("client", "cause"):
            break
        rows.append(row)
    return page.rows[start], rows


def test_untested_headline_and_table_equal_the_data():
    names = ["a", "b", "c"]
    edges = make_edges(names)
    manifest = make_manifest(names)
    manifest["inference"] |= {"reason": "too few <rows>"}
    text = render_report(edges, manifest, made_trace(names))
    page = Page(text)
    assert text.index("Nothing was tested: too few &lt;rows&gt;.") < text.index("<nav")
    heading, rows = table_after(page, ["cause", "effect"])
    assert heading[:3] == ["cause", "effect", "strength"]
    assert [row[:2] for row in rows] == edges[["cause", "effect"]].to_numpy().tolist()
    assert {cell for row in rows for cell in row[2:8]} == {"–"}
    assert {row[8] for row in rows} == {"not tested: the reason is at the top"}
    assert "Nothing was tested, so no arrow is drawn." in page.text
    tests = json.loads(re.search(r'id="run-data">(.*?)</script>', text, flags=re.DOTALL)[1])[
        "tests"
    ]
    assert [test["id"] for test in tests] == ["none", "fedgc"]
    assert tests[1]["label"] == "FedGC's ranking, not tested"
    assert tests[1]["strength"] == edges["strength"].tolist()
    assert set(tests[0]["strength"]) == {None}


def test_a_pair_that_was_not_tested_is_counted_and_has_its_reason():
    names = ["a", "b", "c"]
    edges = make_edges(names, tested=True)
    edges["is_edge"] = edges["is_edge"].astype("boolean")
    edges.loc[2, ["p_value", "q_value", "ci_low", "ci_high", "is_edge"]] = [*[np.nan] * 4, pd.NA]
    manifest = make_manifest(names)
    pair = f"{edges['cause'][2]} -> {edges['effect'][2]}"
    manifest["inference"] |= {"correction": "bh", "reasons": {pair: "<collinear>"}}
    page = Page(render_report(edges, manifest, EMPTY_TRACE))
    found = int(edges["is_edge"].sum())
    assert re.search(
        rf"{found} of 5 tested pairs (is an edge|are edges) \(false discovery rate 0\.05\), "
        r"1 of 6 pairs was not tested\.",
        page.text,
    )
    _, rows = table_after(page, ["cause", "effect"])
    cells = {(row[0], row[1]): row[8] for row in rows}
    assert cells[edges["cause"][2], edges["effect"][2]] == "not tested: <collinear>"


def test_tested_headline_and_table_equal_the_data():
    names = ["a", "b", "c", "d"]
    edges = make_edges(names, tested=True)
    page = Page(render_report(edges, make_manifest(names), EMPTY_TRACE))
    count = int(edges["is_edge"].sum())
    assert 1 < count < 12
    assert f"{count} of 12 tested pairs are edges (level 0.05)." in page.text
    heading, rows = table_after(page, ["cause", "effect"])
    assert heading[2:] == ["strength", "interval", "statistic", "df", "p-value", "q-value", "edge"]
    expected = edges.sort_values(["is_edge", "strength"], ascending=False)
    for row, r in zip(rows, expected.itertuples(), strict=True):
        assert row[:2] == [r.cause, r.effect]
        numbers = [r.strength, r.ci_low, r.ci_high, r.statistic, r.df, r.p_value, r.q_value]
        printed = [float(cell) for cell in (row[2], *row[3].split(" to "), *row[4:8])]
        np.testing.assert_allclose(printed, numbers, rtol=5e-3, atol=5e-4)
        assert row[5] == "4"
        assert row[8] == ("yes" if r.is_edge else "no")


def test_tested_without_a_level_does_not_invent_one():
    text = Page(render_report(make_edges(["a", "b"], tested=True), {}, EMPTY_TRACE)).text
    assert re.search(r"[012] of 2 tested pairs (is an edge|are edges)\.", text)


def test_long_table_is_cut_with_a_note():
    names = [f"p{k}" for k in range(9)]
    page = Page(render_report(make_edges(names), {}, EMPTY_TRACE))
    assert "The first 60 of 72 pairs; edges.csv has all" in page.text
    assert len(table_after(page, ["cause", "effect"])[1]) == 60
    short = render_report(make_edges(names[:8]), {}, EMPTY_TRACE)
    assert "The first 60" not in short
    assert len(table_after(Page(short), ["cause", "effect"])[1]) == 56


@pytest.mark.parametrize("tested", [False, True])
def test_hostile_text_is_escaped(tested):
    manifest = make_manifest(HOSTILE)
    manifest["config"]["<script>"] = "</style><script>alert(2)</script>"
    manifest["command"] = "<script>alert(3)</script>"
    text = render_report(make_edges(HOSTILE, tested), manifest, made_trace(HOSTILE))
    page = Page(text)
    assert page.tags.count("script") == 3  # theme, data, code
    data = re.search(r'id="run-data">(.*?)</script>', text, flags=re.DOTALL)[1]
    assert json.loads(data)["clients"] == [printable(name) for name in HOSTILE]
    assert "<" not in data
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.tags.count("style") == 1
    assert HOSTILE[0] in page.text
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ET.fromstring(svg)


def test_page_needs_nothing_from_outside():
    names = ["a", "b"]
    text = render_report(make_edges(names), make_manifest(names), made_trace(names))
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert not {"img", "iframe", "object", "embed"} & set(Page(text).tags)
    places = [value for name, value in Page(text).attributes if name in ("src", "href")]
    assert places
    assert all(place.startswith(("#", "data:")) for place in places)
    assert "default-src 'none'" in text


def test_facts_are_in_the_page():
    names = ["a", "b"]
    page = Page(render_report(make_edges(names), make_manifest(names), made_trace(names)))
    for fact in (
        "fedgranger fit 'my data.csv'",
        "two <gaps>",
        "note of b",
        "loss change < 1e-4",
        "largest stable",
        "training stopped before it converged (pass limit)",
    ):
        assert fact in page.text
    heading, rows = table_after(page, ["client", "sent per step"])
    assert heading[3:] == ["sent in total", "received in total"]
    assert rows == [[name, "48 B", "32 B", "9.6 MB", "6.4 kB"] for name in names]
    assert ["a", "0.01", "0.003", "0.0005"] in page.rows
    assert ["a", "3", "2", "subspace", "1.2 %", "note of a"] in page.rows


def test_absent_facts_are_skipped():
    full = make_manifest(["a", "b"])
    for key in full:
        rest = {k: v for k, v in full.items() if k != key}
        assert "None" not in render_report(make_edges(["a", "b"]), rest, EMPTY_TRACE)
    text = render_report(make_edges(["a", "b"]), {}, EMPTY_TRACE)
    assert "Facts of the run" not in text
    assert "What left each client" not in text
    assert "Training" not in text


@pytest.mark.parametrize("trace", [EMPTY_TRACE, pd.DataFrame()])
def test_empty_everything_is_a_page(trace):
    edges = pd.DataFrame(columns=make_edges(["a", "b"]).columns)
    text = render_report(edges, {}, trace)
    assert "Nothing was tested: no test was asked for" in text
    assert text.endswith("</html>\n")
    assert "<svg" not in text


def test_same_input_same_text():
    names = ["a", "b", "c"]
    args = (make_edges(names), make_manifest(names), made_trace(names))
    assert render_report(*args) == render_report(*args)


def test_write_report_replaces_in_one_move(tmp_path):
    path = tmp_path / "run" / "report.html"
    names = ["ä", "b"]
    args = (make_edges(names), make_manifest(names), made_trace(names))
    write_report(path, *args)
    path.write_text("old")
    write_report(path, *args)
    assert path.read_text(encoding="utf-8") == render_report(*args)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_write_report_failure_says_so_and_leaves_nothing(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(RunError, match="cannot be written"):
        write_report(tmp_path / "report.html", make_edges(["a", "b"]), {}, EMPTY_TRACE)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_text_that_no_file_can_hold_is_mended():
    edges = make_edges(["<a b='\x00'>&", "b"])
    text = render_report(edges, {"command": "\ud800<"}, EMPTY_TRACE)
    text.encode("utf-8")
    assert "&lt;a b=&#39;\ufffd&#39;&gt;&amp;" in text
    assert "\ufffd&lt;" in text
    assert "\x00" not in text


@pytest.mark.parametrize("dtype", [object, bool, float, "boolean"])
def test_decisions_of_any_kind_are_understood(dtype):
    names, flags = ["a", "b", "c", "d"], [k % 3 == 0 for k in range(12)]
    edges = make_edges(names, tested=True).assign(is_edge=pd.Series(flags, dtype=dtype))
    page = Page(render_report(edges, {}, EMPTY_TRACE))
    _, rows = table_after(page, ["cause", "effect"])
    found = {(row[0], row[1]) for row in rows if row[8] == "yes"}
    assert found == {(r.cause, r.effect) for r in edges[flags].itertuples()}
    assert "4 of 12 tested pairs are edges." in page.text


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (pd.DataFrame({"cause": ["a"]}), "effect, strength missing"),
        (make_edges(["a", "b"]).assign(is_edge=["yes", "no"]), "is_edge holds 'yes'"),
    ],
)
def test_errors_say_what_is_wrong(edges, message):
    with pytest.raises(DataError, match=message):
        render_report(edges, {}, EMPTY_TRACE)


def test_arguments_are_not_changed():
    edges, trace = make_edges(["a", "b", "c"]), made_trace(["a", "b", "c"])
    before = edges.copy(deep=True), trace.copy(deep=True)
    render_report(edges, make_manifest(["a", "b", "c"]), trace)
    pd.testing.assert_frame_equal(edges, before[0])
    pd.testing.assert_frame_equal(trace, before[1])


def test_a_name_that_a_template_does_not_know_is_refused():
    with pytest.raises(jinja2.UndefinedError):
        _templates().from_string("{{ page.nothing }}").render(page=())


def test_no_markup_in_the_code():
    folder = Path(fedgranger.report.__file__).parent
    for path in folder.glob("*.py"):
        assert not re.search(r"</?[a-z][a-z0-9]*[ >]", path.read_text()), path.name
