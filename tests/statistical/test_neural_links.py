"""On linear data the mean Jacobian finds the links that the linear edge test finds."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

import fedgranger as fg
from tests.configs import formula_config

THRESHOLD = 0.2
"""Norm of a block, stated before these data sets were drawn; those of true links are 0.3 to 2."""


@pytest.mark.slow  # trains networks of the paper's sizes: two minutes
@pytest.mark.parametrize(
    ("num_clients", "num_steps", "seed", "transition"),
    [(3, 3000, 20, "linear"), (6, 2000, 21, "linear"), (4, 2000, 22, "gp")],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_same_edges_as_the_linear_test(num_clients, num_steps, seed, transition):
    panel, truth = fg.simulate(num_clients, num_steps, seed=seed)
    result = fg.fit(panel, formula_config(solver="neural", transition=transition))
    tested = result.edges()["is_edge"].to_numpy(dtype=np.bool_)
    by_size = result.edges(estimate="fedgc")["strength"].to_numpy() > THRESHOLD
    pairs = zip(result.edges()["cause"], result.edges()["effect"], strict=True)
    links = np.array([pair in set(truth.edges) for pair in pairs])
    assert f1_score(tested, by_size) >= 0.9
    assert f1_score(links, by_size) >= 0.9
