"""Without measurement error the debiased estimate is ordinary least squares: statsmodels' VAR."""

import numpy as np
import pytest
from statsmodels.tsa.api import VAR

from fedgranger.inference.covariance import homoskedastic
from fedgranger.inference.estimate import companion, estimate
from fedgranger.inference.wald import wald_tests
from tests.state_sources import random_transition, simulate_states, source_of

DIMS = (1, 2, 3)
OFFSETS = np.concatenate([[0], np.cumsum(DIMS)])
PAIRS = [(m, n) for m in range(3) for n in range(3) if m != n]


@pytest.fixture(scope="module", params=[1, 3], ids=["one lag", "three lags"])
def both(request):
    """Our fit, theirs, the lag order."""
    lags = request.param
    rng = np.random.default_rng(lags)
    mixing = rng.normal(size=(6, 6))  # process noise correlated across clients
    states = simulate_states(
        rng,
        random_transition(rng, 6, lags),
        400,
        noise=lambda generator, shape: generator.normal(size=shape) @ mixing,
    )
    states -= states.mean(axis=0)
    return estimate(source_of(states, DIMS), lags), VAR(states).fit(lags, trend="n"), lags


def own(client):
    return np.arange(OFFSETS[client], OFFSETS[client + 1])


def test_transition_vs_var_params(both):
    ours, theirs, _ = both
    np.testing.assert_allclose(ours.transition, theirs.params.T, rtol=1e-9, atol=1e-10)


def test_residual_cov_vs_maximum_likelihood(both):
    """`residual_cov` divides by n as `sigma_u_mle` does; process_cov is the same without error."""
    ours, theirs, _ = both
    assert ours.moments.num_pairs == theirs.nobs
    np.testing.assert_allclose(ours.residual_cov, theirs.sigma_u_mle, rtol=1e-9)
    np.testing.assert_allclose(ours.process_cov, theirs.sigma_u_mle, rtol=1e-9)


def test_spectral_radius_vs_roots(both):
    """statsmodels gives the inverses of the companion matrix's eigenvalues."""
    ours, theirs, _ = both
    np.testing.assert_allclose(ours.spectral_radius, 1 / np.abs(theirs.roots).min(), rtol=1e-9)
    np.testing.assert_allclose(
        np.sort(np.abs(np.linalg.eigvals(companion(ours.transition)))),
        np.sort(1 / np.abs(theirs.roots)),
        rtol=1e-6,
    )


@pytest.mark.parametrize(("effect", "cause"), [(m, n) for m in range(3) for n in range(3)])
def test_homoskedastic_cov_vs_cov_params(both, effect, cause):
    """Factor 1: both divide the squared residuals by n − L P.

    Theirs is the covariance of the column-major vec of [A¹ … Aᴸ], so entry (i, j) stands at
    j P + i; ours goes row by row through one block.
    """
    ours, theirs, lags = both
    cov = homoskedastic(ours, DIMS).block(effect, cause)
    columns = np.concatenate([6 * k + own(cause) for k in range(lags)])
    places = [6 * j + i for i in own(effect) for j in columns]
    expected = np.asarray(theirs.cov_params())[np.ix_(places, places)]
    np.testing.assert_allclose(cov, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("effect", "cause"), PAIRS)
def test_wald_statistic_vs_test_causality(both, effect, cause):
    """Factor 1 with kind='wald'; with kind='f' theirs is W/k against F(k, P (n − L P)).

    Ours keeps the n − L P degrees of freedom of one equation, so p-values are a little larger.
    """
    ours, theirs, lags = both
    covariance = homoskedastic(ours, DIMS)
    tests = wald_tests(ours.transition, covariance)
    wald, f = (
        theirs.test_causality(
            caused=own(effect).tolist(), causing=own(cause).tolist(), kind=kind, signif=0.05
        )
        for kind in ("wald", "f")
    )
    np.testing.assert_allclose(tests.statistic[effect, cause], wald.test_statistic, rtol=1e-8)
    assert tests.df[effect, cause] == wald.df == lags * DIMS[effect] * DIMS[cause]
    np.testing.assert_allclose(
        tests.statistic[effect, cause] / tests.df[effect, cause], f.test_statistic, rtol=1e-8
    )
    assert f.df[1] == 6 * covariance.test_df[effect, cause]
    assert tests.p_value[effect, cause] >= f.pvalue
