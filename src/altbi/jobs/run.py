"""The jobs: fit, score and explain a table in a file, or all of it at once."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa

from altbi.detectors import GenerativeDetector
from altbi.engines import Engine
from altbi.errors import ParameterError, TableError
from altbi.files import Columns, Expected, Sink, Source, Survey, behind, check_writable, open_sink
from altbi.jobs.apart import Part, score_apart, survey_apart
from altbi.jobs.choice import Choice, Chosen, Label, choose, listed
from altbi.jobs.findings import Findings, explain_rows, metrics_of, reasons_table
from altbi.jobs.noticed import noticed
from altbi.jobs.part_folder import Plan
from altbi.jobs.passes import (
    Scan,
    Watch,
    fit_source,
    named,
    output_schema,
    pick,
    scan,
    survey_for,
    unwatched,
)
from altbi.jobs.summary import summarise
from altbi.report import Summary, render
from altbi.whole import told_as, whole_files

__all__ = ["Destination", "Job", "Ready"]

# Opens the place where scores go, once the columns of the output are known.
Destination = Callable[[pa.Schema], AbstractContextManager[Sink]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A table that was read once, with a fitted detector: ready for the second pass."""

    chosen: Chosen
    columns: Columns
    n_rows: int
    notes: tuple[str, ...]
    parts: tuple[Part, ...] = ()


@final
class Job:
    r"""One table and one detector, and what to do with them.

    Parameters
    ----------
    source : Source
        The table.
    detector : GenerativeDetector
        The detector, fitted or not.
    choice : Choice, default=Choice()
        What the columns are for.
    top : int, default=200
        How many of the highest scores to explain.
    command : str, default=""
        What the report names as its command.
    watch : Watch, default=unwatched
        Sees the chunks and steps go by.
    engine : Engine, default=None
        Where both passes over the table run, part by part; None reads it here, from front to back.

    Examples
    --------
    >>> import tempfile
    >>> from altbi import ALTBI
    >>> from altbi.files import open_source
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "sizes.csv")
    ...     _ = path.write_text("size\n" + "\n".join(map(str, [*range(99), 1000])))
    ...     summary = Job(open_source(path), ALTBI()).detect(Path(folder, "found"))
    ...     sorted(file.name for file in Path(folder, "found").iterdir())
    ['model.altbi', 'reasons.csv', 'report.html', 'scores.csv']
    >>> summary.top[0].number
    99
    """

    def __init__(
        self,
        source: Source,
        detector: GenerativeDetector,
        choice: Choice = Choice(),  # noqa: B008 - a frozen value
        *,
        top: int = 200,
        command: str = "",
        watch: Watch = unwatched,
        engine: Engine | None = None,
    ) -> None:
        self.source = source
        self.detector = detector
        self.choice = choice
        self.top = top
        self.command = command
        self.watch = watch
        self.engine = engine

    def detect(
        self, folder: str | PathLike[str], scores: str = "csv", *, page: bool = True
    ) -> Summary:
        """Fit, score and explain; write scores, reasons, model and page into a folder.

        With an engine the scores are a folder of Parquet files, `scores`.
        """
        folder = Path(folder)
        parts = self.engine is not None
        _refuse_leftovers(folder, "scores" if parts else f"scores.{scores}", page=page)
        self._check_writable("parquet" if parts else scores)
        with whole_files(folder) as draft:  # before the fit: a bad folder costs no training

            def opened(name: str) -> Destination:
                path, format_ = draft(name), name.rpartition(".")[2]
                return lambda schema: open_sink(path, str(folder / name), format_, schema)

            ready = self.fit()
            if self.engine is None:
                found = self.score(ready, opened(f"scores.{scores}"))
            else:
                found = self.score_into(ready, folder / "scores")
            findings = self.top_findings(ready, found)
            reasons = self.reasons(ready, findings)
            with opened("reasons.csv")(reasons.schema) as sink:
                sink.write(reasons)
            with told_as(folder / "model.altbi"):
                self.detector.save(draft("model.altbi"))
            summary = self.summary(ready, found, findings)
            if page:
                text = render(summary)
                with told_as(folder / "report.html"):
                    draft("report.html").write_text(text, encoding="utf-8")
        return summary

    def fit(self) -> Ready:
        """Read the table once and fit the detector on its sample."""
        chosen = choose(self.source, self.choice)
        found, parts = self._survey(chosen, self.choice)
        fit_source(self.source, found, self.detector, watch=self.watch)
        return Ready(
            chosen=chosen,
            columns=found.columns,
            n_rows=found.n_rows,
            notes=(*self.source.notes, *noticed(found, self.detector)),
            parts=parts,
        )

    def prepare(self) -> Ready:
        """Read the table once for the detector as it is."""
        choice = self._choice_with_words()
        chosen = self._wanted(choice)
        found, parts = self._survey(chosen, choice, self._expected(chosen))
        notes = (*self.source.notes, *found.notes, *self._unused(chosen))
        return Ready(
            chosen=chosen, columns=found.columns, n_rows=found.n_rows, notes=notes, parts=parts
        )

    def _survey(
        self, chosen: Chosen, choice: Choice, expected: dict[str, Expected] | None = None
    ) -> tuple[Survey, tuple[Part, ...]]:
        """Make the first pass, here or where the engine runs."""
        more: dict[str, Any] = {"expected": expected, "watch": self.watch}
        if self.engine is None:
            return survey_for(self.source, chosen, choice, self.detector, **more), ()
        return survey_apart(self.engine, self.source, chosen, choice, self.detector, **more)

    def _expected(self, chosen: Chosen) -> dict[str, Expected]:
        """Say what the model expects of the columns, and how they were written for its fit."""
        encoder, readings = self.detector.encoder_, self.detector.writing_.readings
        columns = zip(chosen.features, encoder.names, encoder.kinds, strict=True)
        return {name: Expected(kind, readings.get(known, "")) for name, known, kind in columns}

    def _choice_with_words(self) -> Choice:
        """Add the words for missing cells that the model was fitted with."""
        words = (*self.choice.missing, *self.detector.writing_.missing)
        return replace(self.choice, missing=tuple(dict.fromkeys(words)))

    def score(self, ready: Ready, destination: Destination | None = None) -> Scan:
        """Score all rows, and write the scores if they are to go anywhere."""
        found = Scan(self.top)
        rows = scan(self.source, ready.columns, ready.chosen, self.detector, found)
        watched = self.watch("scoring", rows, ready.n_rows, len)
        if destination is None:
            for _ in watched:
                pass
            return found
        with destination(output_schema(self.source, ready.chosen)) as sink, behind(sink) as writer:
            for chunk in watched:
                writer.write(chunk)
        return found

    def score_into(self, ready: Ready, folder: Path) -> Scan:
        """Score all rows where the engine runs, into a folder of Parquet files.

        If it was not done to its end before, it goes on from the files that are there.
        """
        if self.engine is None:
            raise ParameterError("engine=None, but a folder is written by an engine. Give one.")
        return score_apart(
            self.engine,
            self.source,
            ready.parts,
            Plan(columns=ready.columns, chosen=ready.chosen, top=self.top),
            self.detector,
            folder,
            watch=self.watch,
        )

    def top_findings(self, ready: Ready, found: Scan) -> Findings:
        """Explain the rows with the highest scores."""
        table, _, rows = found.top.best()
        return explain_rows(table, rows, ready.columns, self.detector)

    def findings_at(self, ready: Ready, rows: Sequence[int]) -> Findings:
        """Explain the rows of these numbers, in this order."""
        table = pick(self.source, ready.chosen, np.asarray(rows, dtype=np.int64))
        return explain_rows(table, np.asarray(rows), ready.columns, self.detector)

    def reasons(self, ready: Ready, findings: Findings) -> pa.Table:
        """Give one line for each row and reason."""
        return reasons_table(findings, ready.chosen)

    def summary(self, ready: Ready, found: Scan, findings: Findings) -> Summary:
        """Gather what a report shows."""
        label = ready.chosen.label
        metrics = metrics_of(found, label)
        alike: tuple[str, ...] = ()
        if label is not None and metrics is None:
            alike = (_nothing_to_compare(label),)
        return summarise(
            self.source.name,
            ready.chosen,
            self.detector,
            found,
            findings,
            metrics=metrics,
            notes=(*ready.notes, *found.surprises.sentences(), *alike),
            command=self.command,
        )

    def _check_writable(self, scores: str) -> None:
        """Refuse columns that the files of `detect` cannot hold: reasons, in CSV, have the ids."""
        chosen = choose(self.source, self.choice)
        with named(self.source):
            check_writable(output_schema(self.source, chosen), scores)
            check_writable(
                pa.schema([self.source.schema.field(name) for name in chosen.ids]), "csv"
            )

    def _wanted(self, choice: Choice) -> Chosen:
        """Choose the model's columns: by name, or by place if it was fitted on an array."""
        if self.detector.fitted_on_frame_:
            return choose(self.source, choice, self.detector.encoder_.names)
        chosen = choose(self.source, choice)
        if len(chosen.features) != self.detector.n_features_in_:
            raise TableError(
                f"{self.source.name}: {len(chosen.features)} columns, but the model was fitted on "
                f"an array of {self.detector.n_features_in_}. Name as many with --columns."
            )
        return chosen

    def _unused(self, chosen: Chosen) -> list[str]:
        """Say which columns the model does not know."""
        used = {*chosen.to_score, *self.source.sides}
        unused = [name for name in self.source.schema.names if name not in used]
        if not unused:
            return []
        return [f"The model does not know the columns {listed(unused)}; they were not used."]


def _refuse_leftovers(folder: Path, scores: str, *, page: bool) -> None:
    """Refuse a folder with files of another job that this one would not replace."""
    others = {folder / "scores", *folder.glob("scores.*")} - {folder / scores}
    others |= set() if page else {folder / "report.html"}
    for path in sorted(others):
        if path.exists():
            raise ParameterError(
                f"{path} is of another job, and this one would not replace it. "
                "Write to another folder, or remove it."
            )


def _nothing_to_compare(label: Label) -> str:
    start = f"The labels in column {label.column!r} are all alike"
    if label.value is not None:
        start = f"Either no label in column {label.column!r} is {label.value!r}, or every one is"
    return f"{start}: nothing to compare."
