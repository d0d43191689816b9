"""Make the pictures and printed output that the README and the gallery show.

    make docs-figures

Writes docs/images/demo-graph.svg and prints the output of the README's example, which a test
compares with the README. Runs the code of docs/gallery.md and writes docs/images/gallery-*.png,
which needs matplotlib (extra `plot`).
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.report import draw_graph

DOCS = Path(__file__).parent


def main() -> None:
    """Make everything, or with the argument `gallery` only the gallery."""
    if sys.argv[1:] != ["gallery"]:
        make_readme()
    make_gallery()


def make_readme() -> None:
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


def make_gallery() -> None:
    """Run the named code blocks of the gallery in order; each but `setup` leaves a picture."""
    names: dict[str, Any] = {}
    for name, code in gallery_blocks():
        exec(compile(code, f"gallery.md, {name}", "exec"), names)
        if name != "setup":
            path = DOCS / "images" / f"gallery-{name}.png"
            names["ax"].figure.savefig(path, dpi=110, metadata={"Software": None})


def gallery_blocks() -> list[tuple[str, str]]:
    """Name and code of every block of the gallery that has a name."""
    text = (DOCS / "gallery.md").read_text()
    return re.findall(r"```python ([\w-]+)\n(.*?)```", text, flags=re.DOTALL)


if __name__ == "__main__":
    main()
