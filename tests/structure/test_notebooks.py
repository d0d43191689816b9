"""The notebooks of docs/: small, whole, and what they show is what their code gives."""

import contextlib
import importlib.util
import io
import json
import re
import warnings
from pathlib import Path

import pytest

from tests.published_files import development_data, write_tep

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
MACHINE = re.compile(r"/(home|tmp|root|work|Users)/")
pytestmark = pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")


def cells(path):
    found = json.loads(path.read_text("utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def printed(cell):
    parts = (out["text"] for out in cell["outputs"] if out["output_type"] == "stream")
    return "".join("".join(part) for part in parts)


def run_cells(path):
    """What every code cell prints, without a kernel."""
    names, said = {}, []
    for cell in cells(path):
        with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
            exec("".join(cell["source"]), names)
        said.append(out.getvalue())
    return said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_small_and_have_been_run_to_their_end(path):
    text = path.read_text("utf-8")
    assert len(text.encode()) < 300_000
    assert not MACHINE.search(text)
    counts = [cell["execution_count"] for cell in cells(path)]
    assert counts == list(range(1, len(counts) + 1))
    kinds = {out["output_type"] for cell in cells(path) for out in cell["outputs"]}
    assert kinds <= {"stream", "execute_result", "display_data"}
    assert text.count('"image/png"') >= 1


def test_own_data_gives_the_edges_that_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = DOCS / "notebooks" / "own-data.ipynb"
    said = run_cells(path)
    assert said == [printed(cell) for cell in cells(path)]
    assert any("boiler -> turbine, 2 min" in one for one in said)


@pytest.mark.slow  # writes and fits a whole recording
def test_tep_gives_the_answer_that_it_shows(tmp_path, monkeypatch):
    write_tep(development_data() / "tep", tmp_path / "tep")
    monkeypatch.setenv("FEDGRANGER_TEP", str(tmp_path / "tep"))
    path = DOCS / "notebooks" / "tep-fault-7.ipynb"
    said = run_cells(path)
    assert said == [printed(cell) for cell in cells(path)]
    assert any("started at: feed_AC" in one for one in said)


def test_pages_have_code_tables_and_pictures():
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("latex2mathml.converter", reason="latex2mathml is not installed")
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = hooks.notebook_page(DOCS / "notebooks" / "own-data.ipynb")
    assert page.startswith("# From DataFrames to a decision\n\n*A notebook: [own-data.ipynb]")
    assert '<img alt="output" src="data:image/png;base64,iVBOR' in page
    assert "<style" not in page
    tables = [line for line in page.splitlines() if "<table" in line]
    assert len(tables) >= 4
    assert all(line.startswith("<div style") and line.endswith("</div>") for line in tables)
    assert "boiler -> turbine, 2 min" in page
