"""The debiased estimate: consistency, invariance, lag orders and refusals."""

import numpy as np
import pytest
import scipy.linalg

from fedgranger.errors import InferenceError
from fedgranger.inference.covariance import block_covariance
from fedgranger.inference.estimate import companion, estimate, select_lags
from fedgranger.inference.infer import infer
from tests.configs import formula_config
from tests.state_sources import (
    add_errors,
    random_covs,
    random_transition,
    simulate_states,
    source_of,
)

DIMS = (1, 2, 3)
CHAIN = np.array([[0.7, 0.0, 0.0], [0.4, 0.6, 0.0], [0.0, 0.3, 0.5]])
SECOND = np.array([[0.2, 0.0, 0.0], [-0.3, 0.1, 0.0], [0.0, 0.0, 0.3]])
THIRD = np.array([[0.0, 0.3, 0.0], [0.0, 0.0, 0.0], [0.3, 0.0, -0.2]])


def z_scores(fit, source, truth):
    """(Â − A)/s.e. of every entry, for clients with one state each."""
    cov = block_covariance(source, fit).cov
    lags = fit.lags
    variance = np.einsum("mnkk->mnk", cov)  # (effect, cause, lag)
    se = np.sqrt(np.concatenate([variance[:, :, k] for k in range(lags)], axis=1))
    return (fit.transition - truth) / se


# Consistency -----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_debiased_is_consistent_where_regression_is_not(missing):
    """Error as large as the process noise, correlated process noise; 9 entries, so 5 s.e."""
    rng = np.random.default_rng(7)
    mixing = np.linalg.cholesky(0.5 * np.eye(3) + 0.5)
    states = simulate_states(
        rng, CHAIN, 20_000, noise=lambda generator, shape: generator.normal(size=shape) @ mixing.T
    )
    covs = [np.eye(1)] * 3
    noisy = add_errors(rng, states, covs)
    observed = rng.random(noisy.shape) >= missing
    source = source_of(noisy, (1, 1, 1), covs, observed=observed)
    assert np.abs(z_scores(estimate(source), source, CHAIN)).max() < 5
    naive = source_of(noisy, (1, 1, 1), observed=observed)
    z = np.abs(z_scores(estimate(naive), naive, CHAIN))
    assert (np.diag(z) > 8).all()
    assert z[0, 1] > 5  # the wrong answer to "does 1 drive 0?"


def test_missing_at_random_does_not_move_the_estimate():
    """Difference to the complete-data estimate within 5 s.e. of the incomplete one."""
    rng = np.random.default_rng(8)
    covs = [0.5 * np.eye(1)] * 3
    states = add_errors(rng, simulate_states(rng, CHAIN, 30_000), covs)
    source = source_of(states, (1, 1, 1), covs, observed=rng.random(states.shape) >= 0.3)
    complete = estimate(source_of(states, (1, 1, 1), covs)).transition
    assert np.abs(z_scores(estimate(source), source, complete)).max() < 5


def test_error_covariance_is_taken_off_the_states_moments():
    """Â = Â_naive E[xxᵀ] (E[xxᵀ] − E)⁻¹, from the same data with and without E."""
    rng = np.random.default_rng(9)
    h = simulate_states(rng, CHAIN, 1000)
    source = source_of(h, (1, 1, 1))
    plain = estimate(source)
    inflated = source._replace(error_covs=tuple(1e-3 * np.eye(1) for _ in range(3)))
    fit = estimate(inflated)
    x = h[:-1] - h.mean(axis=0)
    G0 = x.T @ x / 999 - 1e-3 * np.eye(3)
    expected = plain.transition @ (x.T @ x / 999) @ np.linalg.inv(G0)
    np.testing.assert_allclose(fit.transition, expected, rtol=1e-9)
    np.testing.assert_allclose(fit.state_cov, G0, rtol=1e-9)


def test_process_cov_recovers_what_drives_the_states():
    rng = np.random.default_rng(10)
    Q = np.array([[1.0, 0.4, 0.0], [0.4, 2.0, -0.5], [0.0, -0.5, 1.5]])
    chol = np.linalg.cholesky(Q)
    covs = [np.eye(1) * e for e in (0.3, 0.6, 0.9)]
    states = simulate_states(
        rng, CHAIN, 50_000, noise=lambda generator, shape: generator.normal(size=shape) @ chol.T
    )
    fit = estimate(source_of(add_errors(rng, states, covs), (1, 1, 1), covs))
    # s.e. of a variance of 3 (process and error) from 50 000 draws is 0.02
    np.testing.assert_allclose(fit.process_cov, Q, atol=5 * 0.03)
    E = np.diag([0.3, 0.6, 0.9])
    A = fit.transition
    np.testing.assert_allclose(fit.residual_cov, Q + E + A @ E @ A.T, atol=5 * 0.03)


# Lag orders -------------------------------------------------------------------------------------


def test_two_lags_are_recovered_with_measurement_error():
    rng = np.random.default_rng(11)
    truth = np.hstack([0.8 * CHAIN, SECOND])
    covs = [0.3 * np.eye(1)] * 3
    source = source_of(add_errors(rng, simulate_states(rng, truth, 20_000), covs), (1, 1, 1), covs)
    assert np.abs(z_scores(estimate(source, 2), source, truth)).max() < 5
    assert np.abs(z_scores(estimate(source, 1), source, truth[:, :3])).max() > 10


@pytest.mark.parametrize("lags", [1, 2, 3])
def test_select_lags_finds_the_order(lags):
    truth = np.hstack([0.6 * CHAIN, SECOND, THIRD][:lags])
    covs = [0.1 * np.eye(1)] * 3
    for seed in range(6):
        rng = np.random.default_rng(100 + seed)
        source = source_of(
            add_errors(rng, simulate_states(rng, truth, 3000), covs), (1, 1, 1), covs
        )
        assert select_lags(source, 5)[0] == lags


def test_select_lags_is_limited_and_stops_where_data_end():
    rng = np.random.default_rng(12)
    truth = np.hstack([0.6 * CHAIN, SECOND, THIRD])
    states = simulate_states(rng, truth, 3000)
    assert select_lags(source_of(states, (1, 1, 1)), 2)[0] == 2
    short, scores = select_lags(source_of(states[:25], (1, 1, 1)), 50)
    assert short in (1, 2, 3)  # 4 lags need 25 pairs
    assert str(short) == min(scores, key=scores.__getitem__)


def test_companion_roots_vs_determinant():
    """det(λ² I − λ A¹ − A²) = 0 at every eigenvalue of the companion matrix."""
    rng = np.random.default_rng(13)
    A = random_transition(rng, 2, 2, radius=0.9)
    values = np.linalg.eigvals(companion(A))
    assert len(values) == 4
    np.testing.assert_allclose(np.abs(values).max(), 0.9)
    for root in values:
        polynomial = root**2 * np.eye(2) - root * A[:, :2] - A[:, 2:]
        np.testing.assert_allclose(np.linalg.det(polynomial), 0.0, atol=1e-10)
    np.testing.assert_array_equal(companion(A[:, :2]), A[:, :2])


# Invariance -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["complete", "incomplete"])
def ragged(request):
    """States with error, their covariances, the mask."""
    rng = np.random.default_rng(14)
    covs = random_covs(rng, DIMS, 0.05)
    states = add_errors(rng, simulate_states(rng, 0.7 * random_transition(rng, 6), 600), covs)
    share = 0.1 if request.param == "incomplete" else 0.0
    return states + rng.normal(size=6), covs, rng.random((600, 3)) >= share


@pytest.mark.parametrize("lags", [1, 2])
@pytest.mark.parametrize("covariance", ["sandwich", "homoskedastic"])
@pytest.mark.parametrize("kind", ["rotation and shear", "units"])
def test_edges_do_not_depend_on_the_coordinates_of_states(ragged, lags, covariance, kind):
    """Any invertible change of each client's states: same W, k, ν, p; blocks follow."""
    states, covs, observed = ragged
    config = formula_config(lags=lags, covariance=covariance)
    base = infer(source_of(states, DIMS, covs, observed=observed), config)
    rng = np.random.default_rng(15)
    if kind == "units":
        changes = [np.diag(10.0 ** rng.uniform(-4, 4, size=dim)) for dim in DIMS]
    else:
        changes = [rng.normal(size=(dim, dim)) + 2 * np.eye(dim) for dim in DIMS]
    N = scipy.linalg.block_diag(*changes)
    turned = [F @ E @ F.T for F, E in zip(changes, covs, strict=True)]
    other = infer(source_of(states @ N.T, DIMS, turned, observed=observed), config)
    for name in ("statistic", "df", "p_value", "q_value"):
        np.testing.assert_allclose(
            other.edges[name], base.edges[name], rtol=1e-8, atol=1e-8, err_msg=name
        )
    np.testing.assert_allclose(
        other.facts["df_denominator"], base.facts["df_denominator"], rtol=1e-8
    )
    expected = N @ base.transition @ np.kron(np.eye(lags), np.linalg.inv(N))
    np.testing.assert_allclose(other.transition / expected, 1.0, rtol=1e-6)
    if covariance == "sandwich" and kind == "units":  # entry tests are free of units too
        np.testing.assert_allclose(other.p_value, base.p_value, rtol=1e-7, atol=1e-10)


def test_permuting_clients_permutes(ragged):
    states, covs, observed = ragged
    order = [2, 0, 1]
    offsets = np.concatenate([[0], np.cumsum(DIMS)])
    columns = np.concatenate([np.arange(offsets[k], offsets[k + 1]) for k in order])
    config = formula_config(lags=2)
    base = infer(source_of(states, DIMS, covs, observed=observed), config)
    other = infer(
        source_of(
            states[:, columns],
            [DIMS[k] for k in order],
            [covs[k] for k in order],
            observed=observed[:, order],
            names=[f"c{k}" for k in order],
        ),
        config,
    )
    both = np.concatenate([columns, 6 + columns])
    for name in ("transition", "std_error", "p_value"):
        expected = getattr(base, name)[np.ix_(columns, both)]
        np.testing.assert_allclose(getattr(other, name), expected, rtol=1e-8, atol=1e-10)
    merged = base.edges.merge(other.edges, on=["cause", "effect"], suffixes=("", "_other"))
    assert len(merged) == 6
    for name in ("strength", "statistic", "p_value", "q_value"):
        np.testing.assert_allclose(merged[name], merged[f"{name}_other"], rtol=1e-8)


def test_shift_of_the_origin_changes_nothing(ragged):
    states, covs, observed = ragged
    base = infer(source_of(states, DIMS, covs, observed=observed), formula_config())
    other = infer(source_of(states + 50.0, DIMS, covs, observed=observed), formula_config())
    np.testing.assert_allclose(other.transition, base.transition, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(other.edges["p_value"], base.edges["p_value"], rtol=1e-7)


# Refusals ---------------------------------------------------------------------------------------


def refusal(*args, **kwargs):
    with pytest.raises(InferenceError) as caught:
        estimate(*args, **kwargs)
    return str(caught.value)


def white(rows, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def test_too_few_steps():
    assert refusal(source_of(white(25, 6), DIMS), 2) == (
        "23 usable steps for 12 states and lags; more than 24 are needed, so give more data, "
        "fewer states or fewer lags"
    )
    estimate(source_of(white(27, 6), DIMS), 2)  # 25 pairs are enough


def test_no_steps_at_all():
    assert refusal(source_of(white(1, 2), (1, 1))).startswith("0 usable steps for 2 states")


def test_weights_leave_too_few_steps():
    """A half-life of one step is worth three pairs, however long the data are."""
    assert refusal(source_of(white(500, 2), (1, 1), weighting="ewma", span=1)).startswith(
        "3 usable steps for 2 states and lags; more than 4 are needed"
    )


def test_noise_exceeds_signal_names_the_client():
    covs = [0.1 * np.eye(1), np.diag([0.1, 2.0]), 0.1 * np.eye(3)]
    assert refusal(source_of(white(500, 6), DIMS, covs)) == (
        "client 'c1': measurement noise is as large as the signal in 1 of 2 states; "
        "use fewer states for it or better sensors"
    )


def test_noise_that_exceeds_the_signal_at_one_lag_only():
    """One large value that is a past step at lag 1 and not at lag 2."""
    states = white(100, 2)
    states[98] = 100.0
    assert refusal(source_of(states, (1, 1), [2 * np.eye(1)] * 2), 2).startswith(
        "client 'c0': measurement noise is as large as the signal in 1 of 1 states"
    )


def test_noise_and_signal_are_compared_in_the_same_units():
    """A state in small units beside one in large units is no noise."""
    states = white(500, 3) * [1.0, 1e-6, 1e6]
    covs = [0.5 * np.eye(1), np.diag([0.5e-12, 0.5e12])]
    estimate(source_of(states, (1, 2), covs))


def test_collinear_clients_are_both_named():
    states = white(500, 6)
    states[:, 0] = states[:, 4] * 2
    assert refusal(source_of(states, DIMS)) in {
        f"the states of clients '{a}' and '{b}' are linearly dependent (or noise exceeds "
        "their difference); merge the two, use fewer states, or test the states as they are "
        "(noise_correction = false)"
        for a, b in (("c0", "c2"), ("c2", "c0"))
    }


def test_lags_that_repeat_each_other_name_the_client():
    """A sine obeys an exact recursion of order two, so a third lag says nothing new."""
    states = white(400, 2)
    states[:, 0] = np.sin(np.arange(400) * np.pi / 4)
    assert refusal(source_of(states, (1, 1)), 3) == (
        "client 'c0': its states at 3 lags are linearly dependent once measurement noise is "
        "taken out; use fewer lags"
    )


def test_explosive_data_name_the_root():
    states = simulate_states(np.random.default_rng(1), np.diag([1.02, 0.5]), 400, burn_in=0)
    sentence = refusal(source_of(states, (1, 1)))
    assert sentence.startswith("the estimated dynamics have a root of size 1.0")
    assert sentence.endswith(
        "so the data are not stationary; difference them or remove the trend, then fit again"
    )


def test_clients_seldom_seen_one_after_the_other_are_both_named():
    """c1 is seen at 4 steps only when c0 was seen before; each has many samples of its own."""
    states, observed = white(600, 2), np.ones((600, 2), dtype=bool)
    observed[:300, 1], observed[304:, 0] = False, False
    sentence = refusal(source_of(states, (1, 1), observed=observed))
    assert sentence in {
        f"clients '{a}' and '{b}' have too few common samples ({n} weighted pairs); "
        "give data with more overlap"
        for a, b in (("c0", "c1"), ("c1", "c0"))
        for n in (3, 4)
    }


def test_clients_never_seen_together_are_both_named():
    """They follow each other often, but no step has both: E[s_0 s_1ᵀ] is unknown."""
    states, turn = white(600, 2), np.arange(600) // 2 % 2 == 0
    observed = np.column_stack([turn, ~turn])
    assert refusal(source_of(states, (1, 1), observed=observed)) in {
        f"clients '{a}' and '{b}' have too few common samples (0 weighted pairs); "
        "give data with more overlap"
        for a, b in (("c0", "c1"), ("c1", "c0"))
    }


def test_client_without_consecutive_samples_is_named():
    observed = np.ones((600, 2), dtype=bool)
    observed[::2, 1] = False
    assert refusal(source_of(white(600, 2), (1, 1), observed=observed)) == (
        "client 'c1' has too few samples that follow each other (0 weighted pairs); "
        "give data with fewer gaps"
    )


def test_automatic_lags_pass_the_refusal_on():
    with pytest.raises(InferenceError, match="usable steps"):
        select_lags(source_of(white(5, 6), DIMS), 4)
