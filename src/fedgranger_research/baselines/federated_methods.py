"""The federated methods by name; a method's module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from fedgranger_research.baselines.method_protocol import BaselineError, Method

PLACES: dict[str, tuple[str, str]] = {
    "notears-admm": ("notears_admm", "VERTICAL"),
    "notears-admm-untimed": ("notears_admm", "UNTIMED"),
    "notears-admm-horizontal": ("notears_admm", "HORIZONTAL"),
    "fdbnl": ("fdbnl", "VERTICAL"),
    "fdbnl-horizontal": ("fdbnl", "HORIZONTAL"),
    "dynotears": ("dynotears", "CENTRAL"),
    "feddag": ("feddag", "VERTICAL"),
    "feddag-horizontal": ("feddag", "HORIZONTAL"),
    "feddag-gs": ("feddag_nonlinear", "GS_VERTICAL"),
    "feddag-gs-horizontal": ("feddag_nonlinear", "GS_HORIZONTAL"),
    "feddag-as": ("feddag_nonlinear", "AS_VERTICAL"),
    "feddag-as-horizontal": ("feddag_nonlinear", "AS_HORIZONTAL"),
    "fedpc": ("fedpc", "VERTICAL"),
    "fedpc-horizontal": ("fedpc", "HORIZONTAL"),
}
"""Per name, the module in this package and the `Method` in it."""


class Registry(Mapping[str, Method]):
    """Names are known at once; a method is imported when it is taken."""

    def __getitem__(self, name: str) -> Method:
        """The method of that name."""
        if name not in PLACES:
            raise BaselineError(f"no method '{name}'; there are {', '.join(PLACES)}")
        module, attribute = PLACES[name]
        return getattr(import_module(f"{__package__}.{module}"), attribute)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(PLACES)

    def __len__(self) -> int:
        """How many there are."""
        return len(PLACES)


METHODS: Mapping[str, Method] = Registry()
