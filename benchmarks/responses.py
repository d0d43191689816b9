"""Responses of edges and their delays, against the truth of simulated data.

    python -m benchmarks.responses cover [--sets N] [--steps T] [--out FILE.jsonl]
    python -m benchmarks.responses delays [--sets N] [--steps T] [--out FILE.jsonl]

cover: share of bands (95 %) that hold the true response at each of the first ten steps, along the
direction that the fit chose; states as in the truth, the latent test, three clients in a chain.
delays: links with a dead time of 0 to 9 steps beyond the usual one, defaults of `fit` with
`max_lags` 12; share of true links that are found, and of found ones whose delay is right within one
step. `--sets` data sets are spread over the ten delays. Monte Carlo errors by data set. With --out
every finished data set is kept: the same command continues where it was interrupted.
"""

import argparse
import warnings
from functools import partial

import numpy as np

import fedgranger as fg
from benchmarks.resumed import resumed, seconds_per_set
from fedgranger.client.params import known_models
from fedgranger.errors import InferenceWarning
from fedgranger.federation.direct import state_source
from fedgranger.inference.edge_responses import edge_responses, impulse_responses
from fedgranger.inference.latent import fit_latent, latent_without_blocks

CHAIN = [("client1", "client2"), ("client2", "client3")]
STEPS = 10


def covered(seed, num_steps):
    """Per step the share of the two edges whose band holds the true response."""
    panel, truth = fg.simulate(3, num_steps, edges=CHAIN, seed=seed)
    config = fg.RunConfig(test="debiased", lags=1)
    fit = fit_latent(state_source(panel, known_models(truth)), config)
    shocks = {
        name: fit.fit.process_cov[truth.rows(name), truth.rows(name)] for name in truth.clients
    }
    without = partial(latent_without_blocks, fit)
    found = edge_responses(fit.source, fit.fit.transition, shocks, without, CHAIN)
    true, out = impulse_responses(truth.transition, STEPS), []
    for (cause, effect), response in found.items():
        curve, (readout, shock) = response.curve(0.95), response.directions()
        block = true[:, truth.rows(effect), truth.rows(cause)]
        value = np.einsum("i,hij,j->h", readout, block, shock)[1:]
        count = min(STEPS, len(curve.value) - 1)
        inside = (curve.low[1 : count + 1] <= value[:count]) & (
            value[:count] <= curve.high[1 : count + 1]
        )
        out.append(np.concatenate([inside, np.full(STEPS - count, np.nan)]))
    return np.nanmean(np.array(out, dtype=float), axis=0)


def delayed(seed, num_steps):
    """(true links found, of them with a delay right within one step, true links)."""
    dead_time = seed % 10
    panel, truth = fg.simulate(3, num_steps, edges=CHAIN, seed=seed, dead_time=dead_time)
    table = fg.fit(panel, solver="none", max_lags=12).edges()
    pairs = zip(table["cause"], table["effect"], strict=True)
    rows = table.loc[[pair in truth.edges for pair in pairs]]
    found = rows.loc[rows["is_edge"].fillna(False).astype(bool)]
    right = (found["delay"] - (dead_time + 1)).abs() <= 1
    return len(found), int(right.sum()), len(rows)


def share(part, whole):
    """A share with its Monte Carlo error, counted by data set."""
    rate = part.sum() / whole.sum()
    error = np.std(part - rate * whole, ddof=1) * np.sqrt(len(part)) / whole.sum()
    return f"{rate:.3f}({error:.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("cover", "delays"))
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out")
    given = parser.parse_args()
    warnings.simplefilter("ignore", InferenceWarning)
    question = {"what": given.what, "steps": given.steps}
    one = covered if given.what == "cover" else delayed
    records = resumed(
        given.out,
        question,
        [str(seed) for seed in range(given.sets)],
        lambda key: {"found": np.asarray(one(int(key), given.steps), dtype=float).tolist()},
    )
    made = np.array([record["found"] for record in records])
    print(f"{given.sets} data sets, T = {given.steps}, {seconds_per_set(records)}")
    if given.what == "cover":
        error = np.nanmean(made, axis=1).std(ddof=1) / np.sqrt(given.sets)
        print(f"cover {np.nanmean(made):.3f}({error:.3f})")
        print("by step", np.nanmean(made, axis=0).round(3).tolist())
        return
    found, right, links = made.T
    print(f"links found {share(found, links)}, ", end="")
    print(f"delay right within one step {share(right, found)}")
    print("found, right and links by delay 1 to 10:")
    print([made[k::10].sum(axis=0).astype(int).tolist() for k in range(10)])


if __name__ == "__main__":
    main()
