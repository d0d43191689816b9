"""What the parser of the command line refuses, in one sentence like all other errors."""

from __future__ import annotations

from typing import Any

from fedgranger.option_fields import did_you_mean

OUR_WORDS = (
    ("Input should be", "it must be"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("a valid integer", "a whole number"),
    ("a valid number", "a number"),
)
"""How the parser says what a value must be, and how all other errors do."""


def usage_sentence(error: Any) -> str:
    """One line for a parser's exception: what is wrong, what is near, where to read more."""
    context = getattr(error, "ctx", None)
    sentence = _sentence(error, context)
    if context is None or "did you mean" in sentence:
        return sentence
    return f"{sentence}; see '{context.command_path} --help'"


def _sentence(error: Any, context: Any) -> str:
    name = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and context is not None:
        if hasattr(context.command, "commands"):
            path = context.command_path
            return f"option '{name}' stands before a command; give it after one: '{path} … {name}'"
        return f"unknown option '{name}'{did_you_mean(str(name), option_words(context))}"
    parameter = getattr(error, "param", None)
    if type(error).__name__ == "MissingParameter" and parameter is not None:
        what = " ".join((getattr(parameter, "help", None) or "").split()).rstrip(".")
        return f"{parameter.param_type_name} {parameter.get_error_hint()} is missing: {what}"
    words = " ".join(error.format_message().split()).rstrip(".").partition(", unable to")[0]
    given = getattr(error.__cause__ or error.__context__, "errors", list)()
    if given and parameter is not None:
        hint = parameter.get_error_hint().strip("'")
        needed = words.rpartition(": ")[2]
        for foreign, ours in OUR_WORDS:
            needed = needed.replace(foreign, ours)
        words = f"{hint} is {given[0]['input']!r}; {needed}"
    return f"{words[:1].lower()}{words[1:]}"


def option_words(context: Any) -> list[str]:
    """All options of the command of a context as they are typed."""
    parameters = context.command.get_params(context)
    return [word for one in parameters for word in (*one.opts, *one.secondary_opts) if "-" in word]
