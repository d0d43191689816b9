"""Results of any size with known tables, without a fit."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from fedgranger.config import RunConfig
from fedgranger.inference.decision import decide
from fedgranger.inference.edge_tables import EDGE_COLUMNS, ENTRY_COLUMNS, EdgeInference
from fedgranger.results import Result
from fedgranger.uncertainty.record import Propagation

mpl.use("Agg")

HOSTILE = (
    "$x_{1}$",
    "<b>bold</b> & co",
    "_hidden",
    "$\\frac{broken$ \\alpha %",
    "north_wing_pump_house_pressure_sensor_07",
    "line\nbreak\x00\x1b",
)


def plants(count):
    return tuple(f"plant{index:02d}" for index in range(count))


def edge_table(clients, seed):
    rng = np.random.default_rng(seed)
    pairs = [(cause, effect) for effect in clients for cause in clients if cause != effect]
    strength = rng.uniform(0.05, 1.0, len(pairs))
    table = pd.DataFrame(
        {
            "cause": [cause for cause, _ in pairs],
            "effect": [effect for _, effect in pairs],
            "strength": strength,
            "ci_low": np.maximum(strength - 0.2, 0.0),
            "ci_high": strength + 0.2,
            "statistic": 1.0,
            "df": 4,
            "p_value": rng.uniform(size=len(pairs)) ** 6,
            "delay": 1,
        }
    )
    return decide(table, 0.05, "bh")[list(EDGE_COLUMNS)]


def entry_table(clients, seed):
    rng = np.random.default_rng(seed)
    rows = [
        (cause, effect, i, j, value, 0.1, value - 0.2, value + 0.2, 0.5)
        for effect in clients
        for cause in clients
        if cause != effect
        for i in range(2)
        for j in range(2)
        for value in [float(rng.normal(0, 0.3))]
    ]
    return pd.DataFrame(rows, columns=list(ENTRY_COLUMNS))


def training(clients):
    rows = [
        (k, 10, name, 2 * 0.9**k + m, 0.3 * 0.9**k + 0.1 * m)
        for k in range(20)
        for m, name in enumerate(clients)
    ]
    columns = ["pass_index", "round", "client", "local_loss", "server_loss"]
    return pd.DataFrame(rows, columns=columns)


def covariances(clients):
    rows = []
    for k in range(0, 50, 10):
        for m, name in enumerate(clients):
            for cause in clients:
                if cause != name:
                    prior, data = (m + 1) * 0.5**k, 0.01 * k
                    rows.append((k, name, cause, "granger_cov", prior + data, prior, data))
                    rows.append((k, name, cause, "granger_state_cov", 3.0, 2.0, 1.0))
            rows.append((k, name, "", "state_cov", 0.7, np.nan, np.nan))
    table = pd.DataFrame(
        rows, columns=["round", "client", "cause", "quantity", "total", "prior", "data"]
    )
    return Propagation(tuple(clients), "blockwise", table, {}, {}, {}, {})


def build(clients=None, *, has_tests=True, has_uncertainty=True, seed=0, **options):
    clients = plants(6) if clients is None else tuple(clients)
    size = 2 * len(clients)
    inference = None
    if has_tests:
        blank = np.zeros((size, size))
        tables = edge_table(clients, seed), entry_table(clients, seed)
        inference = EdgeInference(blank, blank, blank, *tables, {"test": "debiased"})
    return Result(
        clients,
        (2,) * len(clients),
        np.random.default_rng(seed).normal(size=(size, size)),
        {},
        inference,
        training(clients),
        {},
        RunConfig(**options),
        covariances(clients) if has_uncertainty else None,
    )


@pytest.fixture
def make_result():
    return build


@pytest.fixture
def result():
    return build()


@pytest.fixture
def hostile():
    return build(HOSTILE)
