r"""Responses of the edges that were found: the estimate made again without each block of time.

With \(s_{t+1} = \sum_{l=1}^{L} A_l s_{t+1-l} + w_{t+1}\) a unit shock w changes the states h steps
later by

$$\Psi_0 = I, \qquad \Psi_h = \sum_{l=1}^{\min(h, L)} A_l \Psi_{h-l}$$

(Lütkepohl 2005, section 2.3.2). The share of client n in client m's forecast error H steps ahead is

$$\frac{\sum_{h<H} \operatorname{tr} G_m \Psi_h^{mn} \Sigma_n (\Psi_h^{mn})^\top}
       {\sum_k \sum_{h<H} \operatorname{tr} G_m \Psi_h^{mk} \Sigma_k (\Psi_h^{mk})^\top}$$

with G_m the inverse covariance of m's states, so that no unit counts more than another, and shocks
of different clients taken as independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float

from fedgranger.inference.copy_audit import Report
from fedgranger.inference.edge_movements import edge_movements
from fedgranger.inference.edge_response import EdgeResponse
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.prediction_gain import past_cov, prediction_gains
from fedgranger.inference.state_moments import StateMoments
from fedgranger.inference.states import StateSource
from fedgranger.linalg.blocks import diagonal_blocks
from fedgranger.linalg.psd import project

NUM_BLOCKS = 20
MOST_STEPS = 60
WithoutBlocks = Callable[[int], Iterable[np.ndarray | None]]
"""From a number of blocks of time, the transition without each; None where there is none."""


def add_responses(
    found: EdgeInference,
    source: StateSource,
    without_blocks: WithoutBlocks,
    report: Report,
    moments: StateMoments | None = None,
) -> EdgeInference:
    """The answer with the responses of its edges and, in the facts, their curves.

    `moments` are those of the source at the answer's lags, where they have been made.
    """
    table = found.edges.loc[found.edges["is_edge"].fillna(False).astype(bool)]
    edges = list(zip(table["cause"], table["effect"], strict=True))
    delays = dict(zip(edges, table["delay"].astype(int).tolist(), strict=True))
    # of this test, or of the linear one that its coefficients come from
    whose = found.facts.beside if found.facts.innovation_cov is None else found.facts
    new = None if whose is None else whose.innovation_cov
    shocks = {name: np.array(cov) for name, cov in (new or {}).items()}
    covs = state_covs(source) if edges else []
    made = edge_responses(source, found.transition, shocks, without_blocks, edges, report, covs)
    gains = _gains(found, source, shocks, covs, made, moments)
    found.facts.responses = {}
    for (cause, effect), response in made.items():
        facts = response.curve(found.facts.confidence).facts()
        facts.variance_share = round(float(response.variance_share), 6)
        facts.r2_gained, facts.delay = gains.get((cause, effect)), delays[cause, effect]
        found.facts.responses[f"{cause} -> {effect}"] = facts
    return found._replace(responses=made, movements=edge_movements(source, made, covs))


def _gains(
    found: EdgeInference,
    source: StateSource,
    shocks: dict[str, np.ndarray],
    covs: list[np.ndarray],
    edges: Iterable[tuple[str, str]],
    moments: StateMoments | None,
) -> dict[tuple[str, str], float]:
    """R² gained of these edges; none where the states' moments do not fit together."""
    names, lags = source.names, found.transition.shape[1] // source.total_dim
    is_latent = found.facts.test == "debiased"
    G = past_cov(source, lags, moments, with_errors=is_latent) if edges else None
    if G is None:
        return {}
    gains = prediction_gains(found.transition, G, [shocks[name] for name in names], covs)
    return {
        (cause, effect): round(float(gains[names.index(effect), names.index(cause)]), 6)
        for cause, effect in edges
    }


def edge_responses(
    source: StateSource,
    transition: Float[np.ndarray, "state lagged"],
    shock_covs: dict[str, np.ndarray],
    without_blocks: WithoutBlocks,
    edges: list[tuple[str, str]],
    report: Report = lambda *_: None,
    of_states: list[np.ndarray] | None = None,
) -> dict[tuple[str, str], EdgeResponse]:
    """Responses of these (cause, effect), as far as they last; `of_states` are the `state_covs`.

    A block without which there is no estimate is passed over; with fewer than half of them left
    there are no responses. With the noise taken out, the variance of what is new along some
    direction of a cause's states can be estimated below 0: no usual shock then goes that way.
    """
    if not edges:
        return {}
    names, owner = source.names, source.owner
    covs = [shock_covs[name] for name in names]
    of_states = state_covs(source) if of_states is None else of_states
    whole = impulse_responses(transition, MOST_STEPS)
    own = {name: np.flatnonzero(owner == m) for m, name in enumerate(names)}
    steps = _last_step([whole[:, own[e]][:, :, own[c]] for c, e in edges]) + 1
    shares = variance_shares(whole[: steps + 1], covs, of_states)
    made = [whole[: steps + 1]]
    report("responses", 0, NUM_BLOCKS)
    for block, other in enumerate(without_blocks(NUM_BLOCKS), start=1):
        report("responses", block, NUM_BLOCKS)
        if other is not None:
            made.append(impulse_responses(other, steps))
    if len(made) <= NUM_BLOCKS // 2:
        return {}
    values = np.stack(made)
    out = {}
    for cause, effect in edges:
        m, n = names.index(effect), names.index(cause)
        part = values[:, :, own[effect]][:, :, :, own[cause]]
        usual = project(covs[n], 0.0).matrix
        out[cause, effect] = EdgeResponse(part, usual, of_states[m], np.array(shares[m, n]))
    return out


def _last_step(parts: list[np.ndarray]) -> int:
    """The last step at which a response still is a fiftieth of its largest."""
    last = 1
    for part in parts:
        size = np.abs(part).max(axis=(1, 2))
        last = max(last, int(np.flatnonzero(size >= size.max() / 50)[-1]))
    return min(last, MOST_STEPS - 1)


def state_covs(source: StateSource) -> list[np.ndarray]:
    """Covariance of every client's states, over the steps at which it was observed."""
    P = source.total_dim
    count, total, square = np.zeros(P), np.zeros(P), np.zeros((P, P))
    for chunk in source.chunks():
        known = chunk.observed[:, source.owner]
        states = np.where(known, chunk.states, 0.0)
        count, total = count + known.sum(axis=0), total + states.sum(axis=0)
        square += states.T @ states
    mean = total / np.maximum(count, 1)
    cov = square / np.maximum(count, 1)[:, None] - np.outer(mean, mean)
    return diagonal_blocks(cov, source.dims)


def impulse_responses(
    transition: Float[np.ndarray, "state lagged"], steps: int
) -> Float[np.ndarray, "step state state"]:
    """Ψ_0 … Ψ_steps."""
    P, width = transition.shape
    out = np.zeros((steps + 1, P, P))
    out[0] = np.eye(P)
    for h in range(1, steps + 1):
        reach = min(h, width // P)
        out[h] = transition[:, : reach * P] @ out[h - reach : h][::-1].reshape(-1, P)
    return out


def variance_shares(
    responses: Float[np.ndarray, "step state state"],
    shock_covs: Sequence[np.ndarray],
    state_covs: Sequence[np.ndarray],
) -> Float[np.ndarray, "effect cause"]:
    """Shares of all clients in each client's forecast error, one step beyond the last response."""
    ends = np.cumsum([len(cov) for cov in shock_covs])
    own = [slice(end - len(cov), end) for end, cov in zip(ends, shock_covs, strict=True)]
    out = np.zeros((len(own), len(own)))
    for m, effect in enumerate(own):
        weight = np.linalg.pinv(state_covs[m])
        for n, cause in enumerate(own):
            part = responses[:, effect, cause]
            out[m, n] = np.einsum("ij,hjk,kl,hil->", weight, part, shock_covs[n], part)
    return out / out.sum(axis=1, keepdims=True)
