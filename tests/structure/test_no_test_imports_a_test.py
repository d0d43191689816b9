"""What tests share lives beside them, so that every file can be read and run by itself."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
FROM_A_TEST = re.compile(
    r"^\s*(?:from|import) tests(?:\.\w+)*(?:\.| import .*\b)test_\w+", re.MULTILINE
)


def test_no_test_imports_a_test():
    files = list(TESTS.rglob("*.py"))
    assert len(files) > 100
    assert [path.name for path in files if FROM_A_TEST.search(path.read_text())] == []
