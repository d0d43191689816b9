"""Every manifest has the keys and types that are declared, whatever made the run."""

import copy
import json
import warnings
from dataclasses import field

import pytest

import fedgranger as fg
from fedgranger.federation.outcome import to_result
from fedgranger.manifest_types import InferenceFacts, Manifest, SeasonFacts
from fedgranger.typed_facts import Facts, check_types
from tests import ragged_run
from tests.federation.loopback_run import Federation
from tests.typed import mismatches

OPTIONS = {
    "auto": {"test": "auto", "copies": 20},
    "readings": {"test": "readings", "copies": 20, "solver": "none"},
    "asymptotic": {"test": "asymptotic"},
    "uncertainty": {"test": "debiased", **ragged_run.OPTIONS},
}


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(3, 400, seed=1)[0]


@pytest.mark.parametrize("name", OPTIONS)
def test_runs_in_one_process(panel, name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        used = ragged_run.ragged_panel() if name == "uncertainty" else panel
        fg.fit(used, fg.RunConfig(**OPTIONS[name])).save(tmp_path)
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert mismatches(written, Manifest) == []
    assert {"test", "alpha", "correction", "lags"} <= set(written["inference"])


def test_runs_that_cannot_be_tested(panel):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fg.fit(panel, fg.RunConfig(test="none", passes=2, solver="sgd"))
    facts = result.manifest["inference"]
    assert result.inference is None
    assert set(facts) <= {"test", "reason", "warnings"}


def test_a_wrong_key_and_a_wrong_type_are_seen():
    assert mismatches({"warnigns": []}, InferenceFacts)[0] == "manifest.warnigns: not declared"
    found = mismatches({"periods": ["a"]}, SeasonFacts)
    assert found == ["manifest.periods[]: 'a' is no <class 'int'>"]
    assert mismatches({}, SeasonFacts) == ["manifest.periods: absent"]


class Part(Facts):
    steps: int
    notes: list[str] = field(default_factory=list)
    reason: str | None = None


class Whole(Part):
    part: Part
    named: dict[str, Part] = field(default_factory=dict)
    other: Part | None = None


def test_keys_are_attributes_and_parts_have_their_types():
    whole = Whole.of({"steps": 1, "part": {"steps": 2}, "named": {"a": {"steps": 3}}, "more": 4})
    assert (whole.steps, whole.part.steps, whole.named["a"].steps, whole["more"]) == (1, 2, 3, 4)
    assert (whole.reason, whole.other, whole.part.notes) == (None, None, [])
    whole.part.notes += ["kept"]
    whole.reason = "x"
    assert json.loads(json.dumps(whole)) == {
        "steps": 1,
        "part": {"steps": 2, "notes": ["kept"]},
        "named": {"a": {"steps": 3}},
        "more": 4,
        "reason": "x",
    }
    assert type(copy.deepcopy(whole).part) is Part
    with pytest.raises(AttributeError, match="Part has no 'setps'"):
        _ = whole.part.setps
    with pytest.raises(AttributeError, match="Part declares no 'setps'"):
        whole.part.setps = 1
    with pytest.raises(AttributeError):
        Whole.of({"part": 5})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"part": {"steps": 1}}, "its record.steps is absent"),
        ({"steps": 1, "part": {}}, "its record.part.steps is absent"),
        ({"steps": "1", "part": {"steps": 1}}, "its record.steps is a str, not a whole number"),
        ({"steps": True, "part": {"steps": 1}}, "its record.steps is a bool, not a whole number"),
        ({"steps": 1, "part": {"steps": 1, "notes": [None]}}, "part.notes is None, not a text"),
        ({"steps": 1, "part": {"steps": 1, "notes": "ab"}}, "part.notes is a str, not a list"),
        ({"steps": 1, "part": {"steps": 1}, "reason": 5}, "its record.reason is an int, not"),
        ({"steps": 1, "part": {"steps": 1}, "named": {"a": {}}}, "record.named.a.steps is absent"),
    ],
)
def test_a_changed_value_is_refused_with_its_name(values, sentence):
    with pytest.raises(TypeError, match=sentence):
        check_types(Whole.of(values), Whole, "its record")


def test_runs_between_parties(panel, tmp_path):
    config = fg.RunConfig(test="readings", copies=20, solver="none")
    federation = Federation(panel, tmp_path / "parties", config)
    found = federation.run()
    result = to_result(federation.server, found, "loopback", 1.0, ())
    assert mismatches(json.loads(json.dumps(result.manifest)), Manifest) == []
