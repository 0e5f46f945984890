"""The two passes over a table in parts, wherever an engine runs; both give what one pass gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.borrow import one_thread
from altbi.detectors import GenerativeDetector
from altbi.engines import Engine
from altbi.errors import TableError
from altbi.files import Expected, Look, RowSample, Source, Survey, key_bar, open_sink
from altbi.files.settle import Settled
from altbi.jobs.choice import Choice, Chosen
from altbi.jobs.part_folder import PartFolder, Plan, opened
from altbi.jobs.passes import (
    Scan,
    Watch,
    named,
    output_schema,
    scan,
    seed_of,
    unwatched,
    without_labels,
)
from altbi.table import row_keys
from altbi.whole import whole_file

__all__ = ["MOST_ROWS", "Part", "score_apart", "survey_apart"]

# A part has at most so many rows, unless a single group of rows has more.
MOST_ROWS = 1 << 20


@final
@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a table: where they are, and which."""

    source: Source
    first_row: int
    n_rows: int


@final
@dataclass(frozen=True, slots=True)
class _Draw:
    """Which rows of a part are in the sample: those with keys up to a bar."""

    limit: int
    seed: int
    bar: int
    first_row: int
    n_rows: int

    @property
    def any_row(self) -> bool:
        """Whether there is such a row."""
        end = self.first_row + self.n_rows
        firsts = range(self.first_row, end, MOST_ROWS)
        keys = (row_keys(first, min(first + MOST_ROWS, end), self.seed) for first in firsts)
        return any(bool((some <= self.bar).any()) for some in keys)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A part to look at; without `settle` the sample is all that is wanted."""

    source: Source
    chosen: Chosen
    missing: tuple[str, ...]
    expected: Mapping[str, Expected] | None
    settle: bool = True
    draw: _Draw | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What the look at a part found; `state` is None if something is wrong with it."""

    rows: int
    state: dict[str, Settled] | None = None
    sample: pa.Table | None = None
    sample_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def survey_apart(
    engine: Engine,
    source: Source,
    chosen: Chosen,
    choice: Choice,
    detector: GenerativeDetector,
    *,
    expected: Mapping[str, Expected] | None = None,
    watch: Watch = unwatched,
) -> tuple[Survey, tuple[Part, ...]]:
    """Make the first pass by an engine; gives what `survey_for` gives, and the parts.

    Where a file says how many rows it has, one round is enough. Otherwise a first round counts
    them, and a second draws the sample, because a row's number decides whether it is drawn; it
    reads only parts with rows of the sample.
    """
    sources = source.parts(MOST_ROWS)
    limit, seed = detector.max_rows if expected is None else 1, seed_of(detector)
    missing = choice.missing

    def looked_at(draws: Sequence[_Draw | None], *, settle: bool) -> list[_Looked]:
        tasks = [
            _Task(
                source=each,
                chosen=chosen,
                missing=missing,
                expected=expected,
                settle=settle,
                draw=draw,
            )
            for each, draw in zip(sources, draws, strict=True)
            if settle or (draw is not None and draw.any_row)
        ]
        results = watch("reading", engine.run(_look_at, tasks), source.n_rows, _rows_of)
        return [looked for _, looked in sorted(results, key=lambda pair: pair[0])]

    counts = [each.n_rows for each in sources if each.n_rows is not None]
    known = len(counts) == len(sources)
    draws = _draws(counts, limit, seed) if known else [None] * len(sources)
    found = looked_at(draws, settle=True)
    look = Look(source, chosen.features, missing=missing, expected=expected)
    with named(source):
        for each, looked in zip(sources, found, strict=True):
            _follow(look, each, looked, chosen)
        samples, counts = found, [looked.rows for looked in found]
        if not known:
            samples = looked_at(_draws(counts, limit, seed), settle=False)
        if any(looked.state is None for looked in samples):
            raise _changed(source)
        rows = np.concatenate([looked.sample_rows for looked in samples])
        tables = [looked.sample for looked in samples if looked.sample is not None]
        surveyed = look.survey(pa.concat_tables(tables), rows)
    parts = map(Part, sources, _firsts(counts), counts)
    return surveyed, tuple(part for part in parts if part.n_rows)  # a file may hold a header only


def score_apart(
    engine: Engine,
    source: Source,
    parts: Sequence[Part],
    plan: Plan,
    detector: GenerativeDetector,
    folder: Path,
    *,
    watch: Watch = unwatched,
) -> Scan:
    """Score the parts by an engine, a Parquet file each; those that are there are not done again.

    Parameters
    ----------
    engine : Engine
        Where the work runs; it sees the table and the folder under the same names.
    source, parts
        The table and its parts.
    plan : Plan
        What to do with a part.
    detector : GenerativeDetector
        A fitted detector.
    folder : Path
        Where the files go.
    watch : Watch, default=unwatched
        Sees the parts go by.
    """
    rows = [(part.first_row, part.n_rows) for part in parts]
    home = PartFolder.begun(folder, plan, detector, source.paths, rows)
    tasks = [
        _ScoreTask(str(home.folder), home.fingerprint, place, part)
        for place, part in enumerate(parts)
        if not home.is_done(place)
    ]
    total = sum(task.part.n_rows for task in tasks)
    for _ in watch("scoring", engine.run(_score_part, tasks), total, lambda pair: pair[1]):
        pass
    found = Scan(plan.top)
    for place in range(len(parts)):
        found.follow(home.found(place))
    home.finish()
    return found


@final
@dataclass(frozen=True, slots=True)
class _ScoreTask:
    folder: str
    fingerprint: str
    place: int
    part: Part


def _score_part(task: _ScoreTask) -> int:
    """Score one part and write its file; a second call writes the same bytes to the same name."""
    home, detector = opened(task.folder, task.fingerprint)
    part, path, plan = task.part, home.path(task.place), home.plan
    if home.is_done(task.place):
        return part.n_rows
    found = Scan(plan.top, part.first_row)
    schema = output_schema(part.source, plan.chosen)
    with one_thread(), whole_file(path) as draft:
        with open_sink(draft, str(path), "parquet", schema) as sink:
            for chunk in scan(part.source, plan.columns, plan.chosen, detector, found):
                sink.write(chunk)
        if found.rows != part.n_rows:
            raise _changed(part.source)
    home.keep(task.place, found)
    return part.n_rows


def _look_at(task: _Task) -> _Looked:
    """Look at one part. What is wrong with it is told by `_follow`, which knows the rows before."""
    chosen, draw = task.chosen, task.draw
    look = Look(task.source, chosen.features, missing=task.missing, expected=task.expected)
    sample, rows = None, 0
    if draw is not None:
        sample = RowSample(draw.limit, draw.seed, first_row=draw.first_row, bar=draw.bar)
    try:
        for batch in without_labels(task.source.batches(chosen.to_learn), chosen):
            rows += len(batch)
            if task.settle:
                look.add(batch)
            if sample is not None:
                sample.add(batch)
    except TableError:
        return _Looked(rows=rows)
    if draw is not None and rows != draw.n_rows:
        return _Looked(rows=rows)
    if sample is None or not rows:
        return _Looked(rows=rows, state=look.state)
    drawn, numbers = sample.drawn()
    return _Looked(rows=rows, state=look.state, sample=drawn, sample_rows=numbers)


def _follow(look: Look, source: Source, looked: _Looked, chosen: Chosen) -> None:
    """Put a part below those before it; where that cannot be, read it again to say why."""
    if looked.state is not None and look.follow(looked.state, looked.rows):
        return
    for batch in without_labels(source.batches(chosen.to_learn), chosen):
        look.add(batch)
    raise _changed(source)


def _draws(counts: Sequence[int], limit: int, seed: int) -> Sequence[_Draw]:
    bar = key_bar(sum(counts), limit, seed)
    return [
        _Draw(limit, seed, bar, first, count)
        for first, count in zip(_firsts(counts), counts, strict=True)
    ]


def _firsts(counts: Sequence[int]) -> list[int]:
    """Give the numbers of the parts' first rows."""
    return [0, *accumulate(counts)][: len(counts)]


def _rows_of(pair: tuple[int, _Looked]) -> int:
    return pair[1].rows


def _changed(source: Source) -> TableError:
    return TableError(
        f"{source.name}: it was changed while it was read. Wait until it is written, and try again."
    )
