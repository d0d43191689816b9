r"""Stable step size of a server row, from the one number each client sends in its hello.

The row's gain is \(2\gamma\kappa_g\) with \(\kappa_g\) the windowed gain of the stacked states of
the clients it listens to. It is at most about the sum of the clients' own gains (exactly so when
their states coincide), which is what the server can know before training.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["ServerStepSize", "choose"]


class ServerStepSize(NamedTuple):
    """γ of a row and the gain it uses."""

    server: float
    gain: float


def choose(state_gains: np.ndarray, *, server: float | str, safety: float) -> ServerStepSize:
    """Fill in γ when it is `"auto"`.

    Args:
        state_gains: `ClientHello.state_gain` of the clients that may influence this row.
        server: the step size given, or `"auto"`.
        safety: share of the budget to use.
    """
    total = float(np.sum(state_gains))
    if server == "auto":
        server = safety / (2 * total) if total > 0 else 0.0
    return ServerStepSize(float(server), 2 * float(server) * total)
