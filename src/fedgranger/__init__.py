"""Uncertainty-aware federated Granger causality."""

from fedgranger import plot
from fedgranger._version import __version__
from fedgranger.api import fit
from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.panel import ClientData, Panel
from fedgranger.data.synthetic import simulate
from fedgranger.data.truth import Truth
from fedgranger.results import Result

__all__ = [
    "ClientData",
    "LocalModel",
    "Panel",
    "Result",
    "RunConfig",
    "Truth",
    "__version__",
    "fit",
    "plot",
    "simulate",
]
