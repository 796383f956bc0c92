"""Bytes are told to be UTF-8, and numbered, as Python itself would: in C, and without a compiler."""

from itertools import product

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trilab.errors import BadInput
from trilab.reading import utf8

pytestmark = pytest.mark.usefixtures("way")

TEXT = "naïve 漢字 🙂 Привет words, and more words in plain ASCII than a vector holds: 0123456789\n" * 3

# where one rule of UTF-8 ends and the next one begins
EDGES = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


def decodable(content: bytes) -> int:
    """How many bytes at the beginning Python decodes."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(content)


PARTS = st.one_of(
    st.binary(max_size=6),
    st.lists(st.sampled_from(list(EDGES)), max_size=6).map(bytes),
    st.text(st.characters(codec="utf-8")).map(str.encode),
    st.integers(0, 80).map(lambda length: b"a" * length),
    st.integers(0, 40).map(lambda length: "漢é".encode() * length),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PARTS).map(b"".join))
@example(b"")
@example("é".encode() * 31 + b"a\xc3" + b"a" * 64)  # an end is lacking where a block of vectors ends
def test_of_any_bytes_so_many_are_valid_as_python_decodes(content):
    assert utf8.valid(content) == decodable(content)


@pytest.mark.parametrize("before", [b"", b"a" * 61, "é".encode() * 31, "🙂".encode() * 15 + b"a"])
def test_every_rule_holds_at_its_edges_wherever_it_stands(before):
    for sequence in product(EDGES, repeat=3):
        content = before + bytes(sequence) + b"b" * 64
        assert utf8.valid(content) == decodable(content), bytes(sequence)


@pytest.mark.parametrize("lead", [0xF0, 0xF1, 0xF4, 0xF5])
def test_every_rule_of_four_bytes_holds_at_its_edges(lead):
    for sequence in product(EDGES, repeat=3):
        content = b"a" * 30 + bytes([lead, *sequence]) + b"b" * 64
        assert utf8.valid(content) == decodable(content), bytes(sequence)


def test_every_character_is_valid():
    content = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)])).encode()
    assert utf8.valid(content) == len(content)


def test_of_a_text_that_is_cut_the_whole_characters_are_valid():
    content = TEXT.encode()
    for end in range(len(content)):
        assert utf8.valid(content[:end]) == decodable(content[:end])


def test_half_a_surrogate_pair_is_refused_with_its_place_and_origin():
    with pytest.raises(BadInput, match=r"^notes has half of a surrogate pair, U\+D800, at character 1,001: "):
        utf8.encoded("a\ud800", "notes", 1000)
    assert utf8.encoded("a🙂", "notes") == "a🙂".encode()
