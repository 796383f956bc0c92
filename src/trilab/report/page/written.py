"""Numbers and text as they stand on the page: rounded, with real minus signs, fit for any UTF-8 file."""

import math
import re
from collections.abc import Sequence

MINUS = "\N{MINUS SIGN}"
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\ufffe\uffff]")
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def text(content: str) -> str:
    """Text with whatever a file, or a reader, cannot bear made visible: control characters, lone surrogates."""
    return _UNWRITABLE.sub(_visible, content)


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the pictures of control characters
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"


def shortened(name: str, length: int = 24) -> str:
    """A name that fits beside a line."""
    return name if len(name) <= length else f"{name[: length - 1]}…"


def loss(nats: float, digits: int = 4) -> str:
    """2.4600; what is too large or too small for that, with an exponent."""
    if nats != 0 and not 10**-digits <= abs(nats) < 1e5:
        return signless(f"{nats:.2e}")
    return signless(f"{nats:.{digits}f}")


def difference(nats: float) -> str:
    """+0.0123, −0.0123."""
    if nats == 0:
        return "0"
    return f"{'+' if nats > 0 else MINUS}{loss(abs(nats))}"


def p_value(p: float) -> str:
    """0.012, or < 0.001."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def count(whole: float) -> str:
    """4,545."""
    return f"{whole:,.0f}" if abs(whole) < 1e12 else f"{whole:.2e}"


def short(amount: float) -> str:
    """4.5k, 1.2G: three significant digits."""
    if amount == 0 or not 1e-3 <= abs(amount) < 1e21:
        return signless(f"{amount:.3g}")
    if abs(amount) < 1:
        return signless(f"{amount:.2g}")
    step = min(int(math.log10(abs(amount)) // 3), len(_PREFIXES) - 1)
    digits = f"{amount / 1000**step:.3g}"
    if digits.lstrip("-") == "1e+03":
        step, digits = step + 1, digits.replace("1e+03", "1")
    return f"{signless(digits)}{_PREFIXES[step] if step < len(_PREFIXES) else 'Z'}"


def share(part: float) -> str:
    """99.8 %."""
    return f"{100 * part:.1f} %"


def seconds(duration: float) -> str:
    """11.6 s, 3 min 20 s, 2 h 05 min."""
    if duration < 100:
        return f"{duration:.3g} s"
    whole = round(duration)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


def signless(digits: str) -> str:
    """Digits with a real minus sign in place of the hyphen."""
    return digits.replace("-", MINUS)


def listed(names: Sequence[str], most: int = 6) -> str:
    """a, b and c."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def counted(number: int, noun: str, many: str | None = None) -> str:
    """1 seed, 3 seeds."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"
