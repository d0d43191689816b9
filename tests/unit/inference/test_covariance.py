"""The sandwich, against a dense computation, derivatives and known limits."""

import numpy as np
import pytest
import scipy.linalg

from fedgranger.errors import ConfigError
from fedgranger.inference.covariance import (
    block_covariance,
    hac_weights,
    homoskedastic,
)
from fedgranger.inference.estimate import estimate
from fedgranger.inference.influence import influence
from fedgranger.inference.products import lag_products
from fedgranger.inference.states import lagged_pairs
from fedgranger.inference.wald import wald_tests
from tests.state_sources import (
    add_errors,
    random_covs,
    random_transition,
    simulate_states,
    source_of,
)

DIMS = (1, 2, 3)
P = 6
OFFSETS = np.concatenate([[0], np.cumsum(DIMS)])
BLOCKS = [(m, n) for m in range(3) for n in range(3)]


@pytest.fixture(scope="module")
def data():
    """States with error, their error covariances, a mask with a quarter missing."""
    rng = np.random.default_rng(5)
    covs = random_covs(rng, DIMS, 0.1)
    transition = random_transition(rng, P, radius=0.7)
    states = add_errors(rng, simulate_states(rng, transition, 250), covs)
    return states, covs, rng.random((250, 3)) > 0.25


def places(effect, cause, lags):
    """Rows and columns of a block of [A¹ … Aᴸ]."""
    rows, own = (np.arange(OFFSETS[k], OFFSETS[k + 1]) for k in (effect, cause))
    return rows, np.concatenate([k * P + own for k in range(lags)])


def dense_covariance(states, covs, lags, weights, starts=(0,)):
    """Cov(vec Â) with vec by columns, as in docs: n⁻¹ (G0⁻¹ ⊗ I) S (G0⁻¹ ⊗ I)."""
    s = states - states.mean(axis=0)
    times = [
        t
        for t in range(lags - 1, len(s) - 1)
        if not any(t + 1 - lags < start <= t + 1 for start in starts)
    ]
    segment = np.searchsorted(starts, times, side="right")
    y = s[[t + 1 for t in times]]
    x = np.array([np.concatenate([s[t - k] for k in range(lags)]) for t in times])
    n, E = len(x), scipy.linalg.block_diag(*(list(covs) * lags))
    G0 = x.T @ x / n - E
    A = np.linalg.solve(G0, x.T @ y / n).T
    psi = []
    for x_t, y_t in zip(x, y, strict=True):
        leverage = x_t @ np.linalg.solve(x.T @ x, x_t)
        score = np.outer(y_t - A @ x_t, x_t) + A @ E
        psi.append(score.reshape(-1, order="F") / (1 - min(leverage, 0.5)))
    psi = np.array(psi)
    S = psi.T @ psi / n
    for k, weight in enumerate(weights, start=1):
        joined = np.array(
            [times[i] - times[i - k] == k and segment[i] == segment[i - k] for i in range(k, n)]
        )
        gamma = (psi[k:] * joined[:, None]).T @ psi[:-k] / n
        S += weight * (gamma + gamma.T)
    bread = np.kron(np.linalg.inv(G0), np.eye(P))
    return A, bread @ S @ bread / n


@pytest.mark.parametrize("lags", [1, 2])
@pytest.mark.parametrize("rule", ["model", "newey-west"])
@pytest.mark.parametrize("starts", [(0,), (0, 90, 92)], ids=["one segment", "three segments"])
def test_blocks_vs_dense_sandwich(data, lags, rule, starts):
    states, covs, _ = data
    source = source_of(states, DIMS, covs, starts=starts)
    fit = estimate(source, lags)
    found = block_covariance(source, fit, rule=rule)
    weights = np.ones(lags) if rule == "model" else 1 - np.arange(1, 5) / 5
    A, dense = dense_covariance(states, covs, lags, weights, starts)
    np.testing.assert_allclose(fit.transition, A, rtol=1e-9, atol=1e-11)
    assert not found.fell_back.any()
    assert found.hac_lag == len(weights)
    for effect, cause in BLOCKS:
        rows, columns = places(effect, cause, lags)
        where = [P * j + i for i in rows for j in columns]  # by columns -> by rows of the block
        np.testing.assert_allclose(
            found.block(effect, cause),
            dense[np.ix_(where, where)],
            rtol=1e-8,
            atol=1e-13,
        )


@pytest.mark.parametrize("weighting", ["none", "ewma"])
@pytest.mark.parametrize("lags", [1, 2])
def test_general_path_vs_complete_path(data, lags, weighting):
    """The formula for gaps, on data without any, is the short formula."""
    states, covs, _ = data
    source = source_of(states, DIMS, covs, weighting=weighting, span=90)
    fit = estimate(source, lags)
    general = fit._replace(moments=fit.moments._replace(is_complete=False))
    ours, theirs = (block_covariance(source, each) for each in (general, fit))
    np.testing.assert_allclose(ours.cov, theirs.cov, rtol=1e-8, atol=1e-13)
    np.testing.assert_allclose(ours.df, theirs.df, rtol=1e-8)


def all_pairs(source, fit):
    (pairs,) = lagged_pairs(source, fit.lags, fit.moments.mean)
    return pairs, source.weights(pairs.step) / (fit.moments.total_weight / fit.moments.num_pairs)


def without_leverage(source, fit, pairs, weight):
    """φ with the finite-sample factor taken out again."""
    x = pairs.before
    spread = np.linalg.inv(fit.moments.before_cov)
    leverage = np.einsum("ti,ij,tj->t", x, spread, x) * weight / fit.moments.num_pairs
    phi = influence(source, fit, pairs, weight)
    return phi * (1 - np.minimum(leverage, 0.5))[:, None, None]


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "incomplete"])
@pytest.mark.parametrize("weighting", ["none", "ewma"])
@pytest.mark.parametrize("lags", [1, 2])
def test_estimating_equation_holds(data, missing, weighting, lags):
    """Â is where the influence function has mean zero."""
    states, covs, observed = data
    gaps = observed if missing else None
    source = source_of(states, DIMS, covs, observed=gaps, weighting=weighting, span=90)
    fit = estimate(source, lags)
    phi = without_leverage(source, fit, *all_pairs(source, fit))
    assert np.abs(phi).max() > 0.1
    np.testing.assert_allclose(phi.mean(axis=0), 0.0, atol=1e-10)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "incomplete"])
@pytest.mark.parametrize("weighting", ["none", "ewma"])
@pytest.mark.parametrize("lags", [1, 2])
def test_influence_is_the_derivative_by_the_weight_of_a_pair(data, missing, weighting, lags):
    """φ_t = n ∂Â/∂log w_t, by central differences."""
    states, covs, observed = data
    gaps = observed if missing else None
    source = source_of(states, DIMS, covs, observed=gaps, weighting=weighting, span=90)
    fit = estimate(source, lags)
    pairs, weight = all_pairs(source, fit)
    owner = np.repeat(np.arange(3), DIMS)
    o = pairs.before_observed[:, np.tile(owner, lags) + 3 * np.repeat(np.arange(lags), P)] * 1.0
    q = pairs.after_observed[:, owner] * 1.0
    E = scipy.linalg.block_diag(*(list(covs) * lags))

    def solve(w):
        before = (w[:, None] * pairs.before).T @ pairs.before / ((w[:, None] * o).T @ o)
        lag = (w[:, None] * pairs.after).T @ pairs.before / ((w[:, None] * q).T @ o)
        return np.linalg.solve(before - E, lag.T).T

    np.testing.assert_allclose(solve(weight), fit.transition, rtol=1e-9, atol=1e-11)
    phi = without_leverage(source, fit, pairs, weight)
    for t in (0, 17, 101, len(weight) - 1):
        step = np.zeros(len(weight))
        step[t] = 1e-3 * weight[t]
        slope = (solve(weight + step) - solve(weight - step)) / 2e-3
        np.testing.assert_allclose(phi[t], len(weight) * slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("num_pairs", "lags", "expected"),
    [(100, 1, 4), (1000, 1, 6), (10_000, 1, 11), (100, 7, 7)],
)
def test_newey_west_lag(num_pairs, lags, expected):
    """4 (n/100)^(2/9), never below the lags that measurement noise reaches; Bartlett's weights."""
    weights = hac_weights("newey-west", lags, num_pairs)
    np.testing.assert_allclose(weights, [1 - k / (expected + 1) for k in range(1, expected + 1)])


@pytest.mark.parametrize(
    ("rho", "expected"), [(0.0, 2), (0.5, 14), (-0.5, 14), (0.9, 52), (0.97, 118), (0.999, 118)]
)
def test_andrews_lag(rho, expected):
    """1.1447 (4ρ²/(1 − ρ²)² n)^(1/3), rounded up: 13.87 at ρ = 1/2, n = 1000.

    Beyond 0.97 the autocorrelation is taken as 0.97.
    """
    assert len(hac_weights("andrews", 2, 1000, rho)) == expected


def test_model_weights_are_one_up_to_the_lag_order():
    np.testing.assert_array_equal(hac_weights("model", 3, 1000), np.ones(3))


def test_unknown_rule():
    with pytest.raises(ConfigError, match="hac is 'white'; choose one of model, newey-west, andr"):
        hac_weights("white", 1, 100)


@pytest.mark.parametrize("rule", ["newey-west", "andrews"])
@pytest.mark.parametrize("seed", range(5))
def test_bartlett_covariance_is_positive(rule, seed):
    """Any data, gaps and segments included: here noise with a strong negative autocorrelation."""
    rng = np.random.default_rng(seed)
    states = np.diff(np.diff(rng.standard_t(3, size=(62, 4)), axis=0), axis=0)
    observed = rng.random((60, 2)) > 0.1
    source = source_of(states, (2, 2), observed=observed, starts=(0, 31))
    found = block_covariance(source, estimate(source), rule=rule)
    values = np.linalg.eigvalsh(found.cov)
    assert (values[..., 0] > -1e-12 * values[..., -1]).all()
    assert found.hac_lag >= 2


def test_andrews_uses_the_autocorrelation_of_the_influence_function(data):
    """Median over coordinates of |ρ(1)|, computed from φ directly."""
    states, covs, _ = data
    source = source_of(states, DIMS, covs)
    fit = estimate(source)
    phi = influence(source, fit, *all_pairs(source, fit)).reshape(-1, P * P)
    rho = np.median(np.abs((phi[1:] * phi[:-1]).sum(axis=0) / (phi**2).sum(axis=0)))
    expected = int(np.ceil(1.1447 * (4 * rho**2 / (1 - rho**2) ** 2 * 249) ** (1 / 3)))
    assert block_covariance(source, fit, rule="andrews").hac_lag == max(expected, 1)


def test_fallback_where_the_model_lag_gives_a_negative_variance():
    """a_{t+1} b_t = (−1)ᵗ: Γ(0) + 2 Γ(1) is about −Γ(0), so Bartlett's weights step in there."""
    rng = np.random.default_rng(0)
    b = rng.choice([-1.0, 1.0], size=401)
    a = np.concatenate([[0.0], (-1.0) ** np.arange(400) * b[:-1]])
    source = source_of(np.column_stack([a, b]), (1, 1))
    fit = estimate(source)
    found, bartlett = (block_covariance(source, fit, rule=r) for r in ("model", "newey-west"))
    np.testing.assert_array_equal(found.fell_back, [[False, True], [False, False]])
    np.testing.assert_array_equal(found.cov[0, 1], bartlett.cov[0, 1])
    assert (found.cov[1, 0] != bartlett.cov[1, 0]).all()
    tests = wald_tests(fit.transition, found)
    assert np.isfinite(tests.p_value[0, 1])
    assert tests.reason == {
        (0, 1): "Bartlett weights: the lag of the model gave no valid covariance"
    }


def test_units_of_clients_cause_no_fallback(data):
    """Padding of small blocks must not be compared with the variances of other blocks."""
    states, covs, _ = data
    unit = np.repeat([1e-5, 1.0, 1e5], DIMS)
    covs = [cov * factor**2 for cov, factor in zip(covs, (1e-5, 1.0, 1e5), strict=True)]
    source = source_of(states * unit, DIMS, covs)
    assert not block_covariance(source, estimate(source)).fell_back.any()


def three_valued(rng, size, share):
    """Symmetric on {−1, 0, 1}: kurtosis 1/share."""
    return np.where(rng.random(size) < share, rng.choice([-1.0, 1.0], size=size), 0.0)


@pytest.mark.parametrize(
    ("draw", "share_of_n"),
    [
        (lambda rng, size: three_valued(rng, size, 3**-0.5), 1 / 3),
        (lambda rng, size: rng.uniform(-1, 1, size), 1 / 3.12),
        (lambda rng, size: rng.normal(size=size), 1 / 6),
        (lambda rng, size: three_valued(rng, size, 0.2), 1 / 14),
    ],
    ids=["Gaussian-like φ", "uniform", "Gaussian", "heavy"],
)
def test_degrees_of_freedom_vs_kurtosis(draw, share_of_n):
    """White scalar states of kurtosis k: φ is a product of two of them, of kurtosis k².

    ν = 2n/(3κ − 1 + 4) at one lag, with κ = k²/3: n/3 for k = √3, n/3.12 for k = 9/5, n/6 for
    k = 3, n/14 for k = 5.
    """
    rng = np.random.default_rng(1)
    n = 20_000
    source = source_of(draw(rng, (n, 2)), (1, 1))
    df = block_covariance(source, estimate(source)).df
    # k² is estimated with a relative error of a few times n^-1/2
    np.testing.assert_allclose(df[~np.eye(2, dtype=bool)], share_of_n * n, rtol=0.15)


def test_degrees_of_freedom_are_clipped():
    """Signs only: the variance is known, only the lag product is not; one outlier: ν stops at 1."""
    rng = np.random.default_rng(2)
    signs = rng.choice([-1.0, 1.0], size=(300, 2))
    signs = np.vstack([signs, -signs])  # mean zero, so that all values stay ±1
    source = source_of(signs, (1, 1))
    df = block_covariance(source, estimate(source, 1)).df
    np.testing.assert_allclose(df[0, 1], 599 / 2, rtol=0.01)  # leverages differ a little

    rare = rng.normal(size=(20_000, 6))
    rare[10_000] = 300 * rng.normal(size=6)
    rare[10_001] = 300 * rng.normal(size=6)
    source = source_of(rare, (3, 3))
    assert block_covariance(source, estimate(source)).df.min() == 1.0


def test_degrees_of_freedom_vs_definition(data):
    """κ of one block in the metric of its homoskedastic covariance."""
    states, covs, _ = data
    source = source_of(states, DIMS, covs)
    fit = estimate(source, 2)
    phi = influence(source, fit, *all_pairs(source, fit))
    n, found = len(phi), block_covariance(source, fit)
    for effect, cause in BLOCKS:
        rows, columns = places(effect, cause, 2)
        block = phi[:, rows[:, None], columns].reshape(n, -1)
        metric = np.kron(
            fit.residual_cov[np.ix_(rows, rows)], fit.inverse_cov[np.ix_(columns, columns)]
        )
        size = np.einsum("tk,kt->t", block, np.linalg.solve(metric, block.T))
        k = block.shape[1]
        kurtosis = (size**2).mean() / size.mean() ** 2 * k / (k + 2)
        np.testing.assert_allclose(
            found.df[effect, cause], 2 * n / (3 * kurtosis - 1 + 8), rtol=1e-8
        )
        assert found.size[effect, cause] == k


def test_sandwich_meets_the_textbook_for_white_noise_of_known_variance():
    """No measurement error, much data: both covariances estimate the same thing."""
    rng = np.random.default_rng(3)
    source = source_of(simulate_states(rng, random_transition(rng, 3, radius=0.6), 40_000), (1, 2))
    fit = estimate(source)
    ours, textbook = block_covariance(source, fit).cov, homoskedastic(fit, (1, 2)).cov
    scale = np.sqrt(np.einsum("mnkk->mnk", textbook))
    difference = (ours - textbook) / np.maximum(scale[..., :, None] * scale[..., None, :], 1e-30)
    # relative error of a variance from n products of kurtosis 9, with one lag: √(8 · 3/n) = 0.024
    assert np.abs(difference).max() < 5 * 0.024


def test_textbook_covariance_counts_effective_pairs(data):
    """Half the weight on one half of equal data: repeating data with weights must not add any."""
    states, _, _ = data
    fit = estimate(source_of(states, DIMS, weighting="ewma", span=20))
    plain = fit._replace(moments=fit.moments._replace(num_pairs=10**6))
    np.testing.assert_array_equal(homoskedastic(fit, DIMS).cov, homoskedastic(plain, DIMS).cov)
    n = fit.moments.effective_pairs
    expected = fit.residual_cov[0, 0] * fit.inverse_cov[0, 0] / (n - P)
    np.testing.assert_allclose(homoskedastic(fit, DIMS).block(0, 0), [[expected]])


@pytest.mark.parametrize("lags", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "missing", "noise added"])
def test_wanted_blocks_have_the_same_bits_and_the_others_no_test(lags, kind):
    rng = np.random.default_rng(6)
    dims, observed = (1, 3, 2), np.ones((400, 3), dtype=bool)
    if kind == "missing":
        observed[::30, 1] = False
    source = source_of(rng.standard_normal((400, 6)), dims, observed=observed)
    if kind == "noise added":
        source = source._replace(added_covs=tuple(0.1 * np.eye(dim) for dim in dims))
    fit = estimate(source, lags)
    wanted = np.array([[0, 1, 0], [1, 0, 0], [0, 1, 0]], dtype=bool)
    some, every = (block_covariance(source, fit, wanted=which) for which in (wanted, None))
    np.testing.assert_array_equal(some.df[wanted], every.df[wanted])
    np.testing.assert_array_equal(some.fell_back, every.fell_back & wanted)
    np.testing.assert_allclose(some.cov[wanted], every.cov[wanted], rtol=1e-12)
    assert not some.cov[~wanted].any()
    tests = wald_tests(fit.transition, some)
    assert np.array_equal(np.isfinite(tests.p_value), wanted)


@pytest.mark.parametrize("lags", [1, 2])
@pytest.mark.parametrize("weighting", ["none", "ewma"])
@pytest.mark.parametrize("is_noise_added", [False, True])
@pytest.mark.parametrize("hac", [(0.9,), (0.7, 0.4, 0.1)])
def test_complete_data_need_no_influence_function(lags, weighting, is_noise_added, hac):
    """The matrix products over time equal the sums over a formed φ, errors and noise included."""
    rng = np.random.default_rng(5)
    dims = (1, 3, 2)
    states = np.cumsum(rng.standard_normal((400, 6)), axis=0) * 0.02 + rng.standard_normal((400, 6))
    errors = tuple(0.1 * np.eye(dim) + 0.02 for dim in dims)
    source = source_of(states, dims, errors, weighting=weighting, span=300)
    if is_noise_added:  # by all but the first
        covs = (np.zeros((1, 1)), 0.3 * np.eye(3) + 0.1, 0.2 * np.eye(2))
        source = source._replace(added_covs=covs)
    fit = estimate(source, lags)
    general = fit._replace(moments=fit.moments._replace(is_complete=False))
    ways = [lag_products(source, each, np.array(hac)) for each in (general, fit)]
    for formed, direct in zip(*ways, strict=True):
        np.testing.assert_allclose(direct, formed, rtol=1e-9, atol=1e-9 * np.abs(formed).max())
