"""Products of a cause's states with a third client's, against least squares written out."""

import itertools

import numpy as np
import pytest
from scipy import stats

import fedgranger as fg
from fedgranger.errors import InferenceWarning
from fedgranger.inference import joint_products
from fedgranger.inference.infer import infer
from fedgranger.inference.joint_products import joint_parts, joint_refusal, third_client
from fedgranger.inference.nonlinear_test import pair_data
from fedgranger.inference.residual_products import JointPart, product_statistic
from fedgranger.inference.response_words import edge_sentences
from fedgranger.inference.shifts import tabulate
from tests.state_sources import source_of


def data_of(states, dims, own_lags, observed=None):
    source = source_of(states, dims, observed=observed)._replace(own_lags=own_lags)
    return pair_data(tabulate(source))


def lags_of(clients, lags=1):
    return np.full(clients, lags)


def linked(rng, steps, strength):
    """Four clients of one state; the first moves the second as much as the third is there."""
    states = np.zeros((steps, 4))
    for t in range(steps - 1):
        states[t + 1] = 0.5 * states[t] + rng.standard_normal(4)
        states[t + 1, 1] += strength * states[t, 0] * states[t, 2]
    return states


@pytest.mark.parametrize(("effect", "deepest"), [(1, 3), (2, 2)])
def test_parts_are_what_least_squares_leave(effect, deepest):
    rng = np.random.default_rng(0)
    observed = np.ones((250, 3), dtype=np.bool_)
    observed[40, 2] = False
    data = data_of(rng.standard_normal((250, 4)), (2, 1, 1), (1, 3, 2), observed)
    part = joint_parts(data, 0, np.array([0, 2, 1]))[effect]
    s, b, owner = data.states, data.bounded, data.source.owner
    rows = np.array([t for t in range(2, 249) if not t - 2 <= 40 <= t + 1])
    columns, tested = [np.ones(len(rows)), *(s[rows - lag] for lag in range(deepest))], []
    for x in b[rows].T:
        columns += [np.maximum(x - np.quantile(x, q), 0) for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
    for i, j in itertools.combinations_with_replacement(range(4), 2):
        is_tested = {int(owner[i]), int(owner[j])} == {0, 3 - effect}
        (tested if is_tested else columns).append(b[rows, i] * b[rows, j])
        if owner[i] == owner[j]:
            columns += [b[rows - lag, i] * b[rows - lag, j] for lag in range(1, deepest)]
    B, phi = np.column_stack(columns), np.column_stack(tested)
    both = np.column_stack([s[rows + 1][:, owner == effect], phi])
    left = both - B @ np.linalg.lstsq(B, both, rcond=None)[0]
    np.testing.assert_allclose(part.left, left[:, :1], atol=1e-9)
    scale = part.shape.std(axis=0) / left[:, 1:].std(axis=0)
    np.testing.assert_allclose(part.shape, left[:, 1:] * scale, atol=1e-8)
    assert part.third.tolist() == [3 - effect] * 2
    assert part.num_explaining == B.shape[1]


def test_what_is_in_the_span_leaves_nothing_however_slow_the_states_are():
    rng = np.random.default_rng(1)
    slow = np.cumsum(rng.standard_normal((400, 3)), axis=0)
    data = data_of(slow, (1, 1, 1), (1, 1, 1))
    states, b = data.states.copy(), data.bounded[:-1]
    states[1:, 1] = 2 + states[:-1, 0] - b[:, 0] ** 2 + b[:, 1] * b[:, 2]
    part = joint_parts(data._replace(states=states), 0, lags_of(3, 0))[1]
    assert np.abs(part.left).max() < 1e-8 * np.abs(states[:, 1]).max()


def p_value(part):
    return stats.f.sf(*product_statistic(part.left, part.shape, part.num_explaining))


@pytest.mark.parametrize("curve", [lambda x: np.tanh(2 * x), lambda x: np.clip(x, -1, 1), np.abs])
def test_a_third_client_that_acts_by_a_curve_is_not_taken_for_acting_jointly(curve):
    """It moves the cause by its square, so cause times third looks like its cube."""
    rng, p = np.random.default_rng(6), []
    for _ in range(240):
        states = rng.standard_normal((600, 3))
        for t in range(599):
            third = states[t, 2]
            states[t + 1] *= [0.5, 0.5, 0.6]
            states[t + 1] += 0.3 * states[t] + [0.7 * third**2, curve(third), 0.5 * third]
        p.append(p_value(joint_parts(data_of(states, (1, 1, 1), (1, 1, 1)), 0, lags_of(3))[1]))
    assert np.mean(np.array(p) < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 240)


def test_the_level_holds_and_what_acts_jointly_is_found():
    rng, absent, found = np.random.default_rng(2), [], 0
    for _ in range(150):
        data = data_of(linked(rng, 300, 0.3), (1, 1, 1, 1), (1, 1, 1, 1))
        for cause in range(4):
            for effect, part in joint_parts(data, cause, lags_of(4)).items():
                p = p_value(part)
                if effect == 1 and cause in (0, 2):
                    found += p < 0.05
                    assert third_client(part) == 2 - cause or p > 1e-4
                else:
                    absent.append(p < 0.05)
    assert 0.04 < np.mean(absent) < 0.075  # 1500 tests, hardly dependent: the error is 0.006
    assert found > 0.95 * 300


def test_order_of_clients_does_not_matter():
    rng = np.random.default_rng(3)
    states = linked(rng, 200, 0.3)
    order = np.array([2, 0, 3, 1])
    parts = joint_parts(data_of(states, (1,) * 4, (1, 2, 1, 1)), 0, lags_of(4))
    moved = joint_parts(data_of(states[:, order], (1,) * 4, (1, 1, 1, 2)), 1, lags_of(4))
    for effect in (1, 2, 3):
        place = int(np.flatnonzero(order == effect)[0])
        W = [product_statistic(p.left, p.shape)[0] for p in (parts[effect], moved[place])]
        np.testing.assert_allclose(W[0], W[1], rtol=1e-9)


def test_too_many_states_or_too_few_rows_are_refused(monkeypatch):
    rng = np.random.default_rng(4)
    data = data_of(rng.standard_normal((130, 3)), (1, 1, 1), (1, 1, 1))
    assert joint_refusal(data, 0, lags_of(3)) is None
    assert joint_refusal(data, 0, lags_of(3, 3)) == "126 usable rows for 40 columns"
    assert joint_parts(data, 0, lags_of(3, 3)) == {}
    monkeypatch.setattr(joint_products, "MOST_CELLS", 2000)
    assert "rows of 30 columns are more than fit in memory" in joint_refusal(data, 0, lags_of(3))
    monkeypatch.setattr(joint_products, "MOST_PRODUCTS", 5)
    assert "3 states have 6 products of two, more than 5" in joint_refusal(data, 0, lags_of(3))
    two = data_of(rng.standard_normal((60, 2)), (1, 1), (1, 1))
    assert joint_parts(two, 0, lags_of(2)) == {}, "there is no third client"


@pytest.fixture(scope="module")
def ring():
    """Lorenz's ring: all edges act through products of two clients' states."""
    panel, truth = fg.simulate(4, 800, dynamics="lorenz96", sensor_dims=4, seed=3)
    config = fg.RunConfig(test="nonlinear", solver="none", copies=20)
    return panel, truth, config, fg.fit(panel, config)


def test_edges_that_act_through_a_third_client_are_found_and_named(ring):
    _, truth, _, result = ring
    table, facts = result.edges(), result.manifest["inference"]
    found = table.loc[table["is_edge"], ["cause", "effect"]].itertuples(index=False, name=None)
    assert len(set(found) & set(truth.edges)) >= 0.8 * len(truth.edges)
    assert facts["warnings"] == []
    joint = [edge for edge, kinds in facts["kinds_found"].items() if "joint" in kinds]
    assert set(facts["third_clients"]) == set(joint) & set(facts["curves"])
    sentences = edge_sentences(facts, result.manifest["data"])
    assert set(sentences) == set(facts["kinds_found"])
    for edge, third in facts["third_clients"].items():
        cause, effect = edge.split(" -> ")
        assert third not in (cause, effect)
        own = sentences[edge].replace(f"{effect}'s own state and on ", "")
        assert (
            f"of {cause} on {effect}, whose size and direction depend on the state of {third}"
            in own
        )


def test_a_run_says_which_products_were_not_tested(ring, monkeypatch):
    panel, _, config, _ = ring
    monkeypatch.setattr(joint_products, "MOST_PRODUCTS", 5)
    with pytest.warns(InferenceWarning, match="third client's were not tested") as warned:
        facts = fg.fit(panel, config).manifest["inference"]
    assert str(warned[0].message) == facts["warnings"][0]
    names = "client1, client2, client3, client4"
    assert facts["warnings"][0].endswith(
        f"6 states have 21 products of two, more than 5); causes: {names}"
    )
    assert not any("joint" in kinds for kinds in facts["kinds"].values())
    assert facts["third_clients"] == {}


def test_a_run_says_when_copies_are_too_short_for_products_with_third_clients(monkeypatch):
    """Gaps that all clients share are twice as many where one clock is shifted."""
    rng = np.random.default_rng(3)
    states, observed = linked(rng, 1200, 0.0)[:, :3], np.ones((1200, 3), dtype=np.bool_)
    observed[rng.choice(1200, 120, replace=False)] = False
    monkeypatch.setattr(joint_products, "ROWS_PER_COLUMN", 25)
    config = fg.RunConfig(test="nonlinear", solver="none", lags=1, copies=20)
    facts = infer(source_of(states, (1, 1, 1), observed=observed), config).facts
    assert facts["warnings"][-1] == (
        "products of a cause's states with a third client's were not tested (most copies with "
        "shifted clocks have too few usable rows for them); pairs: c0 -> c1, c0 -> c2, c1 -> c0, "
        "c1 -> c2, c2 -> c0, c2 -> c1"
    )
    assert not any("joint" in kinds for kinds in facts["kinds"].values())


def test_the_third_client_is_named_where_states_of_the_effect_depend_on_each_other():
    rng = np.random.default_rng(0)
    shape, third = rng.standard_normal((300, 4)), np.array([1, 1, 2, 2])
    left = shape[:, [3]] + rng.standard_normal((300, 1))
    part = JointPart(left, shape, third, 10)
    assert third_client(part) == third_client(part._replace(left=left @ np.ones((1, 2)))) == 2


def test_products_of_clients_with_the_same_states_are_named_as_not_tested():
    rng = np.random.default_rng(5)
    states = linked(rng, 1000, 0.0)[:, [0, 1, 2, 2]]
    config = fg.RunConfig(test="nonlinear", solver="none", lags=1, copies=20)
    warnings = infer(source_of(states, (1, 1, 1, 1)), config).facts["warnings"]
    (found,) = (line for line in warnings if "third client's" in line)
    assert "(they depend on each other or on what else explains the effect); pairs: " in found
    assert "c0 -> c1" in found
    parts = joint_parts(data_of(states, (1, 1, 1, 1), (1, 1, 1, 1)), 0, lags_of(4))
    assert parts[2].third.tolist() == [1], "c3's states are c2's: no third client"
