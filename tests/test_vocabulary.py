import numpy as np
import pytest

from trilab import vocabulary
from trilab.errors import BadInput
from trilab.vocabulary import Vocabulary

MANY_SCRIPTS = "naïve 漢字 🙂 👨‍👩‍👧 e\u0301\n"


def characters(count: int) -> str:
    """The first code points that are characters: without the surrogates."""
    return "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)][:count]))


@pytest.mark.parametrize("text", ["hello", MANY_SCRIPTS, "\ud800a\udfff", "\0\U0010ffff", ""])
def test_the_vocabulary_is_the_sorted_distinct_characters(text):
    assert Vocabulary.of(text).characters == "".join(sorted(set(text)))


@pytest.mark.parametrize("text", ["hello", MANY_SCRIPTS, "\ud800a\udfff", "\0\U0010ffff", "", "a"])
def test_decoding_gives_back_what_was_encoded(text):
    known = Vocabulary.of(text)
    ids = known.encode(text)
    assert ids.tolist() == [known.characters.index(character) for character in text]
    assert known.decode(ids) == text
    assert known.decode(ids.tolist()) == text


@pytest.mark.parametrize("text", ["abcdefgh", "abcdéfgh", "🙂bcdefgh"])
def test_chunks_join_without_a_seam(text, monkeypatch):
    monkeypatch.setattr(vocabulary, "CHUNK", 3)
    known = Vocabulary.of(text)
    assert known.encode(text).tolist() == [sorted(text).index(character) for character in text]


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(2, np.uint8), (256, np.uint8), (257, np.uint16), (65_536, np.uint16), (65_537, np.int32)],
)
def test_ids_have_the_smallest_type_that_holds_them(size, dtype):
    text = characters(size)
    ids = Vocabulary.of(text).encode(text)
    assert ids.dtype == dtype
    assert ids.tolist() == list(range(size))


@pytest.mark.parametrize("known", ["abc", "abcé🙂"])
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("abz", "'z' (U+007A, first at position 2)"),
        ("漢ab漢", "'漢' (U+6F22, first at position 0)"),
        ("a\ud800", r"'\ud800' (U+D800, first at position 1)"),
        ("aÿ", "'ÿ' (U+00FF, first at position 1)"),
        ("z\x7fz", r"'z' (U+007A, first at position 0), '\x7f' (U+007F, first at position 1)"),
    ],
)
def test_unknown_characters_are_named_with_code_point_and_place(known, text, named):
    with pytest.raises(BadInput) as caught:
        Vocabulary(known).encode(text, "prompt")
    assert str(caught.value).startswith("prompt has ")
    assert named in str(caught.value)
    assert f"{len(known)} characters: {known!r}" in str(caught.value)


def test_the_place_of_an_unknown_character_counts_from_the_start_of_the_text(monkeypatch):
    monkeypatch.setattr(vocabulary, "CHUNK", 4)
    with pytest.raises(BadInput, match="first at position 9"):
        Vocabulary("ab").encode("ababababac")


@pytest.mark.parametrize("given", ["ba", "aab"])
def test_characters_out_of_order_or_twice_are_refused(given):
    with pytest.raises(BadInput, match="distinct characters in order"):
        Vocabulary(given)


@pytest.mark.parametrize("ids", [[0, 3], [-1], np.array([255], dtype=np.uint8)])
def test_an_id_outside_the_vocabulary_is_refused(ids):
    with pytest.raises(ValueError, match="is not in a vocabulary of 3 characters"):
        Vocabulary("abc").decode(ids)


def test_rows_of_ids_are_not_joined_silently():
    with pytest.raises(ValueError, match="not one row"):
        Vocabulary("abc").decode(np.zeros((2, 3), dtype=int))


def test_vocabularies_of_the_same_characters_are_equal():
    assert Vocabulary.of("hello") == Vocabulary("ehlo") != Vocabulary("ehl")
