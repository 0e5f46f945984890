"""The distinct values of a column of the training sample, from which its role is inferred."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi._formatting import format_number
from altbi.errors import quote
from altbi.table import Kind, Table

Values = NDArray[np.float64]
Counts = NDArray[np.int64]

# Of the values; among texts that are nearly unique otherwise, such a text means "none" or the like.
DEFAULT_SHARE = 0.05
MIN_COUNTER_ROWS = 20  # the integers 1 to 20 are in some order by chance once in 10**7 tables


@dataclass(frozen=True)
class ColumnProfile:
    """The distinct values of a column in order of first appearance, and their counts."""

    kind: Kind
    n_rows: int
    n_source_rows: int  # rows of the table that the sample was taken from
    values: pa.Array  # distinct values without the missing ones
    counts: Counts
    digest: bytes  # equal for columns that group the rows in the same way

    @property
    def numbers(self) -> Values:
        """Distinct values of a column that does not hold texts."""
        return self.values.to_numpy(zero_copy_only=False)

    @property
    def n_present(self) -> int:
        """Number of values that are not missing."""
        return int(self.counts.sum())

    @property
    def n_distinct(self) -> int:
        """Number of distinct values."""
        return len(self.counts)

    @property
    def n_single(self) -> int:
        """Number of values that occur once."""
        return int(np.count_nonzero(self.counts == 1))

    @property
    def n_default(self) -> int:
        """Rows with the most frequent value if it is a text with `DEFAULT_SHARE`, else 0."""
        count = int(self.counts.max())
        is_frequent = count >= max(5, DEFAULT_SHARE * self.n_present)
        return count if is_frequent and self.kind == "category" else 0

    @property
    def repeated_share(self) -> float:
        """Share of the values that occur more than once, without the default text."""
        return 1 - self.n_single / max(self.n_present - self.n_default, 1)


def create_profile(table: Table, column: int) -> ColumnProfile:
    """Return the distinct values of a column, their counts, and the hash of their positions."""
    kind = table.kinds[column]
    if kind == "category":
        values = table.categories(column)
    else:
        numbers = table.numbers([column])[:, 0] + 0.0  # -0.0 becomes 0.0
        values = pa.array(numbers, from_pandas=True)
    encoded = values.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy().astype(np.int32, copy=False)
    counts = np.bincount(codes + 1, minlength=len(encoded.dictionary) + 1)[1:]
    return ColumnProfile(
        kind=kind,
        n_rows=len(table),
        n_source_rows=table.n_source_rows or len(table),
        values=encoded.dictionary,
        counts=counts,
        digest=hashlib.blake2b(codes, digest_size=16).digest(),
    )


def show_value(profile: ColumnProfile, index: int) -> str:
    """Return a distinct value as a text for a message."""
    value = profile.values[index].as_py()
    if profile.kind == "category":
        return quote(value, 40)
    return format_number(value) if profile.kind == "number" else str(float(value))
