"""Edge tests of one six-client data set with the noise that several ε ask for.

Private edges are one release: every client clips its states, adds noise of known covariance and
sends them once. What the tests make of it is measured on the system of the calibration study
(p = 2, d = 8, 9 of 30 edges).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import scipy.linalg

from fedgranger.client.client_side import ClientSide, set_up_client
from fedgranger.client.identify import identify
from fedgranger.client.params import LocalModel, known_models
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.synthetic import simulate
from fedgranger.data.truth import Truth
from fedgranger.errors import InferenceError
from fedgranger.evaluation.metrics import pairs_are_true, score
from fedgranger.inference.decision import adjust
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.inference.states import CHUNK_STEPS, StateChunk, StateSource
from fedgranger.linalg.psd import symmetrise
from fedgranger.privacy.release import SecretNoise, seeded_secret

NEIGHBOURS = ("event", "window")
WINDOW = 10
"""Time steps of neighbours = "window"."""
MODELS = ("declared", "declared, A_mm alone", "identified")
"""How the clients know their local models: as a long older recording of their own would show them;
A_mm and Q as if no other client acted on them, which makes their states look small; from the data.
C and R are the true ones where they are declared."""


@dataclass(frozen=True)
class PrivateEdges:
    """One data set, tested with every ε and relation of neighbours.

    Attributes:
        seed: of the system, its data and the noise.
        num_steps: T.
        models: one of `MODELS`.
        test: "debiased" or "auto".
        epsilons: ε of the whole run; the same data without noise are always tested too.
        neighbours: which of `NEIGHBOURS`.
    """

    seed: int
    num_steps: int
    models: str
    test: str
    epsilons: tuple[float, ...]
    neighbours: tuple[str, ...] = NEIGHBOURS

    @property
    def label(self) -> str:
        """Short name for files."""
        kind = self.models.replace(", ", "-").replace(" ", "-")
        return f"private-{self.test}-T{self.num_steps}-{kind}-{self.seed:03d}"

    @property
    def work(self) -> int:
        """How long it takes, in some unit."""
        each = 1 if self.test == "debiased" else 60  # copies with shifted clocks
        return (2000 + self.num_steps) * each * (1 + len(self.epsilons) * len(self.neighbours))

    def key(self) -> dict[str, Any]:
        """Everything the outcome depends on."""
        return asdict(self)

    def run(self, report: Callable[[str, int, int], None] = lambda *_: None) -> pd.DataFrame:
        """Test.

        Returns:
            A row per relation of neighbours and ε (infinite: no noise): added_noise (s.d. on a
            state, in units of the state's own, largest of the clients), clipped_share (largest of
            the clients, exact), refused and why, and of what was tested edge_size and edge_power
            at 5 %, f1 and fdr of the edges after correction (an edge without a p-value is not
            found), untested (share of edges without a p-value), is_latent.
        """
        base = RunConfig(solver="none", test=self.test, period="none", seed=self.seed)
        rows = []
        with jax.enable_x64(True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            panel, truth = simulate(6, self.num_steps, edges=9, seed=self.seed)
            models = self._models(panel, truth)
            todo = list(self._configs(base))
            for done, (neighbours, epsilon, config) in enumerate(todo):
                sides = client_sides(panel, config, models)
                rows.append(
                    {
                        "seed": self.seed,
                        "num_steps": self.num_steps,
                        "models": self.models,
                        "test": self.test,
                        "neighbours": neighbours,
                        "epsilon": epsilon,
                        **_noise_facts(sides),
                        **_outcome(panel, sides, config, truth),
                    }
                )
                report("private edges", done + 1, len(todo))
        return pd.DataFrame(rows)

    def _models(self, panel: Panel, truth: Truth) -> Mapping[str, LocalModel]:
        if self.models == "declared":
            return own_models(truth)
        if self.models != "identified":
            models = known_models(truth)
            return {name: replace(model, declared_cov=None) for name, model in models.items()}
        starts, dims = panel.segment_starts, truth.state_dims
        return {c.name: identify(c, starts, state_dim=dims[c.name]) for c in panel}

    def _configs(self, base: RunConfig) -> Iterator[tuple[str, float, RunConfig]]:
        yield "none", float("inf"), base
        for neighbours in self.neighbours:
            for epsilon in self.epsilons:
                yield (
                    neighbours,
                    epsilon,
                    replace(
                        base,
                        privacy="to-server",
                        neighbours=neighbours,
                        neighbour_steps=WINDOW,
                        epsilon=epsilon,
                    ),
                )


def own_models(truth: Truth) -> dict[str, LocalModel]:
    """The models with the best autoregression of every client's own states, the others acting.

    Their states have the size that the whole system gives them.
    """
    process_cov = truth.process_cov
    if process_cov is None:
        raise ValueError("the truth has no process noise; use the one that simulate() returned")
    P = scipy.linalg.solve_discrete_lyapunov(truth.transition, process_cov)
    lagged = truth.transition @ P
    models = {}
    for name, model in known_models(truth).items():
        rows = truth.rows(name)
        cov = P[rows, rows]
        A = np.linalg.solve(cov, lagged[rows, rows].T).T
        models[name] = replace(
            model, self_transition=A, process_cov=symmetrise(cov - A @ cov @ A.T)
        )
    return models


def client_sides(
    panel: Panel, config: RunConfig, models: Mapping[str, LocalModel]
) -> dict[str, ClientSide]:
    """What every client prepares and would send, sorted by name."""
    return {
        name: set_up_client(
            panel[name],
            panel.time,
            panel.segment_starts,
            config,
            model=models[name],
            is_filtered=False,
            noise=SecretNoise(seeded_secret(config.seed, name)),
        )
        for name in sorted(panel.names)
    }


def sent_states(panel: Panel, sides: Mapping[str, ClientSide]) -> StateSource:
    """The server's view of what the clients send."""
    starts, parties = panel.segment_starts, list(sides.values())
    chunks = []
    for begin in range(0, panel.num_steps, CHUNK_STEPS):
        rows = slice(begin, begin + CHUNK_STEPS)
        states = np.concatenate([side.states[rows] for side in parties], axis=1)
        observed = np.stack([side.is_observed[rows] for side in parties], axis=1)
        chunks.append(StateChunk(states, observed, starts[rows]))
    hellos = [side.hello for side in parties]
    added = tuple(np.asarray(hello.added_cov) for hello in hellos)
    return StateSource(
        tuple(sides),
        tuple(side.model.state_dim for side in parties),
        tuple(np.asarray(hello.error_cov) for hello in hellos),
        lambda: iter(chunks),
        panel.num_steps,
        tuple(int(hello.own_lags) for hello in hellos),
        declared=tuple(name for name, side in sides.items() if side.model.is_declared),
        noise_shares=tuple(float(hello.noise_share) for hello in hellos),
        added_covs=added if any(cov.any() for cov in added) else (),
    )


def _noise_facts(sides: Mapping[str, ClientSide]) -> dict[str, float]:
    sent = [side.protected for side in sides.values() if side.protected is not None]
    clipped = [part.num_clipped / len(part.states) for part in sent]
    return {
        "added_noise": max((part.scale for part in sent), default=0.0),
        "clipped_share": max(clipped, default=0.0),
    }


def _outcome(
    panel: Panel, sides: Mapping[str, ClientSide], config: RunConfig, truth: Truth
) -> dict[str, Any]:
    try:
        found = infer(sent_states(panel, sides), config)
    except InferenceError as error:
        nothing = dict.fromkeys(("edge_size", "edge_power", "f1", "fdr", "untested"), np.nan)
        return {"refused": True, "reason": str(error), **nothing, "is_latent": False}
    return {"refused": False, "reason": "", **_scores(found, config, truth)}


def _scores(found: EdgeInference, config: RunConfig, truth: Truth) -> dict[str, Any]:
    p, is_true = found.edges["p_value"].to_numpy(), pairs_are_true(found.edges, truth)
    is_tested = ~np.isnan(p)
    decided = np.nan_to_num(adjust(p, config.correction), nan=1.0) <= config.alpha
    scores = score(is_true, -np.nan_to_num(p, nan=1.0), decided)

    def rejected(chosen: np.ndarray) -> float:
        return float((p[chosen] <= config.alpha).mean()) if chosen.any() else np.nan

    return {
        "edge_size": rejected(is_tested & ~is_true),
        "edge_power": rejected(is_tested & is_true),
        "f1": scores["f1"],
        "fdr": scores["fdr"],
        "untested": float(1 - is_tested.mean()),
        "is_latent": found.facts.test == "debiased",
    }
