"""Text from elsewhere, fit to be shown on a terminal."""

import re

# all but tab and line end of the control characters, which can rename a window or clear it, and what turns the
# direction of writing
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """The text with the replacement character for each character that would command the terminal."""
    return _COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text)
