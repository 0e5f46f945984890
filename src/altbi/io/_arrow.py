"""Arrow IPC files (Feather) and streams."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import final

import pyarrow as pa
import pyarrow.ipc

from altbi.errors import TableError
from altbi.io._files import CompressedFile, report_damage
from altbi.io._source import Source, check_names, replace_views, split_batch

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

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches with these columns; large ones are split, empty ones left out.

        String views become large strings. All values are validated; damaged data raises a
        `TableError`.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        with _open_reader(self._packed, self._is_file_format) as (_, batches):
            for batch in batches:
                selected = batch.select(list(columns))
                selected.validate(full=True)  # the reader does not validate the buffers
                is_same = selected.schema.equals(schema)
                yield from split_batch(selected if is_same else selected.cast(schema))


def open_arrow(packed: CompressedFile, head: bytes) -> ArrowSource:
    """Open an Arrow IPC file or stream; its first bytes, `head`, show which of the two it is.

    The first rows are read. The rows of a file are counted; if it is compressed, all of it is
    decompressed for this. Damaged data, invalid column names and a table without rows raise a
    `TableError`.
    """
    is_file_format = head.startswith(_FILE_MAGIC)
    with _open_reader(packed, is_file_format) as (schema, batches):
        check_names(schema.names, packed.where)
        n_rows = sum(batch.num_rows for batch in batches) if is_file_format else None
    schema = replace_views(schema.remove_metadata())
    source = ArrowSource(packed, schema, is_file_format=is_file_format, n_rows=n_rows)
    if next(source.batches([]), None) is None:
        raise TableError(f"{packed.where}: it holds no rows. Expected at least one.")
    return source


@contextlib.contextmanager
def _open_reader(
    packed: CompressedFile, is_file_format: bool
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield the schema and an iterator over the batches of an Arrow IPC file or stream.

    A plain file is mapped into memory, a compressed one is decompressed as a stream. Damaged data
    raises a `TableError`, also if it is found inside the ``with`` block.
    """
    with contextlib.ExitStack() as stack, report_damage(packed.where, "the Arrow data"):
        # A memory map avoids copying batches, which may have any size. Columns are selected later,
        # because a reader that selects columns copies them.
        is_plain = packed.compression is None
        stream = stack.enter_context(pa.memory_map(packed.path) if is_plain else packed.open())
        if is_plain and is_file_format:
            file = pa.ipc.open_file(stream)
            yield file.schema, map(file.get_batch, range(file.num_record_batches))
            return
        if is_file_format:
            stream.read(_PADDED_MAGIC_BYTES)  # the rest of a file is a stream
        reader = pa.ipc.open_stream(stream)
        yield reader.schema, iter(reader)
