r"""NOTEARS-ADMM: a sparse linear acyclic graph that clients agree on (Ng & Zhang 2022).

$$X = XW + E,\qquad \min_W \sum_k \tfrac{1}{2nK}\|X_k - X_kW\|^2 + \lambda\|W\|_1
  \quad\text{s.t.}\quad h(W) = 0$$

over all lagged variables; `consensus` has the algorithm. Afterwards entries up to the threshold
are dropped, then the smallest until no cycle is left. The original knows no time: `time_order =
False` gives it the lagged columns without forbidding edges back in time, which is how the paper's
table has it (vertical F1 0.23 on average over 20 seeds; 0.35 when time order is known).

The penalties grow so fast that the agreement freezes near, not at, the minimum: with one client and
a known order of the variables it ends up to 0.2 from it, and without, often in another local one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgranger_research.baselines.consensus import Agreement, Problem, Schedule, agree
from fedgranger_research.baselines.lagged_design import Design
from fedgranger_research.baselines.method_protocol import Post
from fedgranger_research.baselines.weight_graphs import weight_method

DEFAULTS: dict[str, Any] = {
    "sparsity": 0.01,
    "threshold": 0.3,
    "time_order": True,
    **Schedule()._asdict(),
}


def learn(design: Design, options: Mapping[str, Any], post: Post) -> Agreement:
    """Agree on W, `[cause, effect]` over all variables of the design."""
    shape, K = design.allowed.shape, len(design.shares)
    problem = Problem(design.allowed, np.full(shape, options["sparsity"]), design.num_holders)
    schedule = Schedule(**{name: options[name] for name in Schedule._fields})
    moments = [share.cov / K for share in design.shares]
    places = [(share.places, share.places) for share in design.shares]
    return agree(moments, places, problem, schedule, post)


VERTICAL = weight_method("vertical", "NOTEARS-ADMM on a client's own columns", DEFAULTS, learn)
UNTIMED = weight_method(
    "vertical",
    "NOTEARS-ADMM on a client's own columns, without time order, as in the paper's table",
    {**DEFAULTS, "time_order": False},
    learn,
)
HORIZONTAL = weight_method("horizontal", "NOTEARS-ADMM on all columns", DEFAULTS, learn)
