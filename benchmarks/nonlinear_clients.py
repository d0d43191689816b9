"""Nonlinear clients measured: errors of f, claimed against seen covariances, edges on linear data.

    python -m benchmarks.nonlinear_clients [STUDY ...] [--sets N] [--first-seed K]

`errors`: error of a fitted f at states that it has not seen, by kind of fit.
`used`: how often a network or a Gaussian process leaves the line, on linear and on bent data.
`states`: covariances claimed for h_c and h_a against those seen, and cover of 95 % regions.
`parameters`: the covariance of θ after 100 single steps (η2 = η1, ridge 0.01, 5 % of the rows
missing), by the recursion with J_g and the extended filter's posterior, against that of as many
trainings by true gradients, each on a data set of its own; errors by 20 parts of the data sets.
`process`: the same two questions for clients whose f is a Gaussian process of their own few steps,
with its posterior's variance in Q and without.
`edges`: neural training with Gaussian-process clients and with linear ones on linear data.
--sets is the number of data sets of each line; without it every study has its own. Figures are
mean(Monte Carlo error), the error counted over data sets.
"""

import argparse
import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import f1_score

import fedgranger as fg
from fedgranger.client.extended_kalman import filter_nonlinear
from fedgranger.client.gaussian_process import StateDependentCov
from fedgranger.client.network_transition import _Examples, _train
from fedgranger.client.transition_models import fit_transition
from fedgranger.uncertainty.state_errors import augmentation_covs, state_error_covs

SETS = {
    "errors": 10,
    "used": 20,
    "states": 10_000,
    "parameters": 10_000,
    "process": 300,
    "edges": 10,
}
AT_ONCE = 500
"""Data sets that are computed side by side."""
REGION = 5.991
"""95 % quantile of χ² with two degrees of freedom."""
UNSTABLE = 10.0
"""So many times the variance seen is no error of a few percent: the step size is too large."""
LINK = 0.2
"""Norm of a block above which it counts as a link, as in benchmarks.neural_training."""


def bend(h):
    return jnp.stack([0.9 * h[1], 1.0 - 0.6 * h[1] ** 2 + 0.3 * h[0]])


def waves(h):
    return jnp.stack([0.5 * h[0] + jnp.sin(1.5 * h[1]), 0.6 * h[1] - 0.7 * jnp.tanh(2 * h[0])])


def mild(h):
    return jnp.stack([0.8 * h[0] + 0.3 * jnp.sin(h[1]), 0.7 * h[1] - 0.2 * jnp.tanh(h[0])])


def gentle(h):
    return jnp.stack(
        [0.6 * h[0] + 0.5 * jnp.sin(1.5 * h[1]), 0.6 * h[1] - 0.45 * jnp.tanh(2 * h[0])]
    )


def straight(h):
    return jnp.stack([0.7 * h[0] + 0.3 * h[1], 0.6 * h[1] - 0.2 * h[0]])


def bent_sensors(h):
    return jnp.stack([h[0], h[1] + 0.1 * h[0] ** 2, jnp.sinh(0.5 * h[0]), h[0] - h[1]])


def straight_sensors(h):
    return jnp.stack([h[0], h[1], 0.5 * h[0] + h[1], h[0] - h[1]])


def heading(*cells):
    print(f"| {' | '.join(cells)} |\n|{'---|' * len(cells)}", flush=True)


def figure(values):
    values = np.asarray(values, dtype=float)
    return f"{values.mean():.3f}({values.std(ddof=1) / len(values) ** 0.5:.3f})"


def trajectory(transition, num_steps, noise, seed):
    """States of a system after 100 steps."""
    drive = noise * np.random.default_rng(seed).standard_normal((num_steps + 100, 2))
    path = jax.lax.scan(lambda h, w: (transition(h) + w,) * 2, jnp.zeros(2), jnp.asarray(drive))[1]
    return np.asarray(path)[100:]


def network_around(h, carried, key):
    """The same network around another line: f(h) = carried · h + MLP(h), best pass, always used."""
    before, after = h[:-1], h[1:] - carried * h[:-1]
    split = round(0.85 * len(before))
    moments = [(x[:split].mean(axis=0), x[:split].std(axis=0)) for x in (before, after)]
    rows = [jnp.asarray((x - m) / s) for x, (m, s) in zip((before, after), moments, strict=True)]
    learn, judge = (_Examples(*(x[k] for x in rows)) for k in (slice(split), slice(split, None)))
    with jax.numpy_dtype_promotion("standard"):
        network = _train(learn, judge, key)[0]
    (centre, scale), (mean, spread) = moments
    return lambda h: carried * h + mean + spread * network((h - centre) / scale)


def study_errors(sets, first):
    kinds = ("network around the line", "h + MLP(h)", "MLP(h)", "line", "`gp`")
    heading("root mean square of f̂ - f at new states", "T", "data sets", *kinds)
    for name, f, noise in (
        ("bend, noise 0.1", bend, 0.1),
        ("sine and tanh, noise 0.5", waves, 0.5),
    ):
        for T in (500, 2000):
            errors = []
            for seed in range(first, first + sets):
                h, new = (trajectory(f, T, noise, [seed, k]) for k in (0, 1))
                key = jax.random.key(seed)
                starts, observed = np.arange(T) == 0, np.ones(T, dtype=bool)
                fits = {k: fit_transition(k, h, starts, observed, key) for k in ("network", "gp")}
                fitted = (
                    dataclasses.replace(fits["network"], is_used=True),
                    network_around(h, 1.0, key),
                    network_around(h, 0.0, key),
                    fit_transition("linear", h, starts, observed),
                    fits["gp"],
                )
                truth = jax.vmap(f)(new)
                errors.append(
                    [float(jnp.sqrt(((jax.vmap(g)(new) - truth) ** 2).mean())) for g in fitted]
                )
            print(
                f"| {name} | {T} | {sets} | {' | '.join(map(figure, np.transpose(errors)))} |",
                flush=True,
            )


def study_used(sets, first):
    leaves = ("error of the line / noise", "network used", "`gp`: a state leaves the line")
    heading("system, noise 0.5", "T", "data sets", *leaves)
    for name, f in (("linear", straight), ("mild bend", gentle)):
        for T in (300, 1000, 3000):
            missed, network, process = [], [], []
            for seed in range(first, first + sets):
                h, new = (trajectory(f, T, 0.5, [seed, k]) for k in (0, 1))
                given = (h, np.arange(T) == 0, np.ones(T, dtype=bool), jax.random.key(seed))
                left = jax.vmap(fit_transition("linear", *given))(new) - jax.vmap(f)(new)
                missed.append(float(jnp.sqrt((left**2).mean())) / 0.5)
                network.append(fit_transition("network", *given).is_used)
                process.append(
                    any(part is not None for part in fit_transition("gp", *given).outputs)
                )
            cells = " | ".join(map(figure, (missed, network, process)))
            print(f"| {name} | {T} | {sets} | {cells} |", flush=True)


SYSTEMS = {
    "linear": (straight, straight_sensors),
    "mild": (mild, bent_sensors),
    "sine and tanh": (waves, straight_sensors),
    "sine and tanh, bent sensors": (waves, bent_sensors),
}


def model_of(name):
    transition, observation = SYSTEMS[name]
    covs = 0.2 * np.eye(2), 0.3 * np.eye(4)
    return fg.NonlinearModel(transition, observation, *covs, np.zeros(2), np.eye(2))


def record(model, key, steps, missing):
    """States, noise, measurements and what is observed."""
    first, process, sensors, gaps = jax.random.split(key, 4)
    w = jnp.sqrt(0.2) * jax.random.normal(process, (steps, 2))
    v = jnp.sqrt(0.3) * jax.random.normal(sensors, (steps, 4))
    start = jax.random.normal(first, (2,))
    h = jax.lax.scan(lambda h, w: (model.transition(h) + w, h), start, w)[1]
    y = jax.vmap(model.observation)(h) + v
    observed = jax.random.uniform(gaps, (steps, 4)) >= missing
    return h, v, y, observed


def state_errors(system, model, key, steps):
    """Errors of h_c and h_a where `model` filters what `system` made, with what is claimed."""
    h, v, y, observed = record(system, key, steps, 0.1)
    found = filter_nonlinear(model, y, observed, jnp.arange(steps) == 0)
    theta = 0.3 * jnp.asarray(np.random.default_rng(1).standard_normal((2, 4)))
    R, J_g = model.measurement_cov, found.observation_jacobians
    covs = state_error_covs(found.filtered_covs, J_g, R, y, observed, theta)
    error = found.filtered_states - h
    with_noise = error + jnp.where(observed, v, 0.0) @ theta.T
    pairs = ((error, covs.filtered_covs), (with_noise, covs.augmented_covs))
    return [(e[5::5], cov[5::5]) for e, cov in pairs]


def claimed_and_seen(e, cov):
    """Ratio of the traces with its error by data set, and how often 95 % regions cover."""
    claimed, seen = np.einsum("stii->s", cov), (e**2).sum(axis=(1, 2))
    ratio = claimed.mean() / seen.mean()
    error = ratio * np.std(claimed / claimed.mean() - seen / seen.mean()) / len(e) ** 0.5
    distance = np.einsum("sti,sti->st", e, np.linalg.solve(cov, e[..., None])[..., 0])
    return f"{ratio:.3f}({error:.3f}) | {figure((distance < REGION).mean(axis=1))}"


def in_parts(one, sets, first):
    """Compute data sets side by side, some at once."""
    keys, run = jax.random.split(jax.random.key(first), sets), jax.jit(jax.vmap(one))
    parts = [jax.tree.map(np.asarray, run(keys[k : k + AT_ONCE])) for k in range(0, sets, AT_ONCE)]
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def study_states(sets, first):
    cells = ("state", "trace claimed / seen", "95 % regions cover")
    heading("system, 10 % missing", "data sets", *cells)
    for name in SYSTEMS:
        model = model_of(name)

        def one(key, model=model):
            return state_errors(model, model, key, 30)

        for label, (e, cov) in zip(("h_c", "h_a"), in_parts(one, sets, first), strict=True):
            print(f"| {name} | {sets} | {label} | {claimed_and_seen(e, cov)} |", flush=True)


def study_parameters(sets, first):
    cells = ("trace claimed / seen", "entry by entry", "bias² / variance")
    heading("system", "prior s.d. of θ", "η1", "data sets", *cells)
    for name in SYSTEMS:
        model = model_of(name)
        for prior, eta in ((0.0, 0.001), (0.0, 0.003), (0.0, 0.01), (0.05, 0.003)):

            def one(key, model=model, eta=eta, prior=prior):
                return trained(model, model, key, eta, prior)

            cells = parameter_cells(*in_parts(one, sets, first))
            print(f"| {name} | {prior:g} | {eta:g} | {sets} | {cells} |", flush=True)


def parameter_cells(final, claimed):
    """Cov(θ) claimed against that over data sets: of the trace, of each entry; and the bias."""
    sets = len(final)
    v = np.einsum("sijij->sij", claimed).reshape(sets, -1)
    theta = final.reshape(sets, -1)

    def ratio(rows):
        return v[rows].mean(axis=0).sum() / theta[rows].var(axis=0, ddof=1).sum()

    if not ratio(slice(None)) < UNSTABLE:  # NaN too
        what = "the recursion" if np.isfinite(theta).all() else "training"
        return f"{what} diverges in some data sets | - | -"
    parts = [ratio(slice(k, None, 20)) for k in range(20)]
    error = np.std(parts, ddof=1) / 20**0.5
    each = v.mean(axis=0) / theta.var(axis=0, ddof=1)
    bias = (theta.mean(axis=0) ** 2).sum() / theta.var(axis=0).sum()
    found = f"{ratio(slice(None)):.3f}({error:.3f})"
    return f"{found} | {each.min():.3f} to {each.max():.3f} | {bias:.3f}"


def trained(system, model, key, eta, prior):
    """One data set: θ after training by its true gradients, and the covariance claimed for it."""
    steps, ridge = 100, 0.01
    own, gaps, start = jax.random.split(key, 3)
    _, _, y, _ = record(system, own, steps + 5, 0.0)
    has_row = jax.random.uniform(gaps, (steps + 5,)) >= 0.05
    observed = jnp.broadcast_to(has_row[:, None], y.shape)
    found = filter_nonlinear(model, y, observed, jnp.arange(steps + 5) == 0)
    y, has_row, found = jax.tree.map(lambda rows: rows[5:], (y, has_row, found))
    has_next = has_row & jnp.append(has_row[1:], False)

    def loss(theta, h, y, next_y):
        corrected, plain = model.transition(h + theta @ y), model.transition(h)
        local = ((next_y - model.observation(corrected)) ** 2).sum()
        return local + ((corrected - plain) ** 2).sum() + ridge * (theta**2).sum()

    def descend(theta, inputs):
        h, y, next_y, used = inputs
        return theta - jnp.where(used, eta, 0.0) * jax.grad(loss)(theta, h, y, next_y), None

    theta = prior * jax.random.normal(start, (2, 4))
    inputs = (found.filtered_states, y, jnp.roll(y, -1, axis=0), has_next)
    final = jax.lax.scan(descend, theta, inputs)[0]
    initial = prior**2 * jnp.eye(8).reshape(2, 4, 2, 4)
    jacobians = (found.transition_jacobians, found.observation_jacobians)
    R = model.measurement_cov
    sizes = (eta, eta, ridge)
    path = augmentation_covs(initial, y, has_next, *jacobians, found.predicted_covs, R, *sizes)
    return final, path[-1]


def process_models(system, T, sets, first):
    """Gaussian processes of T true steps each, by structure: a state may stay linear."""
    groups = {}
    for seed in range(first, first + sets):
        h = trajectory(system.transition, T, 0.2**0.5, [seed, T])
        f = fit_transition("gp", h, np.arange(T) == 0, np.ones(T, dtype=bool))
        model = dataclasses.replace(
            system, transition=f, process_cov=StateDependentCov(system.process_cov, f)
        )
        groups.setdefault(jax.tree.structure(model), []).append((seed, model))
    return groups.values()


def study_process(sets, first):
    for_states, for_theta = ("trace claimed / seen", "95 % regions cover"), ("entry by entry",)
    system, lines = model_of("sine and tanh"), []

    def both(model, key):
        return state_errors(system, model, key, 200), trained(system, model, key, 0.003, 0.0)

    def stacked(*leaves):
        return jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0]

    for T in (100, 300):
        groups = process_models(system, T, sets, first)
        for label, keeps in (("with", True), ("without", False)):
            found = []
            for group in groups:
                seeds, models = zip(*group, strict=True)
                if not keeps:
                    models = [
                        dataclasses.replace(m, process_cov=system.process_cov) for m in models
                    ]
                keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
                together = jax.tree.map(stacked, *models)
                answers = eqx.filter_jit(eqx.filter_vmap(both))(together, keys)
                found.append(jax.tree.map(np.asarray, answers))
            states, training = jax.tree.map(lambda *x: np.concatenate(x), *found)
            lines.append((T, label, states, training))
    heading("steps that f was fitted to", "σ² in Q", "state", "data sets", *for_states)
    for T, label, states, _ in lines:
        for name, (e, cov) in zip(("h_c", "h_a"), states, strict=True):
            print(f"| {T} | {label} | {name} | {sets} | {claimed_and_seen(e, cov)} |", flush=True)
    print()
    cells = ("trace claimed / seen", *for_theta, "bias² / variance")
    heading("steps that f was fitted to", "σ² in Q", "data sets", *cells)
    for T, label, _, training in lines:
        print(f"| {T} | {label} | {sets} | {parameter_cells(*training)} |", flush=True)


def study_edges(sets, first):
    scored = ("F1, mean of J", "F1, tests", "F1, mean of J, against linear clients")
    heading("clients' f", "data sets", *scored, "states that left the line")
    M, T, links, tests, counts = 4, 2000, {}, {}, []
    for seed in range(first, first + sets):
        panel, truth = fg.simulate(M, T, seed=seed)
        names = [client.name for client in panel.clients]
        pairs = [(m, n) for m in range(M) for n in range(M) if m != n]
        is_edge = [(names[n], names[m]) in truth.edges for m, n in pairs]
        for kind in ("linear", "gp"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                config = fg.RunConfig(test="debiased", solver="neural", transition=kind)
                result = fg.fit(panel, config)
            strengths = result.jacobian.strengths(result.state_dims)
            edges = result.edges()
            found = set(
                edges.loc[edges["is_edge"].fillna(False), ["cause", "effect"]].itertuples(
                    index=False, name=None
                )
            )
            links.setdefault(kind, []).append([bool(strengths[m, n] > LINK) for m, n in pairs])
            tested = [(names[n], names[m]) in found for m, n in pairs]
            tests.setdefault(kind, []).append(f1_score(is_edge, tested))
        fits = [fg.fit_nonlinear_client(client, transition="gp") for client in panel.clients]
        left = [part is not None for fit in fits for part in fit.model.transition.outputs]
        counts.append(np.mean(left))
        links.setdefault("truth", []).append(is_edge)
    for kind in ("linear", "gp"):
        scores = [
            figure([f1_score(a, b) for a, b in zip(links[of], links[kind], strict=True)])
            for of in ("truth", "linear")
        ]
        moved = figure(counts) if kind == "gp" else "-"
        print(f"| {kind} | {sets} | {scores[0]} | {figure(tests[kind])} | {scores[1]} | {moved} |")


STUDIES = {
    "errors": study_errors,
    "used": study_used,
    "states": study_states,
    "parameters": study_parameters,
    "process": study_process,
    "edges": study_edges,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--sets", type=int)
    parser.add_argument("--first-seed", type=int, default=0)
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for study in asked.studies or STUDIES:
        STUDIES[study](asked.sets or SETS[study], asked.first_seed)
