"""Options that a function or data class declares already: types, defaults and words from there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape

__all__ = ["with_options_of"]


def with_options_of(
    source: Callable[..., Any], names: Sequence[str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command options named like parameters of `source`; it takes them as `**options`.

    Args:
        source: its docstring has a line on each, below `Args` or `Attributes`.
        names: which of its parameters.
    """
    words = inspect.cleandoc(source.__doc__ or "")
    texts = dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", words, re.MULTILINE))
    declared = inspect.signature(source, eval_str=True).parameters

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        shown = [part for part in own if part.kind is not part.VAR_KEYWORD]
        for name in names:
            text = " ".join(texts[name].split())
            option = typer.Option(help=escape(text[0].upper() + text[1:]))
            annotation = Annotated[declared[name].annotation, option]
            shown.append(
                declared[name].replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY)
            )
        command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        command.__annotations__ = {part.name: part.annotation for part in shown}
        return command

    return decorate
