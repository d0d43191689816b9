"""Spectral radii and stability limits against dense matrices on tiny rows."""

import itertools
import re

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from fedgranger.errors import UnstableRecursionError
from fedgranger.uncertainty.stability import analyse, check
from fedgranger.uncertainty.steady_state import solve_steady_state
from fedgranger.uncertainty.update_moments import gain_noise, update_moments
from tests.one_row import dense_rounds, make_row

VARIANTS = {
    "one-step": {},
    "three-steps": {"W": 3},
    "one-step-missing": {"missing": True},
    "three-steps-missing": {"W": 3, "missing": True},
    "no-ridge": {"ridge": (0.0, 0.0)},
    "scalar": {"p": 1, "d": 1, "q": 1},
    "wide": {"p": 1, "d": 2, "q": 4, "num_rounds": 60},
}
every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())


def measure(row):
    moments = update_moments(*row)
    return analyse(moments, gain_noise(*row, moments))


def radius(matrix):
    return np.abs(np.linalg.eigvals(matrix)).max()


def mean_square_matrix(gains, factor=1.0):
    """E[F ⊗ F] with F = I − factor K, formed."""
    F = np.eye(gains.shape[1]) - factor * gains
    return np.mean([np.kron(f, f) for f in F], axis=0)


@every_variant
def test_radii_vs_dense(options):
    row = make_row(**options)
    p, d, _ = update_moments(*row).shape
    K = dense_rounds(row)[0].mean(axis=0)
    F, split = np.eye(len(K)) - K, p * d
    found = measure(row)
    assert found.client == pytest.approx(radius(F[:split, :split]), rel=1e-12)
    assert found.server == pytest.approx(radius(F[split:, split:]), rel=1e-12)
    assert found.joint == pytest.approx(radius(F), rel=1e-10)
    assert found.time_constant == pytest.approx(1 / (1 - radius(F)), rel=1e-8)


@every_variant
@pytest.mark.parametrize("factor", [0.1, 1.0, 6.0])
def test_mean_square_radius_vs_kron(options, factor):
    sizes = tuple(factor * size for size in (0.02, 0.03, 0.05))
    row = make_row(**options, sizes=sizes)
    expected = radius(mean_square_matrix(dense_rounds(row)[0]))
    found = measure(row)
    assert found.mean_square == pytest.approx(expected, rel=2e-6)
    assert found.mean_square >= found.joint**2 - 1e-6


@pytest.mark.parametrize("W", [1, 2])
def test_mean_square_radius_with_noise_vs_quadrature(W):
    """F is quadratic in the noise, F ⊗ F quartic: three Gauss-Hermite nodes are exact."""
    row = make_row(p=2, d=2, q=1, W=W, num_rounds=6, noise=0.3)
    sigma = np.sqrt(np.asarray(row.windows.noise)[0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    weights = weights / weights.sum()
    total = 0.0
    for picks in itertools.product(range(3), repeat=sigma.size):
        noise = sigma * nodes[list(picks)].reshape(sigma.shape)
        total = total + np.prod(weights[list(picks)]) * mean_square_matrix(
            dense_rounds(row, noise)[0]
        )
    assert measure(row).mean_square == pytest.approx(radius(total), rel=2e-6)


@every_variant
def test_largest_factor_vs_bisection(options):
    row = make_row(**options)
    gains = dense_rounds(row)[0]

    def excess(factor):
        return radius(mean_square_matrix(gains, factor)) - 1

    found = measure(row).largest_factor
    assert excess(found * (1 - 1e-4)) < 0 < excess(found * (1 + 1e-4))
    limit = scipy.optimize.brentq(excess, 0.5 * found, 2 * found, xtol=1e-9)
    assert found == pytest.approx(limit, rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"W": 3, "missing": True}], ids=["one", "three-missing"])
def test_unstable_step_sizes_are_refused_and_stable_ones_named(options):
    sizes = (0.02, 0.03, 0.05)
    limit = measure(make_row(**options, sizes=sizes)).largest_factor
    row = make_row(**options, sizes=tuple(1.3 * limit * size for size in sizes))
    with pytest.raises(UnstableRecursionError, match="client 'pump'") as caught:
        solve_steady_state(*row, client="pump")
    numbers = re.search(
        r"local_step_size (\S+), feedback_step_size (\S+) and server_step_size (\S+) are stable",
        str(caught.value),
    )
    assert numbers is not None
    named = tuple(float(number) for number in numbers.groups())
    assert np.array(named) == pytest.approx(0.5 * limit * np.array(sizes), rel=6e-3)
    again = make_row(**options, sizes=named)
    assert radius(mean_square_matrix(dense_rounds(again)[0])) < 1
    solve_steady_state(*again, client="pump")


def test_unstable_in_the_mean_is_refused():
    """Without random gains both conditions are the same: |1 − 2ηK| < 1."""
    sizes = (0.02, 0.03, 0.05)
    limit = measure(make_row(sizes=sizes)).largest_factor
    row = make_row(sizes=tuple(50 * limit * size for size in sizes))
    found = measure(row)
    assert found.joint > 1
    assert found.time_constant == np.inf
    with pytest.raises(UnstableRecursionError, match="the step sizes diverge"):
        check(found, row.params, "pump")


def without_sensor(row, value):
    """The last sensor always reads `value`."""
    y = row.windows.measurements.at[..., -1].set(value)
    leaves = [y, *(getattr(row.windows, name) for name in FIELDS[1:])]
    return row._replace(windows=type(row.windows)(*leaves))


FIELDS = (
    "measurements",
    "causes",
    "local_targets",
    "noise",
    "paired_weights",
    "observed_weights",
)


@pytest.mark.parametrize("W", [1, 3])
def test_undetermined_direction_is_refused_without_ridge(W):
    dead = without_sensor(make_row(W=W, ridge=(0.0, 0.0)), 0.0)
    with pytest.raises(
        UnstableRecursionError, match=r"client 'pump': .*not determined by the data"
    ):
        solve_steady_state(*dead, client="pump")
    solve_steady_state(*without_sensor(make_row(W=W), 0.0), client="pump")  # ridge determines it


@pytest.mark.parametrize("seed", range(8))
def test_copied_sensor_is_refused_without_ridge(seed):
    """Rounding leaves a rate of about 1e-17 there, of either sign."""
    row = make_row(seed, ridge=(0.0, 0.0), sizes=(0.004, 0.006, 0.01))
    y = jnp.asarray(row.windows.measurements)
    y = y.at[..., 2].set(y[..., 0] - 0.7 * y[..., 1])
    leaves = [y, *(getattr(row.windows, name) for name in FIELDS[1:])]
    copied = row._replace(windows=type(row.windows)(*leaves))
    with pytest.raises(UnstableRecursionError, match="not determined by the data"):
        solve_steady_state(*copied, client="pump")
