"""Rarity of negative numbers, zeros and positive numbers."""

from typing import Annotated, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from altbi.rarities._rare_counts import compute_rarities

# Share of negative and of positive numbers from which zero is not special.
_LEAST_SHARE = 0.01
# Smaller rarities count as 0, because they say nothing and take time.
_LEAST_RARITY = 0.1
# Rarity from which a sign is described.
_MIN_DESCRIBED = 1.0
_NAMES = ("a number below 0", "0", "a number above 0")
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@final
class SignCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Rarities of the three signs in a column of numbers.

    Zero is often a special value: nothing happened, or nothing was measured. The other scorers of
    numbers see only that it is near small values. Between negative and positive numbers, zero is a
    value like others: it is not rare if both have at least 1 % of the values.

    Examples
    --------
    >>> SignCounts(n_negative=0, n_zero=4, n_positive=995).rarities.round(1)
    array([6.9, 5.3, 0. ])
    >>> SignCounts(n_negative=500, n_zero=0, n_positive=500).rarities.round(1)
    array([0., 0., 0.])
    """

    n_negative: Count
    n_zero: Count
    n_positive: Count

    @property
    def rarities(self) -> NDArray[np.float64]:
        """The rarities of negative numbers, zeros and positive numbers."""
        counts = np.array([self.n_negative, self.n_zero, self.n_positive])
        rarities = compute_rarities(counts, counts, usual_share=1.0)
        if min(self.n_negative, self.n_positive) >= _LEAST_SHARE * counts.sum():
            rarities = compute_rarities(counts[[0, 2]], counts, usual_share=1.0)
            rarities[1] = 0.0
        return np.where(rarities < _LEAST_RARITY, 0.0, rarities)

    def score(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rarities ``(n_rows,)`` of the signs of numbers; 0 for missing ones."""
        found = np.zeros(len(numbers))
        comparisons = (np.less, np.equal, np.greater)
        for rarity, compare in zip(self.rarities.tolist(), comparisons, strict=True):
            if rarity:
                found += rarity * compare(numbers, 0)  # each number has one sign
        return found

    def describe(self, number: float) -> str:
        """Return the most frequent sign if that of a number is rare, else ""."""
        if self.score(np.array([number]))[0] < _MIN_DESCRIBED:
            return ""
        counts = (self.n_negative, self.n_zero, self.n_positive)
        largest = max(range(3), key=counts.__getitem__)
        return f"{_NAMES[largest]}, as in {counts[largest]:,} of {sum(counts):,} rows"


def fit_sign_counts(numbers: NDArray[np.float64]) -> SignCounts:
    """Count the signs of a column of numbers; missing values are left out."""
    return SignCounts(
        n_negative=int((numbers < 0).sum()),
        n_zero=int((numbers == 0).sum()),
        n_positive=int((numbers > 0).sum()),
    )
