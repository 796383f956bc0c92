from dataclasses import FrozenInstanceError
from hashlib import sha256

import pytest

from trilab.corpus import Corpus


def test_sha256_is_that_of_the_utf8_bytes():
    assert Corpus("notes", "naïve 🙂\n", "notes.txt").sha256 == sha256("naïve 🙂\n".encode()).hexdigest()


def test_a_corpus_cannot_be_changed():
    corpus = Corpus("notes", "abc", "notes.txt")
    with pytest.raises(FrozenInstanceError):
        corpus.text = "abd"
