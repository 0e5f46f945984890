"""What all detectors share: checked tables, the sign, the threshold."""

import abc
import secrets
from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from altbi.errors import TableError
from altbi.table import Table, as_table, is_frame

__all__ = ["Detector", "Scores", "drawn_seed"]

Scores = NDArray[np.float64]


class Detector(OutlierMixin, BaseEstimator, abc.ABC):
    """A detector learns from a table, then scores rows; all else follows from the score.

    The one hook of a detector is `_outlier_score`. Its sign, high for outliers, is turned here and
    nowhere else.
    """

    offset_: float
    n_features_in_: int
    fitted_on_frame_: bool

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
        check_is_fitted(self, "offset_")
        return self._outlier_score(self._checked(X))

    def score_samples(self, X: Any) -> Scores:  # noqa: ANN401
        """Score rows in scikit-learn's sign; low means outlier."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> Scores:  # noqa: ANN401
        """Score rows relative to the threshold; below zero means outlier."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: ANN401
        """Label rows: -1 for outliers, 1 for the others."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _checked_for_fit(self, X: Any) -> Table:  # noqa: ANN401
        """Turn what the user has into a table to learn from, or say what is wrong with it."""
        self.fitted_on_frame_ = is_frame(X)
        if not self.fitted_on_frame_:
            return as_table(self._checked_array(X, reset=True))
        table = as_table(X)
        self._check_names(X, table, reset=True)
        if len(table) < 2:
            raise TableError(
                f"Found array with 1 sample(s) (shape={table.shape}) while a minimum of 2 is "
                f"required by {type(self).__name__}. Give more rows."
            )
        return table

    def _checked(self, X: Any) -> Table:  # noqa: ANN401
        """Turn what the user has into a table to score, or say what is wrong with it."""
        if not is_frame(X):
            return as_table(self._checked_array(X, reset=False), self._names())
        table = as_table(X)
        self._check_names(X, table, reset=False)
        # Columns of an array have no names but their places; those of a frame are told by name.
        return table if self.fitted_on_frame_ else table.renamed(self._names())

    def _check_names(self, X: Any, table: Table, *, reset: bool) -> None:  # noqa: ANN401
        """Let scikit-learn keep or compare names and the number of columns."""
        if isinstance(X, Table) and not reset and self.fitted_on_frame_:
            return  # the encoder compares our own tables with the fit
        if isinstance(X, Table) and reset:
            source: Any = pa.table([pa.nulls(0)] * len(table.names), names=list(table.names))
        else:
            source = X if hasattr(X, "shape") and len(X.shape) == 2 else np.empty(table.shape)
        validate_data(self, source, reset=reset, skip_check_array=True)

    def _checked_array(self, X: Any, *, reset: bool) -> NDArray[np.floating]:  # noqa: ANN401
        """Check an array by scikit-learn's rules, and by ours where it would lose something."""
        # Some sparse matrices are dicts too; scikit-learn has a sentence of its own for them.
        if isinstance(X, str | bytes | PathLike) or type(X) is dict:
            raise TableError(
                f"Expected a 2D array or a data frame, got a {type(X).__name__} instead. "
                "Read a file first, for example with pandas.read_csv; make a data frame of a dict."
            )
        if hasattr(X, "collect"):
            raise TableError(
                f"The {type(X).__name__} is lazy, but expected rows. Call its collect() first."
            )
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(np.float64), np.nan)
        if getattr(getattr(X, "dtype", None), "kind", None) in {"m", "M"}:
            raise TableError(
                f"The array holds {X.dtype}, but expected numbers. "
                "Put dates into a data frame, where each column has its own type."
            )
        try:
            return validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,  # the encoder takes NaN as missing and names infinities
                ensure_min_samples=2 if reset else 1,
            )
        except ValueError as problem:
            raise _naming_the_column(X, problem) from None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def drawn_seed(random_state: int | np.random.RandomState | None) -> int:
    """Give the seed of a fit, without a look at the global random state."""
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(random_state.randint(2**31 - 1))


def _naming_the_column(X: object, problem: ValueError) -> ValueError:
    """Say where the text stands that scikit-learn could not turn into a number."""
    if not str(problem).startswith("could not convert string to float"):
        return problem
    cells = np.asarray(X, dtype=object)
    if cells.ndim != 2:
        return TableError(
            f"Expected 2D array, got a {type(X).__name__} with {cells.ndim} dimension(s) instead. "
            "Give rows and columns: a 2-D array of numbers or a data frame."
        )
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
