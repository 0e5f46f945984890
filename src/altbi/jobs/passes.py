"""The two passes over a file: learn from a sample of it, then score all of it."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.detectors import GenerativeDetector
from altbi.encode import Surprises
from altbi.engines import score_batch
from altbi.errors import ParameterError, TableError, TableWarning
from altbi.files import Columns, Expected, Source, Survey, ahead, survey
from altbi.jobs.choice import Choice, Chosen, is_outlier
from altbi.jobs.tally import ScoreCounts, TopRows
from altbi.parameters import is_count

__all__ = [
    "Scan", "Watch", "fit_source", "named", "output_schema", "pick", "scan", "seed_of",
    "survey_for", "unwatched", "without_labels",
]  # fmt: skip

Item = TypeVar("Item")
Scores = NDArray[np.float64]

# What goes on, its items, how many there are (if known) and how much an item counts.
Watch = Callable[[str, Iterable[Any], int | None, Callable[[Any], int]], Iterable[Any]]


def unwatched(
    what: str, items: Iterable[Item], total: int | None, size: Callable[[Item], int]
) -> Iterable[Item]:
    """Watch nothing: the items as they are."""
    return items


@contextmanager
def named(source: Source) -> Iterator[None]:
    """Begin the sentence of an error about the table with the table's name."""
    try:
        yield
    except TableError as error:
        if str(error).startswith(source.name):
            raise
        raise TableError(f"{source.name}: {error}") from error


def survey_for(
    source: Source,
    chosen: Chosen,
    choice: Choice,
    detector: GenerativeDetector,
    *,
    expected: Mapping[str, Expected] | None = None,
    watch: Watch = unwatched,
) -> Survey:
    """Make the first pass, for a detector to be fitted or for what a fitted one expects."""
    batches = watch("reading", source.batches(chosen.to_learn), source.n_rows, len)
    with named(source):
        return survey(
            source,
            chosen.features,
            without_labels(batches, chosen),
            limit=detector.max_rows if expected is None else 1,
            seed=seed_of(detector),
            missing=choice.missing,
            expected=expected,
        )


def seed_of(detector: GenerativeDetector) -> int:
    """Give the seed of the sample."""
    if not is_count(detector.random_state, 0):
        raise ParameterError(
            f"random_state={detector.random_state!r}, but expected a whole number: the sample of a "
            "file is drawn before the fit, with the same seed."
        )
    return int(cast(int, detector.random_state))


def fit_source(
    source: Source, found: Survey, detector: GenerativeDetector, *, watch: Watch = unwatched
) -> GenerativeDetector:
    """Fit a detector on the sample of the first pass; `noticed` says what it would warn of."""
    with named(source), warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        steps = detector.fitting(found.sample)
        for _ in watch("training", steps, detector.planned_steps, lambda _: 1):
            pass
    return detector


@final
class Scan:
    """What the second pass finds.

    Parameters
    ----------
    top : int
        How many of the highest scores to keep.
    first_row : int, default=0
        The number of the first row, if it is a part of a table.

    Attributes
    ----------
    rows, flagged : int
        Rows that were scored, and those above the threshold.
    counts : ScoreCounts
        How many scores lie where.
    top : TopRows
        The rows with the highest scores.
    surprises : Surprises
        What the table holds that the training sample did not.
    labelled : list of (scores, labels)
        For rows with a known label.
    """

    def __init__(self, top: int, first_row: int = 0) -> None:
        self.first_row = first_row
        self.rows = self.flagged = 0
        self.counts = ScoreCounts()
        self.top = TopRows(top)
        self.surprises = Surprises()
        self.labelled: list[tuple[Scores, NDArray[np.bool_]]] = []

    @property
    def next_row(self) -> int:
        """The number of the row that comes next."""
        return self.first_row + self.rows

    def add(self, batch: pa.RecordBatch, scores: Scores, flagged: NDArray[np.bool_]) -> None:
        """Count the next rows."""
        self.top.add(batch, scores, self.next_row)
        self.counts.add(scores)
        self.flagged += int(flagged.sum())
        self.rows += len(batch)

    def compare(self, scores: Scores, labels: Scores) -> None:
        """Keep the scores of rows whose label is known."""
        known = ~np.isnan(labels)
        self.labelled.append((scores[known], labels[known] == 1))

    def follow(self, other: "Scan") -> None:
        """Take over what was found in the part of the table that comes next."""
        self.top.follow(*other.top.held())
        self.counts.add_bins(other.counts.keys, other.counts.counts)
        self.flagged += other.flagged
        self.rows += other.rows
        self.surprises += other.surprises
        self.labelled += other.labelled


def scan(
    source: Source, columns: Columns, chosen: Chosen, detector: GenerativeDetector, found: Scan
) -> Iterator[pa.Table]:
    """Score a source; gives the output chunk by chunk, and adds to what was found.

    Parameters
    ----------
    source, columns, chosen
        The table, how its columns are read, and what they are for.
    detector : GenerativeDetector
        A fitted detector.
    found : Scan
        What is known so far.
    """
    with named(source):
        for batch in ahead(source.batches(chosen.to_score)):
            scored = score_batch(detector, columns, batch, found.next_row)
            output = _output(batch, chosen, found.next_row, scored.scores, scored.flagged)
            found.add(batch, scored.scores, scored.flagged)
            found.surprises += scored.surprises
            if chosen.label is not None:
                labels = is_outlier(chosen.label, batch.column(chosen.label.column))
                found.compare(scored.scores, labels)
            yield output


def pick(source: Source, chosen: Chosen, rows: NDArray[np.int64]) -> pa.Table:
    """Read the rows of these numbers, in this order."""
    parts, seen, last = [], 0, int(rows.max())
    for batch in source.batches(chosen.to_score):
        inside = np.unique(rows[(rows >= seen) & (rows < seen + len(batch))])
        parts.append(batch.take(pa.array(inside - seen)))
        seen += len(batch)
        if seen > last:
            break
    else:
        raise TableError(
            f"{source.name}: row {last} was asked for, but the last of its {seen} rows is "
            f"{seen - 1} (counted from 0)."
        )
    _, places = np.unique(rows, return_inverse=True)
    return pa.Table.from_batches(parts).take(pa.array(places))


def output_schema(source: Source, chosen: Chosen) -> pa.Schema:
    """Give the columns of the output."""
    empty = pa.RecordBatch.from_arrays(
        [pa.array([], source.schema.field(name).type) for name in chosen.to_score],
        names=chosen.to_score,
    )
    return _output(empty, chosen, 0, np.empty(0), np.empty(0, dtype=np.bool_)).schema


def _output(
    batch: pa.RecordBatch,
    chosen: Chosen,
    first_row: int,
    scores: Scores,
    flagged: NDArray[np.bool_],
) -> pa.Table:
    """Give row numbers, ids, scores and flags, then the input's columns if they are kept."""
    rows = np.arange(first_row, first_row + len(scores), dtype=np.int64)
    taken, prefix = {*chosen.ids, *chosen.kept}, ""
    while taken & {f"{prefix}{name}" for name in ("row", "score", "outlier")}:
        prefix += "altbi_"
    columns: dict[str, Any] = {f"{prefix}row": rows}
    columns |= {name: batch.column(name) for name in chosen.ids}
    columns |= {f"{prefix}score": scores, f"{prefix}outlier": flagged}
    columns |= {name: batch.column(name) for name in chosen.kept}
    return pa.table(columns)


def without_labels(batches: Iterable[pa.RecordBatch], chosen: Chosen) -> Iterator[pa.RecordBatch]:
    """Give the columns to learn from; labels are only looked at, so that bad ones show early."""
    for batch in batches:
        if chosen.label is not None:
            is_outlier(chosen.label, batch.column(chosen.label.column))
        yield batch.select(list(chosen.features))
