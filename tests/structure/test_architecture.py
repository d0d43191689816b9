"""The page on the architecture names only what exists, and every package."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fedgranger"
PAGE = ROOT / "docs" / "architecture.md"


def test_paths_and_names_exist():
    text = PAGE.read_text("utf-8")
    paths = re.findall(r"`((?:\.\./)?[a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", text)
    assert len(paths) > 60
    for path in paths:
        assert ((ROOT if path.startswith("tests/") else SOURCE) / path).exists(), path
    named = re.findall(r"`([a-z_./]+\.py)`: ((?:`[A-Za-z_.]+`(?:, )?)+)", text)
    assert len(named) > 15
    for path, names in named:
        code = (SOURCE / path).read_text("utf-8")
        for name in re.findall(r"`([A-Za-z_.]+)`", names):
            last = name.split(".")[-1]
            defined = rf"^\s*(?:def|class) {last}\b|^{last}(?::[^=]+)? = "
            if not name.endswith(".py"):
                assert re.search(defined, code, re.MULTILINE), f"{path}: {name}"


def test_every_package_is_on_the_page():
    text = PAGE.read_text("utf-8")
    packages = {p.name + "/" for p in SOURCE.iterdir() if (p / "__init__.py").exists()}
    modules = {p.name for p in SOURCE.glob("*.py") if not p.name.startswith("_")}
    for name in packages | modules:
        assert f"`{name}`" in text, name
