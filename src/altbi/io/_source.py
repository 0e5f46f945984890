"""What every table in a file offers: a schema, and its rows in chunks, as often as one likes."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence

import pyarrow as pa

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "Source"]

# A chunk is never more than that, whatever the file: memory does not grow with the table.
BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 24


class Source(abc.ABC):
    """A table in a file.

    Attributes
    ----------
    name : str
        What messages call it: the path as it was given, or "standard input".
    paths : tuple of str
        The files it is read from, in the order of their rows.
    format : str
        "csv", "parquet", "arrow", "jsonl", "npz" or "npy".
    schema : pyarrow.Schema
        All columns, those of `sides` last; every batch has it.
    loose : bool
        Whether texts may stand for numbers, booleans or dates, because the format knows no better
        (CSV, JSON lines). Empty cells and the usual words for a missing value are texts as well.
    sides : tuple of str
        Columns that stand beside the table (the labels `y` beside an array `X`): they are read
        when they are named, but are not part of the table.
    n_rows : int or None
        How many rows there are, where the file says so.
    notes : list of str
        One sentence each about what was assumed in order to read the file.
    """

    name: str
    paths: tuple[str, ...]
    format: str
    schema: pa.Schema
    loose: bool = False
    sides: tuple[str, ...] = ()
    n_rows: int | None = None
    notes: list[str]

    @abc.abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns from the start, in the order of the rows.

        A batch has at most `BATCH_ROWS` rows and not many more bytes than `BATCH_BYTES`, and at
        least one row. Whatever is wrong with the file is an `AltbiError` that says where.
        """

    def partitions(self, most_rows: int) -> Sequence[Source]:
        """Give tables that are this one when put below one another, for workers of their own.

        Each can be pickled and read by itself; its `name` is that of the whole. A file that cannot
        be read from the middle is one part, whatever its size.
        """
        return [self]
