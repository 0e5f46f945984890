"""Select the columns of a table: features, row ids, and a column of known labels."""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.errors import ParameterError, TableError
from altbi.io._source import Source, format_names
from altbi.io._type_inference import mask_missing, missing_value_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSelection:
    """The columns that the user asks for. An entry may be several names, separated by commas.

    Attributes
    ----------
    columns : tuple of str
        Columns to search; if empty, all columns that are not excluded, ids or the label.
    exclude : tuple of str
        Columns to leave out.
    ids : tuple of str
        Columns that identify a row. They are not searched, and kept in the output.
    label : str or None
        A column with known labels, or ``COLUMN=VALUE`` with the value that marks an outlier. It is
        not searched and only compared with the scores.
    missing : tuple of str
        Texts that mean a missing value.
    keep : bool
        Whether the output has all columns of the input.
    """

    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    label: str | None = None
    missing: tuple[str, ...] = ()
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """A column with known labels.

    Attributes
    ----------
    column : str
        Name of the column.
    value : str or None
        The text that marks an outlier. If None, 1 and true mark outliers.
    missing : tuple of str
        The texts that mean that a row has no label.
    """

    column: str
    value: str | None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedColumns:
    """The columns of one source by their use.

    Attributes
    ----------
    features : tuple of str
        Columns that are searched for outliers.
    ids : tuple of str
        Columns that identify a row in the output.
    label : Label or None
        The column of known labels.
    kept : tuple of str
        Columns to copy to the output: all columns, or none.
    """

    features: tuple[str, ...]
    ids: tuple[str, ...]
    label: Label | None
    kept: tuple[str, ...]

    @property
    def to_learn(self) -> list[str]:
        """The columns that the first pass reads: features and label."""
        return _join_unique(self.features, _list_label_columns(self.label))

    @property
    def to_score(self) -> list[str]:
        """The columns that the second pass reads: features, ids, label and kept columns."""
        return _join_unique(self.features, self.ids, _list_label_columns(self.label), self.kept)


def select_columns(
    source: Source, selection: ColumnSelection, expected: Sequence[str] | None = None
) -> SelectedColumns:
    """Return the columns of a source that a selection asks for, by their use.

    Without named columns and without a model, the features are all columns except extra columns,
    ids, the label and excluded columns. Names that do not exist and a selection without features
    raise a `ParameterError`. Columns of the model that the source does not have raise a
    `TableError`.

    Parameters
    ----------
    source : Source
        The table.
    selection : ColumnSelection
        The columns that the user asks for.
    expected : sequence of str, default=None
        The columns that a model expects, in its order.
    """
    names = source.schema.names
    ids = _resolve_names(source, selection.ids, "--id")
    label = _resolve_label(source, selection)
    excluded = _resolve_names(source, selection.exclude, "--exclude")
    left_out = {*excluded, *_list_label_columns(label)}
    named = _resolve_names(source, selection.columns, "--columns")
    if expected is None:
        candidates = named or [name for name in names if name not in source.extra_columns]
        features = [name for name in candidates if name not in left_out | set(ids)]
        if not features:
            what = f"all of {format_names(named)} are" if named else "every column is"
            raise ParameterError(
                f"{source.name}: {what} left out, but expected at least one column to search."
            )
    else:
        features = list(expected)
        _check_expected(source, features, named, left_out)
    kept = tuple(names) if selection.keep else ()
    return SelectedColumns(features=tuple(features), ids=ids, label=label, kept=kept)


def parse_labels_column(label: Label, values: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Return labels as 1 for outliers, 0 for inliers and NaN for rows without a label.

    Texts are trimmed; empty texts are missing. If the label has a value, all other values are
    inliers. Otherwise labels must be 0 and 1 or true and false; others raise a `TableError`.
    """
    missing = pa.array({"", *label.missing} - {label.value}, pa.string())
    texts = mask_missing(pc.ascii_trim_whitespace(_to_texts(label, values)), missing)
    if label.value is not None:
        return pc.equal(texts, label.value).cast(pa.float64()).to_numpy(zero_copy_only=False)
    try:
        labels = texts.cast(pa.bool_()).cast(pa.float64())
        return labels.to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return _parse_numbers(label, texts)


def _to_texts(label: Label, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Convert labels of any type to text; a type without a text form raises a `TableError`."""
    try:
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        return values.cast(pa.string())
    except pa.ArrowException:
        raise TableError(
            f"the labels in column {label.column!r} are of the type {values.type}, but expected "
            "numbers, booleans or text. Pass another column, or leave --label out."
        ) from None


def _parse_numbers(label: Label, texts: pa.Array) -> NDArray[np.float64]:
    """Parse labels such as 1.0; null becomes NaN.

    Values other than 0 and 1 raise a `TableError`.
    """
    try:
        labels = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        labels = np.array([2.0])  # not a label, so that the check below raises
    if not np.isin(labels[~np.isnan(labels)], [0, 1]).all():
        found = pc.unique(texts.drop_null())[:3].to_pylist()
        raise TableError(
            f"the labels in column {label.column!r} are {found}, but expected 0 and 1 or true and "
            f"false. Pass the value that marks an outlier: --label {label.column}=VALUE."
        )
    return labels


def _resolve_names(source: Source, entries: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the column names in the entries of an option, without duplicates.

    An entry that is not the name of a column is split at its commas. A name that does not exist
    raises a `ParameterError`.
    """
    known = set(source.schema.names)
    names: list[str] = []
    for entry in entries:
        names += [entry] if entry in known else [name.strip() for name in entry.split(",")]
    for name in names:
        if name not in known:
            raise _build_unknown_name_error(source, name, option)
    return tuple(dict.fromkeys(names))


def _resolve_label(source: Source, selection: ColumnSelection) -> Label | None:
    """Return the label that `selection.label` asks for, or None.

    The entry is the name of a column, or ``COLUMN=VALUE``. A column that does not exist and several
    columns raise a `ParameterError`.
    """
    entry = selection.label
    if entry is None:
        return None
    column, equals, value = entry.rpartition("=")
    is_name = entry in source.schema.names or not equals
    names = _resolve_names(source, [entry if is_name else column], "--label")
    if len(names) > 1:
        raise ParameterError(
            f"{source.name}: --label names {format_names(names)}, but expected one."
        )
    missing = missing_value_texts(source.format, selection.missing)
    return Label(names[0], None if is_name else value, missing)


def _build_unknown_name_error(source: Source, name: str, option: str) -> ParameterError:
    """Return the error for a column that does not exist; it suggests a similar name."""
    names = source.schema.names
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are {format_names(names)}."
    return ParameterError(f"{source.name}: {option} names {name!r}, but no column has it. {hint}")


def _check_expected(
    source: Source, expected: Sequence[str], named: Sequence[str], left_out: Collection[str]
) -> None:
    """Check that the table has all columns of a model, and that no option leaves one out.

    Absent columns raise a `TableError`. Columns that options leave out raise a `ParameterError`.
    """
    known = set(source.schema.names)
    absent = [name for name in expected if name not in known]
    if absent:
        raise TableError(
            f"{source.name}: the columns {format_names(absent)} of the model are not there; the "
            f"table has {format_names(source.schema.names)}. Score a table with the columns that "
            "the model was fitted on."
        )
    removed = [name for name in expected if name in left_out or (named and name not in named)]
    if removed:
        raise ParameterError(
            f"{source.name}: {format_names(removed)} cannot be left out, because the model was "
            "fitted on them. Fit a model without them."
        )


def _list_label_columns(label: Label | None) -> tuple[str, ...]:
    """Return the column name of a label as a tuple; the tuple is empty for None."""
    return () if label is None else (label.column,)


def _join_unique(*groups: Sequence[str]) -> list[str]:
    """Return the names of all groups in order, each once."""
    return list(dict.fromkeys(name for group in groups for name in group))
