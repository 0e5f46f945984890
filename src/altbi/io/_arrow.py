"""Arrow IPC files (Feather) and streams."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import pyarrow as pa
import pyarrow.ipc

from altbi.errors import TableError
from altbi.io._files import CompressedFile, report_damage
from altbi.io._source import Source, check_names, check_types, replace_views, split_batch

_FILE_MAGIC = b"ARROW1"
_PADDED_MAGIC_BYTES = 8


@final
class ArrowSource(Source):
    """An Arrow IPC file (Feather), which has an index of its batches, or an Arrow IPC stream.

    `is_file_format` distinguishes the two formats. `n_rows` is None for a stream.
    """

    format = "arrow"

    def __init__(
        self, packed: CompressedFile, schema: pa.Schema, *, is_file_format: bool, n_rows: int | None
    ) -> None:
        self.name = packed.name
        self.paths = (packed.path,)
        self.schema = schema
        self.n_rows = n_rows
        self.notes = []
        self._packed = packed
        self._is_file_format = is_file_format
        self._n_bytes = Path(packed.path).stat().st_size

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches with these columns; large ones are split, empty ones left out.

        Memory holds one batch of the file at a time. Of a plain file, only these columns are read.
        Views become large strings. All values are validated; damaged data, types that cannot be
        read, and a file whose size has changed since it was opened raise a `TableError`.
        """
        check_types(self.schema, columns, self._packed.where)
        schema = pa.schema([self.schema.field(name) for name in columns])
        fields = [self.schema.get_field_index(name) for name in columns]
        # One column shows the number of rows.
        with _open_reader(self._packed, self._is_file_format, fields or [0]) as reader:
            for batch in _iter_batches(reader):
                selected = batch.select(list(columns))
                selected.validate(full=True)  # the reader does not validate the buffers
                is_same = selected.schema.equals(schema)
                yield from split_batch(selected if is_same else selected.cast(schema))
        # A stream may end after any batch, so a cut can look like its end.
        if Path(self._packed.path).stat().st_size != self._n_bytes:
            raise TableError(
                f"{self._packed.where}: the file was changed while it was read. Wait until it is "
                "complete, and try again."
            )


def open_arrow(packed: CompressedFile, head: bytes) -> ArrowSource:
    """Open an Arrow IPC file or stream; its first bytes, `head`, show which of the two it is.

    The first rows are read. The rows of a file are counted; if it is compressed, all of it is
    decompressed for this. Damaged data, invalid column names and a table without rows raise a
    `TableError`.
    """
    is_file_format = head.startswith(_FILE_MAGIC)
    with _open_reader(packed, is_file_format, []) as reader:
        schema = replace_views(reader.schema.remove_metadata())
        check_names(schema.names, packed.where)
    n_rows = _count_rows(packed) if is_file_format else None
    source = ArrowSource(packed, schema, is_file_format=is_file_format, n_rows=n_rows)
    if next(source.batches([]), None) is None:
        raise TableError(f"{packed.where}: it holds no rows. Expected at least one.")
    return source


@contextlib.contextmanager
def _open_reader(
    packed: CompressedFile, is_file_format: bool, fields: Sequence[int]
) -> Iterator[pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader]:
    """Yield a reader of the columns with the indices `fields`; without indices, of all columns.

    A plain file has a reader with an index of its batches. It is not mapped into memory: a file
    that is cut while it is mapped ends the process. A compressed file is decompressed as a stream.
    Damaged data raises a `TableError`, also if it is found inside the ``with`` block.
    """
    options = pa.ipc.IpcReadOptions(included_fields=list(fields))
    with contextlib.ExitStack() as stack, report_damage(packed.where, "the Arrow data"):
        is_plain = packed.compression is None
        stream = stack.enter_context(pa.OSFile(packed.path) if is_plain else packed.open())
        if is_plain and is_file_format:
            yield pa.ipc.open_file(stream, options=options)
            return
        if is_file_format:
            stream.read(_PADDED_MAGIC_BYTES)  # the rest of a file is a stream
        yield pa.ipc.open_stream(stream, options=options)


def _iter_batches(
    reader: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader,
) -> Iterator[pa.RecordBatch]:
    """Return an iterator over all batches of a reader."""
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return map(reader.get_batch, range(reader.num_record_batches))
    return iter(reader)


def _count_rows(packed: CompressedFile) -> int:
    """Return the number of rows of an Arrow IPC file; damaged data raises a `TableError`.

    Only the metadata of a plain file is read, or its first column if pyarrow is older than 26.
    """
    with _open_reader(packed, True, [0]) as reader:
        if hasattr(reader, "count_rows"):
            return int(reader.count_rows())
        return sum(batch.num_rows for batch in _iter_batches(reader))
