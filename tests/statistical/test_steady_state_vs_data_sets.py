"""Is Σ∞, computed from one data set, the variance of the trained parameters over data sets?

Every data set is simulated anew from one system and trained over once by the learner itself, from
the fixed point, so that what is left is Σ∞. Compared are traces: of θ's covariance, and of each
block Â_mn's. The reference is an estimate, too: the trace of a sample covariance of n Gaussian
vectors has the relative standard error sqrt(2 tr(Σ²) / (n − 1)) / tr Σ, with tr(Σ²) estimated
without bias. Predictions differ from data set to data set and are averaged over the first few.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import fedgranger as fg
from fedgranger.client.augment import AugmentState
from fedgranger.client.params import known_models
from fedgranger.rounds import RoundState
from fedgranger.runtime.inprocess import run_rounds, stack_windows
from fedgranger.runtime.row_inputs import row_params, row_windows, run_noise
from fedgranger.runtime.setup import set_up
from fedgranger.server.granger import ServerState
from fedgranger.uncertainty.steady_state import solve_steady_state

STEP_SIZES = [(1e-4, 1e-4, 1e-3), (1e-4, 3e-4, 1e-3), (2e-4, 5e-5, 5e-4)]
TOO_LARGE = (1e-4, 1e-3, 1e-3)  # within a factor 2.1 of the stability limit
RIDGES = [0.0, 0.1]
LIMIT = 0.15


class Comparison(NamedTuple):
    """One trace: over data sets, predicted, and how well either is known (relative)."""

    setting: str
    what: str
    found: float
    predicted: float
    found_error: float
    predicted_error: float

    @property
    def excess(self):
        return self.predicted / self.found - 1


class Study:
    """Data sets of one system of two clients; training and prediction for several settings."""

    def __init__(self, num_steps, num_sets, num_predictions, sensor_dims=8):
        self.num_steps, self.num_sets = num_steps, num_sets
        self.num_predictions = num_predictions
        options = {"edges": [("client1", "client2")], "measurement_var": 1.0, "seed": 0}
        _, self.truth = fg.simulate(2, 10, sensor_dims=sensor_dims, **options)

    def prepared(self, seed, config):
        panel, _ = fg.simulate(num_steps=self.num_steps + 1, seed=seed, system=self.truth)
        return set_up(panel, config, known_models(self.truth))

    def predict(self, setup, config):
        """The steady states of both rows."""
        none = run_noise(setup, dict.fromkeys(setup.names, 0.0))
        params = row_params(setup, config, none)
        windows = row_windows(setup, none, 0, setup.num_rounds, np.arange(2))
        return [
            solve_steady_state(
                jax.tree.map(lambda leaf, m=m: leaf[m], params),
                jax.tree.map(lambda leaf, m=m: leaf[:, m], windows),
                client=setup.names[m],
            )
            for m in range(2)
        ]

    def run(self, configs):
        """Comparisons for every configuration; they share the data sets."""
        first = [self.prepared(seed, configs[0]) for seed in range(self.num_predictions)]
        known = []
        for config in configs:
            sized = [with_options(setup, config) for setup in first]
            known.append([self.predict(setup, config) for setup in sized])
        slowest = max(row.stability.time_constant for k in known for rows in k for row in rows)
        assert self.num_steps > 3 * slowest, "not settled"
        params = [with_options(first[0], config).params for config in configs]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
        start = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(fixed_point(k) for k in known))
        train = jax.vmap(lambda p, s, w: run_rounds(p, s, w)[0], in_axes=(0, 0, None))
        ends = []
        for seed in range(self.num_sets):
            setup = first[seed] if seed < len(first) else self.prepared(seed, configs[0])
            windows = stack_windows(setup, 0, self.num_steps)
            ends.append(jax.device_get(train(stacked, start, windows)))
        out = []
        for k, config in enumerate(configs):
            for m in range(2):
                split = known[k][0][m].augmentation.size
                theta = np.stack([end.clients.augmentation[k, m] for end in ends])
                row = np.stack([end.server.granger_row[k, m] for end in ends])
                block = row.reshape(len(row), 2, 2, 2)[:, :, 1 - m]
                for what, values, part in (
                    (f"theta {m + 1}", theta, slice(0, split)),
                    (f"A {m + 1}<-{2 - m}", block, slice(split, None)),
                ):
                    traces = [np.trace(states[m].cov[part, part]) for states in known[k]]
                    out.append(compare(label(config), what, values, traces))
        return out


def with_options(setup, config):
    """The same data with other step sizes and ridges."""
    full = lambda value: jnp.full(2, value)  # noqa: E731
    clients = dataclasses.replace(
        setup.params.clients,
        local_step_size=full(config.local_step_size),
        feedback_step_size=full(config.feedback_step_size),
        ridge=full(config.augmentation_ridge),
    )
    server = dataclasses.replace(
        setup.params.server,
        step_size=full(config.server_step_size),
        ridge=full(config.granger_ridge),
    )
    return setup._replace(params=type(setup.params)(clients, server))


def fixed_point(predictions):
    """Mean of x* over the predictions, as the learner's state."""
    theta = np.mean([[s.augmentation for s in states] for states in predictions], axis=0)
    blocks = np.mean([[s.granger for s in states] for states in predictions], axis=0)
    rows = np.zeros((2, 2, 4))
    rows[0, :, 2:], rows[1, :, :2] = blocks
    return RoundState(AugmentState(jnp.asarray(theta)), ServerState(jnp.asarray(rows)))


def compare(setting, what, values, traces):
    values = values.reshape(len(values), -1)
    n = len(values)
    cov = np.atleast_2d(np.cov(values.T))
    trace, square = np.trace(cov), (cov**2).sum()
    unbiased = (n - 1) ** 2 / ((n + 1) * (n - 2)) * (square - trace**2 / (n - 1))
    error = np.sqrt(2 * unbiased / (n - 1)) / trace
    predicted_error = np.std(traces, ddof=1) / np.mean(traces) / np.sqrt(len(traces))
    return Comparison(setting, what, trace, float(np.mean(traces)), error, predicted_error)


def label(config):
    sizes = (config.local_step_size, config.feedback_step_size, config.server_step_size)
    return f"({', '.join(f'{size:.0e}' for size in sizes)}) ridge {config.augmentation_ridge:g}"


def configuration(sizes, ridge):
    return fg.RunConfig(
        local_step_size=sizes[0],
        feedback_step_size=sizes[1],
        server_step_size=sizes[2],
        augmentation_ridge=ridge,
        granger_ridge=ridge,
    )


def check(rows):
    """All within LIMIT, or within what chance does to the worst of them in 1 of 100 studies."""
    k = norm.isf(0.01 / (2 * len(rows)))
    print(f"\n{'(η1, η2, γ)':<32} {'of':<8} {'data sets':>10} {'Σ∞':>10} {'excess':>8}  s.e.")
    for row in rows:
        error = np.hypot(row.found_error, row.predicted_error)
        print(
            f"{row.setting:<32} {row.what:<8} {row.found:>10.3e} {row.predicted:>10.3e} "
            f"{row.excess:>+8.1%}  {error:.1%}"
        )
    for row in rows:
        error = np.hypot(row.found_error, row.predicted_error)
        assert abs(np.log1p(row.excess)) <= max(np.log1p(LIMIT), k * error), row


@pytest.mark.slow  # trains on 64 data sets with two ridges
def test_variance_over_64_data_sets():
    """Larger steps, shorter data, fewer of them: a factor of two would show, 15 % would not."""
    study = Study(num_steps=2400, num_sets=64, num_predictions=8, sensor_dims=4)
    check(study.run([configuration((1e-3, 1e-3, 1e-3), ridge) for ridge in (0.0, 0.3)]))


@pytest.mark.slow  # trains on 240 data sets of 18 000 steps
def test_variance_over_240_data_sets():
    """The slowest mode takes 5700 steps at the smallest step sizes, so three times that many."""
    study = Study(num_steps=18_000, num_sets=240, num_predictions=4)
    check(study.run([configuration(sizes, ridge) for sizes in STEP_SIZES for ridge in RIDGES]))


@pytest.mark.slow  # trains on 240 data sets of 18 000 steps
@pytest.mark.xfail(strict=True, reason="gain noise that remembers is treated as white")
def test_variance_near_the_stability_limit():
    study = Study(num_steps=18_000, num_sets=240, num_predictions=4)
    check(study.run([configuration(TOO_LARGE, 0.0)]))
