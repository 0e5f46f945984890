"""Text and numbers for people: safe to print on a terminal, and short."""

import math


def escape_text(text: str) -> str:
    r"""Return the text with all characters that are not printable replaced by Python escapes.

    This includes newlines, terminal escape sequences and lone surrogates.

    >>> escape_text("café \x1b[2J")
    'café \\x1b[2J'
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shorten(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters; a longer text is cut and ends with "…".

    >>> shorten("anticonstitutionally", 9)
    'anticons…'
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"


def format_number(value: float, digits: int = 6) -> str:
    """Format a number with this many significant digits; integers in full.

    Digits before the decimal point are never replaced by zeros. Numbers from 10**15 on, or below
    0.0001, have an exponent. Infinity and NaN become "inf" and "nan".

    >>> format_number(1234567.0), format_number(0.123456789), format_number(98765.4321, 4)
    ('1234567', '0.123457', '98765')
    >>> format_number(1719.53, 4), format_number(0.25)
    ('1720', '0.25')
    """
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 10**15 or 0 < abs(value) < 1e-4:
        return f"{value:.{digits}g}"
    if value == int(value) or abs(value) >= 10**digits:
        return str(round(value))
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
