"""Rarity of which values are missing together."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from altbi.rarities._rare_counts import compute_rarities

# Columns of a pattern, which is an integer with one bit for each.
MAX_COLUMNS = 62
MAX_PATTERNS = 1_000
# A column must miss at least this share of its values, and have this share. Other missing values
# have a rarity of their own.
_LEAST_SHARE = 0.01
MAX_ROWS = 2**53

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=100_000)]
Pattern = Annotated[int, msgspec.Meta(ge=0, lt=1 << MAX_COLUMNS)]


@final
class MissingPatterns(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True
):
    """How often the values of some columns are missing together.

    A pattern is rare if the sample has it much less often than its most frequent one, and if rows
    with such patterns are few. So nothing is rare where values are missing by chance in many
    columns, but one of two values that otherwise miss together is.

    Examples
    --------
    >>> both, none = [True, True], [False, False]
    >>> is_missing = np.array([both] * 300 + [none] * 699 + [[True, False]])
    >>> patterns = fit_missing_patterns([0, 1], is_missing)
    >>> rarities, columns = patterns.score(np.array([both, none, [True, False]]))
    >>> rarities.round(1)
    array([0. , 0. , 4.6])
    """

    columns: Annotated[tuple[Index, ...], msgspec.Meta(max_length=MAX_COLUMNS)]
    patterns: Annotated[tuple[Pattern, ...], msgspec.Meta(max_length=MAX_PATTERNS)]
    counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_PATTERNS)]
    n_other: Annotated[int, msgspec.Meta(ge=0, le=MAX_ROWS)]  # rows with another pattern

    def __post_init__(self) -> None:
        """Raise a `ValueError` if the fields contradict each other."""
        if len(self.patterns) != len(self.counts) or not self.patterns:
            raise ValueError("missing patterns: expected one count for each pattern")
        if len(set(self.patterns)) < len(self.patterns):
            raise ValueError("missing patterns: expected distinct patterns")
        if len(set(self.columns)) < len(self.columns) or not self.columns:
            raise ValueError("missing patterns: expected distinct columns")
        if max(self.patterns) >> len(self.columns):
            raise ValueError("missing patterns: expected one bit for each column")
        if sum(self.counts) + self.n_other > MAX_ROWS:  # larger sums would overflow
            raise ValueError(f"missing patterns: expected at most {MAX_ROWS} rows")

    @cached_property
    def _known(self) -> dict[int, int]:
        """The number of sample rows by pattern."""
        return dict(zip(self.patterns, self.counts, strict=True))

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The patterns and their counts, the most frequent patterns first."""
        counts = np.array(self.counts, dtype=np.int64)
        order = np.argsort(-counts, kind="stable")
        return np.array(self.patterns, dtype=np.int64)[order], counts[order]

    @cached_property
    def _rarities(self) -> dict[int, float]:
        """The rarities of patterns by their number of sample rows."""
        everything = np.array([*self.counts, *([1] * min(self.n_other, MAX_PATTERNS))])
        wanted = np.unique([0, *self.counts])
        found = compute_rarities(everything, wanted)
        return dict(zip(wanted.tolist(), found.tolist(), strict=True))

    def score(self, is_missing: Mask) -> tuple[Floats, NDArray[np.intp]]:
        """Return the rarities ``(n_rows,)`` of patterns, and the columns that explain them best.

        `is_missing` ``(n_rows, len(columns))`` is the mask of missing values of `columns`. The
        column is the first one that differs in the nearest more frequent pattern.
        """
        distinct, positions = np.unique(_encode(is_missing), return_inverse=True)
        found = [self._score_pattern(pattern) for pattern in distinct.tolist()]
        rarities, columns = (
            np.array([r for r, _ in found]),
            np.array([c for _, c in found], np.intp),
        )
        return rarities[positions], columns[positions]

    def _score_pattern(self, pattern: int) -> tuple[float, int]:
        """Return the rarity of a pattern, and the index of the column that explains it."""
        rarity = self._rarities[self._known.get(pattern, 0)]
        if not rarity:
            return 0.0, self.columns[0]
        patterns, counts = self._arrays
        more_frequent = patterns[counts > self._known.get(pattern, 0)]
        differences = more_frequent ^ pattern
        nearest = int(differences[np.bitwise_count(differences).argmin()])
        return rarity, self.columns[(nearest & -nearest).bit_length() - 1]


def choose_columns(shares: Floats) -> tuple[int, ...]:
    """Return the columns of a pattern, given the share of missing values of all columns.

    Those nearest to a half are chosen.
    """
    order = np.argsort(np.abs(shares - 0.5), kind="stable")
    is_used = (shares >= _LEAST_SHARE) & (shares <= 1 - _LEAST_SHARE)
    return tuple(sorted(order[is_used[order]][:MAX_COLUMNS].tolist()))


def fit_missing_patterns(columns: Sequence[int], is_missing: Mask) -> MissingPatterns | None:
    """Count which values of a sample are missing together; None without two columns.

    `is_missing` ``(n_rows, len(columns))`` is the mask of missing values of `columns`.
    """
    if len(columns) < 2:
        return None
    patterns, counts = np.unique(_encode(is_missing), return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:MAX_PATTERNS]
    return MissingPatterns(
        columns=tuple(columns),
        patterns=tuple(patterns[kept].tolist()),
        counts=tuple(counts[kept].tolist()),
        n_other=int(counts.sum() - counts[kept].sum()),
    )


def _encode(is_missing: Mask) -> NDArray[np.int64]:
    """Return one integer for each row of a mask: the first column is its last bit."""
    codes: NDArray[np.int64] = is_missing @ (1 << np.arange(is_missing.shape[1], dtype=np.int64))
    return codes
