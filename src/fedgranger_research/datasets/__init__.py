"""Loaders of public data sets in their publishers' own formats.

>>> from fedgranger_research import datasets
>>> datasets.NAMES
('hai', 'tep', 'smd', 'batadal')
>>> datasets.describe("tep").clients
'9: feed_ADE, feed_AC, reactor, condenser, separator, compressor, purge, stripper, product'
"""

from fedgranger_research.datasets.contents import DatasetInfo, PreparedDataset, Run
from fedgranger_research.datasets.folder import read_prepared
from fedgranger_research.datasets.registry import NAMES, describe, iter_machines, load

__all__ = [
    "NAMES",
    "DatasetInfo",
    "PreparedDataset",
    "Run",
    "describe",
    "iter_machines",
    "load",
    "read_prepared",
]
