"""Rarity of categories: how often each one occurs in the training sample."""

from functools import cached_property
from typing import Annotated, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.errors import quote
from altbi.rarities._rare_counts import USUAL_SHARE, compute_rarities

# Categories of a column that are kept; the rest has the rarity of values that occur once.
MAX_CATEGORIES = 100_000
# Characters of all categories of a column that are kept.
MAX_CHARACTERS = 5_000_000
MAX_ROWS = 2**53
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
# Messages name this many frequent categories, each of them so many times as frequent as the text.
MAX_SHOWN, MIN_RATIO = 2, 5
MAX_SEARCHED = 1_000


@final
class CategoryCounts(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True
):
    """Rarities of the categories of a column.

    Frequent categories have the rarity 0. Categories that the sample does not have are as unusual
    as the rarest ones.

    Examples
    --------
    >>> import pyarrow as pa
    >>> counts = fit_category_counts(pa.array(["red"] * 970 + ["blue"] * 29 + ["grey"]))
    >>> counts.score(pa.array(["red", "blue", "grey", "pink", None])).round(1)
    array([0. , 1.9, 4.6, 4.6, 0. ])
    """

    # Categories that occur more than once, the most frequent ones first.
    categories: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_CATEGORIES)]
    counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_CATEGORIES)]
    n_single: Annotated[int, msgspec.Meta(ge=0, le=MAX_ROWS)]  # rows with another value

    def __post_init__(self) -> None:
        """Raise a `ValueError` if the fields contradict each other."""
        if len(self.categories) != len(self.counts):
            raise ValueError("category counts: expected one count for each category")
        if len(set(self.categories)) < len(self.categories):
            raise ValueError("category counts: expected distinct categories")
        if sum(self.counts) + self.n_single > MAX_ROWS:  # larger sums would overflow
            raise ValueError(f"category counts: expected at most {MAX_ROWS} rows")
        "".join(self.categories).encode()  # a lone surrogate raises a UnicodeEncodeError

    @cached_property
    def _categories(self) -> pa.Array:
        """The categories as an array."""
        return pa.array(self.categories, pa.large_string())

    @cached_property
    def _rarities(self) -> NDArray[np.float64]:
        """The rarities of all categories, then those of other and of missing values."""
        counts = np.array(self.counts, dtype=np.int64)
        n_shown = min(self.n_single, MAX_CATEGORIES)
        everything = np.concatenate([counts, np.ones(n_shown, dtype=np.int64)])
        other = 1 if self.n_single else 0
        wanted = np.append(counts, other)
        return np.append(compute_rarities(everything, wanted), 0.0)

    @cached_property
    def _limits(self) -> NDArray[np.float64]:
        """Limits of other rarities of all categories, then those of other and of missing values."""
        counts = np.array(self.counts, dtype=np.int64)
        total = counts.sum() + self.n_single
        limits = np.maximum(np.log(USUAL_SHARE * (total + 1) / (counts + 1)), 0.0)
        return np.concatenate([limits, [np.inf, 0.0]])

    def score(self, values: pa.Array) -> NDArray[np.float64]:
        """Return the rarities ``(n_rows,)`` of texts; 0 for missing values."""
        return self.score_with_limits(values)[0]

    def score_with_limits(
        self, values: pa.Array
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the rarities of texts, and how rare they may be in other respects.

        Both have the shape ``(n_rows,)``. A text that a fifth of the rows have is usual, however
        few others have its format.
        """
        indices = self._find(values)
        return self._rarities[indices], self._limits[indices]

    def _find(self, values: pa.Array) -> NDArray[np.integer]:
        """Return the indices ``(n_rows,)`` of categories; others and missing values follow them."""
        n_known = len(self.categories)
        codes = pc.index_in(values.cast(pa.large_string()), value_set=self._categories)
        codes = pc.if_else(pc.is_null(values), pa.scalar(n_known + 1, pa.int32()), codes)
        found: NDArray[np.integer] = pc.fill_null(codes, n_known).to_numpy()
        return found

    def describe(self, text: str) -> str:
        """Return the most frequent categories if this one is much rarer, else ""."""
        n_rows = dict(zip(self.categories[:MAX_SEARCHED], self.counts, strict=False)).get(text, 1)
        usual = [
            f"{quote(category, 30)} ({count:,} rows)"
            for category, count in zip(self.categories[:MAX_SHOWN], self.counts, strict=False)
            if count >= MIN_RATIO * n_rows
        ]
        return " or ".join(usual)


def fit_category_counts(values: pa.Array) -> CategoryCounts | None:
    """Count the categories of a column; None if it has no values."""
    counted = values.drop_null().value_counts()
    if not len(counted):
        return None
    texts, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
    ranked = sorted(zip(texts, counts, strict=True), key=lambda pair: (-pair[1], pair[0]))
    repeated = [pair for pair in ranked if pair[1] > 1][:MAX_CATEGORIES]
    n_characters = np.cumsum([len(text) for text, _ in repeated])
    repeated = repeated[: int(np.searchsorted(n_characters, MAX_CHARACTERS, side="right"))]
    return CategoryCounts(
        categories=tuple(text for text, _ in repeated),
        counts=tuple(count for _, count in repeated),
        n_single=sum(counts) - sum(count for _, count in repeated),
    )
