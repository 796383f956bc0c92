"""What is odd about a text besides its characters."""

from dataclasses import dataclass


@dataclass
class Findings:
    """What is odd about a text besides its characters. Filled while the text is read."""

    files: int = 0
    """How many were joined."""
    empty_files: int = 0
    """How many of them have no text; nothing stands for them."""
    marks: int = 0
    """How many of them begin with a byte order mark, which is removed."""
    crlf: int = 0
    """Line ends CR LF: read as LF, unless they were to be kept."""
    cr: int = 0
    """Line ends CR, likewise."""
    nul: int = 0
    """Characters U+0000; they stay in the text."""
    controls: int = 0
    """Other control characters but tabs and line ends; they stay too."""
