"""Options for tests that are not about the choice of a test."""

from typing import Any

from fedgranger.config import RunConfig


def formula_config(**options: Any) -> RunConfig:
    """The latent test with one lag and p-values by formula: no copies, plain linear algebra."""
    return RunConfig.from_mapping({"test": "debiased", "lags": 1, **options})
