"""Text that a terminal can show without acting on it."""

__all__ = ["printable", "shortened"]


def printable(text: str) -> str:
    r"""Escape what a terminal would act on: control characters, escape sequences, half characters.

    >>> printable("café \x1b[2J")
    'café \\x1b[2J'
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shortened(text: str, width: int) -> str:
    """Cut a text that is too long, and show that it was cut.

    >>> shortened("anticonstitutionally", 9)
    'anticons…'
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"
