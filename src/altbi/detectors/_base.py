"""The base class of all detectors, with the interface of scikit-learn."""

import abc
from collections.abc import Iterator
from os import PathLike
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from altbi.encoding import TableEncoder
from altbi.errors import ModelFileError, ParameterError, TableError, describe_cause, quote
from altbi.explain import Explanation
from altbi.model import FitSettings, FittedModel, build_settings, iter_fit
from altbi.model._labels import parse_labels
from altbi.networks import TrainingStep
from altbi.table import Table, as_table, is_frame
from altbi.table._arrays import to_number_array

Scores = NDArray[np.float64]


class Detector(OutlierMixin, BaseEstimator, abc.ABC):
    """Base class of the detectors: parameters in, a `FittedModel` out.

    A subclass only has a constructor that stores its parameters.

    Attributes
    ----------
    model_ : FittedModel
        The fitted model.
    """

    model_: FittedModel
    n_features_in_: int

    def settings(self) -> FitSettings:
        """Return the checked settings of a fit with these parameters.

        Returns
        -------
        FitSettings
            What `altbi.detect` and a fit need.

        Raises
        ------
        ParameterError
            If a parameter has an invalid value.
        """
        return build_settings(type(self).__name__, self.get_params(deep=False))

    def fit(
        self,
        X: Any,  # noqa: ANN401 - any table
        y: object = None,
        *,
        known_inlier: ArrayLike | None = None,
        known_outlier: ArrayLike | None = None,
    ) -> Self:
        """Fit the detector on a table; labels of some rows are optional.

        An earlier fit is discarded before the table is checked.

        Parameters
        ----------
        X : array or data frame
            The table.
        y : object
            Not used.
        known_inlier : array of bool, optional
            Rows that are known to be normal. Training never truncates their losses. For ODIM and
            privacy budgets, labels raise a `ParameterError`.
        known_outlier : array of bool, optional
            Rows that are believed to be outliers. Some labels may be wrong.

        Returns
        -------
        object
            The fitted detector.
        """
        for _ in self.iter_fit(X, known_inlier=known_inlier, known_outlier=known_outlier):
            pass
        return self

    def iter_fit(
        self,
        X: Any,  # noqa: ANN401
        *,
        known_inlier: ArrayLike | None = None,
        known_outlier: ArrayLike | None = None,
    ) -> Iterator[TrainingStep]:
        """Fit the detector and yield each training step.

        The detector is fitted when there are no more steps. An earlier fit is discarded when the
        first step is requested. Labels raise a `ParameterError` for ODIM and privacy budgets.

        Parameters
        ----------
        X : array or data frame
            The table.
        known_inlier, known_outlier : array of bool, optional
            As for `fit`.

        Yields
        ------
        TrainingStep
            Batch size, kept share and loss of each step.

        Examples
        --------
        >>> import numpy as np
        >>> from altbi import OutlierDetector
        >>> detector = OutlierDetector()
        >>> steps = detector.iter_fit(np.random.default_rng(0).normal(size=(200, 3)))
        >>> next(steps).batch_size
        128
        >>> sum(1 for _ in steps)
        89
        """
        settings = self.settings()
        if hasattr(self, "model_"):
            del self.model_  # an interrupted fit must not leave the earlier model
        table = self._convert_for_fit(X)
        labels = parse_labels(known_inlier, known_outlier, X, len(table))
        if labels is not None and not settings.uses_labels:
            raise ParameterError(
                "known_inlier and known_outlier are neither for ODIM nor for a privacy budget, "
                "which does not cover them. Leave them out, or use another detector."
            )
        self.model_ = yield from iter_fit(table, settings, labels)

    @property
    def offset_(self) -> float:
        """Negative threshold, for `score_samples`: rows below it are outliers. Needs a fit."""
        check_is_fitted(self, "model_")
        return -self.model_.threshold

    @property
    def encoder_(self) -> TableEncoder:
        """The fitted encoder, which converts columns to numbers; needs a fit."""
        check_is_fitted(self, "model_")
        return self.model_.encoder

    @property
    def history_(self) -> tuple[TrainingStep, ...]:
        """Batch size, kept share and loss of each training step; needs a fit."""
        check_is_fitted(self, "model_")
        return self.model_.history

    def outlier_score(self, X: Any) -> Scores:  # noqa: ANN401
        """Return the outlier scores of rows; drift from the training table raises warnings.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the fit.

        Returns
        -------
        ndarray of shape (n_rows,)
            High means outlier.
        """
        check_is_fitted(self, "model_")
        return self.model_._score_with_warnings(self._convert_for_scoring(X), stacklevel=3)

    def score_samples(self, X: Any) -> Scores:  # noqa: ANN401
        """Return the negative outlier scores of rows, as scikit-learn defines them.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the fit.

        Returns
        -------
        ndarray of shape (n_rows,)
            Low means outlier.
        """
        return -self.outlier_score(X)

    def decision_function(self, X: Any) -> Scores:  # noqa: ANN401
        """Return the threshold minus the outlier score of each row.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the fit.

        Returns
        -------
        ndarray of shape (n_rows,)
            Negative values mean outliers.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: ANN401
        """Return -1 for rows with a score above the threshold, and 1 for all others.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the fit.

        Returns
        -------
        ndarray of shape (n_rows,)
            -1 for outliers, 1 for inliers.
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def explain(self, X: Any) -> Explanation:  # noqa: ANN401
        """Return the scores of rows, split by column; drift raises no warning.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the fit.

        Returns
        -------
        Explanation
            Contributions, expected values and similar normal rows.
        """
        check_is_fitted(self, "model_")
        return self.model_.explain(self._convert_for_scoring(X))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a file that contains data only, no code.

        Parameters
        ----------
        path : str or path
            The file, which is replaced if it exists. It appears only when it is complete.
        """
        check_is_fitted(self, "model_")
        self.model_.save(path)

    @classmethod
    def load(cls, path: str | PathLike[str], *, backbone: Any = None) -> Self:  # noqa: ANN401
        """Read a fitted detector from a file.

        Parameters
        ----------
        path : str or path
            The file.
        backbone : class, function or nn.Module, optional
            Your own network, if the model was fitted with one.

        Returns
        -------
        object
            The fitted detector, with the parameters of the file.

        Raises
        ------
        ModelFileError
            If the file is damaged, of another program or version, or holds another detector.
        """
        model = FittedModel.load(path, backbone=backbone)
        if model.settings.detector != cls.__name__:
            raise ModelFileError(
                f"{path}: the file holds the detector {quote(model.settings.detector)}, but "
                f"expected {cls.__name__!r}. Load it with that class, or with altbi.load."
            )
        detector = cls(**model.settings.parameters)
        detector.n_features_in_ = len(model.encoder.names)
        if model.training_table.has_names:
            detector.feature_names_in_ = np.asarray(model.encoder.names, dtype=object)
        detector.model_ = model
        return detector

    def _convert_for_fit(self, X: Any) -> Table:  # noqa: ANN401
        """Convert input to the training table; fewer than 2 rows or invalid input raise an error.

        Sets `n_features_in_` and, if the columns have names, `feature_names_in_`. Sets `has_names`
        of the table, also if the input is a `Table` already.
        """
        if not is_frame(X):
            table = as_table(self._validate_array(X, reset=True))
        else:
            table = as_table(X)
            self._store_or_check_names(X, table, reset=True)
        table.has_names = hasattr(self, "feature_names_in_")
        if len(table) < 2:
            raise TableError(
                f"Found array with 1 sample(s) (shape={table.shape}) while a minimum of 2 is "
                f"required by {type(self).__name__}. Add more rows."
            )
        return table

    def _convert_for_scoring(self, X: Any) -> Table:  # noqa: ANN401
        """Convert input to a table with the columns of the fit.

        Another number of columns, other names or invalid input raise an error.
        """
        if not is_frame(X):
            return self.model_.prepare(self._validate_array(X, reset=False))
        table = as_table(X)
        self._store_or_check_names(X, table, reset=False)
        return self.model_.prepare(table)

    def _store_or_check_names(self, X: Any, table: Table, *, reset: bool) -> None:  # noqa: ANN401
        """Store names and number of columns if `reset`, else compare them with those of the fit.

        This follows scikit-learn's rules, and raises `TableError` with its messages. A `Table` is
        not compared here if the fit was on a frame: the encoder compares it.
        """
        if isinstance(X, Table) and not reset and self.model_.training_table.is_frame:
            return  # the encoder compares the columns of a `Table` with the fit
        if isinstance(X, Table) and reset:
            source: Any = pa.table([pa.nulls(0)] * len(table.names), names=list(table.names))
        else:
            source = X if hasattr(X, "shape") and len(X.shape) == 2 else np.empty(table.shape)
        try:
            validate_data(self, source, reset=reset, skip_check_array=True)
        except (TypeError, ValueError) as error:
            # scikit-learn tests this message, which lists the names in several lines.
            raise TableError(str(error)) from error

    def _validate_array(self, X: Any, *, reset: bool) -> NDArray[np.floating]:  # noqa: ANN401
        """Return a float64 or float32 array that scikit-learn accepts; masked values become NaN.

        Paths, dicts, lazy frames, arrays of dates and texts that are not numbers raise an error. If
        `reset`, at least 2 rows are needed, and names and number of columns are stored.
        """
        # Some sparse matrices are dicts too; scikit-learn has an error message for them.
        if isinstance(X, str | bytes | PathLike) or type(X) is dict:
            raise TableError(
                f"Expected a 2D array or a data frame, got a {type(X).__name__} instead. "
                "Read a file with altbi.detect or pandas.read_csv; turn a dict into a data frame."
            )
        if hasattr(X, "collect"):
            raise TableError(
                f"The {type(X).__name__} is lazy, but expected rows. Call its collect() first."
            )
        if isinstance(X, np.ma.MaskedArray):
            X = to_number_array(X)
        kind = getattr(getattr(X, "dtype", None), "kind", None)
        if kind in {"m", "M"}:
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
                ensure_all_finite=False,  # NaN is missing; the encoder raises for infinity
                ensure_min_samples=2 if reset else 1,
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise _build_array_error(X, error) from error

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags, which state that missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _build_array_error(X: object, error: Exception) -> TableError:
    """Return scikit-learn's error about an array as a `TableError` of one line.

    If a text is not a number, the error has its position.
    """
    message = describe_cause(error).rstrip(".:")
    if message.startswith("could not convert string to float"):
        return _build_text_error(X, message)
    advice = "Pass a 2D array of numbers or a data frame."
    if "Reshape your data" in str(error):
        advice = "Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row."
    kind = _TableTypeError if isinstance(error, TypeError) else TableError
    return kind(f"{message}. {advice}")


class _TableTypeError(TableError, TypeError):
    """An invalid table for which scikit-learn's tests expect a `TypeError`."""


def _build_text_error(X: object, message: str) -> TableError:
    """Return an error with the position of the first text of `X` that is not a number.

    `message` is scikit-learn's, which is used if there is no such text. Input that is not 2D has an
    error of its own.
    """
    values = np.asarray(X, dtype=object)
    if values.ndim != 2:
        return TableError(
            f"Expected 2D array, got a {type(X).__name__} with {values.ndim} dimension(s) instead. "
            "Pass a 2D array of numbers or a data frame."
        )
    for row, column in np.ndindex(*values.shape):
        value = values[row, column]
        if isinstance(value, str) and not _is_number(value):
            return TableError(
                f"could not convert string to float: {quote(value)} in column {column}, row {row} "
                "of the array. Pass numbers, or a data frame, whose text columns become categories."
            )
    return TableError(f"{message}. Pass numbers, or a data frame.")


def _is_number(text: str) -> bool:
    """Return whether a text can be converted to a float; "nan" and "inf" can."""
    try:
        float(text)
    except ValueError:
        return False
    return True
