r"""What a user would run with all columns in one place: adapters to packages (extra `peers`).

None of them knows of measurement error, and all need every client's data at one site, so their
mode is "central". Each regresses the columns at t on all columns at t − 1:

- `var`: vector autoregression, t test of every coefficient, Wald test of every block (statsmodels);
- `granger-pairs`: for every two columns i, j, F test of x_j(t − 1) beside x_i(t − 1) alone;
- `var-lingam`: VAR-LiNGAM's pruned lag-one coefficients (Hyvärinen et al., JMLR 2010; lingam);
- `granger-lasso`: lasso with cross-validated penalty (causal-learn's `granger_lasso`).

The last two know no gaps in time: they get the longest unbroken stretch.
"""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

from fedgranger.inference.decision import adjust, normal_score
from fedgranger_research.baselines.method_protocol import (
    BaselineError,
    Columns,
    EdgeScores,
    Method,
    Post,
    by_client,
)

NEEDS = {"var": "statsmodels", "var-lingam": "lingam", "granger-lasso": "causallearn"}
"""What a method imports beyond the library."""


def require(module: str, package: str) -> Any:
    """Import a peer.

    Raises:
        BaselineError: it is not installed; names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = getattr(error, "name", None) or package
        raise BaselineError(
            f"this method needs the package '{package}' and '{missing}' is not installed; "
            "install the peers with: pip install 'fedgranger[peers]'"
        ) from None


def lag_pairs(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """All columns at t − 1 and at t, in pairs of rows that follow each other; centred."""
    values = np.concatenate(columns.series, axis=1)
    follows = ~columns.starts[1:]
    if follows.sum() <= 2 * values.shape[1] + 2:
        raise BaselineError(
            f"only {int(follows.sum())} time steps follow their predecessor, too few for "
            f"{values.shape[1]} columns; give a longer recording"
        )
    before, after = values[:-1][follows], values[1:][follows]
    return before - before.mean(axis=0), after - after.mean(axis=0)


def longest_stretch(columns: Columns) -> Float[np.ndarray, "time column"]:
    """All columns side by side, the longest unbroken part."""
    ends = [*np.flatnonzero(columns.starts), len(columns.starts)]
    start, stop = max(itertools.pairwise(ends), key=lambda part: part[1] - part[0])
    return np.concatenate(columns.series, axis=1)[start:stop]


def fit_var(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    """Least squares of each column on all; t tests of entries, Wald χ² tests of blocks."""
    regression = require("statsmodels.regression.linear_model", "statsmodels")
    before, after = lag_pairs(columns)
    P = after.shape[1]
    design = np.column_stack([np.ones(len(before)), before])
    fits = [regression.OLS(after[:, i], design).fit() for i in range(P)]
    t = np.array([fit.tvalues[1:] for fit in fits])
    p = np.array([fit.pvalues[1:] for fit in fits])
    B = np.array([fit.params[1:] for fit in fits])
    residuals = np.array([fit.resid for fit in fits])
    cov = residuals @ residuals.T / fits[0].df_resid
    inverse = np.asarray(fits[0].normalized_cov_params)[1:, 1:]
    client_p, client_score = _wald(columns.dims, B, cov, inverse)
    return _decided(columns, np.abs(t), p, client_score, client_p, options)


def fit_granger_pairs(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    r"""F test of \(x_j(t-1)\) in the regression of \(x_i(t)\) on \(x_i(t-1)\) and it, any i ≠ j.

    On the diagonal: of \(x_i(t-1)\) alone. A pair of clients has the smallest p of its entries
    times their number.
    """
    before, after = lag_pairs(columns)
    n, P = after.shape
    own = (before * after).sum(axis=0) / (before**2).sum(axis=0)
    alone = after - own * before  # what its own past leaves of each column
    F = np.zeros((P, P))
    for i in range(P):
        x = before[:, i]
        others = before - np.outer(x, x @ before / (x @ x))
        norm = (others**2).sum(axis=0)
        norm[i] = 1.0
        gain = (others.T @ alone[:, i]) ** 2 / norm
        rest = (alone[:, i] ** 2).sum() - gain
        F[i] = gain / (rest / (n - 3))
        F[i, i] = (own[i] * x) @ (own[i] * x) / ((alone[:, i] ** 2).sum() / (n - 2))
    p = scipy.stats.f.sf(F, 1, n - 3)
    size = np.outer(columns.dims, columns.dims)
    client_p = np.minimum(-by_client(-p, columns.dims) * size, 1.0)
    return _decided(columns, F, p, by_client(F, columns.dims), client_p, options)


def fit_var_lingam(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    """VAR-LiNGAM with pruning; its non-zero lag-one coefficients are its edges."""
    lingam = require("lingam", "lingam")
    model = lingam.VARLiNGAM(lags=1, criterion=None, prune=True, random_state=options["seed"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(longest_stretch(columns))
    # Lag one only: what acts within a step is not the question here.
    return _sized(columns, np.abs(np.asarray(model.adjacency_matrices_)[1]))


def fit_granger_lasso(columns: Columns, options: Mapping[str, Any]) -> EdgeScores:
    """Lasso on all columns of the past; coefficients that are not zero are edges."""
    granger = require("causallearn.search.Granger.Granger", "causal-learn")
    values = longest_stretch(columns)
    model = granger.Granger(maxlag=1, cv=options["folds"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coefficients = np.asarray(model.granger_lasso((values - values.mean(0)) / values.std(0)))
    P = values.shape[1]
    return _sized(columns, np.abs(coefficients).reshape(P, -1, P).max(axis=1))


def _wald(
    dims: tuple[int, ...], B: np.ndarray, cov: np.ndarray, inverse: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""P and score of a block b: \(W = \mathrm{tr}(\Sigma^{-1} b V^{-1} b^\top) \sim \chi^2\)."""
    owner = np.repeat(np.arange(len(dims)), dims)
    M = len(dims)
    p, score = np.ones((M, M)), np.zeros((M, M))
    for m, n in np.ndindex(M, M):
        rows, cols = np.flatnonzero(owner == m), np.flatnonzero(owner == n)
        b, S, V = B[np.ix_(rows, cols)], cov[np.ix_(rows, rows)], inverse[np.ix_(cols, cols)]
        W = float(np.trace(np.linalg.solve(S, b) @ np.linalg.solve(V, b.T)))
        p[m, n] = scipy.stats.chi2.sf(W, b.size)
        score[m, n] = normal_score(np.array([W]), np.array([float(b.size)]))[0]
    return p, score


def _decided(
    columns: Columns,
    score: Float[np.ndarray, "effect cause"],
    p: Float[np.ndarray, "effect cause"],
    client_score: Float[np.ndarray, "effect_client cause_client"],
    client_p: Float[np.ndarray, "effect_client cause_client"],
    options: Mapping[str, Any],
) -> EdgeScores:
    """Decide by the correction at α: over all entries, and over the pairs of different clients."""
    alpha, correction = options["alpha"], options["correction"]
    across = ~np.eye(len(client_p), dtype=np.bool_)
    is_client_edge = ~across
    is_client_edge[across] = adjust(client_p[across], correction) <= alpha
    is_edge = adjust(p.reshape(-1), correction).reshape(p.shape) <= alpha
    return _answer(columns, score, is_edge, client_score, is_client_edge)


def _sized(columns: Columns, size: Float[np.ndarray, "effect cause"]) -> EdgeScores:
    """A method without a test: what is not exactly zero is an edge."""
    clients = by_client(size, columns.dims)
    return _answer(columns, size, size > 0, clients, clients > 0)


def _answer(
    columns: Columns,
    score: Float[np.ndarray, "effect cause"],
    is_edge: Bool[np.ndarray, "effect cause"],
    client_score: Float[np.ndarray, "effect_client cause_client"],
    is_client_edge: Bool[np.ndarray, "effect_client cause_client"],
) -> EdgeScores:
    post = Post()
    for part in columns.series:  # every client's raw columns leave its site
        post.carry(part)
    return EdgeScores(
        np.asarray(score),
        np.asarray(is_edge),
        np.asarray(client_score),
        np.asarray(is_client_edge),
        0.0,
        post.messages,
        post.bytes_sent,
        "direct",
        float("nan"),
    )


TESTED: Mapping[str, Any] = {"alpha": 0.05, "correction": "bh"}
METHODS: dict[str, Method] = {
    "var": Method(fit_var, TESTED, "central", "VAR of all columns in one place, t and Wald tests"),
    "granger-pairs": Method(
        fit_granger_pairs, TESTED, "central", "Granger F test of every two columns by themselves"
    ),
    "var-lingam": Method(
        fit_var_lingam, {"seed": 0}, "central", "VAR-LiNGAM, pruned (package lingam)"
    ),
    "granger-lasso": Method(
        fit_granger_lasso, {"folds": 5}, "central", "Granger lasso (package causal-learn)"
    ),
}
