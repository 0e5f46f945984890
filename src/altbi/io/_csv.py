"""CSV files and folders of CSV files: dialects, column names, and values as texts."""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import pyarrow as pa
import pyarrow.csv as pacsv

from altbi.errors import ParameterError, TableError, escape_text
from altbi.io._files import (
    Block,
    CompressedFile,
    describe_cause,
    detect_compression,
    detect_encoding,
    read_utf8,
    split_lines,
)
from altbi.io._source import Source, check_names, format_names, split_batch

_HEAD_BYTES = 1 << 20
_START_BYTES = 16
_DELIMITERS = (",", "\t", ";", "|")
_NAMED = {"tab": "\t", "\\t": "\t", "space": " "}
_HEAD_RECORDS = 500
_EDGE = rb"[,;\t|\r\n]"
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+|inf(inity)?)(e[+-]?\d+)?\s*%?\s*", re.I)
_DATE = re.compile(r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})\b.*")
_MISSING = re.compile(r"\s*(nan|na|n/a|null|none|[?.-])\s*", re.I)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""The delimiter, quotes, escapes and newlines of one CSV file; its data is passed as UTF-8.

    >>> Dialect(",").find_end(b'1,"a\nb"\n2,"c\n')
    8
    """

    delimiter: str
    quote: str = '"'  # encloses delimiters and newlines; doubled quotes stand for one quote
    escape: bool = False  # whether a backslash makes the next letter an ordinary one
    newline: bytes = b"\n"  # the last byte of a line

    def find_end(self, data: bytes) -> int:
        """Return the position after the last complete record; 0 if there is none.

        The data must start with a record. Newlines inside quotes do not end a record.
        """
        if self.quote.encode() not in data and not (self.escape and b"\\" in data):
            return data.rfind(self.newline) + 1
        records = _build_patterns(self).records.match(data)
        return records.end() if records else 0

    def first_record(self, data: bytes) -> bytes:
        """Return the first record with its newline; all data if no record is complete."""
        first = _build_patterns(self).record.match(data)
        return first.group() if first else data

    def count_values(self, data: bytes) -> Iterator[int]:
        """Yield the number of values of each record that is not blank.

        A last record without a newline counts. It stops early at a quote that is never closed.
        """
        start = width = 0
        field = _build_patterns(self).field
        while start < len(data) and (match := field.match(data, start)):
            width += 1
            if match["end"] != self.delimiter.encode():
                if width > 1 or match.end() - start > len(match["end"]):
                    yield width
                width = 0
            start = match.end()


def detect_dialect(head: bytes, delimiter: str | None = None) -> Dialect:
    r"""Return the dialect that the first lines of a file, as UTF-8, show.

    `delimiter` overrides the detected one; if it is invalid, it raises a `ParameterError`. The
    newline is ``\n`` if there is one, else ``\r``. Backslashes are escapes only if one precedes a
    quote inside of a value.

    >>> detect_dialect(b"a;b\n1,5;2,5\n").delimiter
    ';'
    """
    newline = b"\n" if b"\n" in head else b"\r"
    quote = _find_quote(head)
    # A backslash escapes the next letter if it precedes a quote inside of a value.
    inner_quote = quote.encode() + rb"(?![,;\t|\r\n" + quote.encode() + rb"]|\Z)"
    escape = re.search(rb"\\" + inner_quote, head) is not None
    if delimiter is not None:
        return Dialect(_parse_delimiter(delimiter), quote, escape, newline)
    return Dialect(_find_delimiter(head, quote, escape), quote, escape, newline)


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Regular expressions of a dialect for one value, one record, and all complete records."""

    field: re.Pattern[bytes]
    record: re.Pattern[bytes]
    records: re.Pattern[bytes]


@functools.lru_cache(maxsize=64)
def _build_patterns(dialect: Dialect) -> _Patterns:
    """Build the regular expressions of a dialect, cached.

    They never backtrack, so that matching time is linear in the length of the data.
    """
    d, q = (re.escape(letter.encode()) for letter in (dialect.delimiter, dialect.quote))
    slash = rb"\\" if dialect.escape else b""
    escaped = rb"|\\." if dialect.escape else b""
    bare = rb"(?:[^%b\r\n%b]++%b)*+" % (d, slash, escaped)
    inner = rb"(?:[^%b%b]++|%b%b%b)*+" % (q, slash, q, q, escaped)
    # A value that starts with a quote must end with one; otherwise the record is incomplete.
    cell = rb"(?:%b%b%b%b|(?!%b)%b)" % (q, inner, q, bare, q, bare)
    end = rb"(?:\r\n?|\n)"
    record = rb"(?:%b%b)*+%b%b" % (cell, d, cell, end)
    return _Patterns(
        field=re.compile(rb"%b(?P<end>%b|%b|\Z)" % (cell, d, end), re.DOTALL),
        record=re.compile(record, re.DOTALL),
        records=re.compile(rb"(?:%b)*+" % record, re.DOTALL),
    )


def _parse_delimiter(delimiter: str) -> str:
    r"""Return a delimiter as one character; "tab", "\t" and "space" are accepted as names.

    A quote, a backslash, a newline and anything but one ASCII character raise a `ParameterError`.
    """
    letter = _NAMED.get(delimiter, delimiter)
    if len(letter) != 1 or not letter.isascii() or letter in "\r\n\"'\\\0":
        raise ParameterError(
            f"delimiter={delimiter!r}, but expected one letter such as ',' or ';', or 'tab'."
        )
    return letter


def _find_quote(head: bytes) -> str:
    """Return the quote character of a file: a double quote or an apostrophe.

    It is the apostrophe only if no value starts with a double quote. In addition, some values must
    start with an apostrophe, and all of these must end with one.
    """
    before = rb"(?:\A|(?<=%b))" % _EDGE
    if re.search(before + rb'"', head):
        return '"'
    opened = len(re.findall(before + rb"'", head))
    closed = len(re.findall(before + rb"'(?:[^'\r\n]|'')*+'(?=%b|\Z)" % _EDGE, head))
    return "'" if opened == closed > 0 else '"'


def _find_delimiter(head: bytes, quote: str, escape: bool) -> str:
    """Return the comma, tab, semicolon or bar that splits most records into equally many values.

    It must split at least half of the first 500 records into the same number of values, above one;
    the default is the comma. Ties go to the delimiter with more values. A comma loses against an
    equally consistent delimiter if commas are decimal.
    """
    ranks: dict[str, tuple[float, int]] = {}
    for delimiter in _DELIMITERS:
        widths = list(
            itertools.islice(Dialect(delimiter, quote, escape).count_values(head), _HEAD_RECORDS)
        )
        width, times = Counter(widths).most_common(1)[0] if widths else (1, 0)
        if width > 1 and 2 * times >= len(widths):
            ranks[delimiter] = (times / len(widths), width)
    best = max(ranks, key=lambda delimiter: ranks[delimiter], default=",")
    rivals = {other: rank for other, rank in ranks.items() if rank[0] >= ranks[best][0]}
    if best == "," and len(rivals) > 1 and _has_decimal_commas(head):
        del rivals[","]
        return max(rivals, key=lambda delimiter: rivals[delimiter])
    return best


def _has_decimal_commas(head: bytes) -> bool:
    """Return whether more than 90% of the commas stand between two digits, as in 1,5;2,5."""
    return 10 * len(re.findall(rb"(?<=\d),(?=\d)", head)) > 9 * head.count(b",")


@dataclass(frozen=True, slots=True)
class Columns:
    """The column names, whether the first line holds them, and notes about assumptions."""

    names: list[str]
    header: bool
    notes: list[str] = field(default_factory=list)


def name_columns(cells: Sequence[str], header: bool | None, where: str) -> Columns:
    """Return the names of the columns, given the values of the first line.

    `header` is whether the line holds names. None detects it: a line of numbers, also with missing
    values, is a row, unless it counts 0, 1, 2, … Columns without a header are called x0, x1, ...;
    an empty name becomes ``unnamed_`` and its number, counted from 1. Assumptions are noted.
    Duplicate names raise a `TableError`.

    >>> name_columns(["price", ""], None, "a.csv").names
    ['price', 'unnamed_2']
    >>> name_columns(["1.5", "2"], None, "a.csv").names
    ['x0', 'x1']
    """
    generated = [f"x{index}" for index in range(len(cells))]
    if header is False:
        return Columns(generated, header=False)
    filled = [cell for cell in cells if cell.strip() and not _MISSING.fullmatch(cell)]
    if header is None and filled and all(map(_NUMBER.fullmatch, filled)):
        if not _is_counting_header(filled):
            note = f"The first line of {where} holds numbers only, so it was read as a row"
            return Columns(generated, header=False, notes=[f"{note}: the columns are x0, x1, …"])
        note = f"The first line of {where} counts 0, 1, 2, …, so it was read as names of columns."
        return _use_header(cells, where, [note])
    values = [cell for cell in filled if _NUMBER.fullmatch(cell) or _DATE.fullmatch(cell)]
    is_ambiguous = header is None and values
    return _use_header(cells, where, [_describe_ambiguity(values, where)] if is_ambiguous else [])


def _describe_ambiguity(values: Sequence[str], where: str) -> str:
    """Return the note that names in the header look like values; at most five are quoted."""
    more = ", …" if len(values) > _SHOWN else ""
    return (
        f"The first line of {where} was read as names of columns, among them "
        f"{', '.join(map(repr, values[:_SHOWN]))}{more}. If it is a row, pass --no-header; if not, "
        "pass --header."
    )


def _use_header(cells: Sequence[str], where: str, notes: list[str]) -> Columns:
    """Return the cells as column names; empty ones become ``unnamed_1``, ..., counted from 1.

    A note that lists these follows `notes`. Duplicate names raise a `TableError`.
    """
    names = [
        cell if cell.strip() else f"unnamed_{index}" for index, cell in enumerate(cells, start=1)
    ]
    new = [name for name, cell in zip(names, cells, strict=True) if name != cell]
    if new:
        more = ", …" if len(new) > _SHOWN else ""
        notes = [*notes, f"Columns of {where} without a name are {', '.join(new[:_SHOWN])}{more}."]
    check_names(names, where)
    return Columns(names, header=True, notes=notes)


def _is_counting_header(cells: Sequence[str]) -> bool:
    """Return whether the cells are 0, 1, 2, …, the header that pandas writes without names.

    A single cell is not enough.
    """
    return len(cells) > 1 and list(cells) == [str(index) for index in range(len(cells))]


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
        encoding: str,
        dialect: Dialect,
        names: Sequence[str],
        *,
        header: bool,
    ) -> None:
        self.name = packed.name
        self.paths = (packed.path,)
        self.schema = pa.schema([(name, pa.string()) for name in names])
        self.notes = []
        self._packed = packed
        self._encoding = encoding
        self._dialect = dialect
        self._header = header

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns as text, block by block; missing values are texts as well.

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
        for block in itertools.chain([first] if first else [], blocks):
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

    The `name` of each file is set to that of the folder, because it is a partition of this source.
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

    A delimiter or header of None is detected. The source has `notes`, and notes about the header.
    A file without rows and duplicate names raise a `TableError`, an invalid delimiter a
    `ParameterError`.
    """
    dialect = detect_dialect(_read_head(packed, encoding), delimiter)
    first = next(_read_blocks(packed, encoding, dialect), None)
    if first is None:
        raise _NoRowsError(f"{packed.where}: it holds no rows. Expected lines with cells.")
    columns = name_columns(_parse_first_record(packed, dialect, first), header, packed.where)
    source = CsvSource(packed, encoding, dialect, columns.names, header=columns.header)
    source.notes = notes + columns.notes
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
    return CsvSource(packed, first._encoding, first._dialect, names, header=first._header)


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

    `name` is the folder in messages. Options that are None are detected. Files with other columns,
    and a folder without rows, raise a `TableError`.
    """
    base = Path(folder).resolve()
    files = []
    for path in paths:
        with Path(path).open("rb") as file:
            start = file.read(_START_BYTES)
        in_messages = str(Path(name, Path(path).relative_to(base)))
        files.append(detect_compression(path, in_messages, start)[0])
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
    """Yield blocks of complete records as UTF-8; blank lines before the first are skipped.

    The last record needs no newline. Invalid bytes, a quote that is never closed and a record of
    more than `LINE_BYTES` bytes raise a `TableError`.
    """
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
    names = [str(index) for index in range(next(dialect.count_values(record), 1))]
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
    """Parse complete records, without a header, to a table with the columns `wanted` as text.

    `names` are the names of all columns. `collect` is called for records with another number of
    values, and returns "skip" or "error". Arrow's errors are not converted.
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
