"""One ragged panel for all tests that propagate uncertainty through a fit.

Compiling the propagation takes some 15 s for every shape, whatever the length of the data.
"""

import fedgranger as fg

OPTIONS = {
    "state_dim": {"client1": 1, "client2": 2, "client3": 2},
    "uncertainty": "blockwise",
    "passes": 20,
    "tolerance": 0,
    "augmentation_ridge": 0.1,
}


def ragged_panel():
    """Three clients with one or two states and four to six sensors."""
    return fg.simulate(3, 802, state_dims=[1, 2, 2], sensor_dims=[4, 5, 6], seed=2)[0]
