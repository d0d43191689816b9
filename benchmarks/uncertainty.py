"""Cost of uncertainty: how it grows, beside a naive implementation, and beside training.

    python -m benchmarks.uncertainty

All in one run and one language; compile time is not counted; best of several. Beside training,
both are timed in turn and over equal times, because a short run is more likely to meet a quiet
moment of the machine than a long one; the median of the ratios counts. Exit code 1 when the cost
grows faster than d^2.2, the naive form is less than 20 times slower, or one pass with uncertainty
costs more than 40 times training alone.
"""

import itertools
import json
import sys
import time
from functools import partial
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import fedgranger as fg  # noqa: E402
from fedgranger import rounds  # noqa: E402
from fedgranger.runtime.inprocess import run_rounds, stack_windows  # noqa: E402
from fedgranger.runtime.propagation import propagate  # noqa: E402
from fedgranger.runtime.setup import initial_state, set_up  # noqa: E402
from fedgranger.uncertainty import noise_terms, recursion  # noqa: E402
from fedgranger.uncertainty.covariance_update import next_cov, update_terms  # noqa: E402
from fedgranger.uncertainty.inputs import RowParams, row_window  # noqa: E402
from fedgranger.uncertainty.mean_recursion import next_data_cov, next_means  # noqa: E402
from fedgranger.uncertainty.recursion import advance_rounds, prior_state  # noqa: E402
from fedgranger.uncertainty.round_terms import sum_terms  # noqa: E402

P = 2
SENSORS = (8, 16, 32, 64, 128, 256, 512)
CLIENTS = (2, 4, 8, 16, 32)
NAIVE_SENSORS = 64
LARGEST_EXPONENT, LEAST_NAIVE_RATIO, LARGEST_TRAINING_RATIO = 2.2, 20.0, 40.0
SECONDS = 1.0
TRAINING_STEPS = 5_000
TARGET = Path("benchmarks/results/uncertainty.json")


def make_rows(num_clients, d, num_rounds):
    """All rows of a system: constants and rounds, of random data of unit size."""
    rng = np.random.default_rng(0)
    M, q = num_clients, P * (num_clients - 1)

    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape))

    params = RowParams(
        0.5 * jnp.tile(jnp.eye(P), (M, 1, 1)),
        normal(M, d, P) / np.sqrt(d),
        *(jnp.full(M, size / (d + q)) for size in (0.02, 0.02, 0.02)),
        jnp.full(M, 1e-3),
        jnp.full(M, 1e-3),
        jnp.ones((M, q)),
    )
    flags = jnp.ones((num_rounds, M, 1), bool)
    windows = jax.vmap(row_window, in_axes=(0, 0, 0, 0, 0, 0, None))(
        normal(num_rounds, M, 1, d),
        normal(num_rounds, M, 1, q),
        normal(num_rounds, M, 1, P),
        jnp.full((num_rounds, M, 1, d), 0.1),
        flags,
        flags,
        params.coupling,
    )
    return params, windows


def start(num_clients, d, level):
    M, q = num_clients, P * (num_clients - 1)
    return prior_state(
        jnp.zeros((M, P, d)),
        jnp.zeros((M, P, q)),
        jnp.full((M, P, d), 0.01),
        jnp.full((M, P, q), 0.01),
        groups=1 if level == "joint" else M - 1,
        split=False,
    )


def best_seconds(run, budget=SECONDS, at_least=3):
    """Shortest of several runs after one that compiles."""
    run()
    begin, times = time.perf_counter(), []
    while len(times) < at_least or time.perf_counter() - begin < budget:
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return min(times)


def cost_per_step(num_clients, d, level):
    """Seconds per round of all rows: means, what a round adds, covariance."""
    entries = num_clients * (P * (d + P * (num_clients - 1))) ** 2
    num_rounds = int(np.clip(2e7 / entries, 4, 2000))
    params, windows = make_rows(num_clients, d, num_rounds)
    state = start(num_clients, d, level)
    run = lambda: jax.block_until_ready(advance_rounds(params, state, windows))  # noqa: E731
    return best_seconds(run) / num_rounds


def exponent(sizes, seconds):
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def naive_matrices(params, y, g):
    """F (without noise), N and L of one step, formed with Kronecker products (columns stacked)."""
    A, CA = params.self_transition, params.predicted_observation
    eta1, eta2, gamma = params.local_step_size, params.feedback_step_size, params.server_step_size
    identity = jnp.eye(P)
    N = jnp.block(
        [
            [2 * eta1 * CA.T @ CA + 2 * eta2 * A.T @ A, -2 * eta2 * A.T],
            [-2 * gamma * A, 2 * gamma * identity],
        ]
    )
    d, q = len(y), len(g)
    L = jnp.zeros((P * (d + q), 2 * P))
    L = L.at[: P * d, :P].set(jnp.kron(y[:, None], identity))
    L = L.at[P * d :, P:].set(jnp.kron(g[:, None], identity))
    ridge = jnp.concatenate(
        [
            jnp.full(P * d, 2 * eta1 * params.augmentation_ridge),
            jnp.full(P * q, 2 * gamma * params.granger_ridge),
        ]
    )
    return jnp.diag(1 - ridge) - L @ N @ L.T, N, L


def naive_step(params, with_second_order, carry, window):
    """F̄ΣF̄ᵀ + JVJᵀ (+ E[δFΣδFᵀ]) with every matrix formed; means as the learner moves them."""
    theta, granger, sigma = carry
    y, g, target, V = (x[0] for x in window)
    A, CA = params.self_transition, params.predicted_observation
    d, q = len(y), len(g)
    F, N, L = naive_matrices(params, y, g)
    F = F.at[: P * d, : P * d].add(-jnp.kron(jnp.diag(V), N[:P, :P]))
    residual = A @ theta @ y - granger @ g
    e = 2 * params.local_step_size * (target - CA.T @ CA @ theta @ y)
    e = e - 2 * params.feedback_step_size * A.T @ residual
    J = jnp.zeros((P * (d + q), d))
    J = J.at[: P * d].set(
        jnp.kron(jnp.eye(d), e[:, None]) - jnp.kron(y[:, None], N[:P, :P] @ theta)
    )
    J = J.at[P * d :].set(2 * params.server_step_size * jnp.kron(g[:, None], A @ theta))
    new = F @ sigma @ F.T + J @ jnp.diag(V) @ J.T
    if with_second_order:
        LN = L @ N

        def add(total, j):  # dF/dε_j, a matrix per noise coordinate
            unit = jnp.zeros(d).at[j].set(1.0)
            direction = jnp.zeros((P * (d + q), 2 * P))
            direction = direction.at[: P * d, :P].set(jnp.kron(unit[:, None], jnp.eye(P)))
            change = direction @ N @ L.T + LN @ direction.T
            return total + V[j] * change @ sigma @ change.T, None

        new = lax.scan(add, new, jnp.arange(d))[0]
    theta = theta + e[:, None] * y[None]
    granger = granger + 2 * params.server_step_size * residual[:, None] * g[None]
    return (theta, granger, new), None


@partial(jax.jit, static_argnames="with_second_order")
def naive(params, carry, windows, with_second_order):
    step = partial(naive_step, params, with_second_order)
    return lax.scan(step, carry, windows)[0]


def naive_seconds(d, num_rounds, with_second_order):
    """Seconds per round of both rows of two clients."""
    params, windows = make_rows(2, d, num_rounds)
    rows = []
    for m in range(2):
        own = jax.tree.map(lambda leaf, m=m: leaf[m], params)
        parts = tuple(
            leaf[:, m]
            for leaf in (
                windows.measurements,
                windows.causes,
                windows.local_targets,
                windows.noise,
            )
        )
        n = P * (d + P)
        rows.append((own, (jnp.zeros((P, d)), jnp.zeros((P, P)), 0.01 * jnp.eye(n)), parts))

    def run():
        jax.block_until_ready([naive(*row, with_second_order) for row in rows])

    return best_seconds(run, budget=2 * SECONDS, at_least=2) / num_rounds


def seconds_of(run, repeats=1):
    before = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - before) / repeats


def beside_training(num_pairs=15):
    """Seconds of a pass of training and of propagating (without and with split), and ratios.

    Every pass with uncertainty stands between two stretches of training of about its own length.
    """
    panel, _ = fg.simulate(6, TRAINING_STEPS + 1, seed=0)
    config = fg.RunConfig(state_dim=2, state_model="ppca")
    setup = set_up(panel, config)
    state = initial_state(setup, config)
    windows = stack_windows(setup, 0, TRAINING_STEPS)

    def train():
        jax.block_until_ready(run_rounds(setup.params, state, windows))

    out, training = {}, []
    for name, split in (("propagation", False), ("propagation_split", True)):
        run = partial(propagate, setup, config, split=split)
        for _ in range(2):  # the first compiles
            train()
            alone, seconds = seconds_of(train), seconds_of(run)
        repeats = max(round(seconds / alone), 1)
        around, taken = [seconds_of(train, repeats)], []
        for _ in range(num_pairs):
            taken.append(seconds_of(run))
            around.append(seconds_of(train, repeats))
        beside = np.array([(a + b) / 2 for a, b in itertools.pairwise(around)])
        low, middle, high = np.percentile(np.array(taken) / beside, [25, 50, 75]).tolist()
        out[name] = {"seconds": np.median(taken), "ratio": middle, "quartiles": [low, high]}
        training.extend(around)
    out["training"] = {"seconds": np.median(training)}
    return out


def stages():
    """Seconds per step of the recursion's three stages, six clients and eight sensors."""
    num_rounds = 500
    params, windows = make_rows(6, 8, num_rounds)
    state = start(6, 8, "joint")
    _, means = recursion._scan_means(params, state.mean, windows)
    terms = recursion._all_noise_terms(params, means, windows)
    runs = {
        "means": lambda: recursion._scan_means(params, state.mean, windows),
        "terms": lambda: recursion._all_noise_terms(params, means, windows),
        "covariance": lambda: recursion._scan_cov(state.cov, windows, *terms, every=num_rounds),
    }
    return {
        name: best_seconds(lambda run=run: jax.block_until_ready(run())) / num_rounds
        for name, run in runs.items()
    }


def count_operations(step, *inputs):
    """Floating-point operations of one step, as the compiler counts them."""
    return jax.jit(step).lower(*inputs).compile().cost_analysis()["flops"]


def mean_step(params, mean, window):
    """Means of one row after a round, and their covariance with its last measurement."""
    before = params, mean.augmentation, mean.granger, mean.last_step, window
    return next_means(*before), next_data_cov(*before)


def round_terms(params, mean, window):
    """What the noise of a round adds to the covariance of one row."""
    moments = noise_terms.round_moments(params, mean, window)
    factors = noise_terms.noise_factors(params, mean, window, moments)
    return noise_terms.noise_terms(params, mean, window, moments.gain, factors)


def cov_step(cov, window, added):
    """Covariance of one row after a round."""
    terms = sum_terms(update_terms(added.gain, window, cov), added.steps)
    return next_cov(added.gain, window, cov, terms, added.dense)


def operations():
    """Operations per step of training and of the recursion's stages, six clients."""
    panel, _ = fg.simulate(6, 101, seed=0)
    config = fg.RunConfig(state_dim=2, state_model="ppca")
    setup = set_up(panel, config)
    window = jax.tree.map(lambda leaf: leaf[0], stack_windows(setup, 0, 100))
    params, windows = make_rows(6, 8, 1)
    state, first = start(6, 8, "joint"), jax.tree.map(lambda leaf: leaf[0], windows)
    terms = jax.vmap(round_terms)(params, state.mean, first)
    training = count_operations(rounds.step, setup.params, initial_state(setup, config), window)
    return {
        "training": training,
        "means": count_operations(jax.vmap(mean_step), params, state.mean, first),
        "terms": count_operations(jax.vmap(round_terms), params, state.mean, first),
        "covariance": count_operations(jax.vmap(cov_step), state.cov, first, terms),
    }


def passes_of_a_fit():
    """Passes that training takes by default on the same data, until it has converged."""
    panel, _ = fg.simulate(6, TRAINING_STEPS + 1, seed=0)
    result = fg.fit(panel, fg.RunConfig(state_dim=2, state_model="ppca", test="none"))
    return result.manifest["training"]["passes"]


def main():
    out = {"by_sensors": {}, "by_clients": {}}
    print("seconds per step, two clients, blockwise")
    for d in SENSORS:
        out["by_sensors"][d] = cost_per_step(2, d, "blockwise")
        print(f"  d = {d:>4}  {out['by_sensors'][d] * 1e6:>12.1f} us", flush=True)
    sizes, seconds = np.array(SENSORS), np.array(list(out["by_sensors"].values()))
    large = sizes >= 64
    out["exponent"] = exponent(sizes[large], seconds[large])
    out["exponent_all"] = exponent(sizes, seconds)
    print(f"  grows as d^{out['exponent']:.2f} from d = 64, d^{out['exponent_all']:.2f} over all")

    print("seconds per step, d = 8")
    for M in CLIENTS:
        row = {level: cost_per_step(M, 8, level) for level in ("joint", "blockwise")}
        out["by_clients"][M] = row
        print(
            f"  M = {M:>3}  joint {row['joint'] * 1e6:>12.1f} us  "
            f"blockwise {row['blockwise'] * 1e6:>12.1f} us",
            flush=True,
        )

    ours = {level: cost_per_step(2, NAIVE_SENSORS, level) for level in ("joint", "blockwise")}
    full = naive_seconds(NAIVE_SENSORS, 8, with_second_order=True)
    first = naive_seconds(NAIVE_SENSORS, 64, with_second_order=False)
    out["naive"] = {
        "sensors": NAIVE_SENSORS,
        "seconds": ours,
        "naive_seconds": full,
        "naive_first_order_seconds": first,
        "ratio": full / ours["joint"],
        "first_order_ratio": first / ours["joint"],
    }
    print(
        f"d = {NAIVE_SENSORS}: joint {ours['joint'] * 1e6:.0f} us, blockwise "
        f"{ours['blockwise'] * 1e6:.0f} us, naive {full * 1e6:.0f} us "
        f"({full / ours['joint']:.0f} times), naive without the second-order term "
        f"{first * 1e6:.0f} us ({first / ours['joint']:.1f} times)",
        flush=True,
    )

    out["beside_training"] = found = beside_training()
    alone = found["training"]["seconds"]
    print(f"M = 6, d = 8, {TRAINING_STEPS} steps: a pass of training {alone * 1e3:.0f} ms")
    for name, what in (
        ("propagation", "one pass with uncertainty"),
        ("propagation_split", "with the prior's share kept apart"),
    ):
        one = found[name]
        print(
            f"  {what}: {one['seconds'] * 1e3:.0f} ms, {one['ratio']:.1f} times training "
            f"(half of the pairs {one['quartiles'][0]:.1f} to {one['quartiles'][1]:.1f})",
            flush=True,
        )
    ratio = found["propagation"]["ratio"]
    out["stages"] = stages()
    parts = ", ".join(f"{name} {seconds * 1e6:.1f} us" for name, seconds in out["stages"].items())
    print(f"  best times per step: {parts}")
    out["operations"] = counts = operations()
    recursion = sum(counts.values()) - counts["training"]
    parts = ", ".join(f"{name} {count:.0f}" for name, count in counts.items())
    print(
        f"  operations per step: {parts}: the recursion takes {recursion / counts['training']:.0f} "
        f"times those of training, the covariance alone "
        f"{counts['covariance'] / counts['training']:.0f} times"
    )
    out["passes"] = passes_of_a_fit()
    print(
        f"  training to convergence takes {out['passes']} passes; the one pass with uncertainty "
        f"costs {ratio / out['passes']:.2f} times that"
    )
    failures = [
        message
        for failed, message in (
            (out["exponent"] > LARGEST_EXPONENT, f"exponent above {LARGEST_EXPONENT}"),
            (out["naive"]["ratio"] < LEAST_NAIVE_RATIO, f"naive ratio below {LEAST_NAIVE_RATIO}"),
            (
                ratio > LARGEST_TRAINING_RATIO,
                f"training ratio above {LARGEST_TRAINING_RATIO}",
            ),
        )
        if failed
    ]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(out, indent=1) + "\n")
    print("\n".join(failures) or "all limits kept")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
