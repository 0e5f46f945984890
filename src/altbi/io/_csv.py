"""CSV files, parsed by DuckDB; all values are texts."""

import codecs
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import final

import pyarrow as pa

from altbi.errors import TableError, quote
from altbi.io._csv_dialect import (
    Layout,
    Record,
    check_number_of_columns,
    detect_dialect,
    find_header,
    name_columns,
)
from altbi.io._csv_python import build_length_error, read_by_python
from altbi.io._duckdb import Database, DuckDBError, open_duckdb, quote_sql
from altbi.io._files import (
    LINE_BYTES,
    describe_cause,
    read_utf8,
    replace_invalid_utf8,
)
from altbi.io._source import Source, split_batch
from altbi.io._text_file import TextFile, TextOptions

_HEAD_BYTES = 1 << 20
_HEAD_RECORDS = 1000
# DuckDB needs seconds to plan a query with more columns, and 32 kB of memory for each of them.
_MAX_DUCKDB_COLUMNS = 4096
_START_BYTES = 1 << 16
_BUFFER_BYTES = 2 * LINE_BYTES  # of each of DuckDB's threads; its default is 32 lines
# Excel writes and reads such a first line.
_SEPARATOR_LINE = re.compile(r'"?sep=([,;|\t])"?[ \t]*(\r\n?|\n)', re.IGNORECASE)
_INVALID_UTF8 = "Invalid unicode"


class NoRowsError(TableError):
    """The error for a CSV file without rows. In a folder, such a file is skipped.

    `names` are the names in its header, or None without one.
    """

    names: list[str] | None = None


@final
class CsvSource(Source):
    """A CSV file, plain or compressed, whose columns are all read as text.

    `file` and `layout` state how it is read.
    """

    format = "csv"
    is_untyped = True

    def __init__(self, file: TextFile, layout: Layout, names: Sequence[str]) -> None:
        self.name = file.packed.name
        self.paths = (file.packed.path,)
        self.schema = pa.schema([(name, pa.string()) for name in names])
        self.notes = []
        self._is_read_by_python = len(names) > _MAX_DUCKDB_COLUMNS and not layout.dialect.escape
        self.file = file
        self.layout = layout

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns as text in record batches; missing values are texts as well.

        Records with another number of values than the header, a quote that is never closed and
        lines of more than `LINE_BYTES` bytes raise a `TableError` with their line. If the file
        turns out not to be UTF-8, a copy is read from there on, and a note is added. Python reads
        on where DuckDB gives up.
        """
        yield from self.read(columns, {})

    def read(
        self, columns: Sequence[str], databases: Mapping[str, tuple[Database, str]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches as `batches` does, with an open database if there is one for the path.

        `databases` has a locked database that may read a file, and the quoted path, by path.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        positions = {name: index for index, name in enumerate(self.schema.names)}
        indices = [positions[name] for name in columns]
        n_read = 0
        while True:
            try:
                for batch in self._read_from(n_read, indices, databases):
                    n_read += len(batch)
                    named = batch.select([])
                    if indices:
                        arrays = batch.columns[: len(indices)]
                        named = pa.RecordBatch.from_arrays(arrays, schema=schema)
                    yield from split_batch(named)
            except DuckDBError as error:
                self._adapt(str(error))
            else:
                return

    @property
    def plain_paths(self) -> tuple[str, ...]:
        """The path of the file if DuckDB reads the file itself, and not a copy of it."""
        return () if self.file.is_copied else self.paths

    def partitions(self, max_rows: int) -> Sequence[Source]:
        """Return this source as the only partition, after checking the encoding of the whole file.

        Workers would not pass on the note about another encoding.
        """
        if not self.file.is_copied and not self.file.is_stated:
            self._use_fallback_encoding()
        return [self]

    def _read_from(
        self, offset: int, indices: Sequence[int], databases: Mapping[str, tuple[Database, str]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns with these indices, at least one, from the row `offset` on.

        Errors are DuckDB's, unless Python reads the file.
        """
        if self._is_read_by_python:
            width = len(self.schema.names)
            batches = read_by_python(self.file, self.layout, width, indices or [0], self.notes)
            yield from _skip_rows(batches, offset)
            return
        self._check_last_line()
        with open_databases([self.file.path], databases) as opened:
            database, path = opened[self.file.path]
            query = f"{self._describe_query(path, indices or [0])} OFFSET {offset}"
            batches = database.batches(query, self.layout.row_bytes)
            if offset == 0:
                batches = self._check_first_row(batches, indices)
            yield from batches

    def _describe_query(self, path: str, indices: Sequence[int]) -> str:
        """Return the query for the columns with these indices of the file with a quoted path."""
        selected = ", ".join(f"coalesce(c{index}, '')" for index in indices)
        # A blank line of a file with one column is no row; an empty value is quoted there.
        where = "WHERE c0 IS NOT NULL" if len(self.schema.names) == 1 else ""
        return f"SELECT {selected} FROM {self._describe_table(path)} {where}"

    def _describe_table(self, path: str) -> str:
        """Return DuckDB's table function that reads a quoted path as this file.

        Columns have generated names, because DuckDB's names do not distinguish upper and lower
        case.
        """
        dialect, n_columns = self.layout.dialect, len(self.schema.names)
        columns = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(n_columns))
        escape = "\\" if dialect.escape else dialect.quote
        return (
            f"read_csv({path}, auto_detect = false, header = false, columns = {{{columns}}}, "
            f"skip = {self.layout.n_lines + self.layout.n_records}, "
            f"delim = {quote_sql(dialect.delimiter)}, "
            f"quote = {quote_sql(dialect.quote)}, escape = {quote_sql(escape)}, "
            f"max_line_size = {LINE_BYTES}, buffer_size = {_BUFFER_BYTES}, compression = 'none', "
            "allow_quoted_nulls = false, hive_partitioning = false)"
        )

    def _check_first_row(
        self, batches: Iterator[pa.RecordBatch], indices: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield all batches; raise a `DuckDBError` if the first row is not that of the file's head.

        DuckDB skips another number of records if quotes in them are not closed properly. Quotes,
        escapes and spaces are ignored in the comparison.
        """
        expected = self.layout.first_row
        first = next(batches, None)
        if expected is not None and len(expected) == len(self.schema.names):
            found = [] if first is None else [column[0].as_py() for column in first.columns]
            if list(map(_simplify, found)) != [_simplify(expected[i]) for i in indices or [0]]:
                raise DuckDBError("another first row")
        if first is not None:
            yield first
        yield from batches

    def _adapt(self, error: str) -> None:
        """Change how the file is read after an error of DuckDB: its encoding, or by Python.

        A note about the encoding is added. Files that are partly UTF-8 raise a `TableError`.
        """
        if _INVALID_UTF8 in error and not self.file.is_copied and not self.file.is_stated:
            self._use_fallback_encoding()
            self._is_read_by_python = not self.file.is_copied
            return
        if self.layout.dialect.escape:
            # Python's backslashes escape letters outside of quotes as well.
            raise TableError(
                f"{self.file.packed.where}: it cannot be read as CSV with backslashes before "
                f"quotes ({describe_cause(error)}). Double the quotes inside of values instead."
            )
        self._is_read_by_python = True

    def _use_fallback_encoding(self) -> None:
        """Read the file in another encoding from now on if it is not valid UTF-8.

        A note is added. Files that are partly UTF-8 raise a `TableError`.
        """
        encoding, notes = replace_invalid_utf8(self.file.packed, self.file.encoding)
        self.notes += notes
        self.file = self.file.with_encoding(encoding)

    def _check_last_line(self) -> None:
        """Raise a `TableError` if the last line is longer than `LINE_BYTES`.

        DuckDB drops such a line without an error, if no line follows.
        """
        with Path(self.file.path).open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            end = b""
            while len(end) < min(size, LINE_BYTES):
                end_size = min(max(2 * len(end), _START_BYTES), size)
                file.seek(size - end_size)
                end = file.read(end_size)
                if end.rstrip(b"\r\n").rfind(b"\n") >= 0 or b"\r" in end.rstrip(b"\r\n"):
                    return
        if size > LINE_BYTES:
            raise build_length_error(f"{self.file.packed.where}: the last line")


@contextmanager
def open_databases(
    paths: Sequence[str], databases: Mapping[str, tuple[Database, str]]
) -> Iterator[Mapping[str, tuple[Database, str]]]:
    """Yield a database that may read some files, and the quoted path, by path.

    If `databases` has all of them, they are used. Otherwise one is opened for all `paths`.
    """
    if all(path in databases for path in paths):
        yield databases
        return
    with open_duckdb() as database:
        quoted = {path: database.quote_path(path) for path in paths}
        database.lock(quoted.values())
        yield {path: (database, each) for path, each in quoted.items()}


def _skip_rows(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches without the first rows."""
    for batch in batches:
        if n_rows < len(batch):
            yield batch.slice(n_rows)
        n_rows = max(n_rows - len(batch), 0)


def _simplify(text: str) -> str:
    """Return a text without quotes, backslashes and white space."""
    return re.sub(r"[\s\"'\\]", "", text)


def open_csv(file: TextFile, notes: list[str], options: TextOptions) -> CsvSource:
    """Open a CSV file; its first lines show the dialect, title lines and columns.

    The source has `notes`, and notes about title lines and the header. A file without rows and
    duplicate names raise a `TableError`, an invalid delimiter a `ParameterError`.
    """
    where, finds_titles = file.packed.where, options.skip is None
    head, is_complete = _read_head(file)
    options, notes = _use_separator_line(where, head, options, notes)
    head = _skip_lines(head, options.skip or 0)
    if not head and not is_complete:
        raise _build_skip_error(where, options.skip or 0)
    dialect = detect_dialect(head, options.delimiter)
    records, is_split = dialect.split_head(head, _HEAD_RECORDS)
    is_complete = is_complete and is_split
    filled = (index for index, record in enumerate(records) if record)
    start = find_header(records, options.header) if finds_titles else next(filled, None)
    if start is None:
        raise _explain_no_records(file, head, is_complete)
    columns = name_columns(records[start], options.header, where)
    n_records = start + columns.header
    rows = [record for record in records[n_records:] if record]
    if not rows and is_complete and len(records) < _HEAD_RECORDS:
        error = NoRowsError(
            f"{where}: it holds no rows, only the line with the names of the columns. "
            "If that line is a row, pass --no-header."
        )
        error.names = columns.names
        raise error
    layout = Layout(
        dialect,
        options.skip or 0,
        n_records,
        columns.header,
        rows[0] if rows else None,
        len(head) // max(head.count("\n"), 1),
    )
    source = CsvSource(file, layout, columns.names)
    source.notes = [*notes, *_describe_titles(records[:start], where), *columns.notes]
    return source


def _use_separator_line(
    where: str, head: str, options: TextOptions, notes: list[str]
) -> tuple[TextOptions, list[str]]:
    """Return the options and notes with those of a first line such as ``sep=;``, if any."""
    separator = _SEPARATOR_LINE.match(head) if options.skip is None else None
    if separator is None:
        return options, notes
    note = f"The first line of {where} states the delimiter: {separator[0].strip()}."
    delimiter = options.delimiter or separator[1]
    return replace(options, delimiter=delimiter, skip=1), [*notes, note]


def _explain_no_records(file: TextFile, head: str, is_complete: bool) -> TableError:
    """Return the error for a file in whose head no record was found."""
    where = file.packed.where
    if is_complete and not head.strip("\r\n"):
        return NoRowsError(f"{where}: it holds no rows. Expected lines with cells.")
    check_number_of_columns(max(head.count(each) for each in ",;\t|") + 1, where)
    return TableError(
        f"{where}: its first line has a value of more than 131,072 letters, or a quote that is "
        "never closed. Shorten the value, or close the quote."
    )


def _describe_titles(records: Sequence[Record], where: str) -> Iterator[str]:
    """Yield a note about the title lines that were skipped above the header."""
    titles = [" ".join(filter(None, record)) for record in records if record]
    if titles:
        yield (
            f"{len(titles)} line(s) above the table in {where} were skipped, the first of them "
            f"{quote(titles[0])}. If they are rows, pass --skip 0."
        )


def _read_head(file: TextFile) -> tuple[str, bool]:
    """Return the first complete lines of a file, and whether they are the whole file.

    They have about `_HEAD_BYTES` bytes. If the first line is longer, it is returned alone; a first
    line of more than `LINE_BYTES` bytes raises a `TableError`. Invalid UTF-8 is replaced here.
    """
    pieces = read_utf8(file.packed, file.encoding)
    head = b""
    for piece in pieces:
        head += piece
        has_line = b"\n" in head or b"\r" in head
        if len(head) > (_HEAD_BYTES if has_line else LINE_BYTES):
            break
    else:
        return head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace"), True
    if not has_line:
        raise TableError(
            f"{file.packed.where}: line 1 is longer than {LINE_BYTES >> 20} MiB. Write the "
            "file with line breaks, or pass its right --input-format."
        )
    size = max(
        _HEAD_BYTES, min(position + 1 for letter in b"\r\n" if (position := head.find(letter)) >= 0)
    )
    head = head[:size]
    end = max(head.rfind(b"\n"), head.rfind(b"\r")) + 1
    return head[:end].removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace"), False


def _build_skip_error(where: str, n_lines: int) -> TableError:
    """Return the error for more lines to skip than the head of a file has."""
    return TableError(
        f"{where}: the {n_lines} lines to skip have more than {_HEAD_BYTES >> 20} MiB. Remove them "
        "from the file."
    )


def _skip_lines(text: str, n_lines: int) -> str:
    r"""Return a text without its first lines; a line ends with ``\n``, ``\r\n`` or ``\r``."""
    ends = itertools.islice(re.finditer(r"\r\n|\n|\r|\Z", text), n_lines)
    return text[max((end.end() for end in ends), default=0) :]
