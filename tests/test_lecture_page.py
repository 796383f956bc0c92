"""The snippets of docs/lecture.md print what the page says they print."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "lecture.md"


def test_every_snippet_of_the_page_prints_what_stands_below_it() -> None:
    names: dict[str, Any] = {}
    snippets = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(snippets) > 10
    for code, expected in snippets:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert [line.rstrip() for line in printed.getvalue().splitlines()] == expected.splitlines(), code
