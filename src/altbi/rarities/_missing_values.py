"""Rarity of missing values."""

from typing import Annotated, final

import msgspec
import numpy as np

from altbi.rarities._rare_counts import compute_rarities

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@final
class MissingCounts(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False
):
    """How often a column has no value.

    A missing value is rare in a column that hardly ever misses one, but not in others.

    Examples
    --------
    >>> round(MissingCounts(n_present=999, n_missing=0).rarity, 1)
    5.3
    >>> round(MissingCounts(n_present=600, n_missing=400).rarity, 1)
    0.0
    """

    n_present: Count
    n_missing: Count

    @property
    def rarity(self) -> float:
        """The rarity of a missing value."""
        counts = np.array([self.n_present, self.n_missing])
        return float(compute_rarities(counts, counts[1:])[0])

    def describe(self) -> str:
        """Return what is expected instead of a missing value."""
        share = self.n_present / max(self.n_present + self.n_missing, 1)
        return "a value" if share > 0.5 else ""
