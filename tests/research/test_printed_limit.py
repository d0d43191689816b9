"""The paper's printed steady state: it does not contract, and where it does it gives zero."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.uncertainty.inputs import RowParams
from fedgranger_research.reproduction.printed_limit import printed_gains, printed_limit


def params(p, d, q):
    rng = np.random.default_rng(0)
    scalars = (jnp.asarray(0.01),) * 3 + (jnp.asarray(0.0),) * 2
    A, CA = 0.5 * np.eye(p), rng.normal(size=(d, p))
    return RowParams(jnp.asarray(A), jnp.asarray(CA), *scalars, jnp.ones(q))


@pytest.mark.parametrize(("p", "d"), [(2, 2), (2, 8), (3, 4)])
def test_printed_gains_keep_eigenvalue_one(p, d):
    rng = np.random.default_rng(1)
    found = printed_gains(params(p, d, p), rng.normal(size=d), rng.normal(size=p))
    assert found.server_radius == pytest.approx(1.0, abs=1e-12)
    assert found.client_radius == pytest.approx(1.0, abs=1e-12)


def test_scalar_case_contracts_to_zero():
    found = printed_gains(params(1, 1, 1), np.array([1.0]), np.array([1.0]))
    assert found.server_radius < 1
    assert found.client_radius < 1
    np.testing.assert_allclose(printed_limit(found, np.eye(1), 5000), 0.0, atol=1e-12)


def test_directions_without_data_keep_the_prior():
    found = printed_gains(params(1, 2, 1), np.array([1.0, 0.0]), np.array([1.0]))
    limit = printed_limit(found, np.eye(2), 20_000)
    np.testing.assert_allclose(limit, np.diag([0.0, 1.0]), atol=1e-9)
