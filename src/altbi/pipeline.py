"""The data path from a table to a list of outliers: scan, fit, score, explain, report.

`detect` is the entry point for Python, and `Pipeline.run` shows all steps in their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import KW_ONLY, dataclass, field, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from altbi._parameters import is_count
from altbi.detection import Detection
from altbi.duplicates import (
    MAX_ROWS,
    build_duplicates_table,
    describe_duplicates,
    find_duplicates,
)
from altbi.encoding import StatedRole, check_stated_names, list_texts
from altbi.errors import ParameterError, TableError, quote
from altbi.io import (
    ColumnParser,
    ColumnSelection,
    ExpectedType,
    PrivateFolder,
    ProgressCallback,
    ScanResult,
    SelectedColumns,
    Source,
    TableWriter,
    atomic_files,
    build_typed_parser,
    check_writable,
    describe_total,
    is_total,
    no_progress,
    open_in_memory,
    open_table,
    open_writer,
    remove_leftovers,
    report_errors_as,
    scan_table,
    select_columns,
    write_in_background,
)
from altbi.model import FitSettings, FittedModel, build_settings, iter_fit
from altbi.model._fit import check_data, check_number_of_columns
from altbi.model._score_source import (
    ScoreSummary,
    build_expected_types,
    describe_unused,
    name_errors,
    output_schema,
    read_rows,
    score_source,
    select_features,
    select_for_model,
)
from altbi.networks import TrainingStep
from altbi.report import Duplicates, Summary, render
from altbi.report._summarize import ExplainedRows, build_reasons_table, explain_rows, summarize

__all__ = ["Pipeline", "PreparedTable", "WriterFactory", "detect", "read_seed"]

SCORES_FORMATS = ("csv", "parquet", "arrow", "jsonl")
OUTPUTS = ("reasons.csv", "duplicates.csv", "model.altbi", "report.html")
# Opens the file for the scores, given its columns.
WriterFactory = Callable[[pa.Schema], AbstractContextManager[TableWriter]]


def detect(
    table: Any,  # noqa: ANN401 - a path or any table
    output: str | PathLike[str] | None = None,
    *,
    detector: Any = None,  # noqa: ANN401 - an estimator or FitSettings
    columns: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    id: str | Sequence[str] = (),
    label: str | None = None,
    missing: str | Sequence[str] = (),
    column_roles: Mapping[str, StatedRole] | None = None,
    keep_columns: bool = False,
    scores_format: Literal["csv", "parquet", "arrow", "jsonl"] = "csv",
    raw: bool = False,
    report: bool = True,
    top: int = 200,
    duplicates: int = MAX_ROWS,
    engine: Any = None,  # noqa: ANN401 - altbi.distributed.Engine
    on_progress: ProgressCallback = no_progress,
    command: str = "",
) -> Detection:
    """Find the outliers of a table: fit, score, explain and report.

    Parameters
    ----------
    table : str, path, Source or data frame
        A file or folder of files, a table opened by `open_table`, or a table in memory. Texts in
        memory, as in Parquet files, stay text: convert dates first (`pandas.to_datetime`).
    output : str or path, optional
        Folder for scores, reasons, model and report. By default a temporary folder, which is
        removed together with the result.
    detector : estimator, optional
        An unfitted `OutlierDetector`, `ALTBI` or `ODIM`. None is ``OutlierDetector()``.
    columns : str or sequence of str, default=()
        Columns to search for outliers; by default all.
    exclude : str or sequence of str, default=()
        Columns not to search.
    id : str or sequence of str, default=()
        Columns that identify a row. They are not searched, and kept in the output.
    label : str, optional
        A column with known labels, or ``COLUMN=VALUE`` with the value of outliers. It is not used
        for training, only compared with the scores.
    missing : str or sequence of str, default=()
        Texts to treat as missing values.
    column_roles : dict, optional
        Roles of columns by name, which overrule the inferred ones, as for `OutlierDetector`:
        "number", "category", "text" or "identifier".
    keep_columns : bool, default=False
        Whether the scores file has all columns of the table.
    scores_format : {"csv", "parquet", "arrow", "jsonl"}, default='csv'
        Format of the scores file.
    raw : bool, default=False
        Whether CSV files have texts and column names such as ``=1+1`` unchanged. By default they
        begin with an apostrophe, so that no spreadsheet runs them as a formula.
    report : bool, default=True
        Whether to write the report page.
    top : int, default=200
        Number of rows with the highest scores to explain.
    duplicates : int, default=1000000
        Number of rows, from the first one on, to check for duplicates. 0 checks none.
    engine : Engine, optional
        Where both passes over the table run, partition by partition, such as
        `altbi.distributed.Dask`. The scores are then a folder of Parquet files.
    on_progress : callable, optional
        Called with the items of each pass; it returns them, and may count them.
    command : str, default=''
        The command to show in the report.

    Returns
    -------
    Detection
        Scores, flagged rows, reasons, model and report. Its `notes` are warnings about the data;
        no `TableWarning` is raised.

    Raises
    ------
    TableError
        If the table cannot be read.
    ParameterError
        If an option or a parameter of the detector is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> import altbi
    >>> sizes = np.random.default_rng(0).normal(size=200)
    >>> sizes[17] = 9.0
    >>> detection = altbi.detect(pa.table({"size": sizes}), report=False)
    >>> detection.n_rows, detection.top[0].number
    (200, 17)
    """
    if scores_format not in SCORES_FORMATS:
        raise ParameterError(
            f"scores_format={quote(scores_format)}, but expected one of "
            f"{', '.join(SCORES_FORMATS)}."
        )
    if not is_count(top):
        raise ParameterError(f"top={quote(top)}, but expected a whole number of at least 1.")
    if duplicates != 0 and not is_count(duplicates):
        raise ParameterError(f"duplicates={quote(duplicates)}, but expected a number of rows.")
    settings = _state_column_roles(_read_settings(detector), column_roles)
    source = open_source(table)
    selection = ColumnSelection(
        columns=as_tuple(columns),
        exclude=as_tuple(exclude),
        ids=as_tuple(id),
        label=label,
        missing=as_tuple(missing),
        keep=keep_columns,
    )
    options: dict[str, Any] = {
        "top": top,
        "raw": raw,
        "duplicates": duplicates,
        "command": command,
        "on_progress": on_progress,
    }
    if engine is None:
        pipeline = Pipeline(source, selection, **options)
    else:
        # altbi.distributed imports this module, and is only loaded if an engine is used.
        distributed = import_module("altbi.distributed._pipeline")
        pipeline = distributed.DistributedPipeline(source, selection, engine, **options)
    private = PrivateFolder() if output is None else None
    folder = private.path / "found" if private is not None else Path(output or "")
    try:
        summary = pipeline.run(settings, folder, scores_format, report=report)
    except BaseException:
        if private is not None:
            private.close()
        raise
    return Detection(
        folder,
        folder / pipeline.scores_name(scores_format),
        pipeline.scores_schema(),
        summary,
        index=table.index if hasattr(table, "iloc") else None,
        owner=private,
        raw=raw,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """A table that is ready to be scored, with a fitted model."""

    model: FittedModel
    selected: SelectedColumns
    parser: ColumnParser  # converts the values of the table to the types of the model
    n_rows: int
    notes: tuple[str, ...]  # warnings about the data, one sentence each
    partitions: tuple[Any, ...] = ()  # those of a distributed pipeline


@dataclass(eq=False)
class Pipeline:
    """The steps from one table to its outliers.

    The table is read twice, in chunks: to infer types and sample training rows, and to score. With
    a fitted model, a table of a typed format such as Parquet is read only once, to score.
    """

    source: Source
    selection: ColumnSelection = field(default_factory=ColumnSelection)
    _: KW_ONLY
    top: int = 200  # number of rows with the highest scores to explain
    raw: bool = False  # whether CSV files have formulas unchanged
    duplicates: int = MAX_ROWS  # number of rows that are checked for duplicates
    command: str = ""  # shown in the report
    on_progress: ProgressCallback = no_progress  # receives chunks and steps, and returns them

    def run(
        self,
        settings: FitSettings,
        folder: Path,
        scores_format: str = "csv",
        *,
        report: bool = True,
    ) -> Summary:
        """Fit, score and explain; write scores, reasons, duplicates, model and report.

        Files appear when all of them are complete, so an error leaves no incomplete file. A
        distributed pipeline keeps the scores of finished partitions. Unreadable tables raise a
        `TableError`, and files of another run in the folder a `ParameterError`.
        """
        _check_no_leftovers(folder, self.scores_name(scores_format), report=report)
        self._check_writable(scores_format)
        with atomic_files(folder) as temporary:
            for name in (*map(self.scores_name, SCORES_FORMATS), *OUTPUTS):
                remove_leftovers(folder / name)
            prepared = self.fit(settings)
            scored = self.score_to_folder(prepared, folder, scores_format, temporary)
            explained = self.explain_top(prepared, scored)
            summary = self.summarize(prepared, scored, explained)
            summary = self.add_duplicates(summary, prepared)
            tables = {
                "reasons.csv": build_reasons_table(explained, prepared.selected),
                "duplicates.csv": build_duplicates_table(
                    summary.duplicates or Duplicates(), summary.id_columns
                ),
            }
            for name, table in tables.items():
                path = temporary(name)
                with open_writer(
                    path, str(folder / name), "csv", table.schema, raw=self.raw
                ) as writer:
                    writer.write(table)
            with report_errors_as(folder / "model.altbi"):
                temporary("model.altbi").write_bytes(prepared.model.to_bytes())
            if report:
                page = render(summary)
                with report_errors_as(folder / "report.html"):
                    temporary("report.html").write_text(page, encoding="utf-8")
        return summary

    def fit(self, settings: FitSettings) -> PreparedTable:
        """Make the first pass over the table, and fit a model on a sample of its rows.

        The sample has at most `settings.max_rows` rows. Nothing is written. The result also has the
        number of rows and warnings about the data. Unreadable tables raise a `TableError`, and
        stated roles of columns that are not searched a `ParameterError`.
        """
        selected = select_columns(self.source, self.selection)
        with name_errors(self.source):
            check_number_of_columns(len(selected.features))
        check_stated_names(settings.column_roles, selected.features, self.source.schema.names)
        texts = {name: ExpectedType("category") for name in list_texts(settings.column_roles)}
        found, partitions = self._scan(selected, self.selection, settings.max_rows, settings, texts)
        model = self._fit_sample(found, settings)
        return PreparedTable(
            model=model,
            selected=selected,
            parser=found.parser,
            n_rows=found.n_rows,
            notes=(*self.source.notes, *check_data(found, model)),
            partitions=partitions,
        )

    def prepare(self, model: FittedModel) -> PreparedTable:
        """Prepare the table for a model that is already fitted.

        If the format has no types, the first pass infers how to parse each column as the type that
        the model expects. Otherwise nothing is read, and errors in the rows are raised when they
        are scored. Texts that were missing values at the fit are missing values here, too. A table
        without the model's columns raises a `TableError`.
        """
        missing = (*self.selection.missing, *model.training_table.conventions.missing)
        selection = replace(self.selection, missing=tuple(dict.fromkeys(missing)))
        selected = self._select_for_model(model, selection)
        prepared = self._read_types(model, selected, selection)
        notes = (*self.source.notes, *prepared.notes, *describe_unused(self.source, selected))
        return replace(prepared, notes=notes)

    def _select_for_model(self, model: FittedModel, selection: ColumnSelection) -> SelectedColumns:
        """Return the columns of a fitted model in the table, as `select_for_model` does.

        If a CSV file or a sheet has none of them, the `TableError` advises on lines above a header.
        """
        try:
            return select_for_model(self.source, selection, model)
        except TableError as error:
            has_names = not set(model.encoder.names).isdisjoint(self.source.schema.names)
            action = {
                "csv": "pass the number of lines above it to --skip (skip)",
                "excel": "remove the lines above it from the sheet",
            }.get(self.source.format)
            if action is None or has_names or not model.training_table.is_frame:
                raise
            raise TableError(
                f"{error} If the header is not in the first line, {action}."
            ) from error

    def score(
        self, prepared: PreparedTable, open_output: WriterFactory | None = None
    ) -> ScoreSummary:
        """Make the second pass: score all rows, and return counts and the highest scores.

        With `open_output`, scores and flags of all rows are written to the writer that it opens, in
        a background thread. Without it, they are only counted.
        """
        summary = ScoreSummary(self.top)
        scored = score_source(
            self.source, prepared.parser, prepared.selected, prepared.model, summary
        )
        # An error of the output must end the scoring threads at once, not when it is forgotten.
        with closing(scored):
            chunks = self.on_progress("scoring", scored, prepared.n_rows, len)
            if open_output is None:
                for _ in chunks:
                    pass
                return summary
            schema = output_schema(self.source, prepared.selected)
            with open_output(schema) as file, write_in_background(file) as writer:
                for chunk in chunks:
                    writer.write(chunk)
        return summary

    def score_to_folder(
        self,
        prepared: PreparedTable,
        folder: Path,
        scores_format: str,
        temporary: Callable[[str], Path],
    ) -> ScoreSummary:
        """Score all rows, and write the scores file under a temporary name.

        `temporary` returns the temporary path for a file name. The caller moves the file to
        `folder` later, which is only used in messages here.
        """
        name = self.scores_name(scores_format)
        path = temporary(name)
        return self.score(
            prepared,
            lambda schema: open_writer(
                path, str(folder / name), scores_format, schema, raw=self.raw
            ),
        )

    def explain_top(self, prepared: PreparedTable, scored: ScoreSummary) -> ExplainedRows:
        """Explain the rows that `scored` keeps, highest score first; nothing is read again.

        These are the rows with the highest scores, at most `Pipeline.top`.
        """
        table, _, rows = scored.top.sort_by_score()
        return explain_rows(table, rows, prepared.parser, prepared.model)

    def explain_at(self, prepared: PreparedTable, rows: Sequence[int]) -> ExplainedRows:
        """Read the rows with these numbers from the table, and explain them in this order.

        A row that does not exist raises a `TableError`, and an empty sequence a `ParameterError`.
        """
        numbers = np.asarray(rows, dtype=np.int64)
        table = read_rows(self.source, prepared.selected, numbers)
        return explain_rows(table, numbers, prepared.parser, prepared.model)

    def summarize(
        self, prepared: PreparedTable, scored: ScoreSummary, explained: ExplainedRows
    ) -> Summary:
        """Build the content of the report from the results of the other steps.

        Warnings about drift, constant labels and a total in the last row are added to the notes of
        the first pass.
        """
        last_row = scored.n_rows - 1
        texts = [text for text in scored.last_ids.values() if is_total(text)]
        notes = dict.fromkeys(
            (*prepared.notes, *describe_total((last_row, str(text)) for text in texts))
        )
        return summarize(
            self.source.name,
            prepared.selected,
            prepared.model,
            scored,
            explained,
            notes=tuple(notes),
            command=self.command,
        )

    def add_duplicates(
        self, summary: Summary, prepared: PreparedTable, where: str = "duplicates.csv"
    ) -> Summary:
        """Check the table for duplicates, and return the summary with them and a note about them.

        At most the first `Pipeline.duplicates` rows are checked. They are read once more, and
        again if there are duplicates. `where` is the place in which these are listed, for the note.
        """
        found = find_duplicates(
            self.source,
            prepared.parser,
            prepared.selected,
            prepared.model.encoder.columns,
            summary.rows,
            limit=self.duplicates,
            on_progress=self.on_progress,
        )
        notes = (*summary.notes, *describe_duplicates(found, where))
        return replace(summary, duplicates=found, notes=notes)

    def scores_name(self, scores_format: str) -> str:
        """Return the name of the scores file in an output folder."""
        return f"scores.{scores_format}"

    def scores_schema(self) -> pa.Schema:
        """Return names and types of the columns of the scores file, without reading rows."""
        return output_schema(self.source, select_columns(self.source, self.selection))

    def _read_types(
        self, model: FittedModel, selected: SelectedColumns, selection: ColumnSelection
    ) -> PreparedTable:
        """Return the table prepared for a fitted model: how to parse its columns, and its size.

        A typed format such as Parquet is not read for this. A text format, or a table of unknown
        or no length, is read once; its notes are those of this scan. `selection.missing` must
        hold the texts for missing values of the model too. Raise a `TableError` for a text of
        another type than the model expects, and for a table without rows.
        """
        parser = build_typed_parser(self.source, selected.features, selection.missing)
        if parser is None or not self.source.n_rows:
            return self._infer_types(model, selected, selection)
        return PreparedTable(
            model=model, selected=selected, parser=parser, n_rows=self.source.n_rows, notes=()
        )

    def _infer_types(
        self, model: FittedModel, selected: SelectedColumns, selection: ColumnSelection
    ) -> PreparedTable:
        """Read the table once to infer how to parse each column for a fitted model."""
        expected = build_expected_types(model, selected)
        found, partitions = self._scan(selected, selection, 1, model.settings, expected)
        return PreparedTable(
            model=model,
            selected=selected,
            parser=found.parser,
            n_rows=found.n_rows,
            notes=found.notes,
            partitions=partitions,
        )

    def _scan(
        self,
        selected: SelectedColumns,
        selection: ColumnSelection,
        limit: int,
        settings: FitSettings,
        expected: dict[str, ExpectedType] | None = None,
    ) -> tuple[ScanResult, tuple[Any, ...]]:
        """Make the first pass: infer the column types, and sample at most `limit` rows.

        `expected` has the types that a fitted model expects, by column. The second value has the
        partitions of a distributed pipeline; here it is empty.
        """
        batches = self.source.batches(selected.to_learn)
        chunks = self.on_progress("reading", batches, self.source.n_rows, len)
        with name_errors(self.source):
            found = scan_table(
                self.source,
                selected.features,
                select_features(chunks, selected),
                limit=limit,
                seed=read_seed(settings),
                missing=selection.missing,
                expected=expected,
            )
        return found, ()

    def _fit_sample(self, found: ScanResult, settings: FitSettings) -> FittedModel:
        """Fit a model on the sample of the first pass, and report progress for each training step.

        The fit raises no `TableWarning`, because `check_data` returns the same warnings as notes. A
        `TableError` names the table.
        """
        models: list[FittedModel] = []

        def train() -> Iterator[TrainingStep]:
            """Yield the training steps, and append the fitted model to `models`."""
            models.append((yield from iter_fit(found.sample, settings, warn=False)))

        n_steps = settings.training.planned_steps
        with name_errors(self.source):
            for _ in self.on_progress("training", train(), n_steps, lambda _: 1):
                pass
        return models[0]

    def _check_writable(self, scores_format: str) -> None:
        """Raise a `TableError` for output columns that a scores file of this format cannot hold.

        Id columns are also written to ``reasons.csv``, so they must be writable as CSV.
        """
        ids = select_columns(self.source, self.selection).ids
        with name_errors(self.source):
            check_writable(self.scores_schema(), scores_format)
            check_writable(pa.schema([self.source.schema.field(name) for name in ids]), "csv")


def open_source(table: Any) -> Source:  # noqa: ANN401
    """Open a table: a path with `open_table`, another object with `open_in_memory`.

    A `Source` is already open, and is returned as it is.
    """
    if isinstance(table, Source):
        return table
    if isinstance(table, str | PathLike):
        return open_table(table)
    return open_in_memory(table)


def as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names as a tuple; a single name becomes a tuple of one."""
    return (names,) if isinstance(names, str) else tuple(names)


def _read_settings(detector: Any) -> FitSettings:  # noqa: ANN401
    """Return the settings of an estimator; None means those of ``OutlierDetector()``.

    `FitSettings` are returned as they are. Any other object raises a `ParameterError`.
    """
    if detector is None:
        return build_settings("OutlierDetector", {})
    if isinstance(detector, FitSettings):
        return detector
    if isinstance(detector, type) or not callable(getattr(detector, "settings", None)):
        raise ParameterError(
            f"detector={quote(detector)}, but expected an OutlierDetector(), an ALTBI() or "
            "an ODIM()."
        )
    settings: FitSettings = detector.settings()
    return settings


def _state_column_roles(
    settings: FitSettings, column_roles: Mapping[str, StatedRole] | None
) -> FitSettings:
    """Return settings with the roles of columns that `detect` states; None changes nothing.

    Detectors that do not infer roles, and roles stated twice, raise a `ParameterError`.
    """
    if column_roles is None:
        return settings
    if settings.detector != "OutlierDetector":
        raise ParameterError(
            f"column_roles is for OutlierDetector; {settings.detector} uses each column by its "
            "type. Leave it out, or convert or exclude the columns."
        )
    if settings.column_roles:
        raise ParameterError(
            "column_roles is stated for detect and for the detector. Leave out one of them."
        )
    return build_settings(settings.detector, {**settings.parameters, "column_roles": column_roles})


def read_seed(settings: FitSettings) -> int:
    """Return the random state as the sample's seed; if not an integer, raise a `ParameterError`."""
    if not isinstance(settings.random_state, int | np.integer):
        raise ParameterError(
            f"random_state={quote(settings.random_state)}, but expected an integer: it is also the "
            "seed of the training sample."
        )
    return int(settings.random_state)


def _check_no_leftovers(folder: Path, scores: str, *, report: bool) -> None:
    """Raise a `ParameterError` if the folder has output files that this run would not replace.

    Such files are scores in another format than `scores`, and a report page if none is written now.
    """
    others = {folder / "scores", *folder.glob("scores.*")} - {folder / scores}
    others |= set() if report else {folder / "report.html"}
    for path in sorted(others):
        if path.exists():
            raise ParameterError(
                f"{path}: it belongs to another run, and this one would not replace it. "
                "Choose another folder, or remove it."
            )
