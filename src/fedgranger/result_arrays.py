"""What the tests of a run found, as arrays and tables of its folder.

`edges.csv` and `entries.csv` are the run's answer. When both tests were made, the other one's are
`edges_latent.csv` or `edges_readings.csv`, with its entries beside it; `edges_over_time.csv`
follows the edges through the record, when that was asked for. They are for people: what a run is
read from are the arrays of `estimate.npz`, column by column (folders of version 0.1.0: the tables).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.inference.copy_audit import Audit, PairTests
from fedgranger.inference.edge_movements import EdgeMovement
from fedgranger.inference.edge_response import EdgeResponse
from fedgranger.inference.edge_tables import EDGE_COLUMNS, EdgeInference
from fedgranger.inference.predictor import Predictor
from fedgranger.tested_facts import InferenceFacts

Made = TypeVar("Made")
OVER_TIME_FILE = "edges_over_time.csv"
NAMES = ("cause", "effect")
TIMES = ("start", "end")
OVER_TIME = "over_time."
RESPONSES = "responses."
MOVEMENTS = "movements."
PREDICTOR = "predictor."
DECISION = "is_edge"
INTEGERS = ("row", "col", "df", "delay")
OTHER_FILES = tuple(
    f"{kind}_{test.file_word}.csv" for kind in ("edges", "entries") for test in EDGE_TESTS.values()
)


def inference_arrays(found: EdgeInference) -> dict[str, np.ndarray]:
    """Arrays of a test, of its audit and of the other test, by name."""
    kind = found.facts.test
    out = {
        kind: found.transition,
        f"{kind}_std_error": found.std_error,
        f"{kind}_p_value": found.p_value,
    }
    for name, table in (("edges", found.edges), ("entries", found.entries)):
        out |= {f"{kind}_{name}.{column}": _as_array(table, column) for column in table.columns}
    if found.over_time is not None:
        table = found.over_time
        out |= {f"{OVER_TIME}{column}": _as_array(table, column) for column in table.columns}
    if found.audit is not None:
        out |= {f"{kind}_audit_{name}": part for name, part in found.audit.found._asdict().items()}
        out[f"{kind}_audit_statistics"] = found.audit.statistics
        out[f"{kind}_audit_p_values"] = found.audit.p_values
        out[f"{kind}_audit_names"] = np.array(found.audit.names)
    out |= _by_edge(RESPONSES, found.responses) | _by_edge(MOVEMENTS, found.movements)
    if found.predictor is not None:
        out |= {f"{PREDICTOR}{name}": part for name, part in found.predictor._asdict().items()}
    return out | ({} if found.beside is None else inference_arrays(found.beside))


def other_tables(found: EdgeInference | None) -> dict[str, pd.DataFrame]:
    """Tables of the test that is not the run's answer, by file name."""
    if found is None or found.beside is None:
        return {}
    word = EDGE_TESTS[found.beside.facts.test].file_word
    tables = {"edges": found.beside.edges, "entries": found.beside.entries}
    return {f"{name}_{word}.csv": table for name, table in tables.items()}


def read_inference(
    folder: Path, facts: InferenceFacts, arrays: Mapping[str, np.ndarray]
) -> EdgeInference | None:
    """Undo `inference_arrays`; None when the run has no tests."""
    found = _read(folder, facts, arrays, "")
    if found is None:
        return None
    found = found._replace(
        responses=_edges_of(arrays, RESPONSES, EdgeResponse),
        movements=_edges_of(arrays, MOVEMENTS, EdgeMovement),
    )
    if any(name.startswith(OVER_TIME) for name in arrays):
        found = found._replace(over_time=_table(folder, arrays, OVER_TIME, OVER_TIME_FILE))
    if f"{PREDICTOR}constant" in arrays:
        parts = {name: arrays[f"{PREDICTOR}{name}"] for name in Predictor._fields}
        found = found._replace(predictor=Predictor(**parts))
    if facts.beside is None:
        return found
    word = EDGE_TESTS[facts.beside.test].file_word
    return found._replace(beside=_read(folder, facts.beside, arrays, f"_{word}"))


def _read(
    folder: Path, facts: InferenceFacts, arrays: Mapping[str, np.ndarray], suffix: str
) -> EdgeInference | None:
    kind, audit = facts.test, None
    if kind not in arrays:
        return None
    if f"{kind}_audit_names" in arrays and facts.audit is not None:
        audit = Audit(
            kind,
            tuple(arrays[f"{kind}_audit_names"].tolist()),
            PairTests(*(arrays[f"{kind}_audit_{name}"] for name in PairTests._fields)),
            arrays[f"{kind}_audit_statistics"],
            arrays[f"{kind}_audit_p_values"],
            facts.audit.refused,
        )
    return EdgeInference(
        arrays[kind],
        arrays[f"{kind}_std_error"],
        arrays[f"{kind}_p_value"],
        _table(folder, arrays, f"{kind}_edges.", f"edges{suffix}.csv").reindex(
            columns=list(EDGE_COLUMNS)
        ),
        _table(folder, arrays, f"{kind}_entries.", f"entries{suffix}.csv"),
        facts,
        audit,
    )


def _by_edge(prefix: str, found: Mapping[tuple[str, str], Any]) -> dict[str, np.ndarray]:
    """Arrays of one named tuple per edge."""
    out = {f"{prefix}edges": np.array(list(found), dtype=np.str_)} if found else {}
    for place, one in enumerate(found.values()):
        out |= {f"{prefix}{place}.{name}": np.asarray(part) for name, part in one._asdict().items()}
    return out


def _edges_of(
    arrays: Mapping[str, np.ndarray], prefix: str, kind: type[Made]
) -> dict[tuple[str, str], Made]:
    """Undo `_by_edge`; empty where there are none."""
    out = {}
    edges = arrays[f"{prefix}edges"].tolist() if f"{prefix}edges" in arrays else []
    for place, (cause, effect) in enumerate(edges):
        names = kind._fields  # pyright: ignore[reportAttributeAccessIssue]
        out[cause, effect] = kind(**{name: arrays[f"{prefix}{place}.{name}"] for name in names})
    return out


def _as_array(table: pd.DataFrame, name: str) -> np.ndarray:
    """Names as text, counts and numbers as they are, decisions as 1, 0 or NaN."""
    column = table[name]
    if name in (*NAMES, *TIMES):
        return column.to_numpy(dtype=np.str_)
    if name in INTEGERS and not np.isnan(column.to_numpy(dtype=np.float64)).any():
        return column.to_numpy(dtype=np.int64)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _table(
    folder: Path, arrays: Mapping[str, np.ndarray], prefix: str, file_name: str
) -> pd.DataFrame:
    names = [name for name in arrays if name.startswith(prefix)]
    if not names:
        return _read_table(folder / file_name)
    table = pd.DataFrame({name.removeprefix(prefix): arrays[name] for name in names})
    for name in (*NAMES, *TIMES):
        if name in table:
            table[name] = [str(value) for value in table[name]]
    if DECISION in table:
        table[DECISION] = table[DECISION].astype("boolean")
    return table


def _read_table(path: Path) -> pd.DataFrame:
    """Read edges or entries; numbers through `float`, which is exact in every pandas version."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)  # a client may be called "NA"
    for name in table.columns.difference([*NAMES, DECISION]):
        numbers = np.array([float(text) if text else np.nan for text in table[name]])
        table[name] = numbers.astype(np.int64) if name in INTEGERS else numbers
    return table
