"""Groups of rows with equal hashes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi.duplicates._hashes import Hashes

Rows = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True)
class RowGroups:
    """Disjoint groups of at least two rows, ordered by their first row."""

    rows: Rows  # all groups one after the other; ascending in each group
    labels: Rows  # number of the group of each of `rows`, ascending

    def __len__(self) -> int:
        """Return the number of groups."""
        return int(self.labels[-1]) + 1 if len(self.labels) else 0

    def __iter__(self) -> Iterator[Rows]:
        """Yield the rows of each group."""
        if len(self):
            yield from np.split(self.rows, np.flatnonzero(np.diff(self.labels)) + 1)

    @property
    def firsts(self) -> Rows:
        """The first row of each group."""
        return self.rows[np.flatnonzero(np.diff(self.labels, prepend=-1))]

    def cut(self, n_rows: int) -> "RowGroups":
        """Return the groups that begin among the first `n_rows` of `rows`, without later rows.

        A group of which a single row is left has that row's successor, too.
        """
        if len(self.rows) <= n_rows:
            return self
        is_single = n_rows == 1 or self.labels[n_rows - 1] != self.labels[n_rows - 2]
        n_rows += int(is_single)
        return RowGroups(self.rows[:n_rows], self.labels[:n_rows])


def find_groups(keys: Hashes | Rows, rows: Rows | None = None) -> RowGroups:
    """Return the groups of rows with equal keys.

    `rows` has the ascending row numbers of `keys`; by default 0, 1, 2, ...

    >>> groups = find_groups(np.array([7, 5, 9, 5, 7, 7]))
    >>> [each.tolist() for each in groups]
    [[0, 4, 5], [1, 3]]
    """
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    is_start = np.append(True, ranked[1:] != ranked[:-1])[: len(keys)]
    sizes = np.diff(np.flatnonzero(np.append(is_start, True)))
    members = order[np.repeat(sizes > 1, sizes)]
    sizes = sizes[sizes > 1]
    starts = np.cumsum(sizes) - sizes
    labels = np.empty(len(sizes), dtype=np.int64)
    labels[np.argsort(members[starts])] = np.arange(len(sizes))
    by_member = np.repeat(labels, sizes)
    by_group = np.argsort(by_member, kind="stable")
    found = members[by_group].astype(np.int64)
    return RowGroups(found if rows is None else rows[found], by_member[by_group])
