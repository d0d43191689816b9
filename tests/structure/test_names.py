"""Names: the glossary speaks of what exists, and a module's name occurs once."""

import ast
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedgranger.cli.app import COMMANDS
from fedgranger.inference.lag_bases import LagBasis
from fedgranger.inference.strength import strength_intervals
from fedgranger_research.commands import COMMANDS as STUDIES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "notation.md"
PRIVATE_WORDS = {
    *("hear", "heard", "look", "looked", "meet", "mend", "mended", "met", "pose", "posed", "said"),
    *("say", "story", "stream", "streams", "tell", "told"),
}
"""Words of ours for what has a name in the field: message, sentence, report, check, client."""
OF_THE_ENGINE = {"STREAM", "Stream", "stream", "streams"}
"""FLARE's own names, in the modules that guard it."""
OF_ARROW = {"BufferOutputStream", "input_stream"}
"""Arrow's own names, where files are read."""


def identifiers(path):
    """Names that the code uses, and the axes in its shapes; words of docstrings are not."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name
    yield from axes(path)


def axes(path):
    """Names of the axes in a module's shapes."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            for part in node.slice.elts:
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield from re.findall(r"[a-z_]+", part.value)


def test_names_of_the_glossary_exist():
    known = {name for path in SOURCE.rglob("*.py") for name in identifiers(path)}
    names = re.findall(r"`([^`]+)`", PAGE.read_text("utf-8"))
    assert len(names) > 80
    for name in names:
        if "/" in name:
            assert (ROOT / name).exists() or (SOURCE / "fedgranger" / name).exists(), name
        elif name.endswith(".py"):
            assert (SOURCE / "fedgranger" / name).exists(), name
        elif name.endswith("_"):
            assert any(word.startswith(name) for word in known), name
        elif name.startswith("_"):
            assert any(word.endswith(name) for word in known), name
        else:
            assert name in known, name


def test_axes_of_inference_are_explained():
    text = PAGE.read_text("utf-8")
    table = text[text.index("## Axes of arrays") : text.index("## Glossary")]
    explained = set(re.findall(r"`(\w+)`", table))
    used = {axis for path in (SOURCE / "fedgranger/inference").glob("*.py") for axis in axes(path)}
    assert used
    assert used <= explained


def test_shapes_of_inference_are_checked_in_the_tests():
    blocks, covs = np.zeros((2, 3)), np.zeros((2, 4, 4))
    with pytest.raises(TypeCheckError):
        strength_intervals(blocks, covs, np.ones(2))
    with pytest.raises(TypeCheckError):
        LagBasis.columns_until(blocks, "one")


def test_every_word_is_explained_once():
    rows = re.findall(r"^\| ([^|`]+) \|", PAGE.read_text("utf-8").split("## Glossary")[1], re.M)
    words = [word.strip() for row in rows for word in row.split(",")]
    assert len(words) > 40
    assert [word for word, count in Counter(words).items() if count > 1] == []


def parts(name):
    """The words of an identifier, in lower case."""
    return re.findall(r"[a-z]+", re.sub(r"([A-Z][a-z])", r"_\1", name).lower())


def test_identifiers_use_the_words_of_the_field():
    for path in (SOURCE / "fedgranger").rglob("*.py"):
        allowed = {"flare": OF_THE_ENGINE, "data": OF_ARROW}.get(path.parent.name, set())
        used = set(identifiers(path)) - allowed
        assert [name for name in used if PRIVATE_WORDS & set(parts(name))] == [], path


def test_module_names_occur_once():
    """A module in cli/ has the name of its command (glossary: command); no other name is shared."""
    commands = {module for found in (COMMANDS, STUDIES) for module, _ in found.values()}
    modules = [path for path in SOURCE.rglob("*.py") if not path.name.startswith("__")]
    names = {path: ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in modules}
    assert len(commands & set(names.values())) > 10
    count = Counter(path.stem for path, name in names.items() if name not in commands)
    assert [word for word, number in count.items() if number > 1] == []


def test_modules_are_short():
    """About 250 lines at most: a longer one holds two subjects."""
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > 270} == {}
