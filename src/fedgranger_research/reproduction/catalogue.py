"""The figures and tables that can be made again, by name."""

from __future__ import annotations

from types import ModuleType

from fedgranger_research.reproduction import (
    aleatoric,
    communicated,
    cross_covariances,
    epistemic,
    l2_error,
    qq,
    scalability,
)
from fedgranger_research.reproduction.runner import Item

__all__ = ["FIGURES", "TABLES"]


def _item(module: ModuleType) -> Item:
    name = module.__name__.rsplit(".", 1)[-1].replace("_", "-")
    markdown = getattr(module, "markdown", None)
    return Item(name, module.TITLE, module.settings, module.collect, module.paragraph, markdown)


FIGURES: dict[str, Item] = {
    item.name: item
    for item in map(_item, (aleatoric, epistemic, cross_covariances, communicated, l2_error, qq))
}
TABLES: dict[str, Item] = {item.name: item for item in map(_item, (scalability,))}
