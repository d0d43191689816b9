"""The paper's formulas give the paper's numbers, and less protection than they say."""

import math

import numpy as np
import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger.errors import ConfigError
from fedgranger.privacy.accounting import epsilon_of
from fedgranger.privacy.paper_formulas import (
    gamma_sensitivity,
    noise_of,
    psi_sensitivity,
    step_sensitivity,
    whole_run,
)
from fedgranger.privacy.sensitivity import Filter, Neighbours, filtered


def test_formulas_of_the_paper():
    assert step_sensitivity(1.5) == 3.0
    assert gamma_sensitivity(2.0, 3.0) == 12.0
    assert psi_sensitivity(0.5, 3.0) == 3.0
    sigma = noise_of(12.0, 0.5, 1e-5)
    assert sigma == pytest.approx(12.0 * math.sqrt(2 * math.log(1.25e5)) / 0.5)
    with pytest.raises(ConfigError, match="bound"):
        step_sensitivity(-1.0)
    with pytest.raises(ConfigError, match="num_messages"):
        whole_run(1.0, 1e-5, 0)


@pytest.mark.parametrize("memory", [0.5, 0.9, 0.99])
def test_a_trajectory_moves_farther_than_one_step_of_it(memory):
    """One measurement stays in a filter: h_t = a h_{t-1} + K y_t, and Δ = 2BK / √(1 − a²)."""
    response = Filter(np.array([[memory]]), np.eye(1), np.array([[0.5]]))
    observed, starts = np.ones(5000, dtype=np.bool_), np.zeros(5000, dtype=np.bool_)
    whole = filtered(response, 1.0, Neighbours("event"), observed, starts)
    one_step = step_sensitivity(0.5 * 1.0)  # ‖K y‖ ≤ 0.5
    assert whole == pytest.approx(one_step / math.sqrt(1 - memory**2), rel=1e-6)
    assert whole > 1.1 * one_step


def test_the_formula_promises_more_than_it_keeps_for_large_epsilon():
    assert whole_run(0.5, 1e-5, 1) < 0.5
    assert whole_run(20.0, 1e-5, 1) > 20.0


def test_covariances_move_by_what_many_steps_see_of_one_measurement():
    r"""Γ_t of every later step moves, not one: with θ learned from y, all of them do.

    h_c,t = a h_c,t-1 + y_t, h_a = h_c + θ h_c, θ = mean of y: one y moves T matrices.
    """

    def gammas(y):
        h = np.zeros(len(y))
        for t in range(len(y)):
            h[t] = 0.9 * (h[t - 1] if t else 0.0) + 0.1 * y[t]
        return h * (h + y.mean() * h)

    y = np.ones(1000)
    other = y.copy()
    other[10] = -1.0
    moved = gammas(y) - gammas(other)
    assert (moved != 0).all()
    assert np.linalg.norm(moved) > 2 * np.abs(moved).max()


def test_the_plan_prints_the_papers_formula_with_its_warning():
    words = ["privacy", "plan", "--paper", "--epsilons", "0.5,8", "--steps", "1000", "--clients"]
    said = CliRunner().invoke(app, [*words, "2"], env={"COLUMNS": "200"})
    assert said.exit_code == 0, said.output
    text = " ".join(said.output.split())
    assert "covers one message of one step" in text
    assert (
        f"{epsilon_of(math.sqrt(1000) * 0.5 / math.sqrt(2 * math.log(1.25e5)), 1e-5):.3g}" in text
    )
