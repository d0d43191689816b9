"""Root-cause analysis: which client started it, from messages alone.

>>> from fedgranger import rca
>>> sorted(rca.SCORERS)
['deviation', 'paper', 'surprise', 'unexplained']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedgranger.rca.evidence import Evidence
from fedgranger.rca.ranking import Ranking, rank
from fedgranger.rca.ranking_metrics import Accuracy, evaluate_rankings
from fedgranger.rca.scorers import SCORERS

if TYPE_CHECKING:
    from fedgranger.rca.new_data import gather
    from fedgranger.rca.online import OnlineAnalysis

__all__ = [
    "SCORERS",
    "Accuracy",
    "Evidence",
    "OnlineAnalysis",
    "Ranking",
    "evaluate_rankings",
    "gather",
    "rank",
]


def __getattr__(name: str) -> Any:
    """What lets clients report loads their code, which a server's process never does."""
    modules = {"gather": "new_data", "OnlineAnalysis": "online"}
    if name in modules:
        return getattr(import_module(f"fedgranger.rca.{modules[name]}"), name)
    raise AttributeError(f"module 'fedgranger.rca' has no attribute '{name}'")
