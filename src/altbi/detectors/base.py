"""What all detectors share: checked tables, the sign, the threshold."""

import abc
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from altbi.errors import TableError
from altbi.table import Table, as_table, is_frame

__all__ = ["Detector"]

Scores = NDArray[np.float64]


class Detector(OutlierMixin, BaseEstimator, abc.ABC):
    """A detector learns from a table, then scores rows; all else follows from the score.

    The one hook of a detector is `_outlier_score`. Its sign, high for outliers, is turned here and
    nowhere else.
    """

    offset_: float
    n_features_in_: int

    @abc.abstractmethod
    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401 - any table
        """Learn from a table."""

    @abc.abstractmethod
    def _outlier_score(self, table: Table) -> Scores:
        """Score the rows of a checked table; high means outlier."""

    @abc.abstractmethod
    def _names(self) -> Sequence[str]:
        """Name the columns as at fit, whether or not the table had names."""

    def anomaly_score(self, X: Any) -> Scores:  # noqa: ANN401
        """Score rows; high means outlier."""
        check_is_fitted(self)
        return self._outlier_score(self._checked(X, reset=False))

    def score_samples(self, X: Any) -> Scores:  # noqa: ANN401
        """Score rows in scikit-learn's sign; low means outlier."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> Scores:  # noqa: ANN401
        """Score rows relative to the threshold; below zero means outlier."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: ANN401
        """Label rows: -1 for outliers, 1 for the others."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _checked(self, X: Any, *, reset: bool) -> Table:  # noqa: ANN401
        """Turn what the user has into a table, or say what is wrong with it."""
        least = 2 if reset else 1
        if is_frame(X):
            table = as_table(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not reset and not hasattr(self, "feature_names_in_"):
                table = table.renamed(self._names())
            if len(table) < least:
                raise TableError(
                    f"Found array with {len(table)} sample(s) (shape={table.shape}) while a "
                    f"minimum of {least} is required by {type(self).__name__}. Give more rows."
                )
            return table
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(np.float64), np.nan)
        try:
            rows = validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,  # the encoder takes NaN as missing and names infinities
                ensure_min_samples=least,
            )
        except ValueError as problem:
            raise _naming_the_column(X, problem) from None
        return as_table(rows, None if reset else self._names())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _naming_the_column(X: object, problem: ValueError) -> ValueError:
    """Say where the text stands that scikit-learn could not turn into a number."""
    if not str(problem).startswith("could not convert string to float"):
        return problem
    cells = np.asarray(X, dtype=object)
    for row, column in np.ndindex(*cells.shape):
        cell = cells[row, column]
        if isinstance(cell, str) and not _is_number(cell):
            return TableError(
                f"could not convert string to float: {cell!r} in column {column}, row {row} of an "
                "array. Give arrays of numbers, or a data frame, whose text columns become "
                "categories."
            )
    return problem


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
