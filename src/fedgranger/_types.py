"""Shape vocabulary shared by all modules.

Axis names used in annotations: `time`, `window` (time steps of one round), `client`,
`state_dim` (p_m), `obs_dim` (d_m), `total_dim` (sum of the padded state dims).
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Key

__all__ = ["Array", "Bool", "Float", "Key", "NpBool", "NpFloat"]

NpFloat = Float[np.ndarray, "..."]
NpBool = Bool[np.ndarray, "..."]
