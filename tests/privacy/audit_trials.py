"""Trials of the audit, or as a process: python -m tests.privacy.audit_trials OUT CASES.

CASES is JSON, a table of options of `run_case` for every name; OUT becomes an npz file with both
sets of scores of every case. Under pytest every call of the client would have its types checked,
which takes longer than the call, unless it is `unchecked`.
"""

import functools
import json
import math
import sys
from typing import NamedTuple

import jax
import numpy as np
import scipy.linalg

from fedgranger.client import private_learner
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import prepare_client
from fedgranger.client.private_learner import PrivateLearner
from fedgranger.client.private_states import protect_states, state_unit
from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData
from fedgranger.data.treatment import NO_TREATMENT
from fedgranger.privacy.sensitivity import Neighbours
from fedgranger.privacy.terms import PrivacyTerms
from fedgranger.server.newton_trainer import NewtonTrainer
from fedgranger.server.round_messages import RoundMessages, Rows
from tests.privacy.auditing import Replayed, Tapped, log_ratio

STEPS, CHANGED, ROUNDS, DELTA = 24, 10, 3, 1e-5
MODEL = LocalModel(
    np.array([[0.6, 0.2], [0.0, 0.4]]),
    np.array([[1.0, 0.0], [0.3, 1.0], [0.5, -0.5]]),
    np.eye(2),
    np.diag([0.3, 0.2, 0.4]),
    np.zeros(3),
    np.ones(3),
)


def config_of(epsilon, **options):
    chosen = {"privacy": "to-server", "epsilon": epsilon, "delta": DELTA, "period": "none"}
    return RunConfig(**{**chosen, **options})


def secret(trial, side):
    return f"audit {trial} {side}".encode()


class Scores(NamedTuple):
    """Log-likelihood ratios of a record against its neighbour, and of the neighbour against it."""

    own: np.ndarray
    other: np.ndarray


# ---- states, sent once


def states_and_neighbour(config, num_changed):
    """States at the bound on both sides; those of the first record are a little longer."""
    terms = config.client_terms
    L, B = state_unit(np.zeros((0, 2)), MODEL), terms.bound(2)
    direction = np.array([0.6, -0.8])
    states = np.random.default_rng(0).normal(size=(STEPS, 2)) @ L.T
    neighbour = states.copy()
    rows = slice(CHANGED, CHANGED + num_changed)
    states[rows] = 3.0 * B * direction @ L.T
    neighbour[rows] = -(1 - 1e-12) * B * direction @ L.T  # not clipped: the count differs, too
    return states, neighbour


def audit_states(config, num_changed, trials, factor=1.0):
    both = states_and_neighbour(config, num_changed)
    terms = config.client_terms
    sizes = terms.sizes(2, STEPS, has_tests=True, has_rounds=False)

    def send(states, noise):
        observed = np.ones(STEPS, dtype=np.bool_)
        return protect_states(states, observed, MODEL, terms, sizes, noise, NO_TREATMENT)

    scores = np.zeros((2, trials))
    for side in (0, 1):
        replayed = None
        for trial in range(trials):
            noise = Tapped(secret(trial, side), factor)
            send(both[side], noise)
            if replayed is None:  # what the neighbour hides does not depend on what was told
                replayed = Replayed(noise.told)
                send(both[1 - side], replayed)
            ratio = log_ratio(noise.told, replayed.cleans)
            scores[side, trial] = ratio if side == 0 else -ratio
    return Scores(*scores)


# ---- rounds of FedGC


def remembered(function):
    """The same function, which computes once for the same arguments."""
    known = {}

    def call(*args):
        key = tuple(_key(arg) for arg in args)
        if key not in known:
            known[key] = function(*args)
        return known[key]

    return call


def prepare_once(put=setattr):
    """What depends on data and options alone is computed once; the code is the real one."""
    for name in ("filter_data", "filtered", "model_units", "steady_gain"):
        put(private_learner, name, remembered(getattr(private_learner, name)))
    put(PrivacyTerms, "sizes", functools.cache(PrivacyTerms.sizes))


def _key(arg):
    """Everything that the result may depend on: a forgotten argument would make a wrong audit."""
    if isinstance(arg, np.ndarray):
        return arg.shape, arg.tobytes()
    if isinstance(arg, ClientData):
        return arg.values.tobytes(), arg.observed.tobytes()
    if isinstance(arg, tuple):
        return tuple(map(_key, arg))
    if arg is MODEL or isinstance(arg, str | int | float | Neighbours):
        return arg if arg is not MODEL else "the model"
    raise TypeError(type(arg))


def measured(values):
    names = tuple(f"s{k}" for k in range(values.shape[1]))
    return ClientData("client1", names, values, np.ones(values.shape, dtype=np.bool_))


def records(config, num_changed=1):
    """Measurements at the bound, and some that jump to the other side of it."""
    terms = config.client_terms
    P = scipy.linalg.solve_discrete_lyapunov(MODEL.self_transition, MODEL.process_cov)
    C = MODEL.observation_matrix
    L = np.linalg.cholesky(C @ P @ C.T + MODEL.measurement_cov)
    direction = np.linalg.svd(private_learner.steady_gain(MODEL).gain @ L)[2][0]
    z = np.tile(2.0 * terms.bound(3) * direction, (STEPS, 1))
    other = z.copy()
    other[CHANGED : CHANGED + num_changed] *= -1
    return [measured(part @ L.T) for part in (z, other)]


def spying_server(_messages):
    """Gradients that make θ see one time step and nothing else."""
    gradients = np.zeros((STEPS - 1, 2))
    gradients[CHANGED] = [1e4, 0.0]
    return gradients


class HonestServer:
    """The real one, with another client whose messages are always the same."""

    def __init__(self):
        A, rng = MODEL.self_transition, np.random.default_rng(5)
        rows = Rows(("client1", "client2"), (A, A), np.ones(2), STEPS - 1)
        config = RunConfig(solver="newton", test="none")
        self._trainer, self._round = NewtonTrainer(rows, config, STEPS), 0
        self._memory = self._trainer.initial()
        self._states = rng.normal(size=(STEPS - 1, 2))

    def __call__(self, messages):
        observed = [np.ones(STEPS - 1, dtype=np.bool_)] * 2
        filtered = [messages["filtered_states"], self._states]
        augmented = [messages["augmented_states"], 1.1 * self._states]
        answer = RoundMessages(filtered, augmented, observed, None)
        self._round += 1
        self._memory, gradients = self._trainer.step(self._memory, self._round - 1, answer)
        return gradients[0]


def converse(learner, server):
    """All messages of a run; θ of its last round."""
    memory = learner.initial()
    for round_index in range(ROUNDS):
        messages = learner.send(memory, round_index, 0)
        if round_index < ROUNDS - 1:
            memory = learner.learn(memory, round_index + 1, [server(messages)])
    return memory.augmentation


def audit_rounds(config, make_server, trials, num_changed=1, **wrong):
    both = records(config, num_changed)
    starts = np.zeros(STEPS, dtype=np.bool_)
    prepared = [prepare_client(one, starts, config, STEPS - 1, MODEL) for one in both]
    silent = wrong.get("silent", ())

    def run(side, noise, start):
        learner = PrivateLearner(both[side], starts, prepared[side], config, STEPS, start, noise)
        return converse(learner, make_server())

    scores = np.zeros((2, trials))
    for side in (0, 1):
        for trial in range(trials):
            start = np.random.default_rng(trial).normal(size=(2, 3))
            noise = Tapped(secret(trial, side), **wrong)
            theta = run(side, noise, start)
            replayed = Replayed(noise.told, silent)
            other = run(1 - side, replayed, start)
            if not silent:  # θ has seen nothing but what was told
                assert np.array_equal(theta, other)
            ratio = log_ratio(noise.told, replayed.cleans)
            scores[side, trial] = ratio if side == 0 else -ratio
    return Scores(*scores)


def reported_size(config, *messages):
    """μ of the run; only of some messages, where others are left out by mistake."""
    sizes = config.client_terms.sizes(2, STEPS, has_tests=False, has_rounds=True)
    times = {"filtered": 1, "moments": 1, "augmented": ROUNDS, "feedback": ROUNDS - 1}
    chosen = messages or times
    return math.sqrt(sum(times[name] * getattr(sizes, name) ** 2 for name in chosen))


def rounds_config(epsilon, **options):
    chosen = {"solver": "newton", "private_rounds": ROUNDS, "test": "none", **options}
    return config_of(epsilon, **chosen)


SERVERS = {"spying": lambda: spying_server, "honest": HonestServer}


def run_case(*, epsilon, trials, changed=1, server="", **wrong):
    """Scores of one case: states alone, or with a server its rounds of FedGC."""
    near = {"neighbours": "window", "neighbour_steps": changed} if changed > 1 else {}
    if server:
        config = rounds_config(epsilon, **near)
        return audit_rounds(config, SERVERS[server], trials, changed, **wrong)
    return audit_states(config_of(epsilon, **near), changed, trials, **wrong)


def run_cases(cases):
    """Both sets of scores of every case."""
    with jax.enable_x64(True):
        return {name: np.stack(run_case(**case)) for name, case in cases.items()}


def main(out, cases):
    """Run all cases."""
    prepare_once()
    np.savez(out, **run_cases(json.loads(cases)))


if __name__ == "__main__":
    main(*sys.argv[1:])
