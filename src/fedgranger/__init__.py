"""Uncertainty-aware federated Granger causality.

Public names are imported when they are first used: the command line, and the process that looks
after a party of a federation for months, need no numerical library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedgranger._version import __version__

if TYPE_CHECKING:
    from fedgranger import export, plot, rca, report
    from fedgranger.api import check, fit
    from fedgranger.client.extended_kalman import NonlinearModel
    from fedgranger.client.nonlinear_client import fit_nonlinear_client
    from fedgranger.client.params import LocalModel
    from fedgranger.config import RunConfig
    from fedgranger.data.client_data import ClientData
    from fedgranger.data.panel import Panel
    from fedgranger.data.synthetic import simulate
    from fedgranger.data.truth import Truth
    from fedgranger.results import Result

__all__ = [
    "ClientData",
    "LocalModel",
    "NonlinearModel",
    "Panel",
    "Result",
    "RunConfig",
    "Truth",
    "__version__",
    "check",
    "export",
    "fit",
    "fit_nonlinear_client",
    "plot",
    "rca",
    "report",
    "simulate",
]

_HOMES = {
    "ClientData": "data.client_data",
    "LocalModel": "client.params",
    "NonlinearModel": "client.extended_kalman",
    "Panel": "data.panel",
    "Result": "results",
    "RunConfig": "config",
    "Truth": "data.truth",
    "check": "api",
    "fit": "api",
    "fit_nonlinear_client": "client.nonlinear_client",
    "simulate": "data.synthetic",
}

_MODULES = ("export", "plot", "rca", "report")


def __getattr__(name: str) -> Any:
    """Import a public name from where it is defined, and keep it."""
    if name in _MODULES:
        return import_module(f"fedgranger.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fedgranger' has no attribute '{name}'")
    found = getattr(import_module(f"fedgranger.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Public names, imported yet or not; what an editor proposes."""
    return sorted(__all__)
