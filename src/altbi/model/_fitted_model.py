"""The fitted model: what scores, explains and is saved."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from altbi._threads import count_threads, map_in_threads
from altbi._tiles import TILE_ROWS
from altbi.encoding import Drift, TableEncoder
from altbi.errors import ParameterError, TableError, TableWarning
from altbi.explain import Explanation, explain
from altbi.model._file import TrainingTable, model_to_bytes, save_model
from altbi.model._privacy_ledger import Ledger
from altbi.model._settings import FitSettings
from altbi.networks import TrainingStep
from altbi.scorers import LossScorer, SumScorer
from altbi.table import Table, as_arrow_table, as_table, is_frame

Scores = NDArray[np.float64]

# Largest chunk. It is a multiple of `TILE_ROWS`, because scorers pad incomplete tiles.
_CHUNK_VALUES = 1 << 20
_CHUNK_ROWS = 100 * TILE_ROWS
# Smaller tables have chunks of down to a quarter of that size, so that all threads have work.
_CHUNKS_PER_THREAD = 8


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FittedModel:
    """A fitted model. It never changes; a fit and `load` create it.

    Attributes
    ----------
    settings : FitSettings
        The settings of the fit.
    training_table : TrainingTable
        The table that it was fitted on.
    encoder : TableEncoder
        Converts columns to numbers.
    scorer : SumScorer or LossScorer
        Converts encoded rows to scores.
    threshold : float
        Rows with a score above it are outliers.
    history : tuple of TrainingStep
        Batch size, kept share and loss of each training step.
    ledger : Ledger or None
        What a fit under a privacy budget has released; None without a budget.

    Examples
    --------
    >>> import numpy as np
    >>> import altbi
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> model = altbi.OutlierDetector().fit(X).model_
    >>> int(model.score(X).argmax())
    17
    """

    settings: FitSettings
    training_table: TrainingTable
    encoder: TableEncoder
    scorer: SumScorer | LossScorer
    threshold: float
    history: tuple[TrainingStep, ...]
    ledger: Ledger | None = None

    def __repr__(self) -> str:
        """Return one line: detector, size of the training table, and what scores are based on.

        It has no values of the table. The number of rows is approximate under a privacy budget.
        """
        about = "about " if self.ledger else ""
        n_reference = self.n_reference
        basis = f"{n_reference:,} reference rows" if n_reference else "loss"
        return (
            f"FittedModel({self.settings.detector}, {about}{self.training_table.n_rows:,} rows, "
            f"{len(self.encoder.names):,} columns, scores by {basis})"
        )

    @property
    def n_reference(self) -> int:
        """Number of reference rows that the model holds; 0 for scores by loss."""
        return len(self.scorer.distance.rows) if isinstance(self.scorer, SumScorer) else 0

    def score(self, X: Any) -> Scores:  # noqa: ANN401 - any table
        """Return the outlier scores of a table's rows.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the training table.

        Returns
        -------
        ndarray of shape (n_rows,)
            High means outlier.

        Warns
        -----
        TableWarning
            If the table holds values that the training table did not.

        Raises
        ------
        TableError
            If the columns differ from those of the training table, a value is infinite, or a row
            has no finite score.
        """
        return self._score_with_warnings(self._prepare_by_name(X), stacklevel=3)

    def explain(self, X: Any) -> Explanation:  # noqa: ANN401
        """Return the scores of a table's rows, split by column; drift raises no warning.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the training table.

        Returns
        -------
        Explanation
            Contributions, expected values and similar normal rows.

        Raises
        ------
        TableError
            As for `score`.
        """
        table = self._prepare_by_name(X)
        explanation = explain(table, self.scorer, self.encoder)
        _require_finite_scores(explanation.score, table.first_row)
        return explanation

    def cell_scores(self, X: Any) -> Scores:  # noqa: ANN401
        """Return how rare each value of a table is; the rarest cells are the likeliest errors.

        `altbi.find_cells` lists the highest ones with what is expected instead.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the training table.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Rarities in nats, at least 0, in the order of the training table's columns: 3 nats are
            rare, 10 are very rare. They count categories, formats, typos, pairs of values, dates,
            missing values, and numbers by themselves; beyond the usual range, numbers are the
            rarer, the farther they are. Unusual combinations of numbers do not count. The scores
            of a row depend on the row and the model alone.

        Raises
        ------
        TableError
            As for `score`.
        ParameterError
            If the model scores by loss.

        Examples
        --------
        >>> import altbi
        >>> import pyarrow as pa
        >>> cities = ["Leeds", "York"] * 50 + ["Leedds"]
        >>> table = pa.table({"city": cities, "floor": [1, 2] * 50 + [2]})
        >>> model = altbi.OutlierDetector().fit(table).model_
        >>> model.cell_scores(table).argmax(axis=0)[0]
        np.int64(100)
        """
        scorer = require_sum_scorer(self)
        table = X if isinstance(X, Table) else self._prepare_by_name(X)
        rows, rarities = scorer.encode(table, self.encoder)
        found = self.encoder.sum_by_column(scorer.score_number_cells(rows))
        return found if rarities is None else found + rarities

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file that contains data only, no code.

        Parameters
        ----------
        path : str or path
            The file, which is replaced if it exists. It appears only when it is complete.
        """
        save_model(self, path)

    def to_bytes(self) -> bytes:
        """Return the content of a model file.

        Returns
        -------
        bytes
            What `save` writes.
        """
        return model_to_bytes(self)

    @classmethod
    def load(cls, path: str | PathLike[str], *, backbone: Any = None) -> Self:  # noqa: ANN401
        """Read a model from a file.

        Parameters
        ----------
        path : str or path
            The file.
        backbone : class, function or nn.Module, optional
            Your own network, if the model was fitted with one. A file only holds its name, and
            nothing is imported by that name.

        Returns
        -------
        FittedModel
            The model.

        Raises
        ------
        ModelFileError
            If the file is damaged, of another program, or of another version.
        """
        from altbi.model._loading import load_model

        return load_model(path, backbone)

    def _score_with_warnings(self, table: Table, *, stacklevel: int) -> Scores:
        """Return the scores ``(n_rows,)`` of a prepared table, and warn about drift.

        A `TableWarning` is issued for each type of values that the training sample did not have.
        `stacklevel` is that of `warnings.warn`.
        """
        scores, drift = self.score_table(table)
        for sentence in drift.describe():
            warnings.warn(sentence, TableWarning, stacklevel=stacklevel)
        return scores

    def score_table(self, table: Any) -> tuple[Scores, Drift]:  # noqa: ANN401
        """Return the scores of a table, and its drift; drift raises no warning.

        Parameters
        ----------
        table : Table, array or data frame
            A result of `prepare`, or what `score` takes.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
            High means outlier.
        drift : Drift
            Values that the training sample did not have.

        Raises
        ------
        TableError
            As for `score`.
        """
        table = table if isinstance(table, Table) else self._prepare_by_name(table)

        def score(chunk: Table) -> Scores:
            """Encode and score one chunk of the table."""
            return self.scorer.score_table(chunk, self.encoder)

        scores, drift = score_chunks(score, table, self.encoder)
        _require_finite_scores(scores, table.first_row)
        return scores, drift

    def _prepare_by_name(self, X: Any) -> Table:  # noqa: ANN401
        """Return what `prepare` does; the columns of a data frame may have another order."""
        if is_frame(X) and not isinstance(X, Table) and self.training_table.is_frame:
            X = as_arrow_table(X)
            if sorted(X.column_names) == sorted(self.encoder.names):
                X = X.select(self.encoder.names)
        return self.prepare(X)

    def prepare(self, X: Any) -> Table:  # noqa: ANN401
        """Convert input to a table with the column names of the fit.

        The columns of an array get the fitted names by position. A data frame keeps its names,
        which are checked later. It is renamed by position if the fit was on an array.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the training table.

        Returns
        -------
        Table
            The same rows under these names.

        Raises
        ------
        TableError
            If the input is not a table, or has no names and another number of columns.
        """
        table = as_table(X)
        if is_frame(X) and self.training_table.is_frame:
            return table
        n_columns, n_expected = len(table.names), len(self.encoder.names)
        if n_columns != n_expected:
            raise TableError(
                f"The table has {n_columns} columns, but the model was fitted on {n_expected}. "
                "Pass the columns of the training table, in their order."
            )
        return table.rename(self.encoder.names)


def load(path: str | PathLike[str], *, backbone: Any = None) -> FittedModel:  # noqa: ANN401
    """Read a fitted model from a file.

    Parameters
    ----------
    path : str or path
        The file.
    backbone : class, function or nn.Module, optional
        Your own network, if the model was fitted with one. A file only holds its name, and nothing
        is imported by that name.

    Returns
    -------
    FittedModel
        The model.

    Raises
    ------
    ModelFileError
        If the file is damaged, of another program, or of another version.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import altbi
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     altbi.OutlierDetector().fit(X).save(Path(folder, "model.altbi"))
    ...     model = altbi.load(Path(folder, "model.altbi"))
    >>> model.score(X).shape
    (200,)
    """
    return FittedModel.load(path, backbone=backbone)


def require_sum_scorer(model: FittedModel) -> SumScorer:
    """Return the scorer of a model that knows how rare values are, or raise a `ParameterError`."""
    if isinstance(model.scorer, SumScorer):
        return model.scorer
    raise ParameterError(
        "The model scores by loss, so it does not know how rare single values are. Fit an "
        "OutlierDetector."
    )


def _require_finite_scores(scores: Scores, first_row: int) -> None:
    """Raise a `TableError` for the first score that is NaN or infinite.

    NaN is not above any threshold, so the row would count as an inlier. All scores pass here before
    they are compared, counted or written. `first_row` is the number of the first row.
    """
    is_finite = np.isfinite(scores)
    if not is_finite.all():
        raise TableError(
            f"Row {first_row + int(is_finite.argmin())} (counted from 0) has no finite score, so "
            "it is neither an inlier nor an outlier. Check its values, or fit the model again."
        )


def score_chunks(
    score: Callable[[Table], Scores], table: Table, encoder: TableEncoder
) -> tuple[Scores, Drift]:
    """Score a table in `count_threads` threads; return scores ``(n_rows,)`` and drift.

    `score` returns the scores of one chunk. Drift describes values that the training sample did not
    have. An empty table has no scores and no drift.
    """
    scores, drift = np.empty(len(table)), Drift()
    n_rows = _choose_chunk_rows(len(table), encoder.n_features_encoded)

    def score_chunk(first: int) -> Drift:
        """Score the chunk that starts at row `first`, write to `scores`, and return its drift."""
        chunk = table.slice(first, min(first + n_rows, len(table)))
        scores[first : first + len(chunk)] = score(chunk)
        return encoder.drift(chunk)

    for chunk_drift in map_in_threads(score_chunk, range(0, len(table), n_rows)):
        drift += chunk_drift
    return scores, drift


def _choose_chunk_rows(n_rows: int, n_features_encoded: int) -> int:
    """Return the number of rows of a chunk: a multiple of `TILE_ROWS` (304), at most 30,400.

    Small tables have smaller chunks, so that each thread gets several. Tables with many encoded
    features have smaller chunks, so that one holds about a million values.
    """
    most = max(min(_CHUNK_VALUES // n_features_encoded, _CHUNK_ROWS) // TILE_ROWS, 1)
    even = n_rows // (_CHUNKS_PER_THREAD * count_threads() * TILE_ROWS)
    n_tiles = min(max(even, most // 4, 1), most)
    return min(n_tiles * TILE_ROWS, _CHUNK_ROWS)
