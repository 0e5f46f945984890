"""CSV files and folders of CSV files; every value is read as text."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import final

import pyarrow as pa
import pyarrow.csv as pacsv

from altbi.errors import TableError, escape_text
from altbi.io._csv_dialect import Dialect, detect_dialect, name_columns
from altbi.io._files import (
    Block,
    CompressedFile,
    describe_cause,
    detect_compression,
    detect_encoding,
    read_utf8,
    split_lines,
)
from altbi.io._source import Source, format_names, split_batch

_HEAD_BYTES = 1 << 20
_START_BYTES = 16


class _NoRowsError(TableError):
    """The error for a CSV file without rows. In a folder, such a file is skipped."""


@final
class CsvSource(Source):
    """A CSV file, plain or compressed, whose columns are all read as text.

    `header` is True if the first record holds the column names.
    """

    format = "csv"
    is_untyped = True

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
        """Yield these columns as text, block by block.

        Records with another number of values than the first one raise a `TableError`.
        """
        wanted = list(columns)
        for block in self.body():
            for batch in self._parse_block(block, wanted).select(wanted).to_batches():
                yield from split_batch(batch)

    def body(self) -> Iterator[Block]:
        """Yield blocks of complete records without the header; blank blocks are skipped."""
        blocks = _read_blocks(self._packed, self._encoding, self._dialect)
        first = next(blocks, None)
        if first is not None and self._header:
            record = self._dialect.first_record(first.data)
            first = _remove_start(first, len(record), self._dialect)
        for block in chain([first] if first else [], blocks):
            if block.data.strip(b"\r\n"):
                yield block

    def _parse_block(self, block: Block, wanted: list[str]) -> pa.Table:
        """Parse a block to a table of text columns; invalid records raise a `TableError`.

        If `wanted` is empty, the first column is returned, so that the rows can be counted.
        """
        bad: list[pacsv.InvalidRow] = []

        def collect(row: pacsv.InvalidRow) -> str:
            """Store an invalid record for the error message, and let Arrow raise an error."""
            bad.append(row)
            return "error"

        # Arrow would read all columns for an empty list.
        some = wanted or self.schema.names[:1]
        try:
            return _parse_records(block.data, self._dialect, self.schema.names, some, collect)
        except (pa.ArrowException, UnicodeError) as cause:
            raise self._build_error(block, bad, cause) from cause

    def _build_error(
        self, block: Block, bad: list[pacsv.InvalidRow], cause: BaseException
    ) -> TableError:
        """Return the error for a block that Arrow cannot parse.

        It names the line of the first record in `bad`; without one, the first line of the block.
        """
        where, newline = self._packed.where, self._dialect.newline
        if not bad:
            return TableError(f"{where}: the lines from {block.line} on: {describe_cause(cause)}.")
        # Arrow numbers records, but not lines: quoted values may hold newlines. So the text of the
        # record is searched in the block.
        text = bad[0].text.encode()
        position = 0 if block.data.startswith(text) else block.data.find(newline + text) + 1
        line = block.line + block.data.count(newline, 0, position)
        return TableError(
            f"{where}: line {line} has {bad[0].actual_columns} cells, but expected "
            f"{bad[0].expected_columns} as in the first line. Put quotes around the cells that "
            f"hold the delimiter {self._dialect.delimiter!r}, or pass the right --delimiter."
        )


@final
class CsvFolder(Source):
    """The rows of several CSV files with the same columns, read one file after the other.

    Each file is renamed to the folder's name in messages, because it is a partition of this source.
    """

    format = "csv"
    is_untyped = True

    def __init__(self, name: str, files: Sequence[CsvSource], notes: list[str]) -> None:
        self.name = name
        self.paths = tuple(path for file in files for path in file.paths)
        self.schema = files[0].schema
        self.notes = notes
        self._files = files
        for file in files:
            file.name = name

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns as text, file by file."""
        for file in self._files:
            yield from file.batches(columns)

    def partitions(self, max_rows: int) -> Sequence[Source]:
        """Return one source per file; files are not divided, so `max_rows` is ignored."""
        return self._files


def open_csv(
    packed: CompressedFile,
    encoding: str,
    notes: list[str],
    *,
    delimiter: str | None = None,
    header: bool | None = None,
) -> CsvSource:
    """Open a CSV file; its first lines show the dialect and the columns.

    `notes` is extended by assumptions about the header. A delimiter or header of None is detected.
    A file without rows raises a `TableError`.
    """
    dialect = detect_dialect(_read_head(packed, encoding), delimiter)
    first = next(_read_blocks(packed, encoding, dialect), None)
    if first is None:
        raise _NoRowsError(f"{packed.where}: it holds no rows. Expected lines with cells.")
    columns = name_columns(_parse_first_record(packed, dialect, first), header, packed.where)
    source = CsvSource(
        packed,
        encoding=encoding,
        dialect=dialect,
        names=columns.names,
        header=columns.header,
        notes=notes + columns.notes,
    )
    if next(source.body(), None) is None:
        raise _NoRowsError(
            f"{packed.where}: it holds no rows, only the line with the names of the columns. "
            "If that line is a row, pass --no-header."
        )
    return source


def _open_like(first: CsvSource, packed: CompressedFile) -> CsvSource:
    """Open another file of a folder with the encoding, dialect and columns of the first one.

    Other columns raise a `TableError`. A file without rows is accepted.
    """
    record = next(_read_blocks(packed, first._encoding, first._dialect), None)
    names = first.schema.names
    if record is not None:
        cells = _parse_first_record(packed, first._dialect, record)
        found = name_columns(cells, first._header, packed.where).names
        if found != names:
            raise TableError(
                f"{packed.where}: its columns are {format_names(found)}, but expected "
                f"{format_names(names)} as in {first._packed.where}. Write the same header into "
                "all files of the folder."
            )
    return CsvSource(
        packed,
        encoding=first._encoding,
        dialect=first._dialect,
        names=names,
        header=first._header,
        notes=[],
    )


def open_csv_folder(
    folder: str,
    name: str,
    paths: Sequence[str],
    *,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> CsvFolder:
    """Open CSV files with the encoding, dialect and columns of the first file with rows.

    Options that are None are detected. Files with other columns, and a folder without rows, raise a
    `TableError`.
    """
    base = Path(folder).resolve()
    files = [
        _read_compression(path, str(Path(name, Path(path).relative_to(base)))) for path in paths
    ]
    for packed in files:
        with packed.open() as stream:
            head = stream.read(_HEAD_BYTES)
        detected, notes = detect_encoding(packed, head, encoding)
        try:
            first = open_csv(packed, detected, notes, delimiter=delimiter, header=header)
        except _NoRowsError:
            continue
        sources = [first if file == packed else _open_like(first, file) for file in files]
        return CsvFolder(name, sources, first.notes)
    raise TableError(f"{escape_text(name)}: none of its {len(files)} CSV files holds a row.")


def _read_compression(path: str, name: str) -> CompressedFile:
    """Read the first bytes of a file, and return the file with the detected compression."""
    with Path(path).open("rb") as file:
        start = file.read(_START_BYTES)
    packed, _ = detect_compression(path, name, start)
    return packed


def _read_head(packed: CompressedFile, encoding: str) -> bytes:
    """Return the first complete lines as UTF-8, at most `_HEAD_BYTES` bytes.

    If the first line is longer, its start is returned.
    """
    pieces = read_utf8(packed, encoding)
    head = b""
    while len(head) <= _HEAD_BYTES and (piece := next(pieces, None)) is not None:
        head += piece
    if len(head) <= _HEAD_BYTES:
        return head
    head = head[:_HEAD_BYTES]
    return head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1] or head


def _read_blocks(packed: CompressedFile, encoding: str, dialect: Dialect) -> Iterator[Block]:
    """Yield blocks of complete records; blank lines before the first record are skipped."""
    pieces = read_utf8(packed, encoding)
    started = False
    for block in split_lines(pieces, dialect.find_end, packed.where, dialect.newline):
        blank = len(block.data) - len(block.data.lstrip(b"\r\n"))
        remaining = block if started else _remove_start(block, blank, dialect)
        if not remaining.data:
            continue
        started = True
        yield remaining


def _remove_start(block: Block, start: int, dialect: Dialect) -> Block:
    """Return a block without its first `start` bytes; its line number is adjusted."""
    return Block(block.data[start:], block.line + block.data.count(dialect.newline, 0, start))


def _parse_first_record(packed: CompressedFile, dialect: Dialect, block: Block) -> list[str]:
    """Return the values of the first record of a block as texts, or raise a `TableError`."""
    record = dialect.first_record(block.data)
    names = [str(index) for index in range(next(dialect.widths(record), 1))]
    try:
        table = _parse_records(record, dialect, names, names)
    except (pa.ArrowException, UnicodeError) as cause:
        raise TableError(f"{packed.where}: line {block.line}: {describe_cause(cause)}.") from cause
    return [column[0].as_py() for column in table.columns]


def _parse_records(
    data: bytes,
    dialect: Dialect,
    names: list[str],
    wanted: list[str],
    collect: Callable[[pacsv.InvalidRow], str] | None = None,
) -> pa.Table:
    """Parse complete records to a table with the columns `wanted`, all as text.

    `names` are the names of all columns. `collect` is called for records with another number of
    values. Arrow's errors are not converted.
    """
    return pacsv.read_csv(
        pa.BufferReader(data),
        # One block, because Arrow must not split it. No threads, because a thread that holds the
        # handler at the end of the process would abort it.
        read_options=pacsv.ReadOptions(
            column_names=names, block_size=len(data) + 1, use_threads=False
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote,
            escape_char="\\" if dialect.escape else False,
            newlines_in_values=True,
            invalid_row_handler=collect,
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted
        ),
    )
