"""CSV files, parsed by Arrow; all values are texts.

DuckDB is not used, because its threads lose rows of files with quotes: where the work of a thread
starts between two letters of a newline, or before a space that precedes a quote.
"""

import codecs
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

import pyarrow as pa
import pyarrow.csv

from altbi._threads import count_threads
from altbi.errors import TableError
from altbi.io._csv_dialect import Layout, describe_dialect, detect_dialect
from altbi.io._csv_header import (
    check_number_of_columns,
    describe_header,
    find_header,
    name_columns,
)
from altbi.io._csv_python import EncodingError, needs_python, normalize, read_by_python
from altbi.io._files import (
    LINE_BYTES,
    read_utf8,
    replace_invalid_utf8,
)
from altbi.io._source import Source, split_batch
from altbi.io._text_file import TextFile, TextOptions

_HEAD_BYTES = 1 << 20
_HEAD_RECORDS = 1000
# Arrow refuses longer lines, which then are read in longer blocks.
_BLOCK_BYTES = 1 << 22
_LONG_LINE = "straddling object"
# Excel writes and reads such a first line.
_SEPARATOR_LINE = re.compile(r'"?sep=([,;|\t])"?[ \t]*(\r\n?|\n)', re.IGNORECASE)
_INVALID_UTF8 = "invalid UTF8"


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
        # Whether Python reads the file instead of Arrow; None if this is not known yet.
        self._is_read_by_python: bool | None = None
        self._block_bytes = _BLOCK_BYTES
        self.file = file
        self.layout = layout

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns as text in record batches; missing values are texts as well.

        Records with another number of values than the header, a quote that is never closed and
        lines of more than `LINE_BYTES` bytes raise a `TableError` with their line. If the file
        turns out not to be UTF-8, a copy is read from there on, and a note is added. Python reads
        files that Arrow may misread, and reads on where Arrow gives up.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        positions = {name: index for index, name in enumerate(self.schema.names)}
        indices = [positions[name] for name in columns]
        n_read = 0
        while True:
            try:
                for batch in self._read_from(n_read, indices or [0]):
                    n_read += len(batch)
                    named = batch.select([])
                    if indices:
                        named = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                    yield from split_batch(named)
            except pa.ArrowInvalid as error:
                self._adapt(str(error))
            except EncodingError:
                if not self._is_utf8_assumed():
                    raise
                self._use_fallback_encoding()
            else:
                return

    def partitions(self, max_rows: int) -> Sequence[Source]:
        """Return this source as the only partition, after checking the encoding of the whole file.

        Workers would not pass on the note about another encoding.
        """
        if self._is_utf8_assumed():
            self._use_fallback_encoding()
        return [self]

    def _read_from(self, offset: int, indices: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the columns with these indices, at least one, from the row `offset` on.

        Errors are Arrow's, unless Python reads the file.
        """
        if self._is_read_by_python is None:
            self._is_read_by_python = needs_python(self.file.path, self.layout.dialect)
        if self._is_read_by_python:
            width = len(self.schema.names)
            batches = read_by_python(self.file, self.layout, width, indices, self.notes)
        else:
            batches = self._read_by_arrow(indices)
        yield from _skip_rows(batches, offset)

    def _read_by_arrow(self, indices: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the columns with these indices; errors are Arrow's."""
        names = [f"c{index}" for index in range(len(self.schema.names))]
        use_threads = count_threads() > 1
        with pyarrow.csv.open_csv(
            self.file.path,
            pyarrow.csv.ReadOptions(
                use_threads=use_threads,
                block_size=self._block_bytes,
                skip_rows=self.layout.n_lines + self.layout.n_records,
                column_names=names,
            ),
            pyarrow.csv.ParseOptions(
                delimiter=self.layout.dialect.delimiter, quote_char=self.layout.dialect.quote
            ),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[names[index] for index in indices],
            ),
        ) as reader:
            yield from reader

    def _adapt(self, error: str) -> None:
        """Change how the file is read after an error of Arrow.

        A note about the encoding is added. Files that are partly UTF-8 raise a `TableError`.
        """
        if _INVALID_UTF8 in error and self._is_utf8_assumed():
            self._use_fallback_encoding()
            self._is_read_by_python = self._is_utf8_assumed()
        elif _LONG_LINE in error and self._block_bytes < LINE_BYTES:
            self._block_bytes = LINE_BYTES
        else:
            self._is_read_by_python = True

    def _is_utf8_assumed(self) -> bool:
        """Return whether the file is read as UTF-8 although the user does not state it."""
        return self.file.encoding == "utf-8" and not self.file.is_stated

    def _use_fallback_encoding(self) -> None:
        """Read the file in another encoding from now on if it is not valid UTF-8.

        A note is added. Files that are partly UTF-8 raise a `TableError`.
        """
        encoding, notes = replace_invalid_utf8(self.file.packed, self.file.encoding)
        self.notes += notes
        self.file = self.file.with_encoding(encoding)


def _skip_rows(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches without the first rows."""
    for batch in batches:
        if n_rows < len(batch):
            yield batch.slice(n_rows)
        n_rows = max(n_rows - len(batch), 0)


def open_csv(file: TextFile, notes: list[str], options: TextOptions) -> CsvSource:
    """Open a CSV file; its first lines show the dialect, title lines and columns.

    The source has `notes`, and notes about assumptions. A file without rows and
    duplicate names raise a `TableError`, an invalid delimiter a `ParameterError`.
    """
    where, finds_titles = file.packed.where, options.skip is None
    head, is_complete = _read_head(file)
    options, notes = _use_separator_line(where, head, options, notes)
    head = _skip_lines(head, options.skip or 0)
    if not head and not is_complete:
        raise _build_skip_error(where, options.skip or 0)
    dialect = detect_dialect(head, options.delimiter)
    plain = replace(dialect, escape=False)
    records, is_split = plain.split_head(normalize(where, head, dialect), _HEAD_RECORDS)
    is_complete = is_complete and is_split
    filled = (index for index, record in enumerate(records) if record)
    start = find_header(records, options.header) if finds_titles else next(filled, None)
    if start is None:
        raise _explain_no_records(file, head, is_complete, len(records))
    columns = name_columns(records[start], options.header, where)
    n_records = start + columns.header
    rows = [record for record in records[n_records:] if record]
    if not rows and is_complete and len(records) < _HEAD_RECORDS:
        raise _build_no_rows_error(where, columns.names)
    layout = Layout(dialect, options.skip or 0, n_records, columns.header)
    source = CsvSource(file, layout, columns.names)
    about_dialect = describe_dialect(head, dialect, options.delimiter, where)
    about_header = describe_header(records, start, columns, where)
    source.notes = [*notes, *about_dialect, *about_header]
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


def _build_no_rows_error(where: str, names: list[str]) -> NoRowsError:
    """Return the error for a file with a header alone, which has these names."""
    error = NoRowsError(
        f"{where}: it holds no rows, only the line with the names of the columns. "
        "If that line is a row, pass --no-header."
    )
    error.names = names
    return error


def _explain_no_records(file: TextFile, head: str, is_complete: bool, n_blank: int) -> TableError:
    """Return the error for a file in whose head only `n_blank` blank lines were found."""
    where = file.packed.where
    if is_complete and not head.strip("\r\n"):
        return NoRowsError(f"{where}: it holds no rows. Expected lines with cells.")
    if n_blank == _HEAD_RECORDS:
        return TableError(f"{where}: its first {n_blank:,} lines are blank. Remove them.")
    check_number_of_columns(max(head.count(each) for each in ",;\t|") + 1, where)
    return TableError(
        f"{where}: its first line has a value of more than 131,072 letters, or a quote that is "
        "never closed. Shorten the value, or close the quote."
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
