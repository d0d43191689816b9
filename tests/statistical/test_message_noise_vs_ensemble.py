r"""Is the covariance that noise on messages adds the one of the real loop with drawn noise?

The ensemble draws the messages' noise over and over for the same data, so its covariance is that
given the data: \(C = E[F C F^\top] + S_{added} + G_{added}(\Sigma)\), in which the gain noise that
the messages add acts on all of Σ. Rounds come in random order, because the steady state takes the
gain's own noise as white (docs/theory/steady_state.md, "Limits"); what is tested here is the
messages' part. Compared are traces, averaged over data sets; the standard error is that between
data sets.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.client.params import known_models
from fedgranger.config import RunConfig
from fedgranger.data.synthetic import simulate
from fedgranger.runtime.inprocess import stack_windows
from fedgranger.runtime.row_inputs import single_row
from fedgranger.runtime.setup import set_up
from fedgranger.uncertainty.message_noise import white_noise
from fedgranger.uncertainty.steady_state import cov_given_data, solve_steady_state
from fedgranger_research.reproduction.noisy_training import (
    EFFECT,
    NoiseSizes,
    block_21,
    train_with_noise,
)
from fedgranger_research.reproduction.system import paired_system

SIZES = {
    "up 0.3": {"up": 0.3},
    "up 1": {"up": 1.0},
    "down 1": {"down": 1.0},
    "down 5": {"down": 5.0},
}
CONFIG = RunConfig(
    local_step_size=1e-3,
    feedback_step_size=1e-3,
    server_step_size=2e-3,
    augmentation_ridge=0.1,
    granger_ridge=0.01,
)
NUM_ROUNDS, NUM_DRAWS, NUM_SETS = 3000, 128, 10
LIMIT = 0.03


def predicted(row, sizes):
    """Traces of θ2's and Â21's covariance given the data."""
    noise = white_noise(row.params, **sizes)
    state = solve_steady_state(row.params, row.windows, client="c", message_noise=noise)
    assert 4 * state.stability.time_constant < NUM_ROUNDS, "not settled"
    cov = cov_given_data(row.params, row.windows, state, noise, client="c")
    variances, split = np.diag(cov), state.augmentation.size
    return variances[:split].sum(), variances[split:].sum()


def one_data_set(seed):
    """(setting, θ or Â, predicted or drawn)."""
    system = paired_system(2, 4, 1.0, seed=0)
    panel, _ = simulate(num_steps=NUM_ROUNDS + 1, seed=seed, system=system)
    setup = set_up(panel, CONFIG, known_models(system))
    sizes = NoiseSizes(
        *(jnp.array([own.get(way, 0.0) for own in SIZES.values()]) for way in ("up", "down"))
    )
    windows = stack_windows(setup, 0, setup.num_rounds)
    order = np.random.default_rng(seed).permutation(setup.num_rounds)
    shuffled = jax.tree.map(lambda leaf: leaf[order], windows)
    ends = train_with_noise(setup, CONFIG, shuffled, sizes, NUM_DRAWS, seed)
    theta = np.asarray(ends.clients.augmentation)[:, :, EFFECT]
    drawn = [x.var(axis=1, ddof=1).sum(axis=(1, 2)) for x in (theta, block_21(ends))]
    row = single_row(setup, CONFIG, EFFECT)
    return np.stack([[predicted(row, own) for own in SIZES.values()], np.transpose(drawn)], axis=2)


@pytest.mark.slow  # 10 data sets, each trained 128 times with noise
def test_traces_given_the_data():
    found = np.stack([one_data_set(seed) for seed in range(NUM_SETS)])
    ratio = found[..., 0].mean(axis=0) / found[..., 1].mean(axis=0)
    each = found[..., 0] / found[..., 1]
    error = each.std(axis=0, ddof=1) / np.sqrt(NUM_SETS)
    print(f"\n{'noise':<8} {'of':<4} {'drawn':>10} {'theory':>10} {'excess':>8}  s.e.")
    for k, name in enumerate(SIZES):
        for j, what in enumerate(("θ2", "Â21")):
            theory, drawn = found[:, k, j].mean(axis=0)
            print(
                f"{name:<8} {what:<4} {drawn:>10.3e} {theory:>10.3e} "
                f"{ratio[k, j] - 1:>+8.1%}  {error[k, j]:.1%}"
            )
    assert (np.abs(np.log(ratio)) <= np.maximum(LIMIT, 3.5 * error)).all()
    assert (error < 0.1).all()
