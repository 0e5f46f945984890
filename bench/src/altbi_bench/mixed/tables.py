"""The development tables with numbers, texts, dates and missing values, and their labels."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from altbi.errors import TableError
from altbi_bench.catalogue.datasets import Labels

__all__ = ["LABEL", "MAX_ROWS", "MixedTable", "list_mixed_tables", "sample_rows", "split_labels"]

# Boolean column of the labels, which no system sees.
LABEL = "__label__"
MAX_ROWS = 5_000


@final
@dataclass(frozen=True, slots=True)
class MixedTable:
    """One labelled Parquet file.

    Parameters
    ----------
    name : str
        Name of the file without extension.
    path : Path
        The file.
    """

    name: str
    path: Path

    def load(self, n_rows: int = MAX_ROWS, seed: int = 0) -> tuple[pa.Table, Labels]:
        """Return columns and labels of at most `n_rows` rows, which are sampled by the seed."""
        return split_labels(sample_rows(pq.read_table(self.path), n_rows, seed))


def list_mixed_tables(folder: Path) -> list[MixedTable]:
    """Return the tables of a folder, ordered by name.

    Raises
    ------
    TableError
        If the folder has no Parquet files.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise TableError(f"{folder}: no Parquet files. Pass --mixed FOLDER.")
    return [MixedTable(file.stem, file) for file in files]


def sample_rows(frame: pa.Table, n_rows: int, seed: int) -> pa.Table:
    """Return at most `n_rows` rows of a table in their order; the seed selects them."""
    rows = np.random.default_rng(seed).permutation(len(frame))[:n_rows]
    return frame.take(pa.array(np.sort(rows)))


def split_labels(frame: pa.Table) -> tuple[pa.Table, Labels]:
    """Return a table without its column of labels, and the labels as 0 and 1.

    >>> frame, labels = split_labels(pa.table({"x": [1.5, 2.5], LABEL: [False, True]}))
    >>> frame.column_names, labels
    (['x'], array([0, 1]))
    """
    labels = frame[LABEL].to_numpy().astype(np.int64)
    return frame.drop_columns([LABEL]), labels
