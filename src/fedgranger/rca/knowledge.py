"""What the server of a run knows, to judge new messages: from a run's result."""

from __future__ import annotations

import numpy as np

from fedgranger.errors import RunError
from fedgranger.rca.alarms import Knowledge
from fedgranger.results import Result


def knowledge_of(result: Result) -> Knowledge:
    """What the server of a run knows, in one process as between parties.

    Raises:
        RunError: the run did not learn what is normal.
    """
    if result.reference is None:
        reason = result.manifest.get("normal", {}).get("reason")
        raise RunError(
            "this run has no model of normal operation"
            + (f" ({reason})" if reason else "; fit again with this version")
        )
    strengths = strength_matrix(result, result.reference.names)
    return Knowledge(result.reference, strengths, result.edges())


def strength_matrix(result: Result, clients: tuple[str, ...]) -> np.ndarray:
    """[m, n] = strength of n's influence on m: tested edges only, or FedGC's own without tests."""
    edges = result.edges()
    strengths = edges["strength"]
    if result.inference is not None:
        strengths = strengths.where(edges["is_edge"].fillna(False).astype(bool), 0.0)
    place = {name: k for k, name in enumerate(clients)}
    out = np.zeros((len(clients), len(clients)))
    for cause, effect, strength in zip(edges["cause"], edges["effect"], strengths, strict=True):
        if cause in place and effect in place:
            out[place[effect], place[cause]] = strength
    return out
