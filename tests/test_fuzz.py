"""What nobody would think of: see `tests.fuzz`, which also tries more of it and writes docs/reliability.md."""

import pytest

from .fuzz import ANSWERED, KINDS, REFUSED, TRAINED, Unclear, fate, fuzz


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_made_up_trains_or_is_refused_by_one_clear_error(kind: str) -> None:
    assert fuzz(kind, 5, seed=1).total() >= 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_much_that_is_made_up_trains_or_is_refused_by_one_clear_error(kind: str) -> None:
    came_to = fuzz(kind, 120, seed=2)
    assert came_to[REFUSED]
    assert came_to[ANSWERED if kind == "command lines" else TRAINED]


@pytest.mark.parametrize(
    ("code", "out", "err"),
    [
        (1, "", "Traceback (most recent call last):\n"),
        (1, "Traceback (most recent call last):\n", "failed"),
        (2, "refused", ""),
        (139, "", "Segmentation fault"),
    ],
)
def test_a_traceback_or_an_end_without_a_word_is_not_clear(code: int, out: str, err: str) -> None:
    with pytest.raises(Unclear):
        fate(code, out, err)
