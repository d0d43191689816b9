"""What the README shows is what the program prints."""

import contextlib
import io
import re
from pathlib import Path

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
    from fedgranger.messages import (
        PASS_REPORT_BYTES,
        hello_bytes,
        message_bytes,
        monitor_bytes,
        state_bytes,
    )

    p = 3
    up, down = message_bytes(p)
    hello, state_hello = hello_bytes(p)
    sizes = re.findall(r"\| ([0-9p² +()]*p[0-9p² +()]*) \|$", README, flags=re.MULTILINE)
    formulas = [
        size.replace("p²", "p**2").replace("8 (", "8*(").replace("6 p", "6*p") for size in sizes
    ]
    computed = [eval(formula.replace("8 p", "8*p"), {"p": p}) for formula in formulas]
    assert computed == [hello, up, down, state_hello, state_bytes(p), monitor_bytes(p)]
    assert f"| {PASS_REPORT_BYTES} |" in README


def test_files_named_in_the_readme_exist():
    root = Path(__file__).parents[2]
    for target in re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r'src="([^"]+)"', README):
        assert (root / target).exists(), target
