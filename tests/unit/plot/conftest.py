"""Results of any size with known tables, without a fit."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from fedgranger.config import RunConfig
from fedgranger.inference.decision import decide
from fedgranger.inference.edge_tables import EDGE_COLUMNS
from fedgranger.uncertainty.record import Propagation
from tests.fake_runs import made_result, made_tables, made_trace, pairs_of, table_of

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
    """Strengths within one decade, all of them tested."""
    rng, size = np.random.default_rng(seed), len(pairs_of(clients))
    strength = rng.uniform(0.05, 1.0, size)
    table = table_of(
        clients,
        strength=strength,
        ci_low=np.maximum(strength - 0.2, 0.0),
        ci_high=strength + 0.2,
        statistic=1.0,
        df=4,
        p_value=rng.uniform(size=size) ** 6,
        delay=1,
    )
    return decide(table, 0.05, "bh")[list(EDGE_COLUMNS)]


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
    edges = entries = None
    if has_tests:
        edges, (_, entries) = edge_table(clients, seed), made_tables(clients, seed)
    return made_result(
        clients,
        edges,
        entries,
        granger=np.random.default_rng(seed).normal(size=(size, size)),
        trace=made_trace(clients, 20),
        config=RunConfig(**options),
        uncertainty=covariances(clients) if has_uncertainty else None,
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
