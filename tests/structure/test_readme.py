"""What the README shows is what the program prints."""

import contextlib
import io
import re
from pathlib import Path

from fedgranger.federation.ledger import payload_bytes
from fedgranger.messages import CONTENTS

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_example_prints_what_the_readme_says():
    code, expected = re.search(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL
    ).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == expected


def test_message_table_lists_every_message():
    p = 3
    step = {"time": 1, "client_state": p}
    once = payload_bytes("hello", CONTENTS["hello"].values, client_state=p, period=0)
    per_period = payload_bytes("hello", client_state=0, period=1)
    report = payload_bytes("message", ("change", "size"), time=0, client_state=0)
    sizes = re.findall(r"\| ([0-9p² +()]*p[0-9p² +()]*) \|$", README, flags=re.MULTILINE)
    formulas = [
        size.replace("p²", "p**2").replace("8 (", "8*(").replace("6 p", "6*p") for size in sizes
    ]
    computed = [eval(formula.replace("8 p", "8*p"), {"p": p}) for formula in formulas]
    per_step = [payload_bytes(kind, **step) for kind in ("message", "step", "states", "monitor")]
    assert computed == [payload_bytes("model", client_state=p), *per_step[:2], once, *per_step[2:]]
    assert f"| {report} |" in README
    assert f"| {per_period} each |" in README


def test_the_guide_lists_every_field_of_hello():
    guide = (Path(__file__).parents[2] / "docs" / "federation.md").read_text()
    listed = re.search(r"`hello`\s+\((.*?):", guide, re.DOTALL)
    content = CONTENTS["hello"]
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == {*content.values, *content.arrays}


def test_files_named_in_the_readme_exist():
    root = Path(__file__).parents[2]
    for target in re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r'src="([^"]+)"', README):
        assert (root / target).exists(), target


def test_every_line_of_the_threat_model_names_a_test_that_exists():
    root = Path(__file__).parents[2]
    text = (root / "docs" / "security.md").read_text()
    table = text[text.index("| party |") : text.index("A **curious client**")].strip().splitlines()
    tests = "\n".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    names = {path.name for path in (root / "tests").rglob("test_*.py")}
    assert len(table) > 8
    for line in table[2:]:
        shown = re.findall(r"`(test_\w+(?:\.py)?)`", line.rpartition(" | ")[2])
        assert shown, line
        for name in shown:
            assert name in names if name.endswith(".py") else f"def {name}(" in tests, name
