"""CSV: every cell is the text that was written; types are settled later."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import final

import pyarrow as pa
import pyarrow.csv as pacsv

from altbi.errors import TableError
from altbi.io._compressed import CompressedFile, first_line, limited
from altbi.io._csv_dialect import Dialect, detect_dialect
from altbi.io._csv_header import name_columns
from altbi.io._encodings import utf8_pieces
from altbi.io._line_blocks import Block, complete_lines
from altbi.io._source import Source

__all__ = ["CsvSource", "NoRowsError", "open_csv", "open_csv_like"]

_LOOK = 1 << 20
_SHOWN = 10


class NoRowsError(TableError):
    """A file without rows, which may still be one of several."""


@final
class CsvSource(Source):
    """A CSV file.

    Parameters
    ----------
    packed : CompressedFile
        The file.
    encoding : str
        What it is written in.
    dialect : Dialect
        How it is written.
    names : sequence of str
        The columns.
    header : bool
        Whether the first line holds the names.
    notes : list of str
        What was assumed.
    """

    format = "csv"
    loose = True

    def __init__(
        self,
        packed: CompressedFile,
        *,
        encoding: str,
        dialect: Dialect,
        names: Sequence[str],
        header: bool,
        notes: list[str],
    ) -> None:
        self.name = packed.name
        self.paths = (packed.path,)
        self.schema = pa.schema([(name, pa.string()) for name in names])
        self.notes = notes
        self._packed = packed
        self._encoding = encoding
        self._dialect = dialect
        self._header = header

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, block by block."""
        wanted = list(columns)
        for block in self.body():
            for batch in self._parsed(block, wanted).select(wanted).to_batches():
                yield from limited(batch)

    def body(self) -> Iterator[Block]:
        """Read the records below the header; no block is blank."""
        blocks = _blocks(self._packed, self._encoding, self._dialect)
        first = next(blocks, None)
        if first is not None and self._header:
            record = self._dialect.first_record(first.data)
            first = _below(first, len(record), self._dialect)
        for block in chain([first] if first else [], blocks):
            if block.data.strip(b"\r\n"):
                yield block

    def _parsed(self, block: Block, wanted: list[str]) -> pa.Table:
        bad: list[pacsv.InvalidRow] = []

        def refuse(row: pacsv.InvalidRow) -> str:
            bad.append(row)
            return "error"

        # No column at all would mean every column to the reader.
        some = wanted or self.schema.names[:1]
        try:
            return _parse(block.data, self._dialect, self.schema.names, some, refuse)
        except (pa.ArrowException, UnicodeError) as cause:
            raise self._refusal(block, bad, cause) from cause

    def _refusal(
        self, block: Block, bad: list[pacsv.InvalidRow], cause: BaseException
    ) -> TableError:
        where, newline = self._packed.where, self._dialect.newline
        if not bad:
            return TableError(f"{where}: the lines from {block.line} on: {first_line(cause)}.")
        # The row's own text tells its line, since quoted cells may hold newlines.
        text = bad[0].text.encode()
        place = 0 if block.data.startswith(text) else block.data.find(newline + text) + 1
        line = block.line + block.data.count(newline, 0, place)
        return TableError(
            f"{where}: line {line} has {bad[0].actual_columns} cells, but expected "
            f"{bad[0].expected_columns} as in the first line. Put quotes around the cells that "
            f"hold the delimiter {self._dialect.delimiter!r}, or give the right --delimiter."
        )


def open_csv(
    packed: CompressedFile,
    encoding: str,
    notes: list[str],
    *,
    delimiter: str | None = None,
    header: bool | None = None,
) -> CsvSource:
    """Tell dialect and columns of a CSV file by its first lines."""
    dialect = detect_dialect(_head(packed, encoding), delimiter)
    first = next(_blocks(packed, encoding, dialect), None)
    if first is None:
        raise NoRowsError(f"{packed.where}: it holds no rows. Expected lines with cells.")
    columns = name_columns(_cells(packed, dialect, first), header, packed.where)
    source = CsvSource(
        packed,
        encoding=encoding,
        dialect=dialect,
        names=columns.names,
        header=columns.header,
        notes=notes + columns.notes,
    )
    if next(source.body(), None) is None:
        raise NoRowsError(
            f"{packed.where}: it holds no rows, only the line with the names of the columns. "
            "If that line is a row, say that there is no header."
        )
    return source


def open_csv_like(first: CsvSource, packed: CompressedFile) -> CsvSource:
    """Open a further file of a table as its first one; other columns are refused."""
    record = next(_blocks(packed, first._encoding, first._dialect), None)
    names = first.schema.names
    if record is not None:
        cells = _cells(packed, first._dialect, record)
        found = name_columns(cells, first._header, packed.where).names
        if found != names:
            raise TableError(
                f"{packed.where}: its columns are {_some(found)}, but expected {_some(names)} as "
                f"in {first._packed.where}. Give all files of the folder the same first line."
            )
    return CsvSource(
        packed,
        encoding=first._encoding,
        dialect=first._dialect,
        names=names,
        header=first._header,
        notes=[],
    )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown}, … ({len(names)} in all)"


def _head(packed: CompressedFile, encoding: str) -> bytes:
    """Give the first lines as UTF-8, without the one that is cut."""
    pieces = utf8_pieces(packed, encoding)
    head = b""
    while len(head) <= _LOOK and (piece := next(pieces, None)) is not None:
        head += piece
    if len(head) <= _LOOK:
        return head
    head = head[:_LOOK]
    return head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1] or head


def _blocks(packed: CompressedFile, encoding: str, dialect: Dialect) -> Iterator[Block]:
    """Read whole records; the first block starts with one that is not blank."""
    pieces = utf8_pieces(packed, encoding)
    started = False
    for block in complete_lines(pieces, dialect.cut, packed.where, dialect.newline):
        blank = len(block.data) - len(block.data.lstrip(b"\r\n"))
        prefetch = block if started else _below(block, blank, dialect)
        if not prefetch.data:
            continue
        started = True
        yield prefetch


def _below(block: Block, start: int, dialect: Dialect) -> Block:
    return Block(block.data[start:], block.line + block.data.count(dialect.newline, 0, start))


def _cells(packed: CompressedFile, dialect: Dialect, block: Block) -> list[str]:
    """Read the cells of the first record."""
    record = dialect.first_record(block.data)
    places = [str(place) for place in range(next(dialect.widths(record), 1))]
    try:
        table = _parse(record, dialect, places, places)
    except (pa.ArrowException, UnicodeError) as cause:
        raise TableError(f"{packed.where}: line {block.line}: {first_line(cause)}.") from cause
    return [column[0].as_py() for column in table.columns]


def _parse(
    data: bytes,
    dialect: Dialect,
    names: list[str],
    wanted: list[str],
    refuse: Callable[[pacsv.InvalidRow], str] | None = None,
) -> pa.Table:
    """Read records that Arrow is not to cut again."""
    return pacsv.read_csv(
        pa.BufferReader(data),
        # On threads, one of them may still hold the handler when the process ends, and abort it.
        read_options=pacsv.ReadOptions(
            column_names=names, block_size=len(data) + 1, use_threads=False
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote,
            escape_char="\\" if dialect.escape else False,
            newlines_in_values=True,
            invalid_row_handler=refuse,
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted
        ),
    )
