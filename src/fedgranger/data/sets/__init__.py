"""Loaders of public data sets in their publishers' own formats.

>>> from fedgranger.data import sets
>>> sets.NAMES
('hai', 'tep', 'smd', 'batadal')
>>> sets.describe("tep").clients
'9: feed_ADE, feed_AC, reactor, condenser, separator, compressor, purge, stripper, product'
"""

from fedgranger.data.sets.contents import DatasetInfo, PreparedDataset, Run
from fedgranger.data.sets.folder import read_prepared
from fedgranger.data.sets.registry import NAMES, describe, iter_machines, load

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
