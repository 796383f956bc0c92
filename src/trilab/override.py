"""A key and a value → a word of a command line."""

import re

from trilab.errors import BadInput

PLAIN = re.compile(r"\.{0,2}[A-Za-z/][\w./-]*", re.ASCII)
NO_WORDS = ("null", "true", "false", "inf", "nan")  # what Hydra takes for something else, in any case


def override(key: str, value: str) -> str:
    """key=value as Hydra's grammar takes it, whatever the value holds.

    Raises:
        BadInput: ???, which stands for a value that is missing and cannot be written in another way.
    """
    if value == "???":
        raise BadInput(f"{key}=??? is how a configuration says that a value is missing. Name it in another way: ./???.")
    if PLAIN.fullmatch(value) and value.lower() not in NO_WORDS:
        return f"{key}={value}"
    quoted = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)  # which would be an interpolation
    quoted = re.sub(r'(\\*)"', r'\1\1\\"', quoted)
    quoted = re.sub(r"(\\+)$", r"\1\1", quoted)
    return f'{key}="{quoted}"'
