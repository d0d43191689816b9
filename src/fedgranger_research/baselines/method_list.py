"""All methods that can be compared: the library's own, the federated ones, peers, and yours."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from fedgranger_research.baselines import ours, peers
from fedgranger_research.baselines.federated_methods import METHODS as FEDERATED
from fedgranger_research.baselines.method_protocol import BaselineError, Method

FEDERATED_NAMES = frozenset(FEDERATED)
NAMES: tuple[str, ...] = (*ours.METHODS, *FEDERATED, *peers.METHODS)
"""In the order of tables: ours, the federated ones, peers."""


def find_methods(names: Iterable[str], added: Path | None = None) -> dict[str, Method]:
    """The methods with these names; `added` is a Python file with a dict METHODS of its own.

    Raises:
        BaselineError: a name is unknown, or the file is no such file.
    """
    own = {} if added is None else read_methods(added)
    found = {}
    for name in names:
        if name not in own and name not in NAMES:
            raise BaselineError(f"no method '{name}'; choose among {', '.join((*own, *NAMES))}")
        if name in own:
            found[name] = own[name]
        elif name in FEDERATED_NAMES:
            found[name] = FEDERATED[name]
        else:
            found[name] = (ours.METHODS | peers.METHODS)[name]
    return found


def installed_methods() -> tuple[str, ...]:
    """Names of the methods whose packages are installed."""
    return tuple(name for name in NAMES if missing_package(name) is None)


def missing_package(name: str) -> str | None:
    """The package that a method needs and that is not installed, or None."""
    package = peers.NEEDS.get(name)
    return package if package and importlib.util.find_spec(package) is None else None


def read_methods(path: Path) -> dict[str, Method]:
    """Run a user's Python file and take its METHODS: name -> Method."""
    if not path.is_file():
        raise BaselineError(f"'{path}' does not exist; give a Python file with a dict METHODS")
    spec = importlib.util.spec_from_file_location(f"added_methods_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BaselineError(f"'{path}' is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        raise BaselineError(f"'{path}' cannot be run: {type(error).__name__}: {error}") from None
    found = getattr(module, "METHODS", None)
    if not isinstance(found, dict) or not all(isinstance(m, Method) for m in found.values()):
        raise BaselineError(
            f"'{path}' has no dict METHODS from names to Method; docs/add-your-method.md has one"
        )
    return found
