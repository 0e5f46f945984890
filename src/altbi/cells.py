"""Find the cells of a table that are most likely wrong, with what is expected instead."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa

from altbi._parameters import is_count
from altbi.encoding import StatedRole
from altbi.errors import ParameterError, quote
from altbi.explain import CellExplainer, CellReason
from altbi.io import ColumnSelection, ProgressCallback, no_progress
from altbi.model import FitSettings, FittedModel, build_settings
from altbi.model._cells import FoundCells, TopCells, find_source_cells
from altbi.model._fitted_model import require_sum_scorer
from altbi.pipeline import Pipeline, PreparedTable, as_tuple, open_source
from altbi.report._summarize import format_expected, format_id, format_value
from altbi.table import list_values

__all__ = ["WrongCells", "find_cells", "find_pipeline_cells"]

DEFAULT_TOP = 1_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WrongCells:
    """The cells of a table that are most likely wrong, a result of `find_cells`.

    Attributes
    ----------
    table : pyarrow.Table
        One record for each cell, highest score first: ``row`` (counted from 0), ``id_NAME`` for
        each id column, ``column``, ``value``, ``expected``, ``note`` and ``score``. Values are
        text, because they come from columns of any type.
    n_rows, n_columns : int
        Number of rows and columns that were searched.
    notes : tuple of str
        Warnings about the data.

    Examples
    --------
    >>> import altbi
    >>> import pyarrow as pa
    >>> table = pa.table({"city": ["Leeds", "York"] * 50 + ["Leedds"]})
    >>> found = altbi.find_cells(table)
    >>> found.n_cells
    101
    >>> found.table["note"][0].as_py()
    "looks like 'Leeds' (50 rows)"
    """

    table: pa.Table
    n_rows: int
    n_columns: int
    notes: tuple[str, ...]

    @property
    def n_cells(self) -> int:
        """Number of cells that were searched."""
        return self.n_rows * self.n_columns


def find_cells(
    table: Any,  # noqa: ANN401 - a path or any table
    *,
    model: FittedModel | None = None,
    top: int = DEFAULT_TOP,
    columns: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    id: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    column_roles: Mapping[str, StatedRole] | None = None,
    on_progress: ProgressCallback = no_progress,
) -> WrongCells:
    """Find the cells of a table that are most likely wrong.

    The scores are those of `FittedModel.cell_scores`. Cells with a score below 2 are not rare, and
    never listed. Of equal scores, cells of the first rows are first, then those of the first
    columns.

    Parameters
    ----------
    table : str, path, Source or data frame
        A file or folder of files, a table opened by `open_table`, or a table in memory.
    model : FittedModel, optional
        A model of an `OutlierDetector`. None fits one to the table.
    top : int, default=1000
        Largest number of cells.
    columns : str or sequence of str, default=()
        Columns to search; by default all.
    exclude : str or sequence of str, default=()
        Columns not to search.
    id : str or sequence of str, default=()
        Columns that identify a row. They are not searched, and kept in the result.
    missing : str or sequence of str, default=()
        Texts to treat as missing values.
    column_roles : dict, optional
        Roles of columns by name, as for `OutlierDetector`. A model keeps the roles of its fit.
    on_progress : callable, optional
        Called with the items of each pass; it returns them, and may count them.

    Returns
    -------
    WrongCells
        The cells with the highest scores, and what is expected instead.

    Raises
    ------
    TableError
        If the table cannot be read.
    ParameterError
        If an option is invalid, or if the model scores by loss.

    Examples
    --------
    >>> import altbi
    >>> import pyarrow as pa
    >>> cities = ["Leeds", "York"] * 50 + ["Leedds"]
    >>> table = pa.table({"city": cities, "floor": [1, 2] * 50 + [1]})
    >>> first = altbi.find_cells(table).table.to_pylist()[0]
    >>> first["row"], first["column"], first["value"], first["expected"]
    (100, 'city', 'Leedds', 'Leeds')
    """
    if not is_count(top):
        raise ParameterError(f"top={quote(top)}, but expected a whole number of at least 1.")
    selection = ColumnSelection(
        columns=as_tuple(columns),
        exclude=as_tuple(exclude),
        ids=as_tuple(id),
        missing=as_tuple(missing),
    )
    pipeline = Pipeline(open_source(table), selection, top=top, on_progress=on_progress)
    if model is not None and not isinstance(model, FittedModel):
        raise ParameterError(
            f"model={quote(model)}, but expected a FittedModel. Read a file with altbi.load."
        )
    if model is None:
        settings = build_settings("OutlierDetector", {"column_roles": column_roles})
        return find_pipeline_cells(pipeline, settings)
    if column_roles is not None:
        raise ParameterError(
            "column_roles is for a fit, but a model keeps the roles of its fit. Leave out one of "
            "them."
        )
    return find_pipeline_cells(pipeline, model)


def find_pipeline_cells(pipeline: Pipeline, fit: FittedModel | FitSettings) -> WrongCells:
    """Find the `pipeline.top` cells of a table, with a fitted model or with one that is fitted now.

    A model that scores by loss raises a `ParameterError`, before the table is read.
    """
    if isinstance(fit, FittedModel):
        require_sum_scorer(fit)
        prepared = pipeline.prepare(fit)
    else:
        prepared = pipeline.fit(fit)
    top = TopCells(pipeline.top)
    scored = find_source_cells(
        pipeline.source, prepared.parser, prepared.selected, prepared.model, top
    )
    with closing(scored):
        for _ in pipeline.on_progress("scoring", scored, prepared.n_rows, int):
            pass
    return WrongCells(
        table=_build_table(top.sort(), prepared),
        n_rows=top.n_rows,
        n_columns=len(prepared.model.encoder.names),
        notes=prepared.notes,
    )


def _build_table(found: FoundCells, prepared: PreparedTable) -> pa.Table:
    """Return one record for each cell, with formatted values, as in `WrongCells.table`."""
    selected, model = prepared.selected, prepared.model
    ids = {f"id_{name}": list_values(found.table[name]) for name in selected.ids}
    sources = [list_values(found.table[name]) for name in selected.features]
    reasons: list[CellReason] = []
    if len(found.table):
        table = prepared.parser.parse(found.table, 0, model.encoder.names)
        explainer = CellExplainer(table, require_sum_scorer(model), model.encoder)
        reasons = list(explainer.explain(found.indices, found.columns))
    cells = list(zip(found.indices.tolist(), found.columns.tolist(), strict=True))
    texts = {
        "column": [selected.features[column] for _, column in cells],
        "value": [format_value(sources[column][row], digits=None) for row, column in cells],
        "expected": list(map(_format_expected, reasons)),
        "note": list(map(_format_note, reasons)),
    }
    texts = {name: [format_id(values[row]) for row, _ in cells] for name, values in ids.items()} | (
        texts
    )
    return pa.table(
        {"row": found.rows}
        | {name: pa.array(values, pa.string()) for name, values in texts.items()}
        | {"score": found.scores}
    )


def _format_expected(reason: CellReason) -> str:
    """Return the value, or the range, that a cell probably should have; "" if it is unknown."""
    ends = (reason.expected, reason.expected_high)
    return " to ".join(format_expected(end, reason.value) for end in ends if end is not None)


def _format_note(reason: CellReason) -> str:
    """Return the reason in words, or the usual range of a number."""
    if reason.note or reason.usual_low is None:
        return reason.note
    low, high = (format_value(end) for end in (reason.usual_low, reason.usual_high))
    return f"usual: {low} to {high}" if low != high else f"usual: {low}"
