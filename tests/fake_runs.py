"""Made runs of any size: results, their tables and their reports, without a fit."""

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.inference.decision import decide
from fedgranger.inference.edge_tables import EDGE_COLUMNS, ENTRY_COLUMNS, EdgeInference
from fedgranger.manifest_types import FORMAT, Manifest
from fedgranger.report.html import write_report
from fedgranger.results import Result
from fedgranger.tested_facts import InferenceFacts


def pairs_of(names):
    """(cause, effect) in the order of a table of edges."""
    return [(cause, effect) for effect in names for cause in names if cause != effect]


def table_of(names, **columns):
    """A row for every pair; a column is one value for all of them or one for each."""
    pairs = pd.DataFrame(pairs_of(names), columns=["cause", "effect"])
    return pairs.assign(**columns)


def made_result(names, edges=None, entries=None, *, manifest=None, config=None, **more):
    """A result with these tables; without edges, or with test='none', nothing was tested."""
    config = RunConfig() if config is None else config
    dims = more.pop("state_dims", (2,) * len(names))
    blank = np.zeros((sum(dims), sum(dims)))
    inference = None
    if edges is not None and config.test != "none":
        entries = edges if entries is None else entries
        inference = EdgeInference(
            blank, blank, blank, edges, entries, InferenceFacts(test="debiased")
        )
    parts = {"granger": blank, "augmentations": {}, "trace": pd.DataFrame(), **more}
    return Result(
        clients=tuple(names),
        state_dims=dims,
        inference=inference,
        manifest=Manifest.of(manifest or {}),
        config=config,
        **parts,
    )


def made_manifest(names, facts=None, *, inference=None, data=None, **more):
    """What every run writes down; `facts` are those of each client."""
    clients = {name: dict(facts or {}) for name in names}
    return Manifest.of(
        {
            "format": FORMAT,
            "fedgranger_version": "0.1.0",
            "runtime": "inprocess",
            "data": {"hash": "ab12", "clients": clients} | (data or {}),
            "inference": {"test": "debiased", "alpha": 0.05} | (inference or {}),
            **more,
        }
    )


def made_tables(names, seed=0, size=2):
    """Edges and entries with p-values from 1e-12 to 1, one of more than two not testable."""
    rng = np.random.default_rng(seed)
    rows, entries = [], []
    for cause, effect in pairs_of(names):
        is_real = rng.random() < min(0.4, 3 / len(names))
        p = 10.0 ** rng.uniform(-12, -1) if is_real else rng.random()
        strength = rng.uniform(0.2, 2.0) if is_real else rng.uniform(0.0, 0.15)
        low = strength * rng.uniform(0.6, 0.95) if p < 0.05 else 0.0
        rows.append((cause, effect, strength, low, strength * 1.2, 30 * strength, 4, p))
        for i in range(size):
            for j in range(size):
                value = rng.normal()
                ends = (value - 0.2, value + 0.2)
                entries.append((cause, effect, i, j, value, 0.1, *ends, rng.random()))
    edges = pd.DataFrame(rows, columns=list(EDGE_COLUMNS[:8]))
    if len(names) > 2:
        edges.loc[1, ["ci_low", "ci_high", "statistic", "p_value"]] = np.nan
    return decide(edges, 0.05, "bh"), pd.DataFrame(entries, columns=list(ENTRY_COLUMNS))


def made_audit(names):
    """The second client is the worst; its record is seasonal."""
    level = [0.01, 0.05, 0.1, 0.5]
    rates = {name: [0.05, 0.02] for name in names} | {names[min(1, len(names) - 1)]: [0.4, 0.05]}
    by_effect = dict(sorted(rates.items(), key=lambda item: -item[1][0]))
    seasonal = {"kinds": ["seasonal"], "peak_share": 0.12, "peak_period": 24.0}
    return {
        "test": "readings",
        "copies": 60,
        "refused": 1,
        "rate": [0.21, 0.02],
        "rate_01": [0.1, 0.01],
        "band": [0.03, 0.08],
        "is_inside": False,
        "by_effect": by_effect,
        "by_cause": {name: [0.04, 0.02] for name in names},
        "quantiles": {
            "level": level,
            "observed": [0.001, 0.01, 0.05, 0.5],
            "low": [u / 2 for u in level],
            "high": [1.5 * u for u in level],
        },
        "clients": {name: seasonal if rates[name][0] > 0.1 else {"kinds": []} for name in names},
    }


def made_controls(names, sensors):
    """Positive control of every pair, and a sensor of every client."""
    return {
        "extrapolated": [],
        "positive_control": {
            f"{cause} -> {effect}": 0.1 + 0.01 * k
            for k, (cause, effect) in enumerate(pairs_of(names))
        },
        "innovation_sensor": {
            name: {"sensor": sensors[0], "innovation": 5.0, "is_change": True} for name in names
        },
    }


def full_manifest(names, sensors=None):
    """Facts for every section of the page."""
    normal = np.sort(np.random.default_rng(1).normal(size=41))
    fit = {
        "steps": 4000,
        "innovation_variance": 1.21,
        "autocorrelation": -0.034,
        "quantiles": [round(float(q), 3) for q in normal],
        "sensors": [
            {"name": name, "explained": 0.9, "missing_share": 0.01}
            for name in sensors or ("x", "y")
        ],
        "num_sensors": 2,
    }
    facts = {"num_sensors": 2, "state_dim": 2, "missing_share": 0.01, "local_fit": fit, "notes": []}
    return made_manifest(
        names,
        facts,
        data={"num_steps": 4000},
        command="fedgranger fit data --out run",
        training={"status": "converged after 12 passes", "converged": True},
        inference={
            "correction": "bh",
            "confidence": 0.95,
            "lags": 1,
            "spectral_radius": 0.83,
            "warnings": [],
            "portmanteau": dict.fromkeys(names, 0.4),
            "unit_root": dict.fromkeys(names, 0.001),
            "effective_samples": dict.fromkeys(names, 1200.0),
            "detectable_strength": {"a -> b": 0.08},
            "audit": made_audit(names),
            **made_controls(names, sensors or ("x", "y")),
        },
        bytes={name: {"up_per_step": 33, "bytes_up": 132_000} for name in names},
    )


def made_trace(names, passes=12):
    """Losses that fall; every client has its own."""
    rows = [
        (k, 10 * k, name, 2.0 / (k + 1) * (1 + i), 0.1 / (k + 1))
        for k in range(passes)
        for i, name in enumerate(names)
    ]
    columns = ["pass_index", "round", "client", "local_loss", "server_loss"]
    return pd.DataFrame(rows, columns=columns)


def made_uncertainty(names):
    rounds = np.arange(0, 4001, 100)
    parts = []
    for quantity in ("granger_cov", "augmentation_cov", "state_cov", "gradient_cov"):
        prior, data = np.exp(-rounds / 400), 0.02 * (1 - np.exp(-rounds / 600))
        table = pd.DataFrame({"round": rounds, "quantity": quantity, "prior": prior, "data": data})
        parts.append(table.assign(total=prior + data, client=names[0], cause=""))
    return pd.concat(parts, ignore_index=True)


def made_over_time(names, count=6):
    """Hourly stretches; the second client is driven from the fourth on, one stretch is unknown."""
    hours = np.datetime64("2026-03-01T00", "s") + np.arange(count + 1) * np.timedelta64(240, "h")
    parts = []
    for k in range(count):
        pairs = [(c, e) for e in names for c in names if c != e]
        table = pd.DataFrame(pairs, columns=["cause", "effect"])
        is_link = ((table["cause"] == names[0]) & (table["effect"] == names[1])).to_numpy()
        strength = np.where(is_link & (k > 2), 0.5 + 0.01 * k, 0.1)
        table = table.assign(
            start=str(hours[k]),
            end=str(hours[k + 1] - np.timedelta64(1, "h")),
            strength=strength,
            ci_low=np.where(strength > 0.3, strength - 0.2, 0.0),
            ci_high=strength + 0.2,
            p_value=np.where(strength > 0.3, 1e-6, 0.6),
            q_value=np.where(strength > 0.3, 1e-5, 1.0),
            is_edge=pd.array(strength > 0.3, dtype="boolean"),
        )
        if k == 1:
            numbers = ["strength", "ci_low", "ci_high", "p_value", "q_value"]
            table[numbers] = np.nan
            table["is_edge"] = pd.array([pd.NA] * len(table), dtype="boolean")
        parts.append(table)
    return pd.concat(parts, ignore_index=True)


def made_root_causes(names):
    ranking = [
        {"client": name, "score": 3.0 / (k + 1), "probability": 0.6 / 2**k}
        for k, name in enumerate(names[:4])
    ]
    evidence = [f"{names[0]} left its range 4 steps before any other client."]
    return {
        "scorer": "onset",
        "windows": [{"name": "alarm 1", "ranking": ranking, "evidence": evidence}],
    }


def made_report(folder, names, seed=0, sensors=None):
    """Write a page with every section; return its path and the tables behind it."""
    edges, entries = made_tables(names, seed)
    path = folder / f"report-{len(names)}.html"
    fedgc = edges[["cause", "effect"]].assign(strength=edges["strength"].to_numpy()[::-1])
    write_report(
        path,
        edges,
        full_manifest(names, sensors),
        made_trace(names),
        entries=entries,
        fedgc=fedgc,
        uncertainty=made_uncertainty(names),
        prior_time=dict.fromkeys(names, 1200.0),
        root_causes=made_root_causes(names),
        over_time=made_over_time(names),
    )
    return path, edges, entries
