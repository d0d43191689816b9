"""Run the notebooks and keep their outputs: `make notebooks`, or name some after the command.

Every notebook runs in an empty folder of its own. Those whose data are not there are left alone:
the environment variable FEDGRANGER_TEP is the folder with the publisher's files.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "notebooks"
NEEDS = {"tep-fault-7": "FEDGRANGER_TEP"}
LARGEST = 300_000
SECONDS = 600
BAR_THAT_WENT = {"text/plain": ""}


def run(path):
    """Run one notebook and write it back, without what differs from machine to machine."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": place}})
        client.execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if "outputs" in cell:  # where a bar was
            cell.outputs = [one for one in cell.outputs if one.get("data") != BAR_THAT_WENT]
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if len(text) > LARGEST:
        sys.exit(f"{path.name} has {len(text)} bytes; keep it below {LARGEST}")
    path.write_text(text, encoding="utf-8")


def main(names):
    """Run those that are named, or all."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        needed = NEEDS.get(path.stem)
        if names and path.stem not in names:
            continue
        if needed is not None and needed not in os.environ:
            print(f"{path.name}: not run, {needed} is not set")  # noqa: T201
            continue
        run(path)


if __name__ == "__main__":
    main(sys.argv[1:])
