"""Root-cause analysis: which client started it, from messages alone.

>>> from fedgranger import rca
>>> sorted(rca.SCORERS)
['deviation', 'paper', 'surprise', 'unexplained']
"""

from typing import TYPE_CHECKING, Any

from fedgranger.rca.evidence import Evidence
from fedgranger.rca.ranking import Ranking, rank
from fedgranger.rca.ranking_metrics import Accuracy, evaluate_rankings
from fedgranger.rca.scorers import SCORERS

if TYPE_CHECKING:
    from fedgranger.rca.new_data import OnlineAnalysis, gather

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
    if name in ("gather", "OnlineAnalysis"):
        from fedgranger.rca import new_data

        return getattr(new_data, name)
    raise AttributeError(f"module 'fedgranger.rca' has no attribute '{name}'")
