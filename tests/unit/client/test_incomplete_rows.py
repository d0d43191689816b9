"""Mean and covariance from rows that lack sensors, against likelihood and complete data."""

import numpy as np
from scipy.stats import multivariate_normal

from fedgranger.client.identify import identify
from fedgranger.client.incomplete_rows import own_means, row_moments
from fedgranger.client.sensor_moments import measurement_moments, with_pairs
from tests.slow_sensors import first_only, make


def factors(seed, steps=400, noise=0.1):
    """Five sensors of a strong state, far from zero and in units of their own; what is there."""
    rng = np.random.default_rng(seed)
    state = np.zeros(steps)
    for t in range(1, steps):
        state[t] = 0.8 * state[t - 1] + rng.standard_normal()
    loadings = rng.uniform(0.5, 2.0, 5)
    y = state[:, None] * loadings + noise * rng.standard_normal((steps, 5))
    return (y * [1, 10, 0.1, 5, 1] + [3, -70, 0, 9, 1]), rng.random((steps, 5)) > 0.1


def found(client):
    centre, squares = own_means(client)
    return row_moments(client, centre, np.sqrt(squares))


def log_likelihood(client, mean, cov):
    total = 0.0
    for y, there in zip(client.values, client.observed, strict=True):
        if there.any():
            own = cov[np.ix_(there, there)]
            total += multivariate_normal.logpdf(y[there], mean[there], own)
    return total


def test_the_likelihood_is_largest_there():
    """Along any direction Newton's step from the estimate to the top is next to nothing."""
    values, _ = factors(0, steps=80, noise=1.0)
    rng = np.random.default_rng(1)
    client = make(values, rng.random(values.shape) > 0.4)
    mean, cov = found(client)
    scale, h = np.sqrt(np.diag(cov)), 0.01
    directions = [(k, np.zeros((5, 5))) for k in rng.standard_normal((4, 5))]
    directions += [(np.zeros(5), np.diag(np.eye(5)[k])) for k in range(5)]
    directions += [(np.zeros(5), rng.standard_normal((5, 5))) for _ in range(4)]
    for move, turn in directions:

        def at(step, move=move, turn=turn):
            root = np.eye(5) + step * turn
            return log_likelihood(client, mean + step * scale * move, root @ cov @ root.T)

        low, middle, high = at(-h), at(0.0), at(h)
        curvature = (high - 2 * middle + low) / h**2
        assert curvature < 0
        assert abs((high - low) / (2 * h) / curvature) < 2e-3


def test_complete_rows_give_their_moments():
    values, observed = factors(2)
    observed[:] = True
    observed[[3, 50]] = False
    mean, cov = found(make(values, observed))
    kept = np.delete(values, [3, 50], axis=0)
    np.testing.assert_allclose(mean, kept.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(cov, np.cov(kept.T, bias=True), rtol=1e-9)


def test_noise_is_not_mistaken_for_a_state():
    """Entries over rows of their own would differ by the sampling error of the signal."""
    for seed in range(3):
        values, observed = factors(seed)
        whole = identify(make(values), first_only(400))
        model = identify(make(values, observed), first_only(400))
        assert model.state_dim == whole.state_dim == 1
        np.testing.assert_allclose(
            np.diag(model.measurement_cov), np.diag(whole.measurement_cov), rtol=0.4
        )
        np.testing.assert_allclose(model.self_transition, whole.self_transition, atol=0.05)


def test_pairs_come_from_filled_rows():
    values, observed = factors(4)
    client = make(values, observed)
    moments = measurement_moments(client, first_only(400), standardise=True)
    assert moments.num_pairs == 0
    np.testing.assert_allclose(np.diag(moments.cov), 1.0, rtol=1e-12)
    added = with_pairs(moments, make(values), first_only(400))
    z = (values - moments.centre) / moments.scale
    np.testing.assert_allclose(added.lag_cov, z[1:].T @ z[:-1] / 399, rtol=1e-9)
    assert (added.num_pairs, added.num_rows) == (399, moments.num_rows)
    np.testing.assert_array_equal(added.cov, moments.cov)
