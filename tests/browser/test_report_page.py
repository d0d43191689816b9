"""The report as a person uses it: open it, change the level, point, toggle, print the numbers."""

import json
import re

import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.inference.answer import count_edges, counts_text
from fedgranger.inference.decision import decide
from fedgranger.report.html import write_report
from tests.fake_runs import full_manifest, made_report, made_tables

NAMES = {
    2: ["north", "south"],
    6: ["boiler", "compressor", "cooling", "reactor", "separator", "turbine"],
    64: [f"server {k:02d} rack {k % 8}" for k in range(64)],
}
HOSTILE = [
    "<script>window.hacked=1</script>",
    "</script><img src=x onerror=window.hacked=1>",
    "\"quoted\" & 'single'",
    "{{ $page }} ${x} `y`",
]
CHOICES = [
    (0.05, "bh"),
    (0.01, "bh"),
    (0.3, "bh"),
    (0.05, "by"),
    (0.001, "holm"),
    (0.1, "none"),
    (1e-9, "none"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, kept = tmp_path_factory.mktemp("reports"), {}

    def make(count):
        if count not in kept:
            kept[count] = made_report(folder, NAMES[count], seed=count)
        return kept[count]

    return make


def supported(table, names):
    rows = table.loc[table["is_edge"].fillna(False).astype(bool)]
    return {
        (names.index(c), names.index(e)) for c, e in zip(rows["cause"], rows["effect"], strict=True)
    }


@pytest.mark.parametrize("count", [2, 6, 64])
def test_edges_appear_exactly_as_the_library_decides(made, open_page, count):
    path, edges, _ = made(count)
    page = open_page(path)
    seen = set()
    assert page.drawn() == supported(edges, NAMES[count])
    for alpha, correction in CHOICES:
        page.choose(alpha=alpha, correction=correction)
        expected = supported(decide(edges, alpha, correction), NAMES[count])
        assert page.drawn() == expected, (alpha, correction)
        framed = page.script(
            "return [...document.querySelectorAll('.fg-cell.is-edge')].map(c => +c.dataset.pair)"
        )
        flags = decide(edges, alpha, correction)["is_edge"].fillna(False).to_numpy(dtype=bool)
        assert sorted(framed) == list(flags.nonzero()[0])
        counts = count_edges(decide(edges, alpha, correction))
        assert text_of(page, "count") == counts_text(counts)
        assert counts.found == len(expected)
        seen.add(len(expected))
    assert len(seen) > 1
    page.script("document.getElementById('reset').click()")
    assert page.drawn() == supported(edges, NAMES[count])
    assert page.messages() == []
    assert page.requests() == []


def test_other_tests_can_be_chosen(made, open_page):
    path, edges, entries = made(6)
    page = open_page(path)
    page.choose(test="entries", correction="none", alpha=0.1)
    smallest = entries.groupby(["cause", "effect"])["p_value"].agg(lambda p: min(1, 4 * p.min()))
    expected = {
        (NAMES[6].index(c), NAMES[6].index(e))
        for (c, e), p in smallest.items()
        if p <= 0.1 and edges.set_index(["cause", "effect"]).loc[(c, e), "p_value"] >= 0
    }
    assert expected
    assert page.drawn() == expected
    page.choose(test="fedgc")
    assert page.drawn() == set()  # a ranking is no graph of influences
    assert page.script("return document.getElementById('alpha').disabled")
    assert text_of(page, "count") == "a ranking, not tested"
    assert "It is not a test" in text_of(page, "chosen-question")
    assert "no arrow is drawn" in text_of(page, "drawn")
    strongest = page.script("return document.querySelector('#pairs tbody tr').textContent")
    assert strongest.endswith("not tested")
    page.script("document.getElementById('reset').click()")
    assert page.drawn() == supported(edges, NAMES[6])
    assert text_of(page, "chosen-question") == ""


def text_of(page, name):
    return page.script("return document.getElementById(arguments[0]).textContent", name)


def test_a_pair_without_a_test_says_why_in_table_matrix_and_tip(made, open_page):
    path, edges, _ = made(6)
    page = open_page(path)
    (place,) = edges.index[edges["p_value"].isna()]
    crossed = page.script(
        "return [...document.querySelectorAll('.fg-cross')].map(c => +c.parentNode.dataset.pair)"
    )
    assert crossed == [place]
    why = "not tested: its test could not be made"
    cell = page.script(
        f"return document.querySelector('.fg-cell[data-pair=\"{place}\"] title').textContent"
    )
    assert cell.endswith(why)
    row = page.script(
        f"return document.querySelector('#pairs tr[data-pair=\"{place}\"]').textContent"
    )
    assert row.endswith(why)
    headline = page.script("return document.querySelector('.headline').textContent")
    for text in (headline, text_of(page, "count")):
        assert "of 29 tested pairs" in text
        assert "1 of 30 pairs was not tested" in text


def test_without_a_test_the_page_draws_nothing_until_the_ranking_is_chosen(tmp_path, open_page):
    edges, _ = made_tables(NAMES[6])
    manifest = full_manifest(NAMES[6])
    manifest["inference"] = {
        "test": "auto",
        "reason": "38 rows for 45 coefficients",
        "warnings": [],
    }
    ranking = edges[["cause", "effect", "strength"]]
    write_report(tmp_path / "r.html", ranking.assign(strength=float("nan")), manifest,
                 pd.DataFrame(), fedgc=ranking)  # fmt: skip
    for size in ((1100, 900), (390, 844)):
        page = open_page(tmp_path / "r.html", size=size)
        first = page.script("return document.querySelector('main p').textContent")
        assert first == "Nothing was tested: 38 rows for 45 coefficients."
        assert page.drawn() == set()
        assert text_of(page, "count") == "nothing was tested"
        assert page.script("return document.querySelectorAll('.fg-cross').length") == 30
        assert "–" in page.script("return document.querySelector('#pairs tbody tr').textContent")
        page.choose(test="fedgc")
        assert page.drawn() == set()
        label = "return document.getElementById('test').selectedOptions[0].textContent"
        assert page.script(label) == "FedGC's ranking, not tested"
        values = page.script(
            "return [...document.querySelectorAll('#pairs tbody td:nth-child(3)')]"
            ".map(c => c.textContent)"
        )
        assert [float(value) for value in values] == sorted(map(float, values), reverse=True)
        assert page.messages() == []


def test_the_other_tests_answer_can_be_chosen(tmp_path, open_page):
    edges, entries = made_tables(NAMES[6])
    other = edges.assign(p_value=edges["p_value"].to_numpy()[::-1])
    manifest = full_manifest(NAMES[6])
    beside = {"test": "readings", "test_reason": "it was asked for", "reasons": {}}
    manifest["inference"] |= {"beside": beside, "test_reason": "the latent model passes"}
    path = tmp_path / "r.html"
    write_report(path, edges, manifest, pd.DataFrame(), entries=entries, beside=other)
    page = open_page(path)
    page.choose(test="readings", alpha=0.2)
    decided = decide(other, 0.2, "bh")
    assert page.drawn() == supported(decided, NAMES[6])
    assert text_of(page, "count") == counts_text(count_edges(decided))
    assert "beyond the effect's own past" in text_of(page, "chosen-question")
    assert "edges_readings.csv" in text_of(page, "question")


def test_the_audit_is_in_the_page(made, open_page):
    page = open_page(made(6)[0])
    text = page.script("return document.getElementById('audit').textContent")
    assert text.startswith("Can these p-values be trusted on this data?")
    assert "where compressor is the effect. Its record is seasonal" in text
    assert page.script("return document.querySelectorAll('#audit .dot').length") == 4
    assert page.script("return document.querySelector('#audit .band').getBBox().height") > 20


def test_a_level_that_is_none_changes_nothing(made, open_page):
    path, edges, _ = made(6)
    page = open_page(path)
    for wrong in ("2", "-1", "0"):
        page.script(
            "const f = document.getElementById('alpha'); f.value = arguments[0];"
            "f.dispatchEvent(new Event('input'))",
            wrong,
        )
        assert page.script("return document.getElementById('alpha').ariaInvalid") == "true"
        assert page.drawn() == supported(edges, NAMES[6])


def test_pointing_shows_the_numbers_of_the_pair(made, open_page):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    path, edges, _ = made(6)
    page = open_page(path)
    row = page.driver.find_element(By.CSS_SELECTOR, "#forest .forest-row")
    pair = edges.iloc[int(row.get_attribute("data-pair"))]
    page.script("arguments[0].scrollIntoView({block: 'center'})", row)
    ActionChains(page.driver).move_to_element(row).perform()
    text = page.driver.find_element(By.ID, "tip").text
    assert f"{pair['cause']} → {pair['effect']}" in text
    assert f"strength {pair['strength']:.3f}" in text
    assert f"interval {pair['ci_low']:.3f} to {pair['ci_high']:.3f}" in text
    q = pair["q_value"]
    assert f"q {q:.3f}" in text if q >= 1e-3 else f"q {q:.2e}" in text
    edge = page.driver.find_element(By.CSS_SELECTOR, "#graph .fg-edge:last-child")
    page.script("arguments[0].focus()", edge)  # by keyboard
    assert page.driver.find_element(By.ID, "tip").is_displayed()
    assert "strength" in edge.get_attribute("aria-label")
    page.script(
        "arguments[0].dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))",
        edge,
    )
    detail = page.driver.find_element(By.ID, "detail")
    assert len(detail.find_elements(By.CSS_SELECTOR, "tbody tr")) == 4


def test_numbers_of_the_page_equal_the_tables(made, open_page):
    path, edges, entries = made(6)
    page = open_page(path)
    rows = page.script(
        "return [...document.querySelectorAll('#pairs tbody tr')]"
        ".map(r => [...r.children].map(c => c.textContent))"
    )
    assert len(rows) == len(edges)
    table = edges.set_index(["cause", "effect"])
    for cause, effect, strength, interval, statistic, df, p, q, flag in rows:
        pair = table.loc[(cause, effect)]
        assert close(strength, pair["strength"])
        if interval == "–":
            assert pair[["ci_low", "p_value"]].isna().all()
            assert (p, q, flag) == ("–", "–", "not tested: its test could not be made")
            assert statistic == "–"
            continue
        low, high = interval.split(" to ")
        assert close(low, pair["ci_low"])
        assert close(high, pair["ci_high"])
        assert close(statistic, pair["statistic"])
        assert int(df) == pair["df"]
        assert close(p, pair["p_value"])
        assert close(q, pair["q_value"])
        assert flag == ("yes" if pair["is_edge"] else "no")
    page.script("document.querySelector('#pairs tbody tr').click()")
    cells = page.script(
        "return [...document.querySelectorAll('#detail tbody tr')]"
        ".map(r => [...r.children].map(c => c.textContent))"
    )
    mine = entries.loc[(entries["cause"] == rows[0][0]) & (entries["effect"] == rows[0][1])]
    assert all(close(cell[2], value) for cell, value in zip(cells, mine["estimate"], strict=True))


def close(text, value):
    """The text is the value to its printed digits."""
    digits = len(re.sub(r"e.*", "", text).partition(".")[2])
    power = int(text.partition("e")[2] or 0)
    return abs(float(text) - value) <= 0.5000001 * 10.0 ** (power - digits)


def test_theme_can_be_toggled_and_follows_the_system(made, open_page):
    path, _, _ = made(6)
    page = open_page(path)
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = page.script(colour)
    page.script("document.getElementById('theme').click()")
    assert page.script(colour) != light
    assert page.script("return document.getElementById('theme').ariaPressed") == "true"
    assert open_page(path, theme="dark").script(colour) != light


def test_hostile_names_stay_text(tmp_path, open_page):
    path, _, _ = made_report(tmp_path, HOSTILE, sensors=HOSTILE)
    page = open_page(path)
    page.choose(alpha=0.999, correction="none")
    page.script("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.script("document.querySelector('#pairs tbody tr').click()")
    assert page.script("return window.hacked ?? null") is None
    assert page.script("return document.querySelectorAll('img').length") == 0
    text = page.script("return document.body.innerText")
    for name in HOSTILE:
        assert name in text
    assert page.messages() == []
    assert page.requests() == []


@pytest.mark.parametrize("count", [2, 6, 64])
def test_page_fits_a_phone_and_a_desk(made, open_page, picture_folder, count):
    path, _, _ = made(count)
    for name, size in {"phone": (390, 844), "desk": (1200, 900)}.items():
        for theme in ("light", "dark"):
            page = open_page(path, size=size, theme=theme)
            page.picture(picture_folder, f"report-{count}-{name}-{theme}")
            over = page.script(
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert over <= 0, (name, theme, over)
            assert page.messages() == []


def test_every_picture_and_control_has_a_name(made, open_page):
    page = open_page(made(6)[0])
    unnamed = page.script(
        """return [...document.querySelectorAll("svg, input, select, button, meter, .fg-edge")]
        .filter(e => !(e.ariaLabel || e.labels?.length || e.textContent.trim()))
        .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    ids = page.script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    targets = page.script(
        "return [...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))"
    )
    assert len(targets) == 14
    assert set(targets) <= set(ids)


@pytest.mark.parametrize(("count", "limit"), [(6, 2e6), (64, 6e6)])
def test_page_stays_small(made, count, limit):
    assert made(count)[0].stat().st_size < limit


def test_page_of_a_real_run_equals_its_files(tmp_path, open_page):
    """A fit from the command line: edges.csv at the run's level, `fedgranger edges` at another."""
    runner, folder = CliRunner(), tmp_path / "run"
    panel, _ = fg.simulate(3, 800, edges=[("client1", "client2")], seed=7)
    panel.write(tmp_path / "data")
    options = ["--state-dim", "2", "--solver", "newton"]
    done = runner.invoke(app, ["fit", str(tmp_path / "data"), "--out", str(folder), *options])
    assert done.exit_code == 0, done.output
    page = open_page(folder / "report.html")
    names = page.script(
        "return JSON.parse(document.getElementById('run-data').textContent).clients"
    )
    table = pd.read_csv(folder / "edges.csv")
    assert page.drawn() == supported(table, names)
    rows = page.script(
        "return [...document.querySelectorAll('#pairs tbody tr')]"
        ".map(r => [...r.children].map(c => c.textContent))"
    )
    at = table.set_index(["cause", "effect"])
    for cause, effect, strength, *_, p, q, _flag in rows:
        assert close(strength, at.loc[(cause, effect), "strength"])
        for text, column in ((p, "p_value"), (q, "q_value")):
            if text != "<1e-99":
                assert close(text, at.loc[(cause, effect), column])
    click = "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    page.script(click, page.script("return document.querySelector('#graph .fg-edge')"))
    drawn = page.script(
        "return [...document.querySelectorAll('#detail svg')].map(e => [e.dataset.chart, "
        "e.querySelectorAll('polyline').length])"
    )
    assert drawn == [["course-0", 1], ["movement-0", 2]]  # a response; cause and effect
    detail = page.script("return document.getElementById('detail').textContent")
    assert all(f"{name}, sensors behind it" in detail for name in ("client1", "client2"))
    is_open = "return document.getElementById('author').open"
    assert not page.script(is_open)
    page.script("location.hash = '#training'; window.dispatchEvent(new Event('hashchange'))")
    assert page.script(is_open)
    page.choose(alpha=0.9, correction="none")
    words = ["edges", str(folder), "--json", "--alpha", "0.9", "--correction", "none"]
    edges = json.loads(runner.invoke(app, words).output)
    expected = {(names.index(e["cause"]), names.index(e["effect"])) for e in edges if e["is_edge"]}
    assert page.drawn() == expected
    assert len(expected) > 1
