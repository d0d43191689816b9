"""Options for tests that are not about the choice of a test."""

from typing import Any

from fedgranger.config import RunConfig


def formula_config(**options: Any) -> RunConfig:
    """The latent test with one lag and p-values by formula: no copies, plain linear algebra."""
    return RunConfig.from_mapping({"test": "debiased", "lags": 1, **options})


SMALL_NETWORKS = RunConfig(
    solver="neural",
    test="none",
    state_dim={"client1": 1, "client2": 2},
    network_passes=2,
    batch_steps=40,
    sequence_steps=8,
    client_hidden_dim=3,
    server_hidden_dim=4,
)
"""Neural training of two clients that compiles and ends in seconds."""
