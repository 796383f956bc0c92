"""What tests of reading share."""

import pytest

from trilab.reading import utf8


@pytest.fixture(params=["in C", "in Python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of looking at bytes and of numbering characters."""
    if request.param == "in Python":
        monkeypatch.setattr(utf8, "compiled", lambda: None)
    elif utf8.compiled() is None:
        pytest.skip("there is no C compiler here")
