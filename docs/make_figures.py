"""Make the pictures and printed output that the README and the gallery show.

    make docs-figures

Writes docs/images/demo-graph.svg and prints the output of the README's example, which a test
compares with the README. Runs the code of docs/gallery.md and writes docs/images/gallery-*.png.
Both need matplotlib (extra `plot`).

    python docs/make_figures.py root-cause TEP

Writes docs/images/root-cause-tep.png and prints the commands' output that docs/root-cause.md shows;
TEP is the folder with the publisher's files.
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
from fedgranger_research import datasets

DOCS = Path(__file__).parent


def main() -> None:
    """Make everything that needs no data, or what the first argument names."""
    if sys.argv[1:2] == ["root-cause"]:
        make_root_cause(Path(sys.argv[2]))
        return
    if sys.argv[1:] != ["gallery"]:
        make_readme()
    make_gallery()


def make_readme() -> None:
    """Run the demo and draw its graph; run the README's example and print what it prints."""
    from matplotlib import rc_context

    with tempfile.TemporaryDirectory() as folder:
        outcome = CliRunner().invoke(app, ["demo", "--out", f"{folder}/demo"])
        if outcome.exit_code:
            raise SystemExit(outcome.output)
        result = fg.Result.load(Path(folder) / "demo" / "run")
    with rc_context({"svg.hashsalt": "fedgranger"}):  # the same picture every time
        fg.plot.graph(result).figure.savefig(
            DOCS / "images" / "demo-graph.svg", facecolor="white", metadata={"Date": None}
        )
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


def make_root_cause(source: Path) -> None:
    """Fault 7 of the Tennessee Eastman process, from the files to the suspect."""
    from matplotlib.figure import Figure

    from fedgranger import rca
    from fedgranger.rca.alarms import strength_matrix

    with tempfile.TemporaryDirectory() as folder:
        for words in (
            f"datasets prepare tep {source} --out {folder}/tep",
            f"fit {folder}/tep/train --out {folder}/run --solver newton --state-model svd "
            "--state-dim 2",
            f"rca {folder}/run --data {folder}/tep/test --window 70160/70959 --top 4",
            f"rca {folder}/run --data {folder}/tep/test --window 10160/10959 --top 3",
        ):
            outcome = CliRunner().invoke(app, words.split())
            sys.stdout.write(f"$ fedgranger {words}\n{outcome.output}\n".replace(f"{folder}/", ""))
        result = fg.Result.load(f"{folder}/run")
    dataset = datasets.load("tep", source)
    window = rca.gather(result, dataset.run("d07_te").panel).steps(slice(100, 400))
    found = rca.rank(window.steps(slice(60, None)), strength_matrix(result, window.clients))
    figure = Figure(figsize=(7.5, 6.2), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    smoothed = window.smoothed()
    for k, name in enumerate(window.clients):
        is_first = name == found.first
        above.plot(
            range(-60, 240),
            smoothed[:, k] / window.threshold[k],
            lw=2 if is_first else 1,
            color=None
            if is_first or name in ("stripper", "compressor", "separator")
            else "#bbbbbb",
            label=name,
        )
    above.axhline(1, color="#444444", ls=":", lw=1)
    above.axvline(0, color="#444444", lw=0.8)
    above.set(yscale="log", xlabel="samples after the fault", ylabel="surprise / range")
    above.legend(ncols=3, fontsize=8, frameon=False)
    fg.plot.rca(found.table, ax=below)
    figure.savefig(DOCS / "images" / "root-cause-tep.png", dpi=110, metadata={"Software": None})


def gallery_blocks() -> list[tuple[str, str]]:
    """Name and code of every block of the gallery that has a name."""
    text = (DOCS / "gallery.md").read_text()
    return re.findall(r"```python ([\w-]+)\n(.*?)```", text, flags=re.DOTALL)


if __name__ == "__main__":
    main()
