"""The joint noise floor at the server."""

import numpy as np
import pytest

from fedgranger.errors import InferenceError
from fedgranger.inference.estimate import estimate
from fedgranger.inference.infer import infer
from fedgranger.inference.noise_correction import (
    joint_noise_floor,
    limit_errors,
    window_moments,
)
from fedgranger.inference.state_moments import accumulate
from fedgranger.linalg.noise_floor import LagMoments, noise_floor
from fedgranger.linalg.spectral import spectral_radius
from tests.configs import formula_config
from tests.state_sources import (
    add_errors,
    random_covs,
    random_transition,
    simulate_states,
    source_of,
)

DIMS = (1, 2, 1)


def made(seed=0, num_steps=2000, size=0.5, **options):
    rng = np.random.default_rng(seed)
    covs = random_covs(rng, DIMS, size)
    states = simulate_states(rng, random_transition(rng, 4, radius=0.9), num_steps)
    return source_of(add_errors(rng, states, covs), DIMS, covs, **options)


def scaled(source, factor):
    return source._replace(error_covs=tuple(factor * E for E in source.error_covs))


def test_share_vs_floor_of_the_moments():
    source = scaled(made(), 20.0)
    found = accumulate(source, 10)
    moments = LagMoments(found.before_cov, found.lag_cov, found.after_cov, found.effective_pairs)
    assert joint_noise_floor(source) == noise_floor(moments, source.error_cov)
    assert joint_noise_floor(source).share < 0.2


@pytest.mark.parametrize("chunk", [10**6, 7, 64])
@pytest.mark.parametrize("lags", [1, 4])
def test_quick_moments_are_those_of_all_pairs(lags, chunk):
    """Stretches shorter than a window, of just one window, and longer ones."""
    source = made(num_steps=300, starts=(0, 3, 8, 9, 120), chunk=chunk)
    found, quick = accumulate(source, lags), window_moments(source, lags)
    assert quick.num_windows == found.num_pairs
    for name in ("before", "lag", "after"):
        expected = getattr(found, f"{name}_cov")
        np.testing.assert_allclose(getattr(quick, name), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [0.5, 5.0])
def test_true_error_keeps_all_of_itself(size):
    shares = [joint_noise_floor(made(seed, 600, size)).share for seed in range(10)]
    assert shares == [1.0] * 10


def test_declared_too_large_an_error_is_limited_and_stable():
    """With all of E the estimate is refused; with its share it is a stable process."""
    source = scaled(made(), 20.0)
    with pytest.raises(InferenceError):
        estimate(source)
    found = infer(source, formula_config(solver="none"))
    assert found.facts["noise_share"] == joint_noise_floor(source).share
    assert spectral_radius(found.transition) < 1


def test_clients_in_any_order_and_coordinates():
    rng = np.random.default_rng(1)
    source = scaled(made(), 20.0)
    chunk = next(source.chunks())
    M = [rng.normal(size=(d, d)) for d in DIMS]
    parts = np.split(chunk.states, np.cumsum(DIMS)[:-1], axis=1)
    order = [2, 0, 1]
    states = np.concatenate([parts[m] @ M[m].T for m in order], axis=1)
    covs = [M[m] @ source.error_covs[m] @ M[m].T for m in order]
    other = source_of(states, [DIMS[m] for m in order], covs)
    assert joint_noise_floor(other).share == pytest.approx(joint_noise_floor(source).share)


def test_missing_samples_leave_the_complete_stretches():
    source = made()
    observed = np.ones((2000, 3), dtype=np.bool_)
    observed[::25, 1] = False
    chunk = next(source.chunks())
    gappy = source_of(chunk.states, DIMS, [20 * E for E in source.error_covs], observed=observed)
    whole = joint_noise_floor(scaled(source, 20.0)).share
    assert joint_noise_floor(gappy).share == pytest.approx(whole, rel=0.5)
    observed[::2, 1] = False
    never = source_of(chunk.states, DIMS, [20 * E for E in source.error_covs], observed=observed)
    assert joint_noise_floor(never).share == 1.0


def test_no_error_and_too_few_steps():
    assert joint_noise_floor(scaled(made(), 0.0)).share == 1.0
    assert joint_noise_floor(scaled(made(num_steps=12), 20.0)).share == 1.0


def test_declared_errors_are_left_alone():
    source = made()._replace(declared=("c1",))
    limited = limit_errors(source, 0.25)
    for name, before, after in zip(
        source.names, source.error_covs, limited.error_covs, strict=True
    ):
        np.testing.assert_array_equal(after, before * (1.0 if name == "c1" else 0.25))
    assert limit_errors(source, 1.0) is source
