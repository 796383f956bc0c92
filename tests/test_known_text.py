"""What of a text a model knows."""

from pathlib import Path

import pytest

from trilab.agg.none import Identity
from trilab.config import read
from trilab.errors import BadInput
from trilab.known_text import known_text
from trilab.model import LanguageModel
from trilab.trained import Trained
from trilab.vocabulary import Vocabulary

from .test_config import composed


def knowing(characters: str, *keys: str) -> Trained:
    """A model of these characters, untrained."""
    vocabulary = Vocabulary("".join(sorted(characters)))
    return Trained(
        LanguageModel(len(vocabulary), 4, Identity).eval(), vocabulary, read(composed(*keys)), Path("x.ckpt")
    )


def test_a_text_of_known_characters_is_all_there() -> None:
    known = known_text("hello\n", knowing("\nehlo"), origin="--prompt", skip=False)
    assert (known.text, known.places.tolist(), known.left_out) == ("hello\n", [0, 1, 2, 3, 4, 5], {})
    assert knowing("\nehlo").vocabulary.decode(known.tokens) == "hello\n"
    assert len(known_text("", knowing("a"), origin="--prompt", skip=False).tokens) == 0


def test_unknown_characters_are_refused_with_code_point_and_place_or_left_out_and_told() -> None:
    trained = knowing("\nehlo")
    with pytest.raises(BadInput, match=r"--prompt has characters .* 'é' \(U\+00E9, first at position 1\), '🙂'"):
        known_text("hé🙂lloé", trained, origin="--prompt", skip=False)
    known = known_text("hé🙂lloé", trained, origin="--prompt", skip=True)
    assert trained.vocabulary.decode(known.tokens) == "hllo"
    assert known.places.tolist() == [0, 3, 4, 5]
    assert known.left_out == {"é": 2, "🙂": 1}
    assert str(known) == "3 characters left out that the model does not know: 'é' (U+00E9, 2×), '🙂' (U+1F642, 1×)."
    assert "and 10 more" in str(known_text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123", trained, origin="", skip=True))


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
