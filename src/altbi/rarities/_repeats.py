"""Rarity of identifiers that occur more than once."""

from functools import cached_property
from typing import Annotated, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Repeated identifiers of a column that are kept, the most frequent ones first.
MAX_REPEATED = 100_000
MAX_TEXT = 200  # longer identifiers are left out
# A value with this share of the rows means "unknown" or the like, and is no identifier.
MAX_SHARE = 0.05

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Count = Annotated[int, msgspec.Meta(ge=2, le=2**53)]


@final
class RepeatCounts(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True
):
    """Rarities of identifiers that occur more than once in the training sample.

    The rarity is ``log((n_rows + 1) / (tail + 1))``, where the tail are the rows whose identifier
    occurs at least as often. Only repeated identifiers are kept. All others have the rarity 0.

    Examples
    --------
    >>> import pyarrow as pa
    >>> ids = [f"id {number}" for number in range(98)] + ["id 7"] * 2
    >>> repeats = fit_repeat_counts(pa.array(ids, pa.large_string()))
    >>> repeats.score(pa.array(["id 7", "id 8", "id 500", None], pa.large_string())).round(1)
    array([3.2, 0. , 0. , 0. ])
    """

    identifiers: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_REPEATED)]
    counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_REPEATED)]
    n_rows: Annotated[int, msgspec.Meta(ge=1, le=2**53)]

    def __post_init__(self) -> None:
        """Raise a `ValueError` if the fields contradict each other."""
        if len(self.identifiers) != len(self.counts):
            raise ValueError("repeats: expected one count for each identifier")
        if len(set(self.identifiers)) < len(self.identifiers):
            raise ValueError("repeats: expected distinct identifiers")
        if sum(self.counts) > self.n_rows:
            raise ValueError("repeats: expected at most n_rows rows")
        "".join(self.identifiers).encode()  # a lone surrogate raises a UnicodeEncodeError

    @cached_property
    def _values(self) -> pa.Array:
        """The identifiers as an array."""
        return pa.array(self.identifiers, pa.large_string())

    @cached_property
    def _rarities(self) -> NDArray[np.float64]:
        """The rarities of all identifiers, then that of all other values."""
        counts = np.sort(np.array(self.counts, dtype=np.int64))
        n_below = np.searchsorted(counts, np.array(self.counts, dtype=np.int64), side="left")
        sums = np.concatenate([[0], np.cumsum(counts)])
        tails = sums[-1] - sums[n_below]
        return np.append(np.log((self.n_rows + 1) / (tails + 1)), 0.0)

    def score(self, values: pa.Array) -> NDArray[np.float64]:
        """Return the rarities ``(n_rows,)`` of identifiers; 0 for missing ones."""
        codes = pc.index_in(values.cast(pa.large_string()), value_set=self._values)
        found: NDArray[np.float64] = self._rarities[
            pc.fill_null(codes, len(self.identifiers)).to_numpy()
        ]
        return found

    def count(self, identifier: str) -> int:
        """Return how often the training sample has an identifier; 1 if it is not repeated."""
        position = self._values.index(pa.scalar(identifier, pa.large_string())).as_py()
        return self.counts[position] if position >= 0 else 1


def fit_repeat_counts(values: pa.Array) -> RepeatCounts | None:
    """Count the identifiers that occur more than once; None if there are none."""
    present = values.drop_null()
    counted = present.value_counts()
    pairs = zip(
        counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True
    )
    limit = max(MAX_SHARE * len(present), 5)
    repeated = [(text, n) for text, n in pairs if 1 < n <= limit and len(text) <= MAX_TEXT]
    if not repeated:
        return None
    repeated.sort(key=lambda pair: (-pair[1], pair[0]))
    kept = repeated[:MAX_REPEATED]
    return RepeatCounts(
        identifiers=tuple(text for text, _ in kept),
        counts=tuple(count for _, count in kept),
        n_rows=len(present),
    )
