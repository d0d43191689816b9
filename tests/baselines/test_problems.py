"""Data for comparing methods: what is known about them is true."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.errors import ConfigError
from fedgranger_research.baselines.problems import Scenario, draw_problem
from fedgranger_research.baselines.recorded_problems import problem_of_control, read_problem

SHORT = {"num_steps": 300}


def test_the_papers_setting():
    problem = draw_problem(Scenario(), 0)
    assert problem.columns.dims == (2,) * 6
    assert [part.shape for part in problem.columns.series] == [(2000, 2)] * 6
    assert problem.is_true.shape == (12, 12)
    assert problem.is_true.sum() == 60
    assert problem.is_client_true.sum() - 6 == 9
    assert problem.columns.starts.sum() == 1


def test_known_models_have_the_coordinates_of_the_simulation():
    problem = draw_problem(Scenario(**SHORT, models="known"), 3)
    _, truth = fg.simulate(6, 300, edges=9, seed=3)
    names = problem.columns.names
    for name, own in zip(names, problem.own_transitions, strict=True):
        np.testing.assert_allclose(own, truth.block(name, name), atol=1e-10)
    true = {(names[n], names[m]) for m, n in np.argwhere(problem.is_client_true) if m != n}
    assert true == set(truth.edges)


def test_own_transitions_keep_their_eigenvalues_in_other_coordinates():
    known, found = (draw_problem(Scenario(**SHORT, models=m), 1) for m in ("known", "identified"))
    for one, other in zip(known.own_transitions, found.own_transitions, strict=True):
        values = [np.sort_complex(np.linalg.eigvals(A)) for A in (one, other)]
        np.testing.assert_allclose(*values, atol=1e-8)


def test_seeds_repeat_and_differ():
    one, same, other = (draw_problem(Scenario(**SHORT), seed).columns for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.series[0], same.series[0])
    assert np.abs(one.series[0] - other.series[0]).max() > 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"strength": 0.25},
        {"strength": 4.0},
        {"latent_driver": True},
        {"response": "tanh"},
        {"response": "cosine"},
        {"process_correlation": 0.5},
        {"student_df": 4.0},
        {"edge_share": 0.0},
        {"num_clients": 3, "sensor_dim": 4},
    ],
)
def test_every_variation_can_be_drawn(options):
    scenario = Scenario(**SHORT, **options)
    problem = draw_problem(scenario, 0)
    M = scenario.num_clients
    assert len(problem.columns.names) == M
    assert problem.is_client_true.sum() - M == round(scenario.edge_share * M * (M - 1))
    assert all(np.isfinite(part).all() for part in problem.columns.series)
    assert set(scenario.differences) == {"num_steps", *options}


def test_steps_that_somebody_misses_are_left_out():
    problem = draw_problem(Scenario(num_steps=2000, missing_share=0.05), 0)
    kept = len(problem.columns.starts)
    assert kept == pytest.approx(2000 * 0.95**6, rel=0.05)
    assert problem.columns.starts.sum() > 100


def test_a_cosine_leaves_no_correlation_with_the_cause():
    """φ is even and h symmetric, so Cov(h, φ(h)) = 0."""
    rng = np.random.default_rng(0)
    h = rng.normal(size=200_000)
    assert abs(np.cov(h, np.sqrt(2) * np.cos(h))[0, 1]) < 4 / np.sqrt(len(h))


def test_wrong_scenarios_are_refused():
    with pytest.raises(ConfigError, match="response is 'cubic'; choose one of linear, tanh"):
        Scenario(response="cubic")
    with pytest.raises(ConfigError, match="leave student_df and missing_share out"):
        draw_problem(Scenario(**SHORT, response="tanh", student_df=4.0), 0)


def test_a_folder_with_its_truth(tmp_path):
    panel, truth = fg.simulate(3, 300, edges=[("client1", "client2")], seed=1)
    for client in panel:
        header = ",".join(client.sensors)
        np.savetxt(tmp_path / f"{client.name}.csv", client.values, "%.12g", ",", header=header,
                   comments="")  # fmt: skip
    problem, is_known = read_problem(tmp_path)
    assert not is_known
    truth.write(tmp_path / "truth.json")
    problem, is_known = read_problem(tmp_path)
    assert is_known
    assert problem.is_client_true.sum() - 3 == 1
    assert problem.is_client_true[1, 0]


def test_only_known_pairs_of_a_control_count():
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(200, 3)) for name in "abc"}
    problem = problem_of_control(arrays, {("a", "b"), ("b", "a")}, {("c", "a")})
    assert problem.is_known.sum() == 3
    assert problem.is_client_true[0, 2]
