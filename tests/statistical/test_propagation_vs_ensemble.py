"""The covariance recursion against a Monte Carlo ensemble of the real learner.

The ensemble's own error is measured, not assumed Gaussian. For Ĉ = mean of u vᵀ over R replicas,
E‖Ĉ − C‖_F² = (E[‖u‖²‖v‖²] − ‖C‖_F²) / R, and a projection ⟨Ĉ, G⟩ has the standard error of the
mean of uᵀ G v. G = I gives the trace of a covariance; G = C / ‖C‖_F gives the size of a
cross-covariance without the upward bias that ‖Ĉ‖_F has.
"""

import dataclasses
from functools import lru_cache

import jax
import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.row_inputs import prior_rows, row_params, row_windows, run_noise
from fedgranger.runtime.setup import set_up
from fedgranger.uncertainty.recursion import advance_rounds, row_quantities
from tests.ensemble import run_ensemble

STATE_DIM, NUM_SENSORS = 2, 8
TRACES = ("augmentation_cov", "granger_cov", "state_cov", "gradient_cov")
SIZES = (
    "granger_augmentation_cov",
    "augmentation_data_cov",
    "granger_state_cov",
    "augmentation_state_cov",
)
NUM_ERRORS = 5.0
"""Standard errors allowed. The whole study makes about 1600 comparisons; 5 s.e. on both sides
leave 1e-3 for a false alarm among all of them. For whole matrices it is the worst case, in which
all of the error lies in one direction; spread over n directions it would be 1 + O(1/√n)."""


@dataclasses.dataclass(frozen=True)
class Study:
    noise_sd: float
    prior_sd: float
    num_clients: int = 2
    window: int = 1
    num_steps: int = 3001
    replicas: int = 16_000
    rate: float = 1e-4
    marks: tuple[int, ...] = (30, 60, 1040, 2020, 3000)
    level: str = "joint"

    @property
    def trace_share(self):
        return 0.05 if self.prior_sd <= 0.1 else 0.10

    def __str__(self):
        return (
            f"clients={self.num_clients} W={self.window} rate={self.rate:g} "
            f"noise={self.noise_sd:g} prior={self.prior_sd:g}"
        )


@lru_cache(maxsize=8)
def quiet_setup(num_clients, window, num_steps, rate):
    """Data without measurement noise; the noise is the ensemble's and the recursion's."""
    edges = [("client1", "client2")] + [("client2", "client3")] * (num_clients > 2)
    seed = {2: 0, 3: 6}[
        num_clients
    ]  # all clients' data of similar size, so that one rate suits all
    _, truth = fg.simulate(num_clients, 10, edges=edges, seed=seed)
    quiet = dataclasses.replace(
        truth, measurement_covs={name: 1e-20 * np.eye(NUM_SENSORS) for name in truth.clients}
    )
    panel, _ = fg.simulate(num_steps=num_steps + 1, seed=seed, system=quiet)
    config = fg.RunConfig(
        window=window,
        local_step_size=rate,
        feedback_step_size=rate,
        server_step_size=20 * rate,
    )
    return set_up(panel, config, known_models(truth)), config


def inputs(study):
    setup, config = quiet_setup(study.num_clients, study.window, study.num_steps, study.rate)
    config = dataclasses.replace(
        config, augmentation_prior_scale=study.prior_sd, granger_prior_scale=study.prior_sd
    )
    covs = dict.fromkeys(setup.names, np.full(NUM_SENSORS, study.noise_sd**2))
    return setup, config, covs, run_noise(setup, covs)


def predicted(study):
    """All quantities of every client, whole matrices, at every mark."""
    setup, config, _, noise = inputs(study)
    params = row_params(setup, config, noise)
    start = prior_rows(setup, config, level=study.level, split=False, full_noise=False)
    out = []
    for client in range(study.num_clients):
        rows = np.array([client])
        own_params, state = jax.tree.map(lambda leaf, rows=rows: leaf[rows], (params, start))
        now, found = 0, []
        for mark in study.marks:
            windows = row_windows(setup, noise, now, mark - now, rows)
            state = advance_rounds(own_params, state, windows)
            window = jax.tree.map(lambda leaf: leaf[0], row_windows(setup, noise, mark, 1, rows))
            now = mark
            quantities, _ = row_quantities(own_params, state, window)
            found.append(jax.tree.map(lambda leaf: np.asarray(leaf[0]), quantities))
        out.append(found)
    return out


def centred_samples(sample, client):
    R, _, p, total = sample.granger.shape
    own = np.arange(total) // p == client
    parts = {
        "augmentation": sample.augmentation[:, client],
        "granger": sample.granger[:, client][:, :, ~own],
        "data": sample.measurement[:, client],
        "state": sample.augmented_state[:, client],
        "gradient": sample.gradient[:, client],
    }
    flat = {name: part.reshape(R, -1) for name, part in parts.items()}
    return {name: part - part.mean(axis=0) for name, part in flat.items()}


def pair_of(quantity):
    """augmentation_data_cov -> (augmentation, data); state_cov -> (state, state)."""
    names = quantity.removesuffix("_cov").split("_")
    return names[0], names[-1]


def compare(study):
    """One row per mark, client and quantity: deviations and errors, relative to the prediction."""
    setup, config, _, noise = inputs(study)
    samples = run_ensemble(
        setup, config, noise, replicas=study.replicas, marks=list(study.marks), seed=1
    )
    out = []
    for client, by_mark in enumerate(predicted(study)):
        for sample, found in zip(samples, by_mark, strict=True):
            parts = centred_samples(sample, client)
            for quantity in TRACES + SIZES:
                u, v = (parts[name] for name in pair_of(quantity))
                C = getattr(found, quantity).reshape(u.shape[1], v.shape[1])
                out.append((sample.round, client, quantity, *deviations(C, u, v, quantity)))
    return out


def deviations(C, u, v, quantity):
    """Deviation and error of the trace (or size), then of the matrix."""
    R, norm = len(u), np.linalg.norm(C)
    G = np.eye(len(C)) if quantity in TRACES else C / norm
    along = np.einsum("ri,ij,rj->r", u, G, v, optimize=True) * R / (R - 1)
    size = (C * G).sum()
    sample_cov = u.T @ v / (R - 1)
    error = ((u**2).sum(axis=1) * (v**2).sum(axis=1)).mean() - (sample_cov**2).sum()
    return (
        abs(along.mean() - size) / size,
        along.std() / np.sqrt(R) / size,
        np.linalg.norm(sample_cov - C) / norm,
        np.sqrt(error / R) / norm,
    )


def check(study, rows):
    for mark, client, quantity, size, size_error, matrix, matrix_error in rows:
        where = f"{study}: {quantity} of client {client} at round {mark}"
        assert np.isfinite([size, size_error, matrix, matrix_error]).all(), where
        assert size <= max(study.trace_share, NUM_ERRORS * size_error), where
        assert matrix <= max(0.10, NUM_ERRORS * matrix_error), where
        # the recursion is exact, so nothing but the ensemble's error should be left
        assert size <= NUM_ERRORS * size_error + 1e-9, where


def report(study, rows):
    """Largest deviations per quantity, with the ensemble's error where they occur."""
    print(f"\n{study} replicas={study.replicas}")
    for quantity in TRACES + SIZES:
        own = [row[3:] for row in rows if row[2] == quantity]
        size, matrix = max(own), max(own, key=lambda row: row[2])
        z = max(row[0] / row[1] for row in own)
        print(
            f"  {quantity:26s} size {size[0]:7.2%} (s.e. {size[1]:7.2%}, largest {z:4.1f} s.e.)"
            f"  matrix {matrix[2]:7.2%} (error {matrix[3]:7.2%})"
        )


FAST = Study(0.3, 0.1, num_steps=201, replicas=1000, rate=5e-4, marks=(100, 200))


@pytest.mark.slow  # 1000 replicas are trained
def test_recursion_vs_small_ensemble():
    rows = compare(FAST)
    report(FAST, rows)
    check(FAST, rows)


STUDIES = [
    *(Study(noise, prior) for noise in (0.03, 0.1, 0.3, 1.0) for prior in (0.01, 0.1, 1.0)),
    *(Study(noise, 0.1, rate=4e-4) for noise in (0.3, 1.0)),
    *(
        Study(noise, prior, window=20, rate=1e-3, marks=(10, 20, 63, 106, 149))
        for noise, prior in ((0.1, 0.1), (1.0, 0.1), (1.0, 1.0))
    ),
    *(Study(noise, prior, num_clients=3) for noise, prior in ((0.3, 0.1), (1.0, 1.0))),
]


@pytest.mark.slow  # 16 000 replicas of each study are trained
@pytest.mark.parametrize("study", STUDIES, ids=str)
def test_recursion_vs_ensemble(study):
    rows = compare(study)
    report(study, rows)
    check(study, rows)


@pytest.mark.slow  # compiles the recursion for shapes that no other test has
def test_propagate_table_vs_matrices_at_its_rounds():
    """The driver reports the sizes of the same matrices, whatever its threads."""
    setup, config, covs, _ = inputs(FAST)
    found = propagate(setup, config, covs, split=False, num_checkpoints=2)
    for client, (name, by_mark) in enumerate(zip(setup.names, predicted(FAST), strict=True)):
        for quantity in TRACES:
            trace = found.trace(
                quantity, name, setup.names[1 - client] if "granger" in quantity else ""
            )
            assert trace["round"].tolist() == [0, *FAST.marks]
            for total, matrices in zip(trace["total"].iloc[1:], by_mark, strict=True):
                C = getattr(matrices, quantity)
                n = int(np.sqrt(C.size))
                np.testing.assert_allclose(total, np.trace(C.reshape(n, n)), rtol=1e-9)
        for got, expected in zip(found.final[name], by_mark[-1], strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-15)
