r"""One effect's regression when clients added noise of known covariance to their states.

The columns hold \(x = x^\circ + \nu\), and the question is about \(x^\circ\). With N the
covariance of ν, the same at every lag and none between lags,

$$\hat b = G^{-1} \tfrac1n \textstyle\sum x y, \qquad G = \tfrac1n \sum x x^\top - N$$

is consistent, with scores \(x e + N \hat b\). Lags of a slow state hardly differ, so in some
directions x has little but noise and G is not even positive. With \(\mu_i\) the eigenvalues of
\(\frac1n \sum xx^\top\) relative to N (\(\mu_i - 1\) is signal over noise), those of G are

$$\max(\mu_i - 1,\; \tau), \qquad \tau = c \sqrt{q / n}$$

for q columns: where sampling error hides the signal the coefficient stays finite, and with it some
of the bias that plain least squares, where they would be \(\mu_i\), has in every direction.
Scores keep mean zero, \(x e + (\frac1n \sum xx^\top - G)\,\hat b\). Noise makes them a moving
average over the lags; their sandwich leaves that out, because on data of the model it changed no
size, and copies with shifted clocks, which carry the same noise, tell the statistic's law anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

from fedgranger.inference.equation import SMALLEST_FREEDOM, Equation
from fedgranger.inference.lag_bases import LagBasis
from fedgranger.inference.lag_columns import ColumnChunk
from fedgranger.linalg.blocks import block_diagonal

RESOLVED = 3.0
"""c."""


class NoisyEquation(Equation):
    """The regression with the added noise taken out; `num_unresolved` directions are at τ."""

    def __init__(
        self,
        bases: Sequence[LagBasis],
        effect: int,
        causes: Int[np.ndarray, " client"],
        added_covs: Sequence[np.ndarray],
    ) -> None:
        super().__init__(bases, effect, causes)
        parts = [_noise(b, part, added_covs[b.client]) for b, part in self._parts]
        self._noise = block_diagonal(parts)

    def _coefficients(
        self,
        keep: Bool[np.ndarray, " column"],  # noqa: ARG002  columns are chosen
    ) -> Float[np.ndarray, "_ effect_state"]:
        """Of the plain columns that are kept, (column, p); all in orthonormal columns first."""
        C, basis, n = self._orthonormal, self._basis, self.num_rows
        own, F = len(basis.prediction), basis.innovation_factor
        by_own_past = scipy.linalg.solve_triangular(F, basis.prediction.T, trans=1).T
        with_present = self._with_innovations + self._products[:, :own] @ by_own_past
        noise, vectors = np.linalg.eigh(n * C.T @ self._noise @ C)  # 1/μ: all columns have size 1
        least = RESOLVED * np.sqrt(len(noise) / n) * noise
        self.num_unresolved = int((1 - noise < least).sum())
        signal = np.maximum(1 - noise, least)
        self._gain = (vectors / signal) @ vectors.T
        fitted = self._gain @ (C.T @ with_present)
        self._slopes = C @ fitted
        self._slopes[:own] -= by_own_past  # residuals are made of innovations
        self._rest = (vectors * (1 - signal)) @ (vectors.T @ fitted) @ F / n
        return self._inverse @ fitted @ F

    def add_covariance(
        self,
        chunk: ColumnChunk,
        residuals: Float[np.ndarray, "time state"] | None,
        *,
        with_errors: bool,
    ) -> None:
        """Add a chunk to the HC3 covariances, and note its residuals."""
        rows = np.flatnonzero(self._ready(chunk))
        if not len(rows):
            return
        own, others, Y = self._design(chunk, rows)
        X = np.concatenate([own, others], axis=1)
        Q = X @ self._orthonormal
        freedom = np.maximum(1 - np.einsum("ti,ti->t", Q, Q), SMALLEST_FREEDOM)[:, None]
        error = (Y - X @ self._slopes) @ self._basis.innovation_factor
        self._note(error, chunk.first + rows, residuals)
        weights = self._inverse @ self._gain
        if with_errors:
            columns, constant = Q @ weights.T, (weights @ self._rest).T
            for i, mean in enumerate(constant):
                scores = (error[:, [i]] * columns + mean) / freedom
                self.squares[i] += (scores**2).sum(axis=0)
        for block, at, _, is_later in self._scored:
            if residuals is None and is_later:
                continue
            columns, constant = Q @ weights[at].T, (weights[at] @ self._rest).T
            scores = (error[:, :, None] * columns[:, None, :] + constant).reshape(len(Q), -1)
            scores /= freedom
            block.cov[:] += scores.T @ scores


def _noise(basis: LagBasis, part: slice, cov: np.ndarray) -> np.ndarray:
    """Covariance of the noise in a client's columns; the constant has none."""
    from_lags = basis.inverse_factor[1:, part]
    return from_lags.T @ np.kron(np.eye(basis.depth), cov) @ from_lags
