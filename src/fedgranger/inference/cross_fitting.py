r"""Regressions whose residuals are out of fold: a time step is predicted by a fit without it.

The record is cut into blocks in time. A block is predicted from the rows of the others that are at
least `gap` steps away, so that what is left of it shares no noise with the fit.

Regressions by name:

- `features` (default): least squares on the given columns, and beside them ridge on products and
  random Fourier features of the present states (Rahimi and Recht 2007),

  $$f(x) = x_{\text{linear}}^\top b + \psi(z)^\top w, \qquad
    \min \sum_t (y_t - f(x_t))^2 + \lambda \lVert w \rVert^2,$$

  with products alone, with all of them or with none (plain least squares), and λ, for every
  target as its error out of fold says;
- `boosting`: gradient-boosted trees on what least squares leave (scikit-learn);
- `network`: a network with two hidden layers of 64 on what least squares leave (scikit-learn).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

NUM_FOLDS = 5
MOST_COPIES = {"boosting": 20, "network": 20}
"""Copies at most, of regressions that take a hundred times as long as the others."""
PENALTIES = (1.0, 10.0, 100.0, 1000.0)
"""λ for features of unit variance: how many rows a penalty is worth."""
JOINT_FEATURES, OWN_FEATURES, ALL_OWN_FEATURES, EARLIER_FEATURES = 100, 30, 120, 40
"""Random features of all inputs together, of every client's alone, of all of these at most, and of
all that is earlier."""
MOST_PRODUCTS = 200
SMALLEST = 1e-10
"""Columns with a smaller share of their size left are taken as dependent on the others."""


class Design(NamedTuple):
    """What one pair's regressions predict from, one row per usable time step.

    Attributes:
        time: of every row, increasing.
        linear: columns that act linearly, without a constant.
        inputs: states by client that may act in any way, of about unit variance and bounded.
        gap: steps between a block and the rows it is predicted from.
        earlier: states of one client and step before those, likewise, the latest step first; each
            may act in any way by itself.
    """

    time: Int[np.ndarray, " row"]
    linear: Float[np.ndarray, "row column"]
    inputs: list[Float[np.ndarray, "row _"]]
    gap: int
    earlier: tuple[Float[np.ndarray, "row _"], ...] = ()


Predict = Callable[[np.ndarray], np.ndarray]
Residuals = Callable[[Float[np.ndarray, "row column"]], Float[np.ndarray, "row column"]]
"""Of targets, out of fold."""
Regression = Callable[[Design, int], Residuals]
"""Prepared for a design, with a seed; it then takes any targets."""


def folds(
    time: Int[np.ndarray, " row"], gap: int
) -> Iterator[tuple[Bool[np.ndarray, " row"], Bool[np.ndarray, " row"]]]:
    """Rows of every block, and the rows it is predicted from."""
    for block in np.array_split(np.arange(len(time)), NUM_FOLDS):
        first, last = time[block[0]], time[block[-1]]
        tested = (time >= first) & (time <= last)
        yield tested, (time < first - gap) | (time > last + gap)


class _Fold(NamedTuple):
    """One block's ridge, from sums over the rows used to residuals at the rows tested.

    Attributes:
        loads: of the features on the columns.
        inverse: of the columns' products.
        factors: Cholesky factors of what is left of the features, one per set and penalty.
    """

    tested: np.ndarray
    used: np.ndarray
    loads: np.ndarray
    inverse: np.ndarray
    factors: list[tuple[int, np.ndarray]]

    def residuals(self, Q: np.ndarray, psi: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Without features and then for every factor, (choice, row tested, target)."""
        slopes = self.inverse @ (Q[self.used].T @ targets[self.used])
        left = targets[self.used] - Q[self.used] @ slopes
        by_columns = targets[self.tested] - Q[self.tested] @ slopes
        # the columns leave nothing that they explain, so features need not be freed from them
        moved = psi[self.used].T @ left
        rest = psi[self.tested] - Q[self.tested] @ self.loads
        shrunk = np.zeros((len(self.factors), *moved.shape))
        for place, (count, factor) in enumerate(self.factors):
            solved = scipy.linalg.cho_solve((factor, False), moved[:count], check_finite=False)
            shrunk[place, :count] = solved
        return np.concatenate([by_columns[None], by_columns - rest @ shrunk])


def _fold(
    moments: np.ndarray, counts: list[int], tested: np.ndarray, used: np.ndarray, columns: int
) -> _Fold:
    """From the products of columns and features, summed over the rows used."""
    XX, XP, PP = (
        moments[:columns, :columns],
        moments[:columns, columns:],
        moments[columns:, columns:],
    )
    inverse = np.linalg.pinv(XX, rcond=SMALLEST, hermitian=True)
    loads = inverse @ XP
    left = PP - XP.T @ loads
    factors = [
        (k, np.linalg.cholesky(left[:k, :k] + penalty * np.eye(k)).T)
        for k in counts
        for penalty in PENALTIES
    ]
    return _Fold(tested, used, loads, inverse, factors)


def features_regression(design: Design, seed: int) -> Residuals:
    """Least squares, and ridge on features of the inputs."""
    Q = _orthonormal(_with_constant(design.linear))
    psi, counts = _features(design, np.random.default_rng(seed))
    both = np.concatenate([Q, psi], axis=1)
    whole = both.T @ both
    parts = []
    for tested, used in folds(design.time, design.gap):
        rest = both[~used]
        parts.append(_fold(whole - rest.T @ rest, counts, tested, used, Q.shape[1]))

    def residuals(targets: np.ndarray) -> np.ndarray:
        choices = np.empty((1 + len(counts) * len(PENALTIES), *targets.shape))
        for part in parts:
            choices[:, part.tested] = part.residuals(Q, psi, targets)
        best = (choices**2).sum(axis=1).argmin(axis=0)
        return np.take_along_axis(choices, best[None, None], axis=0)[0]

    return residuals


def boosting_regression(design: Design, seed: int) -> Residuals:
    """Gradient-boosted trees on what least squares leave."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # slow to import

    # copies are made on threads of ours, which scikit-learn takes for a mistake, once per tree
    warnings.filterwarnings("ignore", message=r"`sklearn.utils.parallel.delayed`")

    def learn(x: np.ndarray, y: np.ndarray) -> Predict:
        trees = [
            HistGradientBoostingRegressor(
                max_iter=50, learning_rate=0.15, max_leaf_nodes=8, max_bins=63, random_state=seed
            ).fit(x, column)
            for column in y.T
        ]
        return lambda new: np.stack([tree.predict(new) for tree in trees], axis=1)

    return _after_least_squares(design, learn)


def network_regression(design: Design, seed: int) -> Residuals:
    """A small network on what least squares leave, stopped early by a tenth of its rows."""
    from sklearn.neural_network import MLPRegressor  # slow to import

    def learn(x: np.ndarray, y: np.ndarray) -> Predict:
        network = MLPRegressor(
            hidden_layer_sizes=(64, 64),
            early_stopping=True,
            learning_rate_init=3e-3,
            random_state=seed,
        ).fit(x, y if y.shape[1] > 1 else y[:, 0])
        return lambda new: np.asarray(network.predict(new)).reshape(len(new), -1)

    return _after_least_squares(design, learn)


REGRESSIONS: dict[str, Regression] = {
    "features": features_regression,
    "boosting": boosting_regression,
    "network": network_regression,
}


def _after_least_squares(
    design: Design, learn: Callable[[np.ndarray, np.ndarray], Predict]
) -> Residuals:
    """Residuals of least squares and then of `learn`, which is used only where it helps."""
    X = _with_constant(design.linear)
    inputs = np.concatenate([*design.inputs, *design.earlier], axis=1)

    def residuals(targets: np.ndarray) -> np.ndarray:
        plain, learned = np.empty(targets.shape), np.empty(targets.shape)
        for tested, used in folds(design.time, design.gap):
            slopes = np.linalg.lstsq(X[used], targets[used], rcond=None)[0]
            left = targets[used] - X[used] @ slopes
            size = np.maximum(left.std(axis=0), np.finfo(np.float64).tiny)
            plain[tested] = targets[tested] - X[tested] @ slopes
            predict = learn(inputs[used], left / size)
            learned[tested] = plain[tested] - size * predict(inputs[tested])
        return np.where((learned**2).sum(axis=0) < (plain**2).sum(axis=0), learned, plain)

    return residuals


def _with_constant(columns: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(columns), 1)), columns], axis=1)


def _orthonormal(X: np.ndarray) -> np.ndarray:
    """Columns of unit mean square that are uncorrelated over all rows and span the same."""
    Q, size, _ = np.linalg.svd(X, full_matrices=False)
    return Q[:, size > SMALLEST * size[0]] * np.sqrt(len(X))


def _features(design: Design, rng: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    """Products, then random Fourier features of the inputs; and how many columns a choice takes.

    What is earlier has products and features of its own, as many as the present leaves room for.
    """
    inputs, earlier = design.inputs, design.earlier
    joint = np.concatenate(inputs, axis=1)
    has_products = joint.shape[1] * (joint.shape[1] + 1) // 2 <= MOST_PRODUCTS
    products = [_products(joint)] if has_products else []
    for part in earlier:
        products.append(_products(part))
        if sum(made.shape[1] for made in products) > MOST_PRODUCTS:
            products.pop()
            break
    own = min(OWN_FEATURES, ALL_OWN_FEATURES // len(inputs))
    waves = [_waves(part, own, rng) for part in inputs]
    if len(inputs) > 1:
        waves.append(_waves(joint, JOINT_FEATURES, rng))
    waves += [_waves(part, max(EARLIER_FEATURES // len(earlier), 1), rng) for part in earlier]
    psi = np.concatenate([*products, *waves], axis=1)
    size = psi.std(axis=0)
    is_constant = size <= SMALLEST  # products of what is 1 or -1
    psi /= np.where(is_constant, 1.0, size)
    psi[:, is_constant] = 0.0
    few = sum(made.shape[1] for made in products)
    return psi, [*([few] if has_products else []), psi.shape[1]]


def _products(x: np.ndarray) -> np.ndarray:
    rows, columns = np.triu_indices(x.shape[1])
    return x[:, rows] * x[:, columns]


def _waves(x: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """cos(Ωx + b), with a length scale of the square root of the dimension."""
    omega = rng.standard_normal((x.shape[1], count)) / np.sqrt(x.shape[1])
    return np.cos(x @ omega + rng.uniform(0, 2 * np.pi, count))
