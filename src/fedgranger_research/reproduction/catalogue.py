"""The figures and tables that can be made again, by name."""

from __future__ import annotations

from fedgranger_research.reproduction import (
    causal_discovery,
    dp,
    nonlinear_figure,
    quantiles,
    scalability,
)
from fedgranger_research.reproduction.figures import SWEEP_FIGURES
from fedgranger_research.reproduction.runner import Item

FIGURES: dict[str, Item] = {
    item.name: item
    for item in (
        *(figure.item() for figure in SWEEP_FIGURES),
        quantiles.ITEM,
        dp.ITEM,
        nonlinear_figure.ITEM,
    )
}
TABLES: dict[str, Item] = {item.name: item for item in (scalability.ITEM, causal_discovery.ITEM)}
