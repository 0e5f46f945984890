"""How many pairs of equal rows a table would have by chance."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi.duplicates._groups import Rows
from altbi.duplicates._hashes import Hashes

# Rows from which chances are estimated.
MAX_SAMPLE = 20_000
# Weight, in pairs, of how often any two rows agree beside how often similar rows agree.
PRIOR_PAIRS = 100
# Similar pairs that are compared, so that a wide table does not take long.
MAX_PAIRS = 2_000


@final
@dataclass(frozen=True, slots=True)
class Chances:
    """How often two rows of a table agree in each of its columns.

    Rows are drawn evenly from the first ones of each group of equal rows, so that copies do not
    count as chance.
    """

    hashes: Hashes  # (n_columns, n_rows) of the table
    agreements: NDArray[np.float64]  # (n_columns,) share of the pairs of rows

    def expect_pairs(self, distinct: Rows, without: int | None = None) -> float:
        """Return the number of pairs of rows that are expected to be equal in all columns.

        The column `without` is left out. Of the others, the one in which rows agree least often
        selects similar pairs. Their agreement in each other column is multiplied, as if columns
        were independent for such pairs. `distinct` has the first rows of all groups of equal rows.
        """
        order = np.argsort(self.agreements, kind="stable")
        columns = order[order != without] if without is not None else order
        if not len(columns):
            return np.inf
        sample = _thin(distinct)
        first, second = _pair_equal(self.hashes[columns[0]], sample)
        others = columns[1:]
        # Column by column, because a wide table has many hashes.
        equal = np.array(
            [np.count_nonzero(self.hashes[k, first] == self.hashes[k, second]) for k in others]
        )
        rates = (equal + PRIOR_PAIRS * self.agreements[others]) / (len(first) + PRIOR_PAIRS)
        start = _compute_agreement(self.hashes[columns[0]], sample)
        n_rows = self.hashes.shape[1]
        return float(n_rows * (n_rows - 1) / 2 * start * np.prod(rates))


def estimate_chances(hashes: Hashes, distinct: Rows) -> Chances:
    """Return how often two of the rows `distinct` agree in each column of `hashes`."""
    sample = _thin(distinct)
    return Chances(hashes, np.array([_compute_agreement(column, sample) for column in hashes]))


def _thin(rows: Rows) -> Rows:
    """Return at most `MAX_SAMPLE` of the rows, evenly spaced."""
    return rows[:: -(-len(rows) // MAX_SAMPLE) or 1]


def _compute_agreement(column: Hashes, rows: Rows) -> float:
    """Return the share of the pairs of rows that agree in a column, with one more such pair."""
    _, counts = np.unique(column[rows], return_counts=True)
    n_pairs = len(rows) * (len(rows) - 1) / 2
    return float(((counts * (counts - 1.0)).sum() / 2 + 1) / (n_pairs + 1))


def _pair_equal(column: Hashes, rows: Rows) -> tuple[Rows, Rows]:
    """Return at most `MAX_PAIRS` pairs of rows that agree in a column.

    They are neighbours after sorting by its hashes.
    """
    ranked = rows[np.argsort(column[rows], kind="stable")]
    is_equal = column[ranked[1:]] == column[ranked[:-1]]
    pairs = np.flatnonzero(is_equal)
    pairs = pairs[:: -(-len(pairs) // MAX_PAIRS) or 1]
    return ranked[pairs], ranked[pairs + 1]
