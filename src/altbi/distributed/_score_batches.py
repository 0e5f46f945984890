"""A function from record batches to record batches with scores, for Spark, Ray and others."""

import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi._threads import single_blas_thread
from altbi.encoding import Drift
from altbi.errors import ParameterError, TableError, TableWarning, list_names, quote
from altbi.io import ColumnParser
from altbi.model import FittedModel
from altbi.model._score_source import score_batch

# The added columns as a Spark schema.
SCHEMA = "score double, outlier boolean"
ADDED_COLUMNS = ("score", "outlier")

Model = bytes | str | os.PathLike[str]


def score_batches(model: Model, *, keep: Sequence[str] = ()) -> "ScoreBatches":
    """Create a function that scores record batches, for Spark, Ray and other engines.

    Parameters
    ----------
    model : path or bytes
        A model file or its content. A path is opened by the worker; bytes are sent to it.
    keep : sequence of str, default=()
        Columns of the input that the output has as well, such as an id.

    Returns
    -------
    ScoreBatches
        A function from an iterator of record batches to another one. It is small when pickled.
        Each process loads the model once, and scores rows on one thread.

    Examples
    --------
    Spark: ``df.mapInArrow(score_batches("model.altbi", keep=["id"]), "id long, " + SCHEMA)``.
    Ray: ``ds.map_batches(score_batches("model.altbi").table, batch_format="pyarrow")``.

    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from altbi import OutlierDetector
    >>> from altbi.distributed import score_batches
    >>> batch = pa.record_batch({"size": np.random.default_rng(0).normal(size=200)})
    >>> model = OutlierDetector().fit(pa.table([batch["size"]], names=["size"])).model_
    >>> [scored] = score_batches(model.to_bytes())([batch])
    >>> scored.num_rows, scored.schema.names
    (200, ['score', 'outlier'])
    """
    return ScoreBatches(model, keep=keep)


@final
class ScoreBatches:
    """A picklable function that scores record batches; see `score_batches`.

    Parameters
    ----------
    model : path or bytes
        A model file or its content.
    keep : sequence of str, default=()
        Columns of the input that the output has as well.
    """

    def __init__(self, model: Model, *, keep: Sequence[str] = ()) -> None:
        if isinstance(keep, str) or set(keep) & set(ADDED_COLUMNS):
            raise ParameterError(
                f"keep={quote(keep)}, but expected a list of columns, none of them called "
                f"{' or '.join(ADDED_COLUMNS)}. Rename the column."
            )
        self.model = model if isinstance(model, bytes) else str(Path(model).absolute())
        self.keep = tuple(keep)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield for each batch its kept columns, `score` (high means outlier) and `outlier`.

        An empty batch yields an empty batch. After the last batch, drift raises a `TableWarning`. A
        batch without the model's columns raises a `TableError`.
        """
        model, n_rows, drift = load_cached(self.model), 0, Drift()
        for batch in batches:
            if not len(batch):
                yield self._build_output(batch, np.empty(0), np.empty(0, dtype=np.bool_))
                continue
            parser = ColumnParser(self._find_columns(model, batch.schema.names), {}, ())
            with single_blas_thread():
                scored = score_batch(model, parser, batch, n_rows)
            n_rows += len(batch)
            drift += scored.drift
            yield self._build_output(batch, scored.scores, scored.flagged)
        for sentence in drift.describe():
            warnings.warn(sentence, TableWarning, stacklevel=2)

    def table(self, table: pa.Table) -> pa.Table:
        """Score a table, for engines that pass tables instead of iterators.

        Parameters
        ----------
        table : pyarrow.Table
            The rows.

        Returns
        -------
        pyarrow.Table
            The kept columns, `score` and `outlier`.
        """
        batches = table.combine_chunks().to_batches()
        return pa.Table.from_batches(self(batches or [_create_empty_batch(table.schema)]))

    def _find_columns(self, model: FittedModel, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of a batch that the model uses.

        They are found by name, or by position among the columns that are not kept if the model was
        fitted on an array. Missing columns, or another number of columns, raise a `TableError`.
        """
        kept, given = set(self.keep), set(names)
        wanted = tuple(name for name in names if name not in kept)
        if model.training_table.is_frame:
            wanted = model.encoder.names
        absent = [name for name in (*wanted, *self.keep) if name not in given]
        if absent or len(wanted) != len(model.encoder.names):
            raise TableError(
                f"The batch has the columns {list_names(names)}, but expected "
                f"{list_names([*model.encoder.names, *self.keep])}. "
                "Select the columns of the model."
            )
        return wanted

    def _build_output(
        self, batch: pa.RecordBatch, scores: NDArray[np.float64], flagged: NDArray[np.bool_]
    ) -> pa.RecordBatch:
        """Return a batch with the kept columns of `batch`, the scores and the flags."""
        kept = [batch.column(name) for name in self.keep]
        return pa.RecordBatch.from_arrays(
            [*kept, pa.array(scores), pa.array(flagged)], names=[*self.keep, *ADDED_COLUMNS]
        )


def load_cached(model: str | bytes) -> FittedModel:
    """Load a model from a path or from bytes, or return it if this process has loaded it before.

    The last two paths and the last two contents are cached. A file that has changed is loaded
    again.
    """
    if isinstance(model, bytes):
        return _load_bytes(model)
    stat = Path(model).stat()
    return _load_path(model, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=2)
def _load_path(path: str, size: int, modified: int) -> FittedModel:
    """Load a model file; the last two are cached by path, size and modification time."""
    return FittedModel.load(path)


@lru_cache(maxsize=2)
def _load_bytes(content: bytes) -> FittedModel:
    """Load a model from the content of a model file; the last two are cached."""
    with tempfile.NamedTemporaryFile(prefix="altbi-", suffix=".altbi") as file:
        file.write(content)
        file.flush()
        return FittedModel.load(file.name)


def _create_empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch with this schema and no rows."""
    return pa.RecordBatch.from_pylist([], schema=schema)
