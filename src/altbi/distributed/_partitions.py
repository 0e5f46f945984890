"""The two passes over a table in partitions, wherever an engine runs; both give what one pass gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.distributed._engine import Engine
from altbi.distributed._partition_folder import PartitionFolder, Plan, opened
from altbi.errors import TableError
from altbi.io import (
    ColumnSelection,
    ExpectedType,
    InferenceState,
    ProgressCallback,
    RowSampler,
    ScanResult,
    SelectedColumns,
    Source,
    TableScan,
    atomic_file,
    largest_sample_key,
    no_progress,
    open_writer,
)
from altbi.model import FittedModel
from altbi.model._score_source import (
    ScoreSummary,
    name_errors,
    output_schema,
    score_source,
    select_features,
)
from altbi.networks._torch_modes import single_thread
from altbi.table import row_keys

__all__ = ["MAX_PARTITION_ROWS", "Partition", "scan_partitions", "score_partitions"]

# A partition has at most so many rows, unless a single group of rows has more.
MAX_PARTITION_ROWS = 1 << 20


@final
@dataclass(frozen=True, slots=True)
class Partition:
    """Some rows of a table: where they are, and which."""

    source: Source
    first_row: int
    n_rows: int


@final
@dataclass(frozen=True, slots=True)
class _SampleRequest:
    """Which rows of a partition are in the sample: those with keys up to a bar."""

    limit: int
    seed: int
    bar: int
    first_row: int
    n_rows: int

    @property
    def any_row(self) -> bool:
        """Whether there is such a row."""
        end = self.first_row + self.n_rows
        firsts = range(self.first_row, end, MAX_PARTITION_ROWS)
        keys = (
            row_keys(first, min(first + MAX_PARTITION_ROWS, end), self.seed) for first in firsts
        )
        return any(bool((some <= self.bar).any()) for some in keys)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A partition to look at; without `settle` the sample is all that is wanted."""

    source: Source
    selected: SelectedColumns
    missing: tuple[str, ...]
    expected: Mapping[str, ExpectedType] | None
    settle: bool = True
    draw: _SampleRequest | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionScan:
    """What the look at a partition found; `state` is None if something is wrong with it."""

    rows: int
    state: dict[str, InferenceState] | None = None
    sample: pa.Table | None = None
    sample_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def scan_partitions(
    engine: Engine,
    source: Source,
    selected: SelectedColumns,
    selection: ColumnSelection,
    *,
    limit: int,
    seed: int,
    expected: Mapping[str, ExpectedType] | None = None,
    on_progress: ProgressCallback = no_progress,
) -> tuple[ScanResult, tuple[Partition, ...]]:
    """Make the first pass by an engine; returns what `scan_table` returns, and the partitions.

    Where a file says how many rows it has, one round is enough. Otherwise a first round counts
    them, and a second draws the sample, because a row's number decides whether it is drawn; it
    reads only partitions with rows of the sample.
    """
    sources = source.partitions(MAX_PARTITION_ROWS)
    missing = selection.missing

    def looked_at(draws: Sequence[_SampleRequest | None], *, settle: bool) -> list[_PartitionScan]:
        tasks = [
            _Task(
                source=each,
                selected=selected,
                missing=missing,
                expected=expected,
                settle=settle,
                draw=draw,
            )
            for each, draw in zip(sources, draws, strict=True)
            if settle or (draw is not None and draw.any_row)
        ]
        results = on_progress(
            "reading", engine.run(_scan_partition, tasks), source.n_rows, _rows_of
        )
        return [looked for _, looked in sorted(results, key=lambda pair: pair[0])]

    counts = [each.n_rows for each in sources if each.n_rows is not None]
    known = len(counts) == len(sources)
    draws = _draws(counts, limit, seed) if known else [None] * len(sources)
    found = looked_at(draws, settle=True)
    look = TableScan(source, selected.features, missing=missing, expected=expected)
    with name_errors(source):
        for each, looked in zip(sources, found, strict=True):
            _follow(look, each, looked, selected)
        samples, counts = found, [looked.rows for looked in found]
        if not known:
            samples = looked_at(_draws(counts, limit, seed), settle=False)
        if any(looked.state is None for looked in samples):
            raise _changed(source)
        rows = np.concatenate([looked.sample_rows for looked in samples])
        tables = [looked.sample for looked in samples if looked.sample is not None]
        surveyed = look.result(pa.concat_tables(tables), rows)
    partitions = map(Partition, sources, _firsts(counts), counts)
    return surveyed, tuple(
        partition for partition in partitions if partition.n_rows
    )  # a file may hold a header only


def score_partitions(
    engine: Engine,
    source: Source,
    partitions: Sequence[Partition],
    plan: Plan,
    model: FittedModel,
    folder: Path,
    *,
    on_progress: ProgressCallback = no_progress,
) -> ScoreSummary:
    """Score the partitions by an engine, a Parquet file each; those that are there are not done again.

    Parameters
    ----------
    engine : Engine
        Where the work runs; it sees the table and the folder under the same names.
    source, partitions
        The table and its partitions.
    plan : Plan
        What to do with a partition.
    model : FittedModel
        The model.
    folder : Path
        Where the files go.
    watch : ProgressCallback, default=unwatched
        Sees the partitions go by.
    """
    rows = [(partition.first_row, partition.n_rows) for partition in partitions]
    home = PartitionFolder.begun(folder, plan, model, source.paths, rows)
    tasks = [
        _ScoreTask(str(home.folder), home.fingerprint, index, partition)
        for index, partition in enumerate(partitions)
        if not home.is_done(index)
    ]
    total = sum(task.partition.n_rows for task in tasks)
    for _ in on_progress(
        "scoring", engine.run(_score_partition, tasks), total, lambda pair: pair[1]
    ):
        pass
    found = ScoreSummary(plan.top)
    for index in range(len(partitions)):
        found.append(home.found(index))
    home.finish()
    return found


@final
@dataclass(frozen=True, slots=True)
class _ScoreTask:
    folder: str
    fingerprint: str
    index: int
    partition: Partition


def _score_partition(task: _ScoreTask) -> int:
    """Score one partition and write its file; a second call writes the same bytes to the same name."""
    home, model = opened(task.folder, task.fingerprint)
    partition, path, plan = task.partition, home.path(task.index), home.plan
    if home.is_done(task.index):
        return partition.n_rows
    found = ScoreSummary(plan.top, partition.first_row)
    schema = output_schema(partition.source, plan.selected)
    with single_thread(), atomic_file(path) as draft:
        with open_writer(draft, str(path), "parquet", schema) as sink:
            for chunk in score_source(partition.source, plan.parser, plan.selected, model, found):
                sink.write(chunk)
        if found.n_rows != partition.n_rows:
            raise _changed(partition.source)
    home.keep(task.index, found)
    return partition.n_rows


def _scan_partition(task: _Task) -> _PartitionScan:
    """TableScan at one partition. What is wrong with it is told by `_follow`, which knows the rows before."""
    selected, draw = task.selected, task.draw
    look = TableScan(task.source, selected.features, missing=task.missing, expected=task.expected)
    sample, rows = None, 0
    if draw is not None:
        sample = RowSampler(draw.limit, draw.seed, first_row=draw.first_row, max_key=draw.bar)
    try:
        for batch in select_features(task.source.batches(selected.to_learn), selected):
            rows += len(batch)
            if task.settle:
                look.add(batch)
            if sample is not None:
                sample.add(batch)
    except TableError:
        return _PartitionScan(rows=rows)
    if draw is not None and rows != draw.n_rows:
        return _PartitionScan(rows=rows)
    if sample is None or not rows:
        return _PartitionScan(rows=rows, state=look.state)
    drawn, numbers = sample.result()
    return _PartitionScan(rows=rows, state=look.state, sample=drawn, sample_rows=numbers)


def _follow(
    look: TableScan, source: Source, looked: _PartitionScan, selected: SelectedColumns
) -> None:
    """Put a partition below those before it; where that cannot be, read it again to say why."""
    if looked.state is not None and look.merge(looked.state, looked.rows):
        return
    for batch in select_features(source.batches(selected.to_learn), selected):
        look.add(batch)
    raise _changed(source)


def _draws(counts: Sequence[int], limit: int, seed: int) -> Sequence[_SampleRequest]:
    bar = largest_sample_key(sum(counts), limit, seed)
    return [
        _SampleRequest(limit, seed, bar, first, count)
        for first, count in zip(_firsts(counts), counts, strict=True)
    ]


def _firsts(counts: Sequence[int]) -> list[int]:
    """Give the numbers of the partitions' first rows."""
    return [0, *accumulate(counts)][: len(counts)]


def _rows_of(pair: tuple[int, _PartitionScan]) -> int:
    return pair[1].rows


def _changed(source: Source) -> TableError:
    return TableError(
        f"{source.name}: it was changed while it was read. Wait until it is written, and try again."
    )
