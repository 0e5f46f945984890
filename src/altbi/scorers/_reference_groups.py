"""Squared distances from rows to groups of reference rows, by matrix products of tiles.

``|x - r|**2`` is computed as ``|x|**2 + (|r|**2 - 2 r.x)``. The second term is the product of the
vectors ``[-2 r, |r|**2]`` and ``[x, 1]``. All rows are scored in tiles of the same shape, so that
the distance of a row does not depend on other rows (`altbi._tiles`).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from altbi._buffers import ThreadBuffers
from altbi._threads import single_blas_thread
from altbi._tiles import (
    TILE_COLUMNS,
    TILE_ROWS,
    is_position_independent,
    join_tiles,
    split_into_tiles,
)

Rows = NDArray[np.float32]
Squares = NDArray[np.float64]
Mask = NDArray[np.bool_]

# A squared distance up to this share of 1 + the row's squared norm counts as 0, because rounding
# may cause it.
ZERO_TOLERANCE = 1e-12
# Squared distances above this share of 1 + the row's squared norm have at least four correct digits
# in single precision, which takes half the time. Smaller ones are computed in double precision.
MIN_FLOAT32_DISTANCE = 0.01
# Reused so that they stay in cache.
_SCRATCH = ThreadBuffers()
# Features that are compared to find out whether a row may equal a reference row.
_MAX_COMPARED_COLUMNS = 8
# If a smaller share of the reference rows is distinct, equal rows are scored only once.
_MAX_DISTINCT_SHARE = 0.9


@final
class ReferenceGroups:
    """Reference rows, prepared for computing the squared distances of other rows to them.

    Reference row i belongs to group ``i % count``. If there is a whitening, the mean reference row
    is subtracted from all rows, and they are multiplied by it first. Without the subtraction, norms
    would be too large for single precision. A row gets the same bits in every call.
    """

    def __init__(self, reference: Rows, count: int, whitening: Rows | None) -> None:
        self.reference = reference
        self.count = count
        self.whitening = None if whitening is None else _convert_precisions(whitening.T)
        # Rounded to single precision, so that both precisions subtract the same numbers.
        center = reference.mean(axis=0, dtype=np.float64)[:, None]
        self._center = _convert_precisions(center.astype(np.float32))
        # Rows of zeros are appended so that all groups have the same number of rows.
        self.padded_reference = np.zeros((-(-len(reference) // count) * count, reference.shape[1]))
        tiles = split_into_tiles(reference, reference.shape[1], np.float64)
        self._apply_whitening(tiles)
        self.padded_reference[: len(reference)] = join_tiles(tiles, len(reference)).T

    def _apply_whitening(self, tiles: NDArray[Any]) -> None:
        """Center the columns of all tiles and multiply them by the whitening, if there is one.

        This is done in place.
        """
        if self.whitening is not None:
            tiles -= self._center[tiles.dtype]
            for tile in tiles:
                tile[:] = np.matmul(self.whitening[tiles.dtype], tile)

    @cached_property
    def complete_factors(self) -> dict[DTypeLike, NDArray[Any]]:
        """Matrix ``[-2R, |R|**2]`` by precision, for rows without missing values.

        Rows that only pad a group have an infinite norm, and so an infinite distance.
        """
        squared_norms = (self.padded_reference**2).sum(axis=1, keepdims=True)
        squared_norms[len(self.reference) :] = np.inf
        return _convert_precisions(np.hstack([-2 * self.padded_reference, squared_norms]))

    @cached_property
    def weighted_factors(self) -> Squares:
        """Matrix ``[-2R, R**2]``, which is multiplied by ``[w * x, w]`` for rows with weights w."""
        return np.hstack([-2 * self.padded_reference, self.padded_reference**2])

    @cached_property
    def has_many_duplicates(self) -> bool:
        """Whether fewer than 90% of the reference rows are distinct.

        The scored rows probably have many duplicates as well.
        """
        distinct = {row.tobytes() for row in self.reference}
        return len(distinct) < _MAX_DISTINCT_SHARE * len(self.reference)

    @cached_property
    def _columns_by_distinct_values(self) -> NDArray[np.intp]:
        """Indices of the features, that with the most distinct values of reference rows first."""
        n_distinct = [len(np.unique(column)) for column in self.reference.T]
        return np.argsort(np.negative(n_distinct), kind="stable")

    @cached_property
    def is_single_precision_safe(self) -> bool:
        """Whether single precision is accurate for most rows and reproducible on this machine.

        Accuracy is checked for the first reference rows, at most one tile. More than half of them
        must be far enough from the other reference rows.
        """
        single = np.dtype(np.float32)
        matrices = [self.complete_factors[single]]
        if self.whitening is not None:
            matrices.append(self.whitening[single])
        if not all(is_position_independent(*matrix.shape, single) for matrix in matrices):
            return False
        sample = self.reference[:TILE_ROWS]
        present = np.ones_like(sample, dtype=bool)
        ((_, distances, squared_norms),) = self.iter_distances(
            sample, np.ones_like(sample), present
        )
        is_far = distances.min(axis=0) > MIN_FLOAT32_DISTANCE * (1 + squared_norms)
        return bool(is_far.mean() > 0.5)

    def fill_missing_values(self, rows: Rows) -> Rows:
        """Return rows in which missing values are 0, if there is a whitening.

        They count as 0 then. Rows that may equal a reference row in their other values are not
        changed, because this reference row has to be excluded. Without a whitening, and without
        missing values, the same array is returned.
        """
        missing = np.isnan(rows)
        positions = np.flatnonzero(missing.any(axis=1))
        if self.whitening is None or not len(positions):
            return rows
        is_other = np.zeros(len(positions), dtype=bool)
        for column in self._columns_by_distinct_values[:_MAX_COMPARED_COLUMNS]:
            values = rows[positions, column]
            is_other |= ~np.isnan(values) & ~np.isin(values, self.reference[:, column])
        filled = rows.copy()
        filled[positions[is_other]] = np.nan_to_num(rows[positions[is_other]])
        return filled

    def compute_group_minima(self, rows: Rows, precision: DTypeLike) -> tuple[Squares, Squares]:
        """Return the smallest squared distance to each group, and the rows' squared norms.

        The shapes are ``(n_groups, n_rows)`` and ``(n_rows,)``. Products are computed in the given
        precision. Reference rows that equal a row are not excluded. Rows with missing values have
        NaN. Call this in a `single_blas_thread` block. The next call of this thread overwrites the
        minima.
        """
        single, double = _SCRATCH.single, _SCRATCH.double
        buffers = single if np.dtype(precision) == single.dtype else double
        tiles = split_into_tiles(rows, rows.shape[1] + 1, precision, buffers)
        self._apply_whitening(tiles[:, :-1])
        squares = double.get("squares", *tiles[:, :-1].shape)
        np.square(tiles[:, :-1], out=squares, dtype=np.float64)
        squared_norms = squares.sum(axis=1, keepdims=True)
        tiles[:, -1] = 1
        factors = self.complete_factors[tiles.dtype]
        # All tiles use the same buffer, which stays in the cache. Columns are the last axis,
        # because minima over a short last axis are slow.
        products = buffers.get("products", len(factors), TILE_COLUMNS)
        by_group = self.reshape_by_group(products)
        minima = double.get("minima", len(tiles), self.count, TILE_COLUMNS)
        for tile, tile_minima in zip(tiles, minima, strict=True):
            np.matmul(factors, tile, out=products)
            tile_minima[:] = np.minimum.reduce(by_group, axis=0)
        minima += squared_norms
        return join_tiles(minima, len(rows), double), join_tiles(squared_norms, len(rows))[0]

    def iter_distances(
        self, rows: Rows, weights: Rows, present: Mask
    ) -> Iterator[tuple[slice, Squares, Squares]]:
        """Yield slices of rows, their squared distances to all reference rows, and squared norms.

        `rows`, `weights` and `present` have the same shape. Missing values in `rows` must be
        filled, with a weight of 0 and False in `present`. Squared differences and norms are
        weighted, unless there is a whitening. A slice has at most `TILE_ROWS` rows; its distances
        have the shape ``(n_reference_padded, n_slice)`` and its norms ``(n_slice,)``. Distances are
        infinite to rows that only pad a group, and to one reference row that equals the row in all
        `present` values. The next slice in this thread overwrites the distances.
        """
        for first in range(0, len(rows), TILE_ROWS):
            tile = slice(first, min(first + TILE_ROWS, len(rows)))
            with single_blas_thread(), np.errstate(all="ignore"):
                distances, squared_norms = self._compute_distances(rows[tile], weights[tile])
                self._exclude_equal_rows(rows[tile], present[tile], distances, squared_norms)
            yield tile, distances, squared_norms

    def _compute_distances(self, rows: Rows, weights: Rows) -> tuple[Squares, Squares]:
        """Return weighted squared distances to all reference rows, and weighted squared norms.

        `rows` has at most `TILE_ROWS` rows and no missing values. With a whitening, all weights
        are 1. Rows that only pad a group have an infinite distance.
        """
        values = split_into_tiles(rows, rows.shape[1], np.float64)
        self._apply_whitening(values)
        used = weights if self.whitening is None else np.ones_like(weights)
        factors = split_into_tiles(used, rows.shape[1], np.float64)
        squared_norms = (values**2 * factors).sum(axis=1, keepdims=True)
        products = np.concatenate([values * factors, factors], axis=1)
        shape = 1, len(self.weighted_factors), TILE_COLUMNS
        distances = _SCRATCH.double.get("distances", *shape)
        np.matmul(self.weighted_factors, products, out=distances)
        # Often there are few rows, so the other columns of the tile are left out here.
        inner = join_tiles(distances, len(rows))
        norms = join_tiles(squared_norms, len(rows))[0]
        inner += norms
        inner[len(self.reference) :] = np.inf
        return inner, norms

    def _exclude_equal_rows(
        self, rows: Rows, present: Mask, distances: Squares, squared_norms: Squares
    ) -> None:
        """Set the distance from each row to one equal reference row to infinity, in place.

        Only the first reference row that equals the row in all `present` values is excluded.
        Reference rows with a distance above the rounding error are not compared.
        """
        limits = ZERO_TOLERANCE * (1 + squared_norms)
        if self.whitening is not None:
            # Missing values count as 0 here, so an equal reference row may be at any distance.
            limits[~present.all(axis=1)] = np.finfo(np.float64).max
        positions = np.flatnonzero(distances.min(axis=0) <= limits)
        if not len(positions):
            return
        is_near = distances[:, positions] <= limits[positions]
        firsts = is_near.argmax(axis=0)
        same = (self.reference[firsts] == rows[positions]) | ~present[positions]
        is_same = same.all(axis=1)
        distances[firsts[is_same], positions[is_same]] = np.inf
        # The first candidate of these rows is not equal to them, but a later one may be. Comparing
        # the most unusual value first leaves few candidates.
        left = positions[~is_same]
        unusual = np.abs(rows[left] - self._center[np.dtype(np.float64)][:, 0])
        columns = np.where(present[left], unusual, -1.0).argmax(axis=1)
        for position, column, candidates in zip(left, columns, is_near[:, ~is_same].T, strict=True):
            if present[position, column]:
                candidates[: len(self.reference)] &= (
                    self.reference[:, column] == rows[position, column]
                )
            others = np.flatnonzero(candidates)
            equal = ((self.reference[others] == rows[position]) | ~present[position]).all(axis=1)
            distances[others[equal][:1], position] = np.inf

    def reshape_by_group(self, distances: NDArray[Any]) -> NDArray[Any]:
        """Return distances in the shape ``(group_size, n_groups, n_rows)``."""
        return distances.reshape(-1, self.count, distances.shape[1])


def _convert_precisions(matrix: NDArray[Any]) -> dict[DTypeLike, NDArray[Any]]:
    """Return a matrix in double and in single precision, by data type."""
    types = np.dtype(np.float64), np.dtype(np.float32)
    return {dtype: np.ascontiguousarray(matrix, dtype=dtype) for dtype in types}
