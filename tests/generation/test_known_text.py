"""What of a text a model knows."""

from pathlib import Path

import pytest

from trilab.agg.none import Identity
from trilab.config import read
from trilab.errors import BadInput
from trilab.generation.known_text import known_text, text_of
from trilab.model import LanguageModel
from trilab.reading.sources import find
from trilab.trained import Trained
from trilab.vocabulary import Vocabulary

from ..test_config import composed


def knowing(characters: str, *keys: str) -> Trained:
    """A model of these characters, untrained."""
    vocabulary = Vocabulary("".join(sorted(characters)))
    return Trained(
        LanguageModel(len(vocabulary), 4, Identity).eval(), vocabulary, read(composed(*keys)), Path("x.ckpt")
    )


def test_a_text_of_known_characters_is_all_there() -> None:
    known = known_text("hello\n", knowing("\nehlo"), origin="--prompt", skip=False)
    assert (known.text, known.left_out) == ("hello\n", {})
    assert knowing("\nehlo").vocabulary.decode(known.tokens) == "hello\n"
    assert len(known_text("", knowing("a"), origin="--prompt", skip=False).tokens) == 0


def test_unknown_characters_are_refused_with_code_point_and_place_or_left_out_and_told() -> None:
    trained = knowing("\nehlo")
    with pytest.raises(BadInput, match=r"--prompt has characters .* 'é' \(U\+00E9, first at position 1\), '🙂'"):
        known_text("hé🙂lloé", trained, origin="--prompt", skip=False)
    known = known_text("hé🙂lloé", trained, origin="--prompt", skip=True)
    assert trained.vocabulary.decode(known.tokens) == "hllo"
    assert known.text == "hé🙂lloé"
    assert known.left_out == {"é": 2, "🙂": 1}
    assert str(known) == "3 characters left out that the model does not know: 'é' (U+00E9, 2×), '🙂' (U+1F642, 1×)."
    assert "and 10 more" in str(known_text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123", trained, origin="", skip=True))


@pytest.mark.parametrize("text", ["ab\n\nXaéb\ncd\n", "\n", "a", "", "\n\nX", "é\nabX"])
def test_lines_are_told_with_how_many_of_their_characters_are_known(text: str) -> None:
    for characters in ("\nabcd", "abcd", "\nabcdXé"):
        lines = text.removesuffix("\n").split("\n") if text else []
        ends = [*"\n" * (len(lines) - 1), "\n" * text.endswith("\n")]
        counts = [sum(c in characters for c in line + end) for line, end in zip(lines, ends, strict=bool(text))]
        known = known_text(text, knowing(characters), origin="", skip=True)
        assert [*known.lines()] == list(zip(lines, counts, strict=True))
        assert sum(counts) == len(known.tokens)


def test_line_ends_are_lf_unless_the_model_was_trained_on_cr() -> None:
    assert known_text("a\r\na\ra", knowing("\na"), origin="", skip=False).text == "a\na\na"
    assert known_text("a\r\na\ra", knowing("\n\ra"), origin="", skip=False).text == "a\r\na\ra"


def test_a_text_is_normalised_where_the_model_s_own_was() -> None:
    composed_e, apart = "é", "e\N{COMBINING ACUTE ACCENT}"
    plain, normalised = knowing("aé"), knowing("aé")
    normalised.config.data.source["normalise"] = "nfc"
    assert known_text(f"a{apart}", normalised, origin="", skip=False).text == f"a{composed_e}"
    with pytest.raises(BadInput, match=r"U\+0301"):
        known_text(f"a{apart}", plain, origin="", skip=False)


def test_files_are_read_and_joined_as_the_model_s_own_were(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_bytes(b"a\r\nb\re")
    (tmp_path / "2.txt").write_bytes("\N{COMBINING ACUTE ACCENT}\r\n".encode("utf-16"))
    files = find(str(tmp_path), leave_out="")
    plain, apart = knowing("\na"), knowing("\n\ra")
    assert text_of(files, plain, None) == "a\nb\ne\n\N{COMBINING ACUTE ACCENT}\n"
    assert text_of(files, apart, None) == "a\r\nb\re\n\N{COMBINING ACUTE ACCENT}\r\n"
    for trained, text in ((plain, "a\nb\né\n"), (apart, "a\r\nb\ré\r\n")):
        trained.config.data.source.update(normalise="nfc", separator="")
        assert text_of(files, trained, None) == text
        trained.config.data.source["separator"] = r"\r\n"
    assert text_of(files, plain, None) == "a\nb\ne\n\N{COMBINING ACUTE ACCENT}\n"
    assert text_of(files, apart, None) == "a\r\nb\re\r\n\N{COMBINING ACUTE ACCENT}\r\n"
