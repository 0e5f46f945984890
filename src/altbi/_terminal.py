"""Text that is safe to print on a terminal."""


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
