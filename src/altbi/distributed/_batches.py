"""Record batches in, record batches with scores out: one function for every engine."""

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

from altbi.encoding import Drift
from altbi.errors import ParameterError, TableError, TableWarning
from altbi.io import ColumnParser
from altbi.model import FittedModel
from altbi.model._score_source import score_batch
from altbi.networks._torch_modes import single_thread

__all__ = ["SCHEMA", "ScoreBatches", "load_once", "score_batches"]

# What is added to the columns that are kept, in the words of Spark.
SCHEMA = "score double, outlier boolean"
_ADDED = ("score", "outlier")

Model = bytes | str | os.PathLike[str]


def score_batches(model: Model, *, keep: Sequence[str] = ()) -> "ScoreBatches":
    """Make a function that scores record batches, for Spark, Ray and others.

    Parameters
    ----------
    model : path or bytes
        A model file, or what is in it. A path is opened where the work is done, bytes travel along.
    keep : sequence of str, default=()
        Columns of the input that the output has as well, such as the name of a row.

    Returns
    -------
    ScoreBatches
        Takes an iterator of record batches, gives one. Small to send; the model is loaded once in
        each process, and rows are scored on one thread.

    Examples
    --------
    Spark: ``df.mapInArrow(score_batches("model.altbi", keep=["id"]), "id long, " + SCHEMA)``.
    Ray: ``ds.map_batches(score_batches("model.altbi").table, batch_format="pyarrow")``.
    """
    return ScoreBatches(model, keep=keep)


@final
class ScoreBatches:
    """Scores record batches with the model of a file; see `score_batches`."""

    def __init__(self, model: Model, *, keep: Sequence[str] = ()) -> None:
        if isinstance(keep, str) or set(keep) & set(_ADDED):
            raise ParameterError(
                f"keep={keep!r}, but expected a list of columns, none of them called "
                f"{' or '.join(_ADDED)}. Rename the column."
            )
        self.model = model if isinstance(model, bytes) else str(Path(model).absolute())
        self.keep = tuple(keep)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the columns to keep, `score` (high means outlier) and `outlier`, batch by batch."""
        model, seen, drift = load_once(self.model), 0, Drift()
        for batch in batches:
            if not len(batch):
                yield self._output(batch, np.empty(0), np.empty(0, dtype=np.bool_))
                continue
            parser = ColumnParser(self._find_columns(model, batch.schema.names), {}, ())
            with single_thread():
                scored = score_batch(model, parser, batch, seen)
            seen += len(batch)
            drift += scored.drift
            yield self._output(batch, scored.scores, scored.flagged)
        for sentence in drift.describe():
            warnings.warn(sentence, TableWarning, stacklevel=2)

    def table(self, table: pa.Table) -> pa.Table:
        """Score a whole table, for engines that hand out tables."""
        batch = pa.RecordBatch.from_arrays(
            [_joined(column) for column in table.columns], names=table.column_names
        )
        return pa.Table.from_batches(self([batch]))

    def _find_columns(self, model: FittedModel, names: Sequence[str]) -> tuple[str, ...]:
        """Find the model's columns: by name, or by place if it was fitted on an array."""
        wanted = tuple(name for name in names if name not in self.keep)
        if model.training_table.is_frame:
            wanted = model.encoder.names
        absent = [name for name in (*wanted, *self.keep) if name not in names]
        if absent or len(wanted) != len(model.encoder.names):
            raise TableError(
                f"The batch has the columns {list(names)}, but expected "
                f"{[*model.encoder.names, *self.keep]}. Select the columns of the model."
            )
        return wanted

    def _output(
        self, batch: pa.RecordBatch, scores: NDArray[np.float64], flagged: NDArray[np.bool_]
    ) -> pa.RecordBatch:
        kept = [batch.column(name) for name in self.keep]
        return pa.RecordBatch.from_arrays(
            [*kept, pa.array(scores), pa.array(flagged)], names=[*self.keep, *_ADDED]
        )


def load_once(model: str | bytes) -> FittedModel:
    """Load a model file that this process may have loaded before."""
    if isinstance(model, bytes):
        return _from_bytes(model)
    facts = Path(model).stat()
    return _from_path(model, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=2)
def _from_path(path: str, size: int, changed: int) -> FittedModel:
    return FittedModel.load(path)


@lru_cache(maxsize=2)
def _from_bytes(content: bytes) -> FittedModel:
    with tempfile.NamedTemporaryFile(prefix="altbi-", suffix=".altbi") as file:
        file.write(content)
        file.flush()
        return FittedModel.load(file.name)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """Give a column as one array."""
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)
