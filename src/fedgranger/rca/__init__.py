"""Root-cause analysis: which client started it, from messages alone.

>>> from fedgranger import rca
>>> sorted(rca.SCORERS)
['deviation', 'paper', 'surprise', 'unexplained']
"""

from fedgranger.rca.evidence import Evidence
from fedgranger.rca.new_data import gather
from fedgranger.rca.online import OnlineAnalysis
from fedgranger.rca.ranking import Ranking, rank
from fedgranger.rca.ranking_metrics import Accuracy, evaluate_rankings
from fedgranger.rca.scorers import SCORERS

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
