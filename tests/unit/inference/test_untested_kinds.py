"""A kind of the nonlinear test that is left out is named, with its pairs, why, and a remedy."""

import itertools

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.errors import InferenceWarning
from fedgranger.inference.infer import infer
from fedgranger.inference.nonlinear_test import NonlinearTests
from fedgranger.inference.residual_products import KINDS, PairProducts, combine
from fedgranger.inference.untested_kinds import untested_kinds
from tests.state_sources import source_of


def states(num_steps, dims=4):
    return np.random.default_rng(0).standard_normal((num_steps, dims))


def test_too_many_products_for_the_rows_are_said():
    """Ten lags of two states have 210 products of two, times two states of the effect."""
    panel, _ = fg.simulate(2, 300, seed=1)
    options = {"test": "nonlinear", "solver": "none", "copies": 20}
    with pytest.warns(InferenceWarning, match="the quadratic kind"):
        result = fg.fit(panel, state_dim=2, period="none", lags=10, **options)
    facts = result.manifest["inference"]
    assert all("quadratic" not in kinds for kinds in facts["kinds"].values())
    (sentence,) = facts["warnings"]
    assert sentence == (
        "the quadratic kind of influence was not tested for 'client1 -> client2', "
        "'client2 -> client1': there are too few rows for its products (420 products, 289 rows), "
        "so nothing was found or excluded there; give fewer lags, fewer states or more data"
    )


@pytest.mark.parametrize(
    ("statistic", "why"),
    [
        (np.nan, "its products depend on each other"),
        (1.2, "most copies with shifted clocks have too few usable rows for it"),
    ],
)
def test_other_reasons_are_told_apart_and_many_pairs_are_shortened(statistic, why):
    names = ("a", "b", "c", "d")
    kinds = np.full((len(KINDS), 4, 4), 0.3)
    kinds[2] = np.nan  # the interaction
    kinds[:, 0, 1] = np.nan  # a pair without any test has its reason in the table
    products = {
        (m, n): PairProducts(
            np.array([1.0, 1.0, statistic, 1.0]),
            np.array([2, 3, 4, 5]),
            np.array([100, 99, 98 + m, 90]),
            np.empty((0, 4)),
            0.0,
            (14, 102),
        )
        for m, n in itertools.permutations(range(4), 2)
    }
    unused = np.zeros((4, 4), dtype=np.bool_)
    found = NonlinearTests(combine(kinds), kinds, unused, None, products)
    (sentence,) = untested_kinds(names, found)
    assert sentence.startswith("the interaction kind of influence was not tested for 'c -> a', ")
    assert f"and 3 more: {why} (4 products, 102 to 105 rows)" in sentence
    assert "b -> a" not in sentence


def test_a_run_with_all_kinds_says_nothing():
    config = fg.RunConfig(test="nonlinear", solver="none", lags=1, copies=20)
    found = infer(source_of(states(400), (2, 2)), config)
    assert not [line for line in found.facts["warnings"] if "kind of influence" in line]
