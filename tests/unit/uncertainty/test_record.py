"""From checkpoints to tables, with made-up sizes."""

import numpy as np
import pytest

from fedgranger.uncertainty.quantities import PER_CAUSE, QUANTITIES
from fedgranger.uncertainty.record import _prior_times, _table
from fedgranger.uncertainty.recursion import Sizes

NAMES = ("a", "b", "c")


def sizes_of(scale):
    """Of every quantity: client, and cause where there are any, in the digits."""
    out = {}
    for k, quantity in enumerate(QUANTITIES):
        clients = 10.0 * np.arange(3) + 100.0 * k
        per_cause = clients[:, None] + np.arange(2)
        out[quantity] = scale * (per_cause if quantity in PER_CAUSE else clients)
    return out


def checkpoint(prior_share=None):
    prior = None if prior_share is None else sizes_of(prior_share)
    return Sizes(sizes_of(1.0), prior, np.zeros((3, 1, 2)))


@pytest.mark.parametrize("share", [0.25, None])
def test_every_size_stands_in_the_row_of_its_names(share):
    table = _table(NAMES, [0, 7], [checkpoint(share), checkpoint(share)])
    assert len(table) == 2 * 3 * (5 + 3 * 2)
    for row in table.itertuples():
        client = NAMES.index(row.client)
        expected = 10.0 * client + 100.0 * QUANTITIES.index(row.quantity)
        if row.quantity in PER_CAUSE:
            expected += [name for name in NAMES if name != row.client].index(row.cause)
        else:
            assert row.cause == ""
        assert row.total == expected
        if share is None:
            assert np.isnan([row.prior, row.data]).all()
        else:
            assert (row.prior, row.data) == (0.25 * expected, 0.75 * expected)
    assert table["round"].drop_duplicates().tolist() == [0, 7]
    assert not table.duplicated(["round", "client", "cause", "quantity"]).any()


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([1.0, 0.005, 0.005], 1.0),
        ([0.005, 0.5, 0.005], 2.0),  # it must stay below
        ([1.0, 0.005, 0.5], np.inf),
        ([0.005, 0.005, 0.005], 0.0),
        ([None, None, None], np.inf),
    ],
)
def test_prior_time_is_when_its_share_is_small_for_good(shares, expected):
    sizes = [checkpoint(share) for share in shares]
    assert _prior_times(list(range(len(shares))), sizes) == [expected] * 3
