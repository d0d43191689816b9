"""How long the code is, by package: `python -m benchmarks.lines [COMMIT]`.

Lines as they are, and lines of code: without blank lines, comments, docstrings and imports.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import PurePosixPath


def python_files(commit: str) -> dict[PurePosixPath, str]:
    """Modules below src at a commit, with their text."""
    listed = _git("ls-tree", "-r", "--name-only", commit, "src")
    paths = [PurePosixPath(name) for name in listed.split("\n") if name.endswith(".py")]
    return {path: _git("show", f"{commit}:{path}") for path in paths}


def code_lines(text: str) -> int:
    """Lines that hold a token of code which is no import and no docstring."""
    tree, skipped = ast.parse(text), set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            is_text and isinstance(node.value.value, str)
        ):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in skipped
        for number, line in enumerate(text.split("\n"), 1)
    )


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def main(commit: str) -> None:
    """Print a row per package of the library, then the studies beside it."""
    lines, code, modules = Counter(), Counter(), Counter()
    for path, text in python_files(commit).items():
        library, *rest = path.parts[1:]
        package = f"{library}.{rest[0]}" if len(rest) > 1 else library
        for name in dict.fromkeys((package, f"all of {library}")):
            lines[name] += text.count("\n")
            code[name] += code_lines(text)
            modules[name] += 1
    print(f"{'package':40}{'modules':>8}{'lines':>8}{'of code':>9}")
    for name in sorted(lines, key=lambda name: (name.startswith("all"), name)):
        print(f"{name:40}{modules[name]:8}{lines[name]:8}{code[name]:9}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
