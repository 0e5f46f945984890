"""Arrow's own files and streams."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import final

import pyarrow as pa
import pyarrow.ipc

from altbi.errors import TableError
from altbi.io._compressed import CompressedFile, limited, report_damage
from altbi.io._csv_header import check_names
from altbi.io._source import Source

__all__ = ["ArrowSource", "open_arrow"]

_MAGIC = b"ARROW1"
_PADDED = 8


@final
class ArrowSource(Source):
    """An Arrow IPC file (Feather) or stream.

    Parameters
    ----------
    packed : CompressedFile
        The file.
    schema : pyarrow.Schema
        All columns.
    indexed : bool
        Whether it is a file with a list of its batches, and not a stream.
    n_rows : int, optional
        How many rows there are; a stream does not say.
    """

    format = "arrow"

    def __init__(
        self, packed: CompressedFile, schema: pa.Schema, *, indexed: bool, n_rows: int | None
    ) -> None:
        self.name = packed.name
        self.paths = (packed.path,)
        self.schema = schema
        self.n_rows = n_rows
        self.notes = []
        self._packed = packed
        self._indexed = indexed

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, batch by batch."""
        with _opened(self._packed, self._indexed) as (_, batches):
            for batch in batches:
                part = batch.select(list(columns))
                part.validate(full=True)  # nobody else has looked whether its buffers fit
                yield from limited(part)


def open_arrow(packed: CompressedFile, head: bytes) -> ArrowSource:
    """Read what an Arrow file says about itself."""
    indexed = head.startswith(_MAGIC)
    with _opened(packed, indexed) as (schema, batches):
        check_names(schema.names, packed.where)
        n_rows = sum(batch.num_rows for batch in batches) if indexed else None
    source = ArrowSource(packed, schema.remove_metadata(), indexed=indexed, n_rows=n_rows)
    if next(source.batches([]), None) is None:
        raise TableError(f"{packed.where}: it holds no rows. Expected at least one.")
    return source


@contextlib.contextmanager
def _opened(
    packed: CompressedFile, indexed: bool
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Open a file by the list of its batches, anything else from front to back."""
    with contextlib.ExitStack() as stack, report_damage(packed.where, "the Arrow data"):
        # A file may be one single batch of any size: mapped, it is not copied into memory. To ask
        # the reader for some columns only would copy them.
        plain = packed.compression is None
        stream = stack.enter_context(pa.memory_map(packed.path) if plain else packed.opened())
        if plain and indexed:
            file = pa.ipc.open_file(stream)
            yield file.schema, map(file.get_batch, range(file.num_record_batches))
            return
        if indexed:
            stream.read(_PADDED)  # behind its first bytes, a file is a stream
        reader = pa.ipc.open_stream(stream)
        yield reader.schema, iter(reader)
