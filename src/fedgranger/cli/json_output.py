"""`--json`: one document on the standard output."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import typer

MISSING = ("NAType", "NaTType")
"""Types of pandas for what is not there."""


def print_json(value: Any) -> None:
    """Print a value as JSON; what is not a number is null."""
    typer.echo(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """The same with JSON's own types; arrays are lists, times are text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Sequence | set) and not isinstance(value, str):
        return [plain(one) for one in value]
    if value is None or type(value).__name__ in MISSING:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
