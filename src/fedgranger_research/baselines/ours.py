r"""The library's own answers as compared methods: FedGC, the paper's test, the debiased test, auto.

All are vertical: a client holds its own columns. `debiased` and `auto` get the states that clients
send once, and the covariance of their errors. FedGC is trained on the columns as sensors with
\(C = I\) and \(R = E\): the columns are sufficient for the states (they are the least-squares
states of whatever sensors there were), so nothing that its filter uses is lost. In the paper's
simulation every client knows its A_mm; where the data know them (`self_transitions`), FedGC gets
them here too. A client that has to estimate A_mm from its own data alone takes into it what others
explain, and little is left for Â.

Decisions: FedGC has none, every entry that is not exactly zero counts (the paper's row). The tests
decide by Benjamini and Hochberg at α, separately over the entries (those within clients too where
they are tested) and over the pairs of clients. `debiased-pairs` gives every entry the
test of its pair of clients: the coordinates of a client's states are its own choice, so whether an
entry is zero means little, whether a block is zero does not depend on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedgranger.client.params import LocalModel
from fedgranger.client.state_noise import own_order
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.errors import FedGrangerError
from fedgranger.inference.decision import adjust, by_certainty
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.inference.states import StateChunk, StateSource
from fedgranger.linalg.psd import is_positive_definite, project
from fedgranger.results import Result
from fedgranger.runtime.fitting import fit_panel
from fedgranger_research.baselines.method_protocol import (
    BaselineError,
    Columns,
    EdgeScores,
    Method,
    Post,
    by_client,
)

SMALLEST_P = 1e-300
TIE = 1e-9
"""Between pairs of the same p-value."""
PROCESS_FLOOR = 1e-6
"""Smallest eigenvalue of Q as a share of the mean state variance."""
DEFAULTS: Mapping[str, Any] = {"alpha": 0.05, "correction": "bh"}
OWN: Mapping[str, Any] = {"self_transitions": None}
"""A_mm per client where they are known; None: every client estimates its own."""


def fit_fedgc(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    """Vanilla FedGC: |Â| with A_mm on the diagonal; every entry that is not zero is an edge."""
    result = _train(columns, {"test": "none", **options})
    if result.granger is None:
        raise BaselineError(f"FedGC did not finish: {result.manifest.training.status}")
    place = _places(result, columns)
    size = np.abs(result.granger[np.ix_(place, place)])
    clients = by_client(size, columns.dims)
    return EdgeScores(size, size > 0, clients, clients > 0, 0.0, *_traffic(result))


def fit_asymptotic(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    """The paper's test: FedGC's own estimate against its steady-state covariance.

    Entries within clients are not tested and count as found, above all others.
    """
    result = _train(columns, {"test": "asymptotic", **options})
    if result.inference is None:
        reason = result.manifest.inference.reason or "no reason was given"
        raise BaselineError(f"the paper's test could not be made: {reason}")
    place = _places(result, columns)
    found = _scores(columns, result.inference, result.config, place, _traffic(result))
    owner = np.repeat(np.arange(len(columns.dims)), columns.dims)
    within = owner[:, None] == owner  # A_mm is known to its client and not tested
    most = found.score.max(initial=0.0) + 1.0
    return found._replace(score=np.where(within, most, found.score), is_edge=found.is_edge | within)


def fit_debiased(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    """The latent influence with measurement error taken out, formula test of every entry."""
    return _tested(columns, {"test": "debiased", **options})


def fit_debiased_pairs(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    """The same; an entry has the test of its pair of clients, within a client its own."""
    found = _tested(columns, {"test": "debiased", **options})
    owner = np.repeat(np.arange(len(columns.dims)), columns.dims)
    within = owner[:, None] == owner
    spread = np.ix_(owner, owner)
    return found._replace(
        score=np.where(within, found.score, found.client_score[spread]),
        is_edge=np.where(within, found.is_edge, found.is_client_edge[spread]),
    )


def fit_auto(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    """The default of a run: both questions, calibrated on copies with shifted clocks."""
    return _tested(columns, {"test": "auto", **options})


def _tested(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    config = RunConfig.from_mapping({"solver": "none", **options})
    post = Post()
    for part, cov in zip(columns.series, columns.error_covs, strict=True):
        post.carry(part, cov)
    try:
        with jax.enable_x64(True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = infer(state_source_of(columns), config)
    except (FedGrangerError, np.linalg.LinAlgError) as error:
        raise BaselineError(f"the test could not be made: {error}") from None
    traffic = (post.messages, post.bytes_sent, "direct", float("nan"))
    return _scores(columns, found, config, np.arange(sum(columns.dims)), traffic)


def state_source_of(columns: Columns) -> StateSource:
    """The columns as the server of a run has them."""
    states = np.concatenate(columns.series, axis=1)
    observed = np.ones((len(states), len(columns.dims)), dtype=np.bool_)
    chunk = StateChunk(states, observed, columns.starts)
    lags = tuple(own_order(part, observed[:, 0], columns.starts) for part in columns.series)
    return StateSource(
        columns.names, columns.dims, columns.error_covs, lambda: iter([chunk]), len(states), lags
    )


def _scores(
    columns: Columns,
    found: EdgeInference,
    config: RunConfig,
    place: np.ndarray,
    traffic: tuple[int, int, str, float],
) -> EdgeScores:
    """Entries by |t| (the largest over lags, Bonferroni), pairs by −log p."""
    P = len(place)
    lags = found.transition.shape[1] // P
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.abs(found.transition / found.std_error).reshape(P, lags, P)
    smallest = np.where(np.isnan(found.p_value), np.inf, found.p_value).reshape(P, lags, P)
    p = np.minimum(lags * smallest.min(axis=1), 1.0)[np.ix_(place, place)]
    score = np.nan_to_num(size, nan=0.0).max(axis=1)[np.ix_(place, place)]
    q = adjust(p.reshape(-1), config.correction).reshape(P, P)
    strength, is_edge = _pair_matrices(found.edges, columns.names)
    own = by_client(score, columns.dims)
    within = np.eye(len(columns.names), dtype=np.bool_)
    return EdgeScores(
        score,
        q <= config.alpha,
        np.where(within, own, strength),
        is_edge | within,
        0.0,
        *traffic,
    )


def _pair_matrices(edges: pd.DataFrame, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """−log p and the decision per pair of clients; 0 and no where there is no test.

    Pairs of the same p, such as the smallest that copies support, are in the order of
    certainty, as in the table of a run.
    """
    M = len(names)
    score, is_edge = np.zeros((M, M)), np.zeros((M, M), dtype=np.bool_)
    for place, row in enumerate(by_certainty(edges).to_dict("records")):
        if np.isnan(row["p_value"]):
            continue
        where = names.index(row["effect"]), names.index(row["cause"])
        earlier = TIE * (len(edges) - place)
        score[where] = earlier - np.log(max(row["p_value"], SMALLEST_P))
        is_edge[where] = bool(row["is_edge"])
    return score, is_edge


def _train(columns: Columns, options: Mapping[str, Any]) -> Result:
    """FedGC on the columns; a step without readings keeps stretches of time apart."""
    known = options.get("self_transitions") or (None,) * len(columns.names)
    config = RunConfig.from_mapping(
        {name: value for name, value in options.items() if name != "self_transitions"}
    )
    gaps = np.flatnonzero(columns.starts[1:]) + 1
    arrays, models = {}, {}
    clients = zip(columns.names, columns.series, columns.error_covs, known, strict=True)
    for name, part, cov, own in clients:
        arrays[name] = np.insert(part, gaps, np.nan, axis=0)
        models[name] = local_model(name, part, columns.starts, cov, own)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fit_panel(Panel.from_arrays(arrays), config, models=models)
    except (FedGrangerError, np.linalg.LinAlgError) as error:
        raise BaselineError(f"FedGC could not be trained: {error}") from None


def local_model(
    name: str,
    series: np.ndarray,
    starts: np.ndarray,
    error_cov: np.ndarray,
    self_transition: np.ndarray | None = None,
) -> LocalModel:
    r"""A client's model of its own columns, with what is known of their error taken out.

    $$A = \Gamma_1 (\Gamma_0 - E)^{-1}, \quad
      Q = \mathrm{Cov}(s^+ - A s) - E - A E A^\top, \quad C = I, \quad R = E$$

    with A as given where it is known.
    """
    centre = series.mean(axis=0)
    pairs = ~starts[1:]
    before, after = (series[:-1] - centre)[pairs], (series[1:] - centre)[pairs]
    n = len(before)
    signal = before.T @ before / n - error_cov
    if not is_positive_definite(signal):
        raise BaselineError(
            f"client '{name}': the error given for its columns exceeds their variance; "
            "give a smaller error covariance"
        )
    A = self_transition
    if A is None:
        A = np.linalg.solve(signal, before.T @ after / n).T
    rest = after - before @ A.T
    floor = PROCESS_FLOOR * float(np.trace(signal)) / len(signal)
    Q, _ = project(rest.T @ rest / n - error_cov - A @ error_cov @ A.T, floor)
    p = len(A)
    return LocalModel(A, np.eye(p), Q, error_cov, centre, np.ones(p))


def _places(result: Result, columns: Columns) -> np.ndarray:
    """Where the columns are in the result, whose clients may be in another order."""
    first = dict(zip(result.clients, np.cumsum((0, *result.state_dims[:-1])), strict=True))
    parts = zip(columns.names, columns.dims, strict=True)
    return np.concatenate([first[name] + np.arange(dim) for name, dim in parts])


def _traffic(result: Result) -> tuple[int, int, str, float]:
    """Messages, bytes, status and residual of a run with training."""
    training, sent = result.manifest.training, result.manifest.bytes
    rounds = training.rounds
    total = sum(part.bytes_up + part.bytes_down for part in sent.values())
    status = "converged" if training.converged else "stopped"
    distance = training.distance
    residual = float("nan") if distance is None else float(distance)
    return 2 * rounds * len(result.clients), total, status, residual


def _method(
    fit: Callable[[Columns, Mapping[str, Any]], EdgeScores],
    words: str,
    defaults: Mapping[str, Any] = DEFAULTS,
) -> Method:
    return Method(fit, defaults, "vertical", words)


METHODS: dict[str, Method] = {
    "fedgc": _method(fit_fedgc, "FedGC's point estimate, |Â|; calls every pair an edge", OWN),
    "asymptotic": _method(
        fit_asymptotic, "the paper's test of FedGC's estimate", {**DEFAULTS, **OWN}
    ),
    "debiased": _method(fit_debiased, "ours: debiased influence, formula test of every entry"),
    "debiased-pairs": _method(fit_debiased_pairs, "ours: the same, entries by their pair's test"),
    "auto": _method(fit_auto, "ours: the default, calibrated on copies with shifted clocks"),
}
