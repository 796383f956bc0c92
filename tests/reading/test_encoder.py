"""A text that comes in chunks is encoded as one that is there at once."""

import os
import tempfile
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trilab.reading import utf8
from trilab.reading.encoder import Encoder
from trilab.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("way")

TEXTS = {
    "ascii": "hello, world\n",
    "latin": "ÿ naïve é\x80",
    "planes": "漢字 naïve",
    "beyond": "a🙂漢\U0010ffffé",
}


def encoded(*chunks: str) -> tuple[Encoder, list[int]]:
    """Through memory."""
    encoder = Encoder()
    for chunk in chunks:
        encoder.add(utf8.Utf8(chunk.encode()))
    ids = encoder.ids()
    assert ids.dtype == encoder.vocabulary.dtype
    return encoder, ids.tolist()


def spilled(*chunks: str, after: int) -> tuple[Encoder, list[int]]:
    """Through a file, from so many chunks on."""
    encoder = Encoder()
    with tempfile.TemporaryFile() as file:
        for place, chunk in enumerate(chunks):
            if place == after:
                encoder.spill(file)
            encoder.add(utf8.Utf8(chunk.encode()))
        encoder.settle()
        file.seek(0)
        return encoder, np.frombuffer(file.read(), dtype=encoder.vocabulary.dtype).tolist()


@pytest.mark.parametrize("chunks", [*((text,) for text in TEXTS.values()), tuple(TEXTS.values()), ("a", "é", "🙂")])
def test_ids_vocabulary_and_sha256_are_those_of_the_whole_text(chunks):
    text = "".join(chunks)
    encoder, ids = encoded(*chunks)
    known = Vocabulary.of(text)
    assert encoder.vocabulary == known
    assert ids == known.encode(text).tolist()
    assert encoder.sha256 == sha256(text.encode()).hexdigest()
    assert encoder.characters == len(text)


def distinct(count: int) -> str:
    return "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)][:count]))


@pytest.mark.parametrize(
    ("size", "dtype"), [(256, np.uint8), (257, np.uint16), (65_536, np.uint16), (65_537, np.int32)]
)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_vocabulary_may_outgrow_the_width_of_its_ids_on_the_way(size, dtype, backwards):
    text = distinct(size)
    chunks = [text[:200], text[200:300], text[300:], text[:200], text]
    if backwards:  # every character comes before those that it is sorted after
        chunks = [chunk[::-1] for chunk in reversed(chunks)]
    known = Vocabulary(text)
    assert known.dtype == dtype
    for encoder, ids in (encoded(*chunks), *(spilled(*chunks, after=after) for after in (0, 1, 3))):
        assert encoder.vocabulary == known
        assert ids == known.encode("".join(chunks)).tolist()


def test_nothing_is_written_twice_where_every_character_came_before_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "pwrite", None)
    assert spilled("world", "hello", "low", "hold", after=2)[1][-4:] == [2, 4, 3, 0]


def test_ascii_is_read_also_where_its_numbers_have_no_room_in_a_byte():
    chunks = [distinct(1000)[200:], "ascii at last", "and again"]
    for encoder, ids in (encoded(*chunks), spilled(*chunks, after=1)):
        assert encoder.vocabulary.decode(ids) == "".join(chunks)


def test_control_characters_are_counted():
    encoder, _ = encoded("a\0b\n", "\0\t\x1b[0m\0\r", "é\x85\0")
    assert encoder.controls == {"\0": 4, "\x1b": 1, "\x85": 1}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec="utf-8"))), st.integers(0, 3))
@example(["", "\0", "\x7f\x80\u07ff\u0800", "\ud7ff\ue000\uffff\U00010000\U0010ffff"], 1)
def test_any_text_in_any_chunks_is_encoded_as_the_whole(chunks, after):
    text = "".join(chunks)
    known = Vocabulary.of(text)
    for encoder, ids in (encoded(*chunks), spilled("", *chunks, after=min(after, len(chunks)))):
        assert (encoder.vocabulary, encoder.characters) == (known, len(text))
        assert ids == known.encode(text).tolist()
        assert encoder.sha256 == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("before", ["", "a", "é", "漢"])
def test_a_long_chunk_is_encoded_to_its_end(before):
    text = before + "".join(TEXTS.values()) * 500 + "at last: ж"
    assert encoded(text)[1] == Vocabulary.of(text).encode(text).tolist()
