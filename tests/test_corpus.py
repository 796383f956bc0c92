from dataclasses import FrozenInstanceError
from hashlib import sha256

import numpy as np
import pytest

from trilab.corpus import Corpus


def test_sha256_is_that_of_the_utf8_bytes():
    assert Corpus.of("notes", "naïve 🙂\n", "notes.txt").sha256 == sha256("naïve 🙂\n".encode()).hexdigest()


def test_its_tokens_are_the_text():
    corpus = Corpus.of("notes", "naïve 🙂\n", "notes.txt")
    assert corpus.text == "naïve 🙂\n"
    assert np.array_equal(corpus.tokens, corpus.vocabulary.encode("naïve 🙂\n"))
    assert len(corpus) == 8


def test_a_corpus_cannot_be_changed():
    corpus = Corpus.of("notes", "abc", "notes.txt")
    with pytest.raises(FrozenInstanceError):
        corpus.name = "other"
