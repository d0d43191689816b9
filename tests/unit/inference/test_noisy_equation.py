"""Regressions with added noise taken out, against plain NumPy and Monte Carlo."""

import numpy as np
import pytest
import scipy.linalg

import fedgranger as fg
from fedgranger.inference import lag_bases, lag_columns
from fedgranger.inference.infer import infer
from fedgranger.inference.noisy_equation import RESOLVED
from fedgranger.inference.readings import regress
from fedgranger.inference.shifts import draw_shifts, tabulate
from tests.state_sources import add_errors, random_covs, simulate_states, source_of

DIMS = (1, 2, 1)
OWN = np.array([3, 2, 1])
ONE = np.ones((3, 3), dtype=np.int64)


def chain(rng, num_steps=2000):
    """The first client drives the second, and that one the third."""
    A = np.diag([0.8, 0.6, 0.5, 0.5])
    A[1, 0] = A[3, 1] = 0.7
    return simulate_states(rng, A, num_steps)


def made(seed=0, size=0.3, num_steps=2000, **options):
    rng = np.random.default_rng(seed)
    N = random_covs(rng, DIMS, size)
    states = add_errors(rng, chain(rng, num_steps), N)
    return source_of(states, DIMS, own_lags=OWN, **options)._replace(added_covs=N)


def design(source, effect, K=1):
    """Columns, targets, and the noise's covariance of every column."""
    x, N = np.concatenate([chunk.states for chunk in source.chunks()]), source.added_covs
    first = np.concatenate([[0], np.cumsum(DIMS)])
    t = np.arange(max(OWN[effect], K + 1), len(x))
    order = [effect, *(n for n in range(3) if n != effect)]
    columns, noise, labels = [np.ones((len(t), 1))], [np.zeros((1, 1))], [(-1, 0)]
    for n in order:
        for lag in range(1, (OWN[effect] if n == effect else K + 1) + 1):
            columns.append(x[t - lag, first[n] : first[n + 1]])
            noise.append(N[n])
            labels += [(n, lag)] * DIMS[n]
    Y = x[t, first[effect] : first[effect + 1]]
    return np.hstack(columns), Y, scipy.linalg.block_diag(*noise), np.array(labels)


def by_hand(source, effect, cause, K=1):
    """W/k of a pair and the number of directions at the least signal, in the columns themselves."""
    X, Y, N, labels = design(source, effect, K)
    n, q = X.shape
    XX = X.T @ X / n
    inverse_mu, v = scipy.linalg.eigh(N, XX)  # columns of v: vᵀ XX v = 1
    tau = RESOLVED * np.sqrt(q / n)
    signal = np.maximum(1 - inverse_mu, tau * inverse_mu)  # of G relative to XX
    G_inverse = (v / signal) @ v.T
    b = G_inverse @ X.T @ Y / n
    rest = (XX - np.linalg.inv(G_inverse)) @ b
    E = Y - X @ b
    leverage = np.einsum("ti,ti->t", X @ np.linalg.inv(XX), X) / n
    at = np.flatnonzero((labels[:, 0] == cause) & (labels[:, 1] <= K))
    scores = np.einsum("ti,tj->tij", E, X @ G_inverse[:, at]) + (G_inverse[at] @ rest).T
    scores = (scores / (1 - leverage)[:, None, None]).reshape(n, -1) / n
    a = b[at].T.reshape(-1)
    W = a @ np.linalg.solve(scores.T @ scores, a)
    return W / len(a), int((1 - inverse_mu < tau * inverse_mu).sum()), b


@pytest.mark.parametrize(("size", "K"), [(0.05, 1), (0.3, 1), (0.3, 2), (3.0, 1)])
def test_statistics_vs_plain_numpy(size, K):
    """With large noise some directions are at τ."""
    source = made(size=size)
    found = regress(source, K * ONE)
    for effect in range(3):
        for cause in range(3):
            if effect == cause:
                continue
            statistic, hidden, _ = by_hand(source, effect, cause, K)
            assert found.statistic(effect, cause)[0] == pytest.approx(statistic, rel=1e-6)
            assert found.num_unresolved[effect] == hidden
    assert (found.num_unresolved > 0).all() == (size == 3.0)


def test_coefficients_and_errors_stand_at_their_lag_and_state():
    source = made()
    found = regress(source, ONE)
    b = by_hand(source, 0, 1)[2]
    np.testing.assert_allclose(found.transition[0, [0, 4, 8]], b[1:4, 0], atol=1e-9)
    np.testing.assert_allclose(found.transition[0, [1, 2, 5, 6]], b[4:8, 0], atol=1e-9)
    block = found.blocks[1, 0]
    np.testing.assert_allclose(found.std_error[1:3, 0], np.sqrt(np.diag(block.cov)), rtol=1e-10)


def test_no_noise_is_plain_least_squares():
    """N tiny: the limit; N zero or not given: the same bits."""
    source = made()
    tiny = source._replace(added_covs=tuple(1e-12 * N for N in source.added_covs))
    zero = source._replace(added_covs=tuple(0 * N for N in source.added_covs))
    plain = regress(source._replace(added_covs=()), ONE)
    limit, same = regress(tiny, ONE), regress(zero, ONE)
    np.testing.assert_array_equal(same.transition, plain.transition)
    for pair, block in plain.blocks.items():
        np.testing.assert_array_equal(same.blocks[pair].cov, block.cov)
        assert limit.statistic(*pair)[0] == pytest.approx(plain.statistic(*pair)[0], rel=1e-6)
    np.testing.assert_allclose(limit.transition, plain.transition, atol=1e-8)


def test_statistics_do_not_depend_on_coordinates():
    source, rng = made(1, 2.0), np.random.default_rng(2)
    turns = [rng.normal(size=(d, d)) + 2 * np.eye(d) for d in DIMS]
    parts = np.split(next(source.chunks()).states, np.cumsum(DIMS)[:-1], axis=1)
    states = np.concatenate([x @ M.T for x, M in zip(parts, turns, strict=True)], axis=1)
    N = tuple(M @ cov @ M.T for M, cov in zip(turns, source.added_covs, strict=True))
    one = regress(source, ONE)
    other = regress(source_of(states, DIMS, own_lags=OWN)._replace(added_covs=N), ONE)
    for pair in one.blocks:
        assert other.statistic(*pair)[0] == pytest.approx(one.statistic(*pair)[0], rel=1e-6)


def test_one_client_alone_adds_noise():
    source = made()
    N = (np.zeros((1, 1)), source.added_covs[1], np.zeros((1, 1)))
    source = source._replace(added_covs=N)
    found = regress(source, ONE)
    assert found.statistic(2, 0)[0] == pytest.approx(by_hand(source, 2, 0)[0], rel=1e-6)


@pytest.mark.parametrize(("chunk", "kept"), [(37, 10**9), (150, 0)])
def test_chunks_and_copies_do_not_matter(monkeypatch, chunk, kept):
    whole = regress(made(), ONE)
    monkeypatch.setattr(lag_bases, "CHUNK_VALUES", 0)
    monkeypatch.setattr(lag_columns, "KEPT_VALUES", kept)
    cut = regress(made(chunk=chunk), ONE)
    np.testing.assert_allclose(cut.transition, whole.transition, atol=1e-10)
    for pair, block in whole.blocks.items():
        np.testing.assert_allclose(cut.blocks[pair].cov, block.cov, rtol=1e-7)
    table, row = tabulate(made()), draw_shifts(3, 2000, 1, 0)[0]
    lagged = lag_columns.LagColumns(table.shifted(0 * row), ONE)
    shared = regress(table.shifted(row), ONE, lagged=lagged, shifts=row)
    alone = regress(table.shifted(row), ONE)
    for pair in alone.blocks:
        assert shared.statistic(*pair)[0] == pytest.approx(alone.statistic(*pair)[0], rel=1e-6)


def test_residuals_and_the_lag_after():
    source = made()
    residuals = np.zeros((2000, 4))
    found = regress(source, ONE, residuals=residuals)
    X, Y, _, _ = design(source, 2)
    b = by_hand(source, 2, 0)[2]
    np.testing.assert_allclose(residuals[2:, 3:], Y - X @ b, atol=1e-9)
    assert np.isfinite(found.later()[~np.eye(3, dtype=bool)]).all()


@pytest.mark.slow  # Monte Carlo over many data sets; parts of it are tested by formula
def test_estimate_is_unbiased_and_a_chain_has_no_third_link():
    """80 data sets, within four standard errors; plain least squares is far outside."""
    found = {"noise out": [], "plain": []}
    rejected = {"noise out": 0, "plain": 0}
    for seed in range(80):
        rng = np.random.default_rng(seed)
        N = tuple(0.3 * np.eye(d) for d in DIMS)
        source = source_of(add_errors(rng, chain(rng), N), DIMS, own_lags=(1, 1, 1))
        for name, added in (("noise out", N), ("plain", ())):
            fit = regress(source._replace(added_covs=added), 2 * ONE)  # it takes two steps
            found[name].append(fit.transition[3, :4])
            rejected[name] += fit.statistic(2, 0)[0] > 3.0  # F(2, n)
    truth = np.array([0.0, 0.7, 0.0, 0.5])
    distance = {
        name: np.abs(np.mean(values, axis=0) - truth) / (np.std(values, axis=0) / np.sqrt(80))
        for name, values in found.items()
    }
    assert distance["noise out"].max() < 4
    assert distance["plain"].max() > 20
    assert rejected["noise out"] <= 11  # of 80 at 5 %: more have a chance of 0.002
    assert rejected["plain"] > 60


def test_noise_that_hides_most_is_said():
    source = made(3, 30.0, 600)
    found = infer(source, fg.RunConfig(solver="none", test="readings", copies=20, lags=1))
    assert set(found.facts["noise_hides"]) == {"c0", "c1", "c2"}
    assert any("add less noise" in text for text in found.facts["warnings"])
    config = fg.RunConfig(solver="none", test="readings", copies=20, lags=1)
    quiet = infer(source._replace(added_covs=()), config)
    assert "noise_hides" not in quiet.facts
