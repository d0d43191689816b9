"""The driver of the covariance recursion: divergence is refused, checkpoints do not change it."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.errors import UnstableRecursionError
from fedgranger.runtime import propagation
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.setup import set_up
from tests.configs import formula_config

SIZES = {"local_step_size": 0.002, "feedback_step_size": 0.002, "server_step_size": 0.01}


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(2, 402, sensor_dims=(3, 3), seed=3)[0]  # eight equal stretches


def run(panel, noise, **options):
    config = formula_config(**{**SIZES, **options})
    setup = set_up(panel, config)
    return propagate(setup, config, dict.fromkeys(setup.names, noise), num_checkpoints=8)


@pytest.mark.slow  # compiles the recursion for shapes that no other test has
def test_noise_that_makes_the_step_sizes_diverge_is_refused_with_ones_that_work(panel):
    """Noise enters E[yyᵀ]: step sizes that are stable for the data need not be with it."""
    calm = run(panel, 0.01)
    assert np.isfinite(calm.table["total"]).all()
    with pytest.raises(UnstableRecursionError, match=r"client 'client.* are stable") as refusal:
        run(panel, 300.0)
    words = str(refusal.value).replace(",", " ").split()
    named = {name: float(words[words.index(name) + 1]) for name in SIZES}
    assert all(named[name] < SIZES[name] for name in SIZES)
    mended = run(panel, 300.0, **named)
    assert np.isfinite(mended.table["total"]).all()


@pytest.mark.slow  # compiles the recursion for shapes that no other test has
def test_overflow_ends_the_run_with_an_error(panel):
    with pytest.raises(UnstableRecursionError, match="diverge"):
        run(panel, 1e12)


@pytest.mark.slow  # compiles the recursion for shapes that no other test has
def test_a_slow_start_from_a_tiny_prior_is_not_called_divergence(panel):
    found = run(panel, 0.01, augmentation_prior_scale=1e-8, granger_prior_scale=1e-8)
    assert np.isfinite(found.table["total"]).all()


@pytest.mark.slow  # compiles the recursion for shapes that no other test has
@pytest.mark.parametrize("blocks", [1, 30_000])
def test_result_does_not_depend_on_how_rounds_are_gathered(panel, monkeypatch, blocks):
    whole = run(panel, 0.1)
    monkeypatch.setattr(propagation, "CHUNK_BYTES", blocks)
    parts = run(panel, 0.1)
    np.testing.assert_allclose(
        parts.table["total"].to_numpy(), whole.table["total"].to_numpy(), rtol=1e-10
    )


def test_checkpoints_are_equally_spaced_and_include_both_ends():
    assert propagation._checkpoint_rounds(10, 3) == [0, 3, 6, 9]
    assert propagation._checkpoint_rounds(11, 3) == [0, 4, 8, 10]
    assert propagation._checkpoint_rounds(1, 5) == [0]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("marks", [[0], [0, 1], [0, 3, 6, 9], [0, 4, 8, 10], [0, 2, 4, 6, 8, 9]])
def test_pieces_cover_all_rounds_and_meet_all_marks(marks, limit):
    pieces = propagation._pieces(marks, limit)
    assert [r for begin, stop, _ in pieces for r in range(begin, stop)] == list(range(marks[-1]))
    assert all(
        stop - begin <= limit and (stop - begin) % every == 0 for begin, stop, every in pieces
    )
    met = [r for begin, stop, every in pieces if begin in marks for r in range(begin, stop, every)]
    assert met == marks[:-1]


def test_pieces_hold_several_stretches_of_one_length():
    assert propagation._pieces([0, 2, 4, 6, 8, 9], 5) == [(0, 4, 2), (4, 8, 2), (8, 9, 1)]
    assert propagation._pieces([0, 2, 4, 6], 5) == [(0, 2, 2), (2, 4, 2), (4, 6, 2)]  # 3 is prime
