"""Which columns of a file are searched, which name a row, and which holds known labels."""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.errors import ParameterError, TableError
from altbi.io._source import Source
from altbi.io._type_inference import mask_missing, missing_value_words

__all__ = [
    "ColumnSelection",
    "Label",
    "SelectedColumns",
    "format_names",
    "parse_labels_column",
    "select_columns",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSelection:
    """What the user asks for, in names; a name may stand for several, with commas between.

    Attributes
    ----------
    columns : tuple of str
        The columns to search; empty means all that no other rule takes.
    exclude : tuple of str
        Columns to leave out.
    ids : tuple of str
        Columns that name a row: left out of the search, kept in the output.
    label : str or None
        A column with known labels, or ``COLUMN=VALUE`` with the value that marks an outlier. Left
        out of the search; only compared with the scores.
    missing : tuple of str
        Texts that stand for a missing cell.
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
        Its name.
    value : str or None
        The text that marks an outlier, if it is not the usual one.
    missing : tuple of str
        The texts that stand for no label.
    """

    column: str
    value: str | None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedColumns:
    """The columns of one source, by what they are for."""

    features: tuple[str, ...]
    ids: tuple[str, ...]
    label: Label | None
    kept: tuple[str, ...]

    @property
    def to_learn(self) -> list[str]:
        """The columns that the first pass reads."""
        return _once(self.features, _label_column(self.label))

    @property
    def to_score(self) -> list[str]:
        """The columns that the second pass reads."""
        return _once(self.features, self.ids, _label_column(self.label), self.kept)


def select_columns(
    source: Source, choice: ColumnSelection, wanted: Sequence[str] | None = None
) -> SelectedColumns:
    """Find the columns that a choice names.

    Parameters
    ----------
    source : Source
        The table.
    choice : ColumnSelection
        What the user asks for.
    wanted : sequence of str, default=None
        The columns that a model asks for, in its order.
    """
    known = source.schema.names
    ids = _expanded(source, choice.ids, "--id")
    label = _label(source, choice)
    out = {*_expanded(source, choice.exclude, "--exclude"), *_label_column(label)}
    named = _expanded(source, choice.columns, "--columns")
    if wanted is None:
        usual = [name for name in known if name not in source.sides]
        features = [name for name in named or usual if name not in out | set(ids)]
        _check_any(source, features, named)
    else:
        features = list(wanted)
        _check_wanted(source, features, named, out)
    kept = tuple(known) if choice.keep else ()
    return SelectedColumns(features=tuple(features), ids=ids, label=label, kept=kept)


def parse_labels_column(label: Label, cells: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Read known labels: 1 for outliers, 0 for others, NaN where there is none."""
    missing = pa.array({"", *label.missing} - {label.value}, pa.string())
    texts = mask_missing(pc.ascii_trim_whitespace(_as_texts(label, cells)), missing)
    if label.value is not None:
        return pc.equal(texts, label.value).cast(pa.float64()).to_numpy(zero_copy_only=False)
    try:
        values = texts.cast(pa.bool_()).cast(pa.float64())
        return values.to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return _from_numbers(label, texts)


def _as_texts(label: Label, cells: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    try:
        if pa.types.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        return cells.cast(pa.string())
    except pa.ArrowException:
        raise TableError(
            f"the labels in column {label.column!r} are of the type {cells.type}, but expected "
            "numbers, booleans or text. Name another column, or leave --label out."
        ) from None


def _from_numbers(label: Label, texts: pa.Array) -> NDArray[np.float64]:
    """Read labels such as 1.0; whatever is neither 0 nor 1 needs a word from the user."""
    try:
        values = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        values = np.array([2.0])
    if not np.isin(values[~np.isnan(values)], [0, 1]).all():
        found = pc.unique(texts.drop_null())[:3].to_pylist()
        raise TableError(
            f"the labels in column {label.column!r} are {found}, but expected 0 and 1 or true and "
            f"false. Say which value marks an outlier: --label {label.column}=VALUE."
        )
    return values


def _expanded(source: Source, given: Sequence[str], option: str) -> tuple[str, ...]:
    """Take names as they are, or apart at their commas."""
    known = set(source.schema.names)
    names: list[str] = []
    for text in given:
        names += [text] if text in known else [part.strip() for part in text.split(",")]
    for name in names:
        if name not in known:
            raise _unknown(source, name, option)
    return tuple(dict.fromkeys(names))


def _label(source: Source, choice: ColumnSelection) -> Label | None:
    text = choice.label
    if text is None:
        return None
    column, equals, value = text.rpartition("=")
    is_name = text in source.schema.names or not equals
    names = _expanded(source, [text if is_name else column], "--label")
    if len(names) > 1:
        raise ParameterError(
            f"{source.name}: --label names {format_names(names)}, but expected one."
        )
    missing = missing_value_words(source.format, choice.missing)
    return Label(names[0], None if is_name else value, missing)


def _unknown(source: Source, name: str, option: str) -> ParameterError:
    names = source.schema.names
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are {format_names(names)}."
    return ParameterError(f"{source.name}: {option} names {name!r}, but no column has it. {hint}")


def _check_any(source: Source, features: Sequence[str], named: Sequence[str]) -> None:
    """Refuse a search without columns."""
    if not features:
        left = f"all of {format_names(named)} are" if named else "every column is"
        raise ParameterError(
            f"{source.name}: {left} left out, but expected at least one column to search."
        )


def _check_wanted(
    source: Source, wanted: Sequence[str], named: Sequence[str], out: Collection[str]
) -> None:
    """Refuse a table without the model's columns, and options that would change nothing."""
    known = set(source.schema.names)
    absent = [name for name in wanted if name not in known]
    if absent:
        raise TableError(
            f"{source.name}: the columns {format_names(absent)} of the model are not there; the table "
            f"has {format_names(source.schema.names)}. Score a table with the columns that the model "
            "was fitted on."
        )
    other = [name for name in wanted if name in out or (named and name not in named)]
    if other:
        raise ParameterError(
            f"{source.name}: {format_names(other)} cannot be left out, because the model was fitted on "
            "them. Fit a model without them."
        )


def format_names(names: Sequence[str], most: int = 10) -> str:
    """Quote names, the first few of many."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"


def _label_column(label: Label | None) -> tuple[str, ...]:
    return () if label is None else (label.column,)


def _once(*groups: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for group in groups for name in group))
