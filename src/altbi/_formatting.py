"""Format numbers for people."""

import math


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
