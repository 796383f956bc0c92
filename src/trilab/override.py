"""A key and a value → a word of a command line."""

import re


def override(key: str, value: str) -> str:
    """key=value as Hydra's grammar takes it, whatever the value holds."""
    if re.fullmatch(r"[\w./-]+", value, re.ASCII) and not re.fullmatch(r"(?i)null|true|false|[\d.e+-]+", value):
        return f"{key}={value}"
    quoted = re.sub(r'(\\*)"', r'\1\1\\"', value.replace("${", r"\${"))  # which would be an interpolation
    quoted = re.sub(r"(\\+)$", r"\1\1", quoted)
    return f'{key}="{quoted}"'
