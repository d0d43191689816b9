"""Write options.md from the declarations: `python docs/write_options.py`."""

from dataclasses import fields
from pathlib import Path

from fedgranger.cli.options import FitOptions
from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.federation.agreed_options import ExchangeOptions
from fedgranger.federation.watch_options import WatchOptions
from fedgranger.option_fields import option_of

PAGE = Path(__file__).with_name("options.md")
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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
