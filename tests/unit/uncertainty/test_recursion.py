"""The recursion of mean and covariance: against quadrature, in limits, and its invariants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.uncertainty import quantities as paper
from fedgranger.uncertainty.covariance_update import next_cov, update_terms
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.mean_recursion import initial_mean
from fedgranger.uncertainty.recursion import (
    RowsState,
    advance_and_measure,
    advance_rounds,
    prior_state,
)
from fedgranger.uncertainty.round_terms import RowCov, round_gains
from tests.exact_moments import (
    one_round,
    random_system,
    random_windows,
    row_params_of,
    row_window_of,
    second_moments,
    whole_run,
)

P, D, Q = 2, 2, 4
quantities = jax.jit(paper.quantities)


@jax.jit
def linear_update(params, window, cov):
    """L(Σ): what a round makes of a covariance, without what its noise adds."""
    gain = round_gains(params, window)
    return next_cov(gain, window, cov, update_terms(gain, window, cov))


def dense_data_cov(data_cov):
    """Cov(θ', y) and Cov(Â, y) in full, (p, d, d) and (p, q, d)."""
    theta = data_cov.times(jnp.eye(data_cov.columns.shape[1])).transpose(0, 2, 1)
    return theta, data_cov.granger_factor[:, None, :] * data_cov.causes[None, :, None]


def random_prior(rng, p=P, d=D, q=Q, variance=0.1):
    size = p * (d + q)
    root = rng.normal(size=(size, size))
    return rng.normal(size=size), variance * root @ root.T


def split_prior(mean, cov, p=P, d=D, q=Q, *, full=False):
    n = p * d
    state = initial_mean(
        jnp.asarray(mean[:n].reshape(p, d)), jnp.asarray(mean[n:].reshape(p, q)), full_noise=full
    )
    parts = (cov[:n, :n], (p, d, p, d)), (cov[:n, n:], (p, d, p, q)), (cov[n:, n:], (1, p, q, p, q))
    return state, RowCov(*(jnp.asarray(part.reshape(shape)) for part, shape in parts))


def dense(cov):
    """The covariance of (θ, Â) as one matrix."""
    p, d, _, q = cov.cross.shape
    groups, _, s, _, _ = cov.granger.shape
    granger = np.zeros((p, groups, s, p, groups, s))
    for n in range(groups):
        granger[:, n, :, :, n] = cov.granger[n]
    theta, cross = np.reshape(cov.augmentation, (p * d, -1)), np.reshape(cov.cross, (p * d, -1))
    return np.block([[theta, cross], [cross.T, granger.reshape(p * q, p * q)]])


def flat_mean(state):
    return np.concatenate([np.ravel(state.augmentation), np.ravel(state.granger)])


def run(system, windows, mean, cov, *, full=False):
    """States and covariances after every round."""
    d, p = system["CA"].shape
    params = row_params_of(system)
    state, row_cov = split_prior(mean, cov, p, d, len(system["coupling"]), full=full)
    out = []
    for window in windows:
        state, row_cov = one_round(params, state, row_cov, row_window_of(system, window, full=full))
        out.append((state, row_cov))
    return out


def typical(seed=0, *, rounds=4, window=1, full=False, missing=False, **changes):
    rng = np.random.default_rng(seed)
    system = random_system(rng, P, D, Q, **changes)
    windows = random_windows(rng, P, D, Q, rounds=rounds, window=window, full=full, missing=missing)
    return system, windows, *random_prior(rng)


def silent(windows):
    return [window | {"V": np.zeros_like(window["V"])} for window in windows]


CASES = [  # slow: shapes of their own to compile, the same lines as in those that stay
    pytest.param(W, full, missing, marks=[pytest.mark.slow] if W - full > 1 else [])
    for W in (1, 2, 3)
    for full in (False, True)
    for missing in (False, True)
]


@pytest.mark.parametrize(("W", "full", "missing"), CASES)
def test_recursion_vs_quadrature(W, full, missing):
    """Noise changes from step to step in all cases; ridge acts on both sides."""
    system, windows, mean, cov = typical(1, window=W, full=full, missing=missing)
    exact = second_moments(system, mean, cov, windows)
    size = len(mean)
    for (state, row_cov), (m, S) in zip(
        run(system, windows, mean, cov, full=full), exact, strict=True
    ):
        np.testing.assert_allclose(flat_mean(state), m[:size], atol=1e-10)
        np.testing.assert_allclose(dense(row_cov), S[:size, :size], atol=1e-10)
        np.testing.assert_allclose(state.last_step.measurement, m[size:], atol=1e-10)
        data_cov = [np.reshape(part, (-1, D)) for part in dense_data_cov(state.data_cov)]
        np.testing.assert_allclose(np.concatenate(data_cov), S[:size, size:], atol=1e-10)


@pytest.mark.parametrize(("W", "full"), [(1, False), (1, True), (2, False)])
def test_parameter_cov_vs_quadrature_over_the_whole_run(W, full):
    """Here the noise of all rounds is integrated at once, without the split θ' + D ε y_pᵀ."""
    system, windows, mean, cov = typical(2, rounds=3, window=W, full=full)
    if W == 2:  # fewer nodes; noise is left at a last, a first and the next step
        windows[0]["V"][0] = windows[1]["V"][1] = 0.0
    m, S = whole_run(system, mean, cov, windows)
    state, row_cov = run(system, windows[:-1], mean, cov, full=full)[-1]
    window = row_window_of(system, windows[-1], full=full)
    now = quantities(row_params_of(system), state, row_cov, window)
    found = RowCov(now.augmentation_cov, row_cov.cross, now.granger_cov)
    size = len(mean)
    np.testing.assert_allclose(flat_mean(state), m[:size], atol=1e-10)
    np.testing.assert_allclose(dense(found), S[:size, :size], atol=1e-10)
    assert np.abs(dense(found) - dense(row_cov)).max() > 1e-4


def test_gamma_zero_leaves_granger_as_it_was():
    system, windows, mean, cov = typical(gamma=0.0, ridge_A=0.0)
    start, _ = split_prior(mean, cov)
    n = P * D
    for state, row_cov in run(system, windows, mean, cov):
        np.testing.assert_allclose(state.granger, start.granger, rtol=1e-13)
        np.testing.assert_allclose(dense(row_cov)[n:, n:], cov[n:, n:], rtol=1e-13)
        np.testing.assert_allclose(state.data_cov.granger_factor, 0.0, atol=1e-15)


def test_feedback_zero_makes_augmentation_independent_of_granger():
    system, windows, mean, cov = typical(eta2=0.0)
    n = P * D
    other_mean, other = mean.copy(), cov.copy()
    other_mean[n:], other[n:, n:], other[:n, n:], other[n:, :n] = 7.0, 2 * cov[n:, n:], 0.0, 0.0
    first, second = run(system, windows, mean, cov), run(system, windows, other_mean, other)
    for (a, cov_a), (b, cov_b) in zip(first, second, strict=True):
        np.testing.assert_allclose(a.augmentation, b.augmentation, rtol=1e-12)
        np.testing.assert_allclose(cov_a.augmentation, cov_b.augmentation, rtol=1e-11, atol=1e-13)


def test_no_feedback_and_no_server_step_keep_cross_covariance_zero():
    system, windows, mean, cov = typical(eta2=0.0, gamma=0.0)
    n = P * D
    cov[:n, n:], cov[n:, :n] = 0.0, 0.0
    for _, row_cov in run(system, windows, mean, cov):
        np.testing.assert_allclose(row_cov.cross, 0.0, atol=1e-15)


def test_all_step_sizes_zero_change_nothing():
    system, windows, mean, cov = typical(eta1=0.0, eta2=0.0, gamma=0.0)
    state, row_cov = run(system, windows, mean, cov)[-1]
    np.testing.assert_allclose(flat_mean(state), mean, rtol=1e-14)
    np.testing.assert_allclose(dense(row_cov), cov, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("W", [1, 3])
def test_no_noise_and_no_prior_variance_give_zero(W):
    system, windows, mean, cov = typical(window=W)
    for _, row_cov in run(system, silent(windows), mean, 0 * cov):
        np.testing.assert_allclose(dense(row_cov), 0.0, atol=1e-15)


def round_matrix(system, window):
    """F of Section 2 of the theory, dense, in row-major order: vec(A X B) = (A ⊗ Bᵀ) vec(X)."""
    A, CA, eta1, eta2, gamma = (system[key] for key in ("A", "CA", "eta1", "eta2", "gamma"))
    paired, observed = (window[key].astype(float) for key in ("has_next", "is_observed"))
    is_active = observed.any()
    paired, observed = paired / max(paired.sum(), 1), observed / max(observed.sum(), 1)
    F = np.diag(
        np.repeat(
            [
                1 - 2 * eta1 * system["ridge_theta"] * is_active,
                1 - 2 * gamma * system["ridge_A"] * is_active,
            ],
            [P * D, P * Q],
        )
    )
    for y, g, w1, w2 in zip(window["y"], window["g"], paired, observed, strict=True):
        N = 2 * eta1 * w1 * CA.T @ CA + 2 * eta2 * w2 * A.T @ A
        blocks = [
            [-np.kron(N, np.outer(y, y)), np.kron(2 * eta2 * w2 * A.T, np.outer(y, g))],
            [
                np.kron(2 * gamma * w2 * A, np.outer(g, y)),
                -np.kron(2 * gamma * w2 * np.eye(P), np.outer(g, g)),
            ],
        ]
        F = F + np.block(blocks)
    return F


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("W", [1, 3])
def test_no_noise_covariance_vs_product_of_dense_matrices(W, missing):
    system, windows, mean, cov = typical(window=W, missing=missing)
    expected = cov
    for window, (_, row_cov) in zip(windows, run(system, silent(windows), mean, cov), strict=True):
        F = round_matrix(system, window)
        expected = F @ expected @ F.T
        np.testing.assert_allclose(dense(row_cov), expected, rtol=1e-11, atol=1e-13)


def test_mean_gain_without_noise_is_not_exact():
    """The paper's F(ȳ) in place of E[F]: θ's covariance would shrink too slowly."""
    system, windows, mean, cov = typical(eta1=0.2, rounds=1)
    (_, S), (_, row_cov) = (
        next(second_moments(system, mean, cov, windows)),
        run(system, windows, mean, cov)[-1],
    )
    n = P * D
    F = round_matrix(system, windows[0])
    printed = dense(row_cov)[:n, :n] + (F @ cov @ F.T)[:n, :n]
    V = windows[0]["V"][0]
    N = 2 * 0.2 * system["CA"].T @ system["CA"] + 2 * system["eta2"] * system["A"].T @ system["A"]
    mean_gain = F.copy()
    mean_gain[:n, :n] -= np.kron(N, V)
    printed = printed - (mean_gain @ cov @ mean_gain.T)[:n, :n]
    np.testing.assert_allclose(dense(row_cov)[:n, :n], S[:n, :n], atol=1e-10)
    assert np.linalg.norm(printed - S[:n, :n]) > 0.1 * np.linalg.norm(S[:n, :n])


@pytest.mark.parametrize(
    ("present", "W"),
    # slow: shapes of their own to compile
    [(2, 1), (0, 2), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((2, 2), (0, 1)))],
)
def test_absent_causes_vs_row_without_them(present, W):
    """Columns masked by the coupling stay zero and touch nothing; 0: a client all alone."""
    coupling = (np.arange(Q) < present).astype(float)
    system, windows, mean, cov = typical(coupling=coupling, window=W)
    n = P * D
    keep = np.concatenate([np.ones(n, bool), np.tile(system["coupling"] > 0, P)])
    mean, cov = mean * keep, cov * np.outer(keep, keep)
    smaller = system | {"coupling": np.ones(present)}
    fewer = [window | {"g": window["g"][:, :present]} for window in windows]
    exact = second_moments(system, mean, cov, windows)
    all_rounds = run(system, windows, mean, cov)
    few_rounds = run(smaller, fewer, mean[keep], cov[np.ix_(keep, keep)])
    for (a, cov_a), (b, cov_b), (_, S) in zip(all_rounds, few_rounds, exact, strict=True):
        np.testing.assert_allclose(flat_mean(a)[keep], flat_mean(b), rtol=1e-12)
        np.testing.assert_allclose(
            dense(cov_a)[np.ix_(keep, keep)], dense(cov_b), rtol=1e-11, atol=1e-13
        )
        assert not dense(cov_a)[~keep].any()
        np.testing.assert_allclose(dense(cov_a), S[: len(mean), : len(mean)], atol=1e-10)


@pytest.mark.parametrize("W", [1, 3])
def test_covariance_is_symmetric_and_positive_after_every_round(W):
    system, windows, mean, cov = typical(3, rounds=12, window=W, missing=True)
    for variance in (cov, 0 * cov):
        for _, row_cov in run(system, windows, mean, variance):
            S = dense(row_cov)
            np.testing.assert_allclose(S, S.T, rtol=1e-12, atol=1e-14)
            values = np.linalg.eigvalsh(S)
            assert values[0] >= -1e-12 * values[-1]


@pytest.mark.parametrize("W", [1, 3])
def test_scale_of_all_data_cancels_against_step_sizes(W):
    """Data and states times c, step sizes / c², ridge · c²: θ and Â are what they were."""
    c = 3.0
    system, windows, mean, cov = typical(window=W)
    scaled = system | {key: system[key] / c**2 for key in ("eta1", "eta2", "gamma")}
    scaled |= {key: system[key] * c**2 for key in ("ridge_theta", "ridge_A")}
    larger = [
        window | {key: c * window[key] for key in ("y", "h", "g", "nu")} | {"V": c**2 * window["V"]}
        for window in windows
    ]
    first, second = run(system, windows, mean, cov), run(scaled, larger, mean, cov)
    for (a, cov_a), (b, cov_b) in zip(first, second, strict=True):
        np.testing.assert_allclose(flat_mean(b), flat_mean(a), rtol=1e-10)
        np.testing.assert_allclose(dense(cov_b), dense(cov_a), rtol=1e-9, atol=1e-12)
        for x, z in zip(dense_data_cov(a.data_cov), dense_data_cov(b.data_cov), strict=True):
            np.testing.assert_allclose(z, c * x, rtol=1e-9, atol=1e-12)


def test_units_of_sensors_change_augmentation_only():
    """Sensors in other units, y → c y and C → c C: θ → θ / c with η1 / c⁴ and η2 / c²."""
    c, n = 2.0, P * D
    system, windows, mean, cov = typical()
    scaled = system | {
        "CA": c * system["CA"],
        "eta1": system["eta1"] / c**4,
        "eta2": system["eta2"] / c**2,
        "ridge_theta": system["ridge_theta"] * c**4,
    }
    other = [
        window | {"y": c * window["y"], "nu": c * window["nu"], "V": c**2 * window["V"]}
        for window in windows
    ]
    units = np.concatenate([np.full(n, 1 / c), np.ones(P * Q)])
    first = run(system, windows, mean, cov)
    second = run(scaled, other, units * mean, np.outer(units, units) * cov)
    for (a, cov_a), (b, cov_b) in zip(first, second, strict=True):
        np.testing.assert_allclose(flat_mean(b), units * flat_mean(a), rtol=1e-10)
        np.testing.assert_allclose(
            dense(cov_b), np.outer(units, units) * dense(cov_a), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("W", [1, 3])
def test_permuted_causes_permute_the_blocks(W):
    system, windows, mean, cov = typical(window=W)
    order = np.array([2, 3, 0, 1])
    n = P * D
    index = np.concatenate([np.arange(n), n + (np.arange(P)[:, None] * Q + order).reshape(-1)])
    swapped = [window | {"g": window["g"][:, order]} for window in windows]
    first = run(system, windows, mean, cov)
    second = run(system, swapped, mean[index], cov[np.ix_(index, index)])
    for (a, cov_a), (b, cov_b) in zip(first, second, strict=True):
        np.testing.assert_allclose(flat_mean(b), flat_mean(a)[index], rtol=1e-12)
        np.testing.assert_allclose(
            dense(cov_b), dense(cov_a)[np.ix_(index, index)], rtol=1e-11, atol=1e-13
        )


def test_full_noise_path_vs_diagonal_path():
    system, windows, mean, cov = typical(window=3)
    first, second = run(system, windows, mean, cov), run(system, windows, mean, cov, full=True)
    for (_, a), (_, b) in zip(first, second, strict=True):
        np.testing.assert_allclose(dense(a), dense(b), rtol=1e-11, atol=1e-13)


def two_rows(rounds=4, *, prior=0.3):
    """Two unlike rows, stacked for `advance_rounds`."""
    rng = np.random.default_rng(5)
    systems = [random_system(rng, P, D, Q) for _ in range(2)]
    windows = [random_windows(rng, P, D, Q, rounds=rounds, window=1, full=False) for _ in range(2)]
    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    params = jax.tree.map(stack, *(row_params_of(system) for system in systems))
    by_round = [
        jax.tree.map(
            stack, *(row_window_of(s, w, full=False) for s, w in zip(systems, pair, strict=True))
        )
        for pair in zip(*windows, strict=True)
    ]
    state = prior_state(
        jnp.asarray(rng.normal(size=(2, P, D))),
        jnp.asarray(rng.normal(size=(2, P, Q))),
        jnp.full((2, P, D), prior**2),
        jnp.full((2, P, Q), prior**2),
        groups=1,
    )
    return params, state, jax.tree.map(stack, *by_round)


def part(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


@pytest.mark.slow  # compiles the recursion for shapes that no other test has
def test_rounds_in_two_pieces_vs_single_steps():
    params, state, windows = two_rows(rounds=8)
    end, first = advance_and_measure(params, state, part(windows, slice(0, 4)), 2)
    end, second = advance_and_measure(params, end, part(windows, slice(4, 8)), 2)
    for k in range(2):
        mean, cov = part(state.mean, k), part(state.cov, k)
        for t in range(8):
            own, window = part(params, k), part(windows, (t, k))
            if t % 2 == 0:
                seen = part((first, second)[t // 4], (t % 4 // 2, k))
                sizes = paper.sizes(quantities(own, mean, cov, window), Q // P)
                check_close((seen.total, seen.granger), (sizes, mean.granger))
            mean, cov = one_round(own, mean, cov, window)
        check_close((part(end.mean, k), part(end.cov, k)), (mean, cov))


def check_close(got, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13), got, expected
    )


@pytest.mark.slow  # compiles for shapes of its own
def test_prior_share_vs_difference_of_runs_with_and_without_prior():
    """What is left when it is taken from the total does not depend on the prior's variance."""
    params, state, windows = two_rows()
    nothing = jax.tree.map(jnp.zeros_like, state.cov)
    with_prior = advance_rounds(params, state, windows)
    without = advance_rounds(params, RowsState(state.mean, nothing, nothing), windows)
    for total, share, data in zip(with_prior.cov, with_prior.prior_cov, without.cov, strict=True):
        np.testing.assert_allclose(share, total - data, rtol=1e-9, atol=1e-13)
    assert not any(np.any(leaf) for leaf in without.prior_cov)


def test_prior_state_is_the_same_matrix_at_both_levels():
    """With one cause (two clients) even the arrays are: one group either way."""
    rng = np.random.default_rng(6)
    arrays = [jnp.asarray(np.abs(rng.normal(size=(1, P, n)))) for n in (D, Q, D, Q)]
    joint, blockwise = (part(prior_state(*arrays, groups=n).cov, 0) for n in (1, 2))
    np.testing.assert_allclose(dense(blockwise), dense(joint), rtol=1e-15)
    variances = np.concatenate([np.ravel(arrays[2]), np.ravel(arrays[3])])
    np.testing.assert_allclose(dense(joint), np.diag(variances), rtol=1e-15)


def by_cause(cov):
    """Joint -> blockwise: what lies between the two causes is dropped."""
    half = Q // 2
    blocks = cov.granger[0].reshape(P, 2, half, P, 2, half)
    return cov._replace(granger=jnp.stack([blocks[:, n, :, :, n] for n in range(2)]))


@pytest.mark.slow  # compiles for shapes of its own
def test_blockwise_vs_joint_with_what_lies_between_causes_dropped():
    params, state, windows = two_rows()
    for k in range(2):
        mean, blockwise = part(state.mean, k), by_cause(part(state.cov, k))
        for t in range(4):
            _, embedded = split_prior(flat_mean(mean), dense(blockwise))
            window = part(windows, (t, k))
            _, joint = one_round(part(params, k), mean, embedded, window)
            mean, blockwise = one_round(part(params, k), mean, blockwise, window)
            np.testing.assert_allclose(
                dense(blockwise), dense(by_cause(joint)), rtol=1e-11, atol=1e-13
            )


@pytest.mark.slow  # 160 single rounds, joint and blockwise
def test_blockwise_differs_from_joint_with_two_causes():
    """Unrelated causes, 40 rounds: tr Σ_A is 0.81 and 0.94 of what it should be."""
    params, state, windows = two_rows(rounds=40)
    for k in range(2):
        mean, joint = part(state.mean, k), part(state.cov, k)
        blockwise, n = by_cause(joint), P * D
        for t in range(40):
            window = part(windows, (t, k))
            _, blockwise = one_round(part(params, k), mean, blockwise, window)
            mean, joint = one_round(part(params, k), mean, joint, window)
        ratio = np.trace(dense(blockwise)[n:, n:]) / np.trace(dense(joint)[n:, n:])
        print(f"tr Σ_A blockwise / joint: {ratio:.3f}")
        assert abs(ratio - 1) > 1e-3


def test_means_do_not_depend_on_the_covariance():
    system, windows, mean, cov = typical()
    first, second = run(system, windows, mean, cov), run(system, windows, mean, 9 * cov)
    for (a, _), (b, _) in zip(first, second, strict=True):
        np.testing.assert_allclose(flat_mean(a), flat_mean(b), rtol=1e-14)


def test_update_is_linear_in_the_covariance():
    system, windows, mean, cov = typical(window=3)
    params: RowParams = row_params_of(system)
    window: RowWindow = row_window_of(system, windows[0], full=False)
    _, first = split_prior(mean, cov)
    _, second = split_prior(*random_prior(np.random.default_rng(9)))
    both = jax.tree.map(lambda a, b: 2 * a + b, first, second)
    got = linear_update(params, window, both)
    parts = (linear_update(params, window, each) for each in (first, second))
    expected = jax.tree.map(lambda a, b: 2 * a + b, *parts)
    np.testing.assert_allclose(dense(got), dense(expected), rtol=1e-11, atol=1e-13)
