"""Tables of texts, as plain text or as Markdown."""

from collections.abc import Sequence

__all__ = ["markdown_grid", "plain_grid"]


def markdown_grid(rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """Format a Markdown table; with numbers, all columns but the first are aligned to the right.

    >>> print(markdown_grid([["a", "b"], ["x", "1"]]))
    | a | b |
    | --- | ---: |
    | x | 1 |
    """
    rule = ["---", *["---:" if numbers else "---"] * (len(rows[0]) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def plain_grid(rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """Format a plain table; with numbers, all columns but the first are aligned to the right.

    >>> print(plain_grid([["a", "b"], ["x", "10"]]))
    a   b
    x  10
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def align(row: Sequence[str]) -> str:
        rest = [
            cell.rjust(width) if numbers else cell.ljust(width)
            for cell, width in zip(row[1:], widths[1:], strict=True)
        ]
        return "  ".join([row[0].ljust(widths[0]), *rest]).rstrip()

    return "\n".join(map(align, rows))
