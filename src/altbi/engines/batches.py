"""Record batches in, record batches with scores out: one function for every engine."""

import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.borrow import one_thread
from altbi.detectors import GenerativeDetector, load
from altbi.encode import Surprises
from altbi.errors import ParameterError, TableError, TableWarning
from altbi.files import Columns

__all__ = ["SCHEMA", "ScoreBatches", "Scored", "load_once", "score_batch", "score_batches"]

# What is added to the columns that are kept, in the words of Spark.
SCHEMA = "score double, outlier boolean"
_ADDED = ("score", "outlier")

Model = bytes | str | os.PathLike[str]


@final
@dataclass(frozen=True, slots=True)
class Scored:
    """What is known of the rows of a batch: scores, flags, and what the sample did not have."""

    scores: NDArray[np.float64]
    flagged: NDArray[np.bool_]
    surprises: Surprises


def score_batch(
    detector: GenerativeDetector, columns: Columns, batch: pa.RecordBatch, first_row: int
) -> Scored:
    """Score a record batch. All engines call this function, so that their scores are the same.

    Parameters
    ----------
    detector : GenerativeDetector
        A fitted detector.
    columns : Columns
        How the batch's columns are read.
    batch : RecordBatch
        Some rows, at least one.
    first_row : int
        The number of the first of them, for messages.
    """
    table = columns.table(batch, first_row, detector.encoder_.names)
    scores, surprises = detector.examine(table)
    return Scored(scores, -scores < detector.offset_, surprises)


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
        detector, seen, surprises = load_once(self.model), 0, Surprises()
        for batch in batches:
            if not len(batch):
                yield self._output(batch, np.empty(0), np.empty(0, dtype=np.bool_))
                continue
            columns = Columns(self._wanted(detector, batch.schema.names), {}, ())
            with one_thread():
                scored = score_batch(detector, columns, batch, seen)
            seen += len(batch)
            surprises += scored.surprises
            yield self._output(batch, scored.scores, scored.flagged)
        for sentence in surprises.sentences():
            warnings.warn(sentence, TableWarning, stacklevel=2)

    def table(self, table: pa.Table) -> pa.Table:
        """Score a whole table, for engines that hand out tables."""
        batch = pa.RecordBatch.from_arrays(
            [_joined(column) for column in table.columns], names=table.column_names
        )
        return pa.Table.from_batches(self([batch]))

    def _wanted(self, detector: GenerativeDetector, names: Sequence[str]) -> tuple[str, ...]:
        """Find the model's columns: by name, or by place if it was fitted on an array."""
        wanted = tuple(name for name in names if name not in self.keep)
        if detector.fitted_on_frame_:
            wanted = detector.encoder_.names
        absent = [name for name in (*wanted, *self.keep) if name not in names]
        if absent or len(wanted) != detector.n_features_in_:
            raise TableError(
                f"The batch has the columns {list(names)}, but expected "
                f"{[*detector.encoder_.names, *self.keep]}. Select the columns of the model."
            )
        return wanted

    def _output(
        self, batch: pa.RecordBatch, scores: NDArray[np.float64], flagged: NDArray[np.bool_]
    ) -> pa.RecordBatch:
        kept = [batch.column(name) for name in self.keep]
        return pa.RecordBatch.from_arrays(
            [*kept, pa.array(scores), pa.array(flagged)], names=[*self.keep, *_ADDED]
        )


def load_once(model: str | bytes) -> GenerativeDetector:
    """Load a model file that this process may have loaded before."""
    if isinstance(model, bytes):
        return _from_bytes(model)
    facts = Path(model).stat()
    return _from_path(model, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=2)
def _from_path(path: str, size: int, changed: int) -> GenerativeDetector:
    return load(path)


@lru_cache(maxsize=2)
def _from_bytes(content: bytes) -> GenerativeDetector:
    with tempfile.NamedTemporaryFile(prefix="altbi-", suffix=".altbi") as file:
        file.write(content)
        file.flush()
        return load(file.name)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """Give a column as one array."""
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)
