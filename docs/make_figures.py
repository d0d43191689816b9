"""Make the pictures and printed output that the README shows.

    make docs-figures

Writes docs/images/demo-graph.svg and prints the output of the README's example, which a test
compares with the README.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.report import draw_graph

DOCS = Path(__file__).parent


def main() -> None:
    """Run the demo and draw its graph; run the README's example and print what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = CliRunner().invoke(app, ["demo", "--out", f"{folder}/demo"])
        if outcome.exit_code:
            raise SystemExit(outcome.output)
        result = fg.Result.load(Path(folder) / "demo" / "run")
    svg = draw_graph(result.clients, result.edges(), max_edges=9)
    (DOCS / "images" / "demo-graph.svg").write_text(svg)
    readme = (DOCS.parent / "README.md").read_text()
    example = re.search(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    if example:
        exec(compile(example[1], "README.md", "exec"), {})


if __name__ == "__main__":
    main()
