"""Problems from recordings: files of clients, and panels in which the truth is known by design."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from fedgranger.config import RunConfig
from fedgranger.data.known_graph import read_known_graph
from fedgranger.data.panel import Panel
from fedgranger.errors import FedGrangerError
from fedgranger_research.added_noise import sent_states
from fedgranger_research.baselines.method_protocol import BaselineError
from fedgranger_research.baselines.problems import Problem, columns_of, with_truth

TRUTH_FILE = "truth.json"


def read_problem(folder: Path, truth: Path | None = None) -> tuple[Problem, bool]:
    """Columns of a folder with one file per client, and whether the truth is known.

    The truth is any file of a known graph (`truth.json` of a simulation, a table with columns
    cause and effect, …), `truth.json` in the folder unless given. Clients prepare their data as in
    `fedgranger fit` with its defaults.

    Raises:
        BaselineError: a client cannot be prepared.
        DataError: the truth names a client that is not there.
    """
    panel = Panel.read(folder)
    source = truth or folder / TRUTH_FILE
    is_known = truth is not None or source.is_file()
    edges = tuple(sorted(read_known_graph(source, panel.names).edges)) if is_known else ()
    return problem_of_panel(panel, edges), is_known


def problem_of_panel(panel: Panel, edges: tuple[tuple[str, str], ...]) -> Problem:
    """The states that the clients of a fit would send, seasons taken out."""
    try:
        with jax.enable_x64(True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = sent_states(panel, RunConfig(solver="none"), {})
    except (FedGrangerError, np.linalg.LinAlgError) as error:
        raise BaselineError(f"the clients' states could not be made: {error}") from None
    return with_truth(columns_of(source), edges)


def problem_of_control(
    arrays: Mapping[str, np.ndarray], absent: set[tuple[str, str]], added: set[tuple[str, str]]
) -> Problem:
    """A panel of which some (cause, effect) pairs are known to be absent and some to be there."""
    problem = problem_of_panel(Panel.from_arrays(dict(arrays)), tuple(sorted(added)))
    names = problem.columns.names
    known = np.array([[(c, e) in absent | added for c in names] for e in names], dtype=np.bool_)
    return problem._replace(is_known=known)
