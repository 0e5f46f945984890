"""Both passes over a table, partition by partition. Results equal those of one process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi._threads import single_blas_thread
from altbi.distributed._engines import Engine
from altbi.distributed._partition_folder import PartitionFolder, ScoringPlan, open_folder
from altbi.errors import TableError
from altbi.io import (
    ColumnSelection,
    ExpectedType,
    InferenceState,
    ProgressCallback,
    ScanResult,
    SelectedColumns,
    Source,
    TableScan,
    atomic_file,
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
from altbi.table import RowSampler, compute_largest_sample_key, compute_row_keys

# A partition has at most this many rows, unless a single row group has more.
MAX_PARTITION_ROWS = 1 << 20


@final
@dataclass(frozen=True, slots=True)
class Partition:
    """Consecutive rows of a table."""

    source: Source  # reads these rows only
    first_row: int  # number of the first row in the table
    n_rows: int


@final
@dataclass(frozen=True, slots=True)
class _SampleRequest:
    """Which rows of a partition belong to the training sample of the table.

    They are the rows whose `altbi.table.compute_row_keys` do not exceed `largest_key`. `limit` and
    `seed` are those of the table's sample. `first_row` and `n_rows` describe the partition.
    """

    limit: int
    seed: int
    largest_key: int
    first_row: int
    n_rows: int

    def has_rows(self) -> bool:
        """Return whether any row of the partition is in the sample, without reading the rows."""
        end = self.first_row + self.n_rows
        starts = range(self.first_row, end, MAX_PARTITION_ROWS)
        keys = (
            compute_row_keys(start, min(start + MAX_PARTITION_ROWS, end), self.seed)
            for start in starts
        )
        return any(bool((some <= self.largest_key).any()) for some in keys)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _ScanTask:
    """The arguments of `_scan_partition` for one partition.

    `sample` is None if no rows are to be sampled. `infer_types` is False if only rows are to be
    sampled.
    """

    source: Source
    selected: SelectedColumns
    missing: tuple[str, ...]
    expected: Mapping[str, ExpectedType] | None
    infer_types: bool = True
    sample: _SampleRequest | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionScan:
    """The result of `_scan_partition` for one partition.

    `state` is None if the partition could not be read, or has another number of rows than expected.
    `sample` has the sampled rows, and `sample_rows` their numbers in the table. `sample` is None if
    no rows were requested, or the partition is empty.
    """

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
    """Make the first pass with an engine: infer the column types, and sample rows.

    Formats that store the number of rows need one round. Otherwise a first round counts the rows,
    and a second one samples them, because a row's number decides whether it is in the sample. The
    second round reads only partitions with rows of the sample.

    The result is that of `altbi.io.scan_table`, and the partitions that have rows. `selection` is
    only used for its texts of missing values. `limit` and `seed` are those of the sample, and
    `expected` has the types that a fitted model expects, by column. A table that cannot be read, or
    changes during the pass, raises a `TableError`.
    """
    sources = source.partitions(MAX_PARTITION_ROWS)

    def scan(samples: Sequence[_SampleRequest | None], *, infer: bool) -> list[_PartitionScan]:
        """Scan the partitions with the engine, and return their results in the order of the table.

        With `infer` all partitions are scanned, otherwise only those with rows of the sample.
        """
        tasks = [
            _ScanTask(
                source=each,
                selected=selected,
                missing=selection.missing,
                expected=expected,
                infer_types=infer,
                sample=sample,
            )
            for each, sample in zip(sources, samples, strict=True)
            if infer or (sample is not None and sample.has_rows())
        ]
        results = on_progress(
            "reading",
            engine.run(_scan_partition, tasks),
            source.n_rows,
            lambda result: result[1].rows,
        )
        return [scanned for _, scanned in sorted(results, key=lambda result: result[0])]

    counts = [each.n_rows for each in sources if each.n_rows is not None]
    counts_known = len(counts) == len(sources)
    requests = _request_samples(counts, limit, seed) if counts_known else [None] * len(sources)
    scans = scan(requests, infer=True)
    merged = TableScan(source, selected.features, missing=selection.missing, expected=expected)
    with name_errors(source):
        for each, scanned in zip(sources, scans, strict=True):
            _merge_scan(merged, each, scanned, selected)
        counts = [scanned.rows for scanned in scans]
        if not counts_known:
            scans = scan(_request_samples(counts, limit, seed), infer=False)
        if any(scanned.state is None for scanned in scans):
            raise _build_changed_error(source)
        rows = np.concatenate([scanned.sample_rows for scanned in scans])
        tables = [scanned.sample for scanned in scans if scanned.sample is not None]
        result = merged.result(pa.concat_tables(tables), rows)
    partitions = map(Partition, sources, _compute_first_rows(counts), counts)
    # A CSV file may have a header only.
    return result, tuple(partition for partition in partitions if partition.n_rows)


def score_partitions(
    engine: Engine,
    source: Source,
    partitions: Sequence[Partition],
    plan: ScoringPlan,
    model: FittedModel,
    folder: Path,
    *,
    on_progress: ProgressCallback = no_progress,
) -> ScoreSummary:
    """Score partitions with an engine, one Parquet file each, and return the summary of all rows.

    The folder is created, or resumed after an interrupted run: partitions that are done are not
    scored again, but are in the summary. Files of another run raise a `ParameterError`, partitions
    that cannot be read or have changed a `TableError`, and lost workers an `EngineError`.
    """
    rows = [(partition.first_row, partition.n_rows) for partition in partitions]
    output = PartitionFolder.create_or_resume(folder, plan, model, source.paths, rows)
    tasks = [
        _ScoreTask(str(output.folder), output.fingerprint, index, partition)
        for index, partition in enumerate(partitions)
        if not output.is_done(index)
    ]
    total = sum(task.partition.n_rows for task in tasks)
    results = engine.run(_score_partition, tasks)
    for _ in on_progress("scoring", results, total, lambda result: result[1]):
        pass
    summary = ScoreSummary(plan.top)
    for index in range(len(partitions)):
        summary.append(output.read_summary(index))
    output.finish()
    return summary


@final
@dataclass(frozen=True, slots=True)
class _ScoreTask:
    """The arguments of `_score_partition`: a partition, its index, and the folder for its scores.

    `fingerprint` identifies the run that the folder belongs to.
    """

    folder: str
    fingerprint: str
    index: int
    partition: Partition


def _score_partition(task: _ScoreTask) -> int:
    """Score a partition, write scores and summary into the folder, and return its number of rows.

    It runs on one thread. A partition that is done is not scored again. Another number of rows than
    in the first pass raises a `TableError`.
    """
    output, model = open_folder(task.folder, task.fingerprint)
    partition, path, plan = task.partition, output.scores_path(task.index), output.plan
    if output.is_done(task.index):
        return partition.n_rows
    summary = ScoreSummary(plan.top, partition.first_row)
    schema = output_schema(partition.source, plan.selected)
    with single_blas_thread(), atomic_file(path) as temporary:
        with open_writer(temporary, str(path), "parquet", schema) as writer:
            for chunk in score_source(partition.source, plan.parser, plan.selected, model, summary):
                writer.write(chunk)
        if summary.n_rows != partition.n_rows:
            raise _build_changed_error(partition.source)
    output.write_summary(task.index, summary)
    return partition.n_rows


def _scan_partition(task: _ScanTask) -> _PartitionScan:
    """Scan a partition: infer column types, sample rows, or both.

    A partition that cannot be read, or has another number of rows than expected, returns a result
    without `state`. `_merge_scan` then raises the error, because it knows the row numbers.
    """
    selected, request = task.selected, task.sample
    scan = TableScan(task.source, selected.features, missing=task.missing, expected=task.expected)
    sampler, rows = None, 0
    if request is not None:
        sampler = RowSampler(
            request.limit, request.seed, first_row=request.first_row, max_key=request.largest_key
        )
    try:
        for batch in select_features(task.source.batches(selected.to_learn), selected):
            rows += len(batch)
            if task.infer_types:
                scan.add(batch)
            if sampler is not None:
                sampler.add(batch)
    except TableError:
        return _PartitionScan(rows=rows)
    if request is not None and rows != request.n_rows:
        return _PartitionScan(rows=rows)
    if sampler is None or not rows:
        return _PartitionScan(rows=rows, state=scan.state)
    sample, numbers = sampler.result()
    return _PartitionScan(rows=rows, state=scan.state, sample=sample, sample_rows=numbers)


def _merge_scan(
    merged: TableScan, source: Source, scanned: _PartitionScan, selected: SelectedColumns
) -> None:
    """Add the scan of the next partition to the scan of the table.

    If that fails, this process reads the partition again, to raise its error with the right row
    number. If no error occurs then, the table has changed, which raises a `TableError` too.
    """
    if scanned.state is not None and merged.merge(scanned.state, scanned.rows):
        return
    for batch in select_features(source.batches(selected.to_learn), selected):
        merged.add(batch)
    raise _build_changed_error(source)


def _request_samples(counts: Sequence[int], limit: int, seed: int) -> list[_SampleRequest]:
    """Return a sample request for each partition, given the numbers of rows of all partitions.

    Together the requests select the rows that a sample of the whole table would have.
    """
    largest_key = compute_largest_sample_key(sum(counts), limit, seed)
    return [
        _SampleRequest(limit, seed, largest_key, first_row, n_rows)
        for first_row, n_rows in zip(_compute_first_rows(counts), counts, strict=True)
    ]


def _compute_first_rows(counts: Sequence[int]) -> list[int]:
    """Return the number of each partition's first row, given their numbers of rows."""
    return [0, *accumulate(counts)][: len(counts)]


def _build_changed_error(source: Source) -> TableError:
    """Build the error that the table was changed while it was read."""
    return TableError(
        f"{source.name}: the table was changed while it was read. Wait until it is complete, and "
        "try again."
    )
