"""Tables that are converted to a temporary Parquet file when they are opened."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from altbi.errors import TableError, escape_text
from altbi.io._files import CompressedFile
from altbi.io._parquet import ParquetSource, open_parquet
from altbi.io._private_folder import PrivateFolder
from altbi.io._source import Source, check_names


@dataclass(frozen=True, slots=True)
class Origin:
    """What a converted table was made from, and how to open it again in another process."""

    name: str  # in messages
    paths: tuple[str, ...]  # files that hold the rows
    format: str
    is_untyped: bool
    reopen: tuple[Callable[..., Source], tuple[Any, ...]]  # a function of a module, and arguments


@final
class ConvertedSource(Source):
    """A table whose rows are read from a temporary Parquet file, which is removed with the object.

    A pickled object is opened again, so its table is converted once more.
    """

    def __init__(
        self, origin: Origin, names: Sequence[str], parquet: ParquetSource, folder: PrivateFolder
    ) -> None:
        self.name = origin.name
        self.paths = origin.paths
        self.format = origin.format
        self.is_untyped = origin.is_untyped
        self.n_rows = parquet.n_rows
        self.notes = []
        types = [field.type for field in parquet.schema]
        self.schema = pa.schema(list(zip(names, types, strict=True)))
        self._reopen = origin.reopen
        self._parquet = parquet
        self._folder = folder

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns in record batches."""
        names = dict(zip(self.schema.names, self._parquet.schema.names, strict=True))
        stored = [names[name] for name in columns]
        for batch in self._parquet.batches(stored):
            yield batch.rename_columns(list(columns)) if columns else batch

    def __reduce__(self) -> tuple[Callable[..., Source], tuple[Any, ...]]:
        """Return the function and arguments that open the table again."""
        return self._reopen


def convert(
    origin: Origin, batches: Iterable[pa.RecordBatch], names: Sequence[str] | None = None
) -> ConvertedSource:
    """Write record batches to a temporary Parquet file, and return it as a source.

    The file is in the temporary folder of the system; it needs about as much space as the table
    has in Parquet. `names` replace the names of the columns. No rows, and invalid column names,
    raise a `TableError`.
    """
    where, folder = escape_text(origin.name), PrivateFolder()
    path = folder.path / "table.parquet"
    writer = None
    try:
        for batch in batches:
            if writer is None:
                found = list(names or batch.schema.names)
                check_names(found, where)
                stored = [f"c{index}" for index in range(len(found))]
                schema = pa.schema(
                    [(name, field.type) for name, field in zip(stored, batch.schema, strict=True)]
                )
                writer = pq.ParquetWriter(path, schema, compression="zstd")
            writer.write_batch(batch.rename_columns(stored))
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise TableError(f"{where}: it holds no rows. Expected at least one.")
    return ConvertedSource(
        origin, found, open_parquet(CompressedFile(str(path), origin.name)), folder
    )
