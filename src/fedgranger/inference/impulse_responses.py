r"""How a shock travels: impulse responses of all states, and whose shocks make up a variance.

With \(s_{t+1} = \sum_{l=1}^{L} A_l s_{t+1-l} + w_{t+1}\) a unit shock w changes the states h steps
later by

$$\Psi_0 = I, \qquad \Psi_h = \sum_{l=1}^{\min(h, L)} A_l \Psi_{h-l}$$

(Lütkepohl 2005, section 2.3.2). The share of client n in client m's forecast error H steps ahead is

$$\frac{\sum_{h<H} \operatorname{tr} G_m \Psi_h^{mn} \Sigma_n (\Psi_h^{mn})^\top}
       {\sum_k \sum_{h<H} \operatorname{tr} G_m \Psi_h^{mk} \Sigma_k (\Psi_h^{mk})^\top}$$

with G_m the inverse covariance of m's states, so that no unit counts more than another, and shocks
of different clients taken as independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def impulse_responses(
    transition: Float[np.ndarray, "state lagged"], steps: int
) -> Float[np.ndarray, "step state state"]:
    """Ψ_0 … Ψ_steps."""
    P, width = transition.shape
    out = np.zeros((steps + 1, P, P))
    out[0] = np.eye(P)
    for h in range(1, steps + 1):
        reach = min(h, width // P)
        out[h] = transition[:, : reach * P] @ out[h - reach : h][::-1].reshape(-1, P)
    return out


def variance_shares(
    responses: Float[np.ndarray, "step state state"],
    shock_covs: Sequence[np.ndarray],
    state_covs: Sequence[np.ndarray],
) -> Float[np.ndarray, "effect cause"]:
    """Shares of all clients in each client's forecast error, one step beyond the last response."""
    ends = np.cumsum([len(cov) for cov in shock_covs])
    own = [slice(end - len(cov), end) for end, cov in zip(ends, shock_covs, strict=True)]
    out = np.zeros((len(own), len(own)))
    for m, effect in enumerate(own):
        weight = np.linalg.pinv(state_covs[m])
        for n, cause in enumerate(own):
            part = responses[:, effect, cause]
            out[m, n] = np.einsum("ij,hjk,kl,hil->", weight, part, shock_covs[n], part)
    return out / out.sum(axis=1, keepdims=True)
