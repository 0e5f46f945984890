"""Text that is safe to print on a terminal."""


def escape_text(text: str) -> str:
    r"""Return the text with control characters, escape sequences and lone surrogates escaped.

    >>> escape_text("café \x1b[2J")
    'café \\x1b[2J'
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shorten(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters; a longer one ends with an ellipsis.

    >>> shorten("anticonstitutionally", 9)
    'anticons…'
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"
