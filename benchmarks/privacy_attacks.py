"""What a curious server, or a curious other client, gets out of the messages of real runs.

    python -m benchmarks.privacy_attacks

Real clients talk to the real server in one process; the attacker has everything that was said, and
more than a real one has: half of the true record, to learn from. The tables are in docs/privacy.md.
"""

from typing import NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
import scipy.linalg  # noqa: E402
from scipy.stats import norm  # noqa: E402

import fedgranger as fg  # noqa: E402
from fedgranger.client.client_side import set_up_client, with_learner  # noqa: E402
from fedgranger.client.params import known_models  # noqa: E402
from fedgranger.client.prepared_client import prepare_client  # noqa: E402
from fedgranger.client.private_learner import PrivateLearner  # noqa: E402
from fedgranger.client.private_states import protect_states, state_unit  # noqa: E402
from fedgranger.client.state_noise import state_readout  # noqa: E402
from fedgranger.data.treatment import NO_TREATMENT  # noqa: E402
from fedgranger.federation.gradient_noise import GradientNoise  # noqa: E402
from fedgranger.privacy.release import SecretNoise  # noqa: E402
from fedgranger.server.newton_trainer import NewtonTrainer  # noqa: E402
from fedgranger.server.round_messages import RoundMessages, Rows  # noqa: E402
from tests.privacy.audit_trials import (  # noqa: E402
    MODEL,
    config_of,
    measured,
    rounds_config,
    secret,
)
from tests.privacy.auditing import Replayed, Tapped, log_ratio  # noqa: E402

STEPS, ROUNDS, FALSE_ALARMS = 2000, 8, 0.01
EPSILONS = (1.0, 8.0, 64.0)


def explained(target, seen):
    """R² of the second half of the record, for an attacker who knows the first."""
    half = len(target) // 2
    X = np.column_stack([np.ones(len(seen)), (seen - seen.mean(axis=0)) / seen.std(axis=0)])
    weights = np.linalg.lstsq(X[:half], target[:half], rcond=1e-12)[0]
    left = target[half:] - X[half:] @ weights
    total = target[half:] - target[half:].mean(axis=0)
    return 1 - (left**2).sum() / (total**2).sum()


class Heard(NamedTuple):
    """What was said: the first client's sensors, and its states with noise and without.

    `rounds` are what every round added to the filtered states, `gradients` what the first client
    was sent, `others` the second client's states without noise.
    """

    sensors: np.ndarray
    states: np.ndarray
    filtered: np.ndarray
    rounds: list[np.ndarray]
    gradients: list[np.ndarray]
    others: np.ndarray


def listen(num_clients, sensors, **options):
    """States and rounds of real clients with a real server, without edge tests."""
    panel, truth = fg.simulate(
        num_clients,
        STEPS,
        sensor_dims=sensors,
        state_dims=2,
        edges=[("client2", "client1")],
        measurement_var=10.0,
        seed=3,
    )
    chosen = {"solver": "newton", "private_rounds": ROUNDS, "period": "none", **options}
    config = fg.RunConfig(**chosen)
    sides, noises = [], [SecretNoise(f"site {name}".encode()) for name in panel.names]
    starts, rng = panel.segment_starts, np.random.default_rng(7)
    for name, noise in zip(panel.names, noises, strict=True):
        model = known_models(truth)[name]
        side = set_up_client(panel[name], panel.time, starts, config, model=model, noise=noise)
        theta = rng.normal(size=model.augmentation_shape)
        sides.append(with_learner(side, config, STEPS, theta, noise))
    if config.solver == "none":
        return Heard(panel["client1"].values, sides[0].states, *[np.zeros((0, 0))] * 4)
    hellos = [side.for_rounds.hello for side in sides]
    rows = Rows(
        panel.names,
        tuple(np.asarray(hello.self_transition) for hello in hellos),
        np.array([float(hello.state_gain) for hello in hellos]),
        STEPS - 1,
    )
    trainer, protect = NewtonTrainer(rows, config, STEPS), None
    if config.privacy == "to-clients":
        noise = SecretNoise(b"the server")
        protect = GradientNoise(config, noise, STEPS - 1, num_clients).protect
    memories, memory = [side.learner.initial() for side in sides], trainer.initial()
    heard, sent = [], []
    for k in range(ROUNDS):
        said = [s.learner.send(m, k, 0) for s, m in zip(sides, memories, strict=True)]
        columns = [[one[field] for one in said] for field in said[0]]
        heard.append(said[0]["augmented_states"] - said[0]["filtered_states"])
        memory, gradients = trainer.step(memory, k, RoundMessages(*columns, None))
        if gradients is None or k == ROUNDS - 1:
            break
        gradients = gradients if protect is None else protect(k, gradients)
        sent.append(gradients[0])
        memories = [
            side.learner.learn(memory, k + 1, [own])
            for side, memory, own in zip(sides, memories, gradients, strict=True)
        ]
    other = sides[1]
    clean = (
        other.data.values
        @ state_readout(other.model.observation_matrix, other.model.measurement_cov).weights.T
    )
    sensors = panel["client1"].values
    return Heard(sensors, sides[0].states, said[0]["filtered_states"], heard, sent, clean)


def reconstruction():
    """(a) y from the messages, by least squares."""
    for sensors in (2, 8):
        got = listen(2, sensors)
        yield f"states, {sensors} sensors, no noise", explained(got.sensors, got.states)
    for k in (1, 2, 3, 4):
        seen = np.column_stack([got.filtered, *got.rounds[:k]])
        yield f"{k} rounds, 8 sensors, no noise", explained(got.sensors[:-1], seen)
    for epsilon in EPSILONS:
        got = listen(2, 8, privacy="to-server", epsilon=epsilon)
        seen = np.column_stack([got.states[:-1], got.filtered, *got.rounds])
        share = explained(got.sensors[:-1], seen)
        yield f"states and {len(got.rounds)} rounds, 8 sensors, ε = {epsilon:g}", share
        got = listen(2, 8, privacy="to-server", epsilon=epsilon, solver="none")
        yield f"states alone, 8 sensors, ε = {epsilon:g}", explained(got.sensors, got.states)


def detection(trials=1000, steps=200):
    """(b), (d) Whether one event happened, for a server that knows all the rest of the record."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(steps, 2)) @ state_unit(np.zeros((0, 2)), MODEL).T
    for epsilon in EPSILONS:
        config = config_of(epsilon)
        terms = config.client_terms
        sizes = terms.sizes(2, steps, has_tests=True, has_rounds=False)
        L, bound = state_unit(np.zeros((0, 2)), MODEL), terms.bound(2)
        for size in (1.0, 3.0, 2 * bound):
            both = [states.copy(), states.copy()]
            direction = L @ np.array([1.0, 0.0])
            both[0][50], both[1][50] = size / 2 * direction, -size / 2 * direction
            scores = np.zeros((2, trials))
            for side in (0, 1):
                for trial in range(trials):
                    noise = Tapped(secret(trial, side))
                    _protect(both[side], terms, sizes, noise)
                    other = Replayed(noise.told)
                    _protect(both[1 - side], terms, sizes, other)
                    ratio = log_ratio(noise.told, other.cleans)
                    scores[side, trial] = ratio if side == 0 else -ratio
            found = float((scores[0] > np.quantile(scores[1], 1 - FALSE_ALARMS)).mean())
            exact = _power(sizes.states * size / (2 * bound))
            yield epsilon, size, found, exact, _power(sizes.total(0))


def filtered_detection(steps=200):
    """(b) The same from filtered states of a run with rounds: exact, the noise is Gaussian."""
    starts = np.zeros(steps, dtype=np.bool_)
    for epsilon in EPSILONS:
        config = rounds_config(epsilon, test="auto")
        for size in (1.0, 3.0, 2 * config.client_terms.bound(3)):
            C, A = MODEL.observation_matrix, MODEL.self_transition
            P = scipy.linalg.solve_discrete_lyapunov(A, MODEL.process_cov)
            L = np.linalg.cholesky(C @ P @ C.T + MODEL.measurement_cov)
            told = []
            for sign in (1, -1):
                z = np.zeros((steps, 3))
                z[50, 0] = sign * size / 2
                client = measured(z @ L.T)
                prepared = prepare_client(client, starts, config, steps - 1, MODEL)
                noise = Tapped(b"s")
                PrivateLearner(client, starts, prepared, config, steps, np.ones((2, 3)), noise)
                told.append(noise.told[0])
            moved = (told[0].clean - told[1].clean) @ np.linalg.inv(told[0].scale).T
            sizes = config.client_terms.sizes(2, steps, has_tests=True, has_rounds=True)
            power = _power(float(np.linalg.norm(moved)))
            yield epsilon, size, power, _power(sizes.filtered)


def _protect(states, terms, sizes, noise):
    observed = np.ones(len(states), dtype=np.bool_)
    protect_states(states, observed, MODEL, terms, sizes, noise, NO_TREATMENT)


def _power(mu):
    """TPR of a release of size μ at `FALSE_ALARMS`."""
    return float(norm.cdf(norm.ppf(FALSE_ALARMS) + mu))


def stranger(trials=4000):
    """(b) Whether one event happened, for a server that knows only what it was sent.

    It predicts the state from its own past (A of the model) and looks at the error; in the filtered
    states it looks for the trace that an event leaves.
    """
    rng, rows = np.random.default_rng(1), []
    A, L = MODEL.self_transition, state_unit(np.zeros((0, 2)), MODEL)
    for epsilon in (*EPSILONS, np.inf):
        noise = 0.0
        if np.isfinite(epsilon):
            terms = config_of(epsilon).client_terms
            sizes = terms.sizes(2, 200, has_tests=True, has_rounds=False)
            noise = 2 * terms.bound(2) / sizes.states
        for size in (1.0, 3.0, 7.4):
            x = rng.normal(size=(2, trials, 2)) @ L.T  # s_t-1, with its error
            after = x @ A.T + rng.normal(size=(2, trials, 2))
            after[0] += size * L[:, 0]
            seen = [part + noise * rng.normal(size=part.shape) @ L.T for part in (x, after)]
            errors = (seen[1] - seen[0] @ A.T) @ np.linalg.inv(_error_cov(A, L, noise)) @ L[:, 0]
            limit = np.quantile(errors[1], 1 - FALSE_ALARMS)
            rows.append((epsilon, size, float((errors[0] > limit).mean())))
    return rows


def _error_cov(A, L, noise):
    added = noise**2 * L @ L.T
    return np.eye(2) + added + A @ added @ A.T


def curious_client():
    """(c) Another client's states from the gradients that a client receives."""
    for num_clients in (2, 4):
        for name, options in (
            ("none", {}),
            ("to-clients, ε = 64", {"privacy": "to-clients", "epsilon": 64.0}),
            ("to-clients, ε = 8", {"privacy": "to-clients", "epsilon": 8.0}),
            ("to-server, ε = 64", {"privacy": "to-server", "epsilon": 64.0}),
            ("to-server, ε = 8", {"privacy": "to-server", "epsilon": 8.0}),
        ):
            got = listen(num_clients, 8, **options)
            yield num_clients, name, explained(got.others[:-1], np.column_stack(got.gradients))


def main():
    print("(a) share of the sensors' variance that the server reconstructs\n")
    for name, share in reconstruction():
        print(f"  {name:<45} {share:6.3f}", flush=True)
    print("\n(b), (d) one event; the server knows the rest of the record; 1 % false alarms\n")
    print(f"  {'ε':>5} {'size':>6} {'found':>7} {'exact':>7} {'bound by μ':>11}")
    for epsilon, *numbers in detection():
        size, found, exact, bound = numbers
        print(
            f"  {epsilon:>5g} {size:>6.2f} {found:>7.3f} {exact:>7.3f} {bound:>11.3f}", flush=True
        )
    print("\n(b) the same, from filtered states alone\n")
    for epsilon, size, found, bound in filtered_detection():
        print(f"  {epsilon:>5g} {size:>6.2f} {found:>7.3f} {bound:>11.3f}", flush=True)
    print("\n(b) one event; the server knows only what it was sent; 1 % false alarms\n")
    for epsilon, size, found in stranger():
        print(f"  {epsilon:>5g} {size:>6.2f} {found:>7.3f}")
    print("\n(c) share of another client's states that the gradients show\n")
    for num_clients, name, share in curious_client():
        print(f"  {num_clients} clients  {name:<20} {share:6.3f}", flush=True)


if __name__ == "__main__":
    main()
