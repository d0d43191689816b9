import numpy as np
import pytest

from fedgranger_research.baselines.lagged_design import split_columns, split_samples
from fedgranger_research.baselines.method_protocol import BaselineError
from tests.graph_samples import columns_of


def counted(num_steps, dims, starts=(0,)):
    """Columns whose value says step and column."""
    values = 100.0 * np.arange(num_steps)[:, None] ** 2 + np.arange(sum(dims))
    return values, columns_of(values, dims, starts)


def test_vertical_pairs_steps_within_stretches():
    values, columns = counted(12, (1, 2), starts=(0, 5))
    design = split_columns(columns, "vertical")
    later = np.array([1, 2, 3, 4, 6, 7, 8, 9, 10, 11])
    for share, own in zip(design.shares, ([0], [1, 2]), strict=True):
        rows = np.hstack([values[later][:, own], values[later - 1][:, own]])
        np.testing.assert_allclose(share.rows, rows - rows.mean(axis=0))
        np.testing.assert_array_equal(share.places, [*own, *(3 + np.array(own))])


def test_horizontal_shares_the_steps_out_without_pairs_across_cuts():
    values, columns = counted(24, (1, 1))
    design = split_columns(columns, "horizontal")
    assert [len(share.rows) for share in design.shares] == [11, 11]
    for share, begin in zip(design.shares, (0, 12), strict=True):
        later = np.arange(begin + 1, begin + 12)
        rows = np.hstack([values[later], values[later - 1]])
        np.testing.assert_allclose(share.rows, rows - rows.mean(axis=0))
    assert (design.num_holders == 2).all()


def test_central_is_one_share():
    _, columns = counted(24, (1, 1))
    (share,) = split_columns(columns, "central").shares
    assert share.rows.shape == (23, 4)


def test_time_order_forbids_edges_from_present_to_past():
    _, columns = counted(40, (1, 2))
    for mode in ("vertical", "horizontal", "central"):
        allowed = split_columns(columns, mode).allowed
        assert not allowed[:3, 3:].any()
        assert not np.diag(allowed).any()
        assert split_columns(columns, mode, time_order=False).allowed[:3, 3:].any()


def test_vertical_allows_own_edges_only():
    _, columns = counted(40, (1, 2))
    design = split_columns(columns, "vertical")
    owner = np.array([0, 1, 1, 0, 1, 1])
    assert not design.allowed[owner[:, None] != owner].any()
    np.testing.assert_array_equal(design.lagged(design.allowed), owner[:3, None] == owner[:3])


def test_lagged_turns_cause_and_effect():
    _, columns = counted(40, (1, 2))
    design = split_columns(columns, "central")
    matrix = np.zeros((6, 6))
    matrix[3 + 2, 0] = 7.0  # past of the third column drives the first
    assert design.lagged(matrix)[0, 2] == 7.0


def broken(case):
    values = np.random.default_rng(0).normal(size=(30, 3))
    if case == "nan":
        values[4, 2] = np.nan
    if case == "constant":
        values[:, 2] = 5.0
    columns = columns_of(values, (1, 2))
    if case == "start":
        columns = columns._replace(starts=np.zeros(30, dtype=bool))
    if case == "rows":
        columns = columns._replace(series=(columns.series[0], columns.series[1][:-1]))
    return columns


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("nan", "client 'client2': column 2 is nan at step 4; fill"),
        ("constant", "client 'client2': column 2 never changes; leave it out"),
        ("start", "the first step always starts a stretch"),
        ("rows", r"client 'client2': its columns have shape \(29, 2\); give 30 rows"),
    ],
)
def test_bad_columns_are_refused(case, sentence):
    with pytest.raises(BaselineError, match=sentence):
        split_columns(broken(case), "vertical")


def test_too_few_samples_and_unknown_modes_are_refused():
    with pytest.raises(BaselineError, match="client 'client1': 6 samples of 8 variables; give"):
        split_columns(
            columns_of(np.random.default_rng(0).normal(size=(28, 4)), (1,) * 4), "horizontal"
        )
    with pytest.raises(BaselineError, match="mode is 'diagonal'; use one of vertical"):
        split_columns(broken(""), "diagonal")


def test_samples_without_time():
    parts = list(np.random.default_rng(0).normal(size=(3, 50, 4)))
    design = split_samples(parts)
    assert design.num_present == 4
    np.testing.assert_array_equal(design.allowed, ~np.eye(4, dtype=bool))
    np.testing.assert_allclose(design.shares[1].cov, np.cov(parts[1].T, bias=True))
