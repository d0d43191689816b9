"""Data sets with an influence of a known size added, for the positive control of the tests."""

import numpy as np

from fedgranger.inference.covariance import block_covariance
from fedgranger.inference.estimate import estimate
from fedgranger.inference.infer import infer
from fedgranger.inference.positive_control import smallest_influence
from fedgranger.inference.readings import regress
from fedgranger.inference.shifts import tabulate
from fedgranger.inference.whitening import whiten
from tests.state_sources import add_errors, simulate_states, source_of

DIMS = (2, 1)
TRANSITION = np.array([[0.7, 0.2, 0.0], [-0.1, 0.5, 0.0], [0.0, 0.0, 0.6]])
NOISE_CHOL = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 3.0]])
"""What is new in client 0 is correlated, client 1 has other units."""
EFFECT, CAUSE = 0, 1


def data_set(seed, num_steps, block=None, error=0.0):
    """Client 1 drives client 0 by `block`, if at all; `error`: variance of measurement noise."""
    rng = np.random.default_rng(seed)
    transition = TRANSITION.copy()
    if block is not None:
        transition[:2, 2:] = block
    states = simulate_states(
        rng, transition, num_steps, noise=lambda rng, size: rng.normal(size=size) @ NOISE_CHOL.T
    )
    covs = [error * np.eye(2), error * np.eye(1)]
    if error:
        states = add_errors(rng, states, covs)
    return source_of(states, DIMS, covs if error else None)


def least_favourable(source, test, alpha=0.05):
    """Influence as computed by hand from the test's own covariance, not widened."""
    if test == "readings":
        fit = regress(source, np.ones((2, 2), dtype=int))
        block = fit.blocks[EFFECT, CAUSE]
        news = fit.residual_covs[EFFECT], whiten(tabulate(source)).covs[CAUSE]
        rest = float(fit.num_rows[EFFECT] - fit.num_columns[EFFECT])
        return smallest_influence(block.cov, (block.lag, block.state), *news, rest, alpha)
    fit = estimate(source, 1)
    covariance = block_covariance(source, fit)
    news = fit.process_cov[:2, :2], fit.process_cov[2:, 2:]
    V, rest = covariance.block(EFFECT, CAUSE), covariance.test_df[EFFECT, CAUSE]
    columns = (np.array([1]), np.array([0]))
    return smallest_influence(V, columns, news[EFFECT], news[CAUSE], rest, alpha)


def share_found(config, seeds, num_steps, error=0.0, per_base=1):
    """Add what the run says it would find with 80 % probability to other data, and look."""
    found = []
    for seed in seeds:
        source = data_set([seed, 0], num_steps, error=error)
        size = infer(source, config).facts["positive_control"]["c1 -> c0"]
        worst = least_favourable(source, config.test)
        block = worst.block * size / worst.size
        for copy in range(per_base):
            other = data_set([seed, 1 + copy], num_steps, block, error)
            table = infer(other, config).edges.set_index(["cause", "effect"])
            found.append(table.loc[("c1", "c0"), "p_value"] < config.alpha)
    share = float(np.mean(found))
    return share, float(np.sqrt(0.8 * 0.2 / len(found)))
