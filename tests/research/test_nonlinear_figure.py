"""The nonlinear figure: what is computed, and the text of its numbers."""

import pandas as pd

from fedgranger_research.reproduction.nonlinear_figure import NO_HAI, nonlinear_item
from fedgranger_research.reproduction.nonlinear_regime import NeuralRegime


def tables(settings):
    """Made outcomes: two rounds, one link and one other pair, or links only on Lorenz's ring."""
    for setting in settings:
        other = 1 if setting.record == "lorenz96" else 0
        rows = [(r, "a", "b", 1.0 / (1 + r) * setting.noise_var, 0.7, 1) for r in (0, 6)] + [
            (r, "b", "a", 0.5, 0.1, other) for r in (0, 6)
        ]
        columns = ["round", "client", "cause", "trace", "strength", "is_edge"]
        yield pd.DataFrame(rows, columns=columns)


def test_numbers_and_sentences():
    item = nonlinear_item()
    settings = item.settings()
    assert len(settings) == 3 * 6
    text = item.markdown(item.collect(list(tables(settings))))
    assert "| lotka-volterra | 0.51 → 0.501 | 0.6 → 0.514 | 1.5 → 0.643 |" in text
    assert "| nonlinear-var | 0.7 | 0.1 |" in text
    assert "| lorenz96 | 0.1 | every pair is a link |" in text
    assert NO_HAI in text


def test_hai_is_one_more_record_where_it_is(tmp_path):
    assert "hai" not in [one.record for one in nonlinear_item(tmp_path).settings()]
    (tmp_path / "hai").mkdir()
    (tmp_path / "hai" / "train1.csv").write_text("time\n")
    settings = nonlinear_item(tmp_path).settings(quick=True)
    assert {one.record for one in settings} == {"hai", "nonlinear-var"}
    assert settings[0].key()["files"][0][0] == "train1.csv"
    assert "files" not in settings[-1].key()


def test_a_simulated_record_has_known_links():
    panel, links = NeuralRegime("lorenz96", num_steps=200).panel()
    assert len(panel) == 4
    assert len(links) == 12
