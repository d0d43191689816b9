"""Whoever wonders why `make test` leaves a test out reads the reason beside its mark."""

import io
import re
import tokenize
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MARK = "mark." + "slow"
NO_REASON = re.compile(r"#\s*(?:(?:fmt|noqa|type|pyright)(?::.*)?|slow\W*)?$")


def without_reason(text):
    """Lines with a mark that have no comment of their own, nor a whole line of it just above."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {t.start[0]: t.string for t in tokens if t.type == tokenize.COMMENT}
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        own, above = (comments.get(k, "#") for k in (number, number - 1))
        if lines[number - 2].strip() != above and "# slow: " not in above:
            above = "#"  # it speaks of what is before it
        if MARK in line and NO_REASON.match(own) and NO_REASON.match(above):
            found.append(number)
    return found


def test_every_slow_test_says_what_takes_long():
    texts = {path: path.read_text("utf-8") for path in TESTS.rglob("*.py")}
    assert sum(text.count(MARK) for text in texts.values()) > 100
    found = {str(path.relative_to(TESTS)): without_reason(text) for path, text in texts.items()}
    assert {name: numbers for name, numbers in found.items() if numbers} == {}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (f"@pytest.{MARK}\ndef test(): ...", [1]),
        (f"@pytest.{MARK}  # 400 data sets\ndef test(): ...", []),
        (f"# slow: 400 data sets\n@pytest.{MARK}\ndef test(): ...", []),
        (f"x = [  # slow: 400 data sets\n  pytest.{MARK},\n]", []),
        (f"x = [\n  1,  # one\n  pytest.{MARK},\n]", [3]),
        (f"x = [\n  pytest.{MARK},  # 400 data sets\n  pytest.{MARK},\n]", [3]),
        (f"@pytest.{MARK}  # slow\ndef test(): ...", [1]),
        (f"@pytest.{MARK}  # noqa: E501\ndef test(): ...", [1]),
        (f"x = '# 400 data sets', pytest.{MARK}", [1]),
    ],
)
def test_what_counts_as_a_reason(text, numbers):
    assert without_reason(text) == numbers
