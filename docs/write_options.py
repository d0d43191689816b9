"""Write options.md and the types of fit's keywords: `python docs/write_options.py`."""

from dataclasses import fields
from pathlib import Path

from fedgranger.cli.options import FitOptions
from fedgranger.config import RunConfig
from fedgranger.data.reading_options import PanelOptions
from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.federation.agreed_options import ExchangeOptions, WatchOptions
from fedgranger.option_fields import option_of

PAGE = Path(__file__).with_name("options.md")
KEYWORDS = Path(__file__).parents[1] / "src/fedgranger/fit_keywords.py"
HEAD = """# Options

Made by `python docs/write_options.py` from the declarations in the code. Every option is a keyword
of the Python call (`fg.RunConfig`, `fg.simulate`), an option of the command (`--max-lags 5`), and
a key of a TOML file (`--config FILE`), alone or in the table of its subject:

```toml
passes = 100

[edge_tests]
lags = 2
alpha = 0.01
```

An option that the run would not look at, such as `transition` without `solver = "neural"`, is
refused with the option that it needs.
"""
PARTS = {
    "`fedgranger fit`, and `fg.RunConfig` without the part on data": FitOptions,
    "`fedgranger federation run`, beside those of the fit": ExchangeOptions,
    "`fedgranger rca`, `fedgranger federation watch`": WatchOptions,
    "`fedgranger simulate`, `fg.simulate`": SimulationOptions,
}


def page():
    """The whole page."""
    lines = [HEAD]
    for title, kind in PARTS.items():
        declared = {one.name: one for one in fields(kind)}
        lines.append(f"## {title}\n")
        for subject, names in kind.subjects().items():
            lines += [f"### {subject}\n", "| option | default | what it does |", "|---|---|---|"]
            for name in names:
                help_text = option_of(declared[name]).help.replace("|", "\\|")
                default = declared[name].default
                shown = "–" if default in (None, "") else f"`{default}`"
                word = option_of(declared[name]).word
                shown_name = f"`{name}`" + (f" (`--{word}`)" if word else "")
                lines.append(f"| {shown_name} | {shown} | {help_text} |")
            lines.append("")
    return "\n".join(lines)


KEYWORDS_HEAD = '''"""Types of the keywords of `fg.fit`; made by `python docs/write_options.py`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypedDict


class ReadingKeywords(TypedDict, total=False):
    """How data are read: `PanelOptions`; docs/options.md says what each does."""

'''
FIT_HEAD = '''

class FitKeywords(ReadingKeywords, total=False):
    """Those, and options of the run: `RunConfig`."""

'''
SHORT = {
    "Auto": 'Literal["auto"]',
    "Couplings": 'Literal["all"] | Sequence[Sequence[str]]',
    "dict[str, int]": "Mapping[str, int]",
    "list[int | str] | Period": "timedelta | Iterable[int | str | timedelta]",
}
"""Types of values as they are kept, and of what may be given."""
WIDER = {
    **dict.fromkeys(("skip_rows", "unit_rows"), "int | str"),
    **dict.fromkeys(("align_tolerance", "resample"), "str | timedelta"),
    **dict.fromkeys(("missing_text", "leave_out", "difference", "map"), "str | Iterable[str]"),
}
"""Of what is kept as text."""


def keywords():
    """The module with the types of fit's keywords."""
    return KEYWORDS_HEAD + _types(PanelOptions) + FIT_HEAD + _types(RunConfig)


def _types(kind):
    return "".join(f"    {one.name}: {_type(one)}\n" for one in fields(kind))


def _type(one):
    allowed = option_of(one).allowed
    if allowed and one.type == "str":
        words = ", ".join(f'"{word}"' for word in allowed)
        return f"Literal[{words}]"
    written = WIDER.get(one.name, one.type)
    for kept, given in SHORT.items():
        written = written.replace(kept, given)
    return written.replace("'", '"')


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    KEYWORDS.write_text(keywords(), encoding="utf-8")
