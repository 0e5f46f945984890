"""The first pass over a table: select its columns, infer their types, and draw the sample."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.errors import ParameterError, TableError, infinity_error, list_names, quote
from altbi.io._expected_type import ExpectedType
from altbi.io._source import Source
from altbi.io._text_batches import InferenceState, first_infinite
from altbi.io._text_formats import (
    TEXT,
    MissingTexts,
    TextFormat,
    decode_format,
    encode_format,
    mask_missing,
    mask_missing_texts,
    missing_value_texts,
    parse_texts,
)
from altbi.io._type_inference import TypeInference, share_decimal_mark
from altbi.io._type_notes import describe_total
from altbi.table import RowSampler, Table, TextConventions, as_table


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSelection:
    """The columns that the user asks for. An entry may be several names, separated by commas."""

    # Columns to search; if empty, all columns that are not excluded, ids or the label.
    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # columns to leave out
    ids: tuple[str, ...] = ()  # columns that identify a row; not searched, kept in the output
    # A column with known labels, or COLUMN=VALUE with the value that marks an outlier. It is not
    # searched and only compared with the scores.
    label: str | None = None
    missing: tuple[str, ...] = ()  # texts that mean a missing value
    keep: bool = False  # whether the output has all columns of the input


@dataclass(frozen=True, slots=True)
class Label:
    """A column with known labels."""

    column: str
    value: str | None  # the text that marks an outlier; if None, 1 and true mark outliers
    missing: tuple[str, ...] = ()  # the texts that mean that a row has no label


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedColumns:
    """The columns of one source by their use."""

    features: tuple[str, ...]  # searched for outliers
    ids: tuple[str, ...]  # identify a row in the output
    label: Label | None
    kept: tuple[str, ...]  # copied to the output: all columns, or none

    @property
    def to_learn(self) -> list[str]:
        """The columns that the first pass reads: features and label, each once."""
        return list(dict.fromkeys((*self.features, *_list_label_columns(self.label))))

    @property
    def to_score(self) -> list[str]:
        """The columns that the second pass reads: features, ids, label and kept columns."""
        label = _list_label_columns(self.label)
        return list(dict.fromkeys((*self.features, *self.ids, *label, *self.kept)))


def select_columns(
    source: Source, selection: ColumnSelection, expected: Sequence[str] | None = None
) -> SelectedColumns:
    """Return the columns of a source that a selection asks for, by their use.

    `expected` has the columns of a model in its order; these are then the features. Without it,
    they are the named columns, or all but `source.extra_columns`; ids, the label and excluded
    columns are left out. Names that do not exist, no features, and leaving out a column of the
    model raise a `ParameterError`. Columns of the model that are absent raise a `TableError`.
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
            what = f"all of {list_names(named)} are" if named else "every column is"
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
            f"the labels in column {quote(label.column)} are of the type {values.type}, but "
            "expected numbers, booleans or text. Pass another column, or leave --label out."
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
            f"the labels in column {quote(label.column)} are {found}, but expected 0 and 1 or "
            f"true and false. Pass the value that marks an outlier: --label {label.column}=VALUE."
        )
    return labels


def _resolve_names(source: Source, entries: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the column names in the entries of an option such as "--id", without duplicates.

    An entry that is not the name of a column is split at its commas. A name that does not exist
    raises a `ParameterError`, which suggests a similar name.
    """
    known = set(source.schema.names)
    names: list[str] = []
    for entry in entries:
        names += [entry] if entry in known else [name.strip() for name in entry.split(",")]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, source.schema.names, n=1)
            there = f"There are {list_names(source.schema.names)}."
            raise ParameterError(
                f"{source.name}: {option} names {quote(name)}, but no column has it. "
                f"{f'Did you mean {quote(near[0])}?' if near else there}"
            )
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
        raise ParameterError(f"{source.name}: --label names {list_names(names)}, but expected one.")
    missing = missing_value_texts(source.format, selection.missing)
    return Label(names[0], None if is_name else value, missing)


def _check_expected(
    source: Source, expected: Sequence[str], named: Sequence[str], left_out: Collection[str]
) -> None:
    """Raise a `TableError` if the table does not have all `expected` columns, those of a model.

    A `ParameterError` is raised if one is in `left_out`, or not in `named`, which may be empty.
    """
    known = set(source.schema.names)
    absent = [name for name in expected if name not in known]
    if absent:
        raise TableError(
            f"{source.name}: the columns {list_names(absent)} of the model are not there; the "
            f"table has {list_names(source.schema.names)}. Score a table with the columns that "
            "the model was fitted on."
        )
    removed = [name for name in expected if name in left_out or (named and name not in named)]
    if removed:
        raise ParameterError(
            f"{source.name}: {list_names(removed)} cannot be left out, because the model was "
            "fitted on them. Fit a model without them."
        )


def _list_label_columns(label: Label | None) -> tuple[str, ...]:
    """Return the column name of a label as a tuple; the tuple is empty for None."""
    return () if label is None else (label.column,)


@final
class ColumnParser:
    """Converts the columns `names` of a source to a `Table`; texts in `missing` become null.

    `text_formats` has the format of each column to parse. Other columns keep their type.
    """

    def __init__(
        self, names: Sequence[str], text_formats: Mapping[str, TextFormat], missing: Sequence[str]
    ) -> None:
        self.names = tuple(names)
        self.text_formats = text_formats
        self.missing = MissingTexts(missing)

    @property
    def state(self) -> dict[str, Any]:
        """The parser as plain values, for `from_state` of the same version of altbi.

        Text formats are those of `encode_format`.
        """
        formats = {name: encode_format(each) for name, each in self.text_formats.items()}
        return {"names": self.names, "text_formats": formats, "missing": self.missing.texts}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Create a parser from its `state`."""
        formats = {name: decode_format(*each) for name, each in state["text_formats"].items()}
        return cls(state["names"], formats, state["missing"])

    def parse(
        self, batch: pa.RecordBatch | pa.Table, first_row: int, names: Sequence[str] | None = None
    ) -> Table:
        """Return the columns `self.names` of a chunk as a typed table, renamed to `names`.

        `first_row` is the number of the first row, for messages. A text that does not have the
        format of its column raises `pyarrow.ArrowInvalid`. A chunk without rows raises a
        `TableError`.
        """
        arrays = [self._parse_column(name, batch.column(name)) for name in self.names]
        table = as_table(pa.table(arrays, names=list(names or self.names)))
        table.first_row = first_row
        return table

    def _parse_column(self, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Parse a column by its text format; without one, only replace missing texts by null."""
        text_format = self.text_formats.get(name)
        if text_format is None:
            return mask_missing(values, self.missing.array)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        return parse_texts(text_format, values, self.missing)


def build_typed_parser(
    source: Source, names: Sequence[str], missing: Sequence[str]
) -> ColumnParser | None:
    """Return the parser of columns whose types the source states; None if they must be inferred.

    `missing` has further texts that mean a missing value.
    """
    if source.is_untyped:
        return None
    return ColumnParser(names, {}, missing_value_texts(source.format, missing))


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of the first pass over a table."""

    n_rows: int
    parser: ColumnParser  # with the inferred text formats
    sample: Table  # the training sample, parsed
    sample_rows: NDArray[np.int64]  # row numbers of the sample in the table
    notes: tuple[str, ...]  # sentences about the inferred types, for the user


def scan_table(
    source: Source,
    names: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    limit: int,
    seed: int,
    missing: Sequence[str] = (),
    expected: Mapping[str, ExpectedType] | None = None,
) -> ScanResult:
    """Read a source once: infer the types of its columns, and sample at most `limit` rows.

    `batches` is the result of ``source.batches(names)``. `missing` has further texts that mean a
    missing value, `expected` the types that a model expects. A source without rows, an infinite
    number and a text of another type than expected raise a `TableError`, which does not name the
    source.
    """
    scan = TableScan(source, names, missing=missing, expected=expected)
    sampler = RowSampler(limit, seed)
    for batch in batches:
        scan.add(batch)
        sampler.add(batch)
    if not scan.n_rows:
        raise TableError("holds no rows, but expected at least one. Check how it was made.")
    return scan.result(*sampler.result())


@final
class TableScan:
    """Infers the types of the columns of a source, batch by batch or partition by partition.

    Types are inferred for text columns of untyped sources, such as CSV. Other columns are only
    checked for infinite numbers. `missing` has additional texts that mean a missing value, and
    `expected` the types that a model expects, by column.
    """

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        *,
        missing: Sequence[str] = (),
        expected: Mapping[str, ExpectedType] | None = None,
    ) -> None:
        self.names = names
        self.n_rows = 0
        self._is_csv = source.format == "csv"
        self._declared_missing = tuple(missing)
        self._missing = MissingTexts(missing_value_texts(source.format, missing))
        self._inferences = {
            name: TypeInference(name, (expected or {}).get(name), self._missing)
            for name in names
            if source.is_untyped and source.schema.field(name).type == pa.string()
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows.

        An infinite number in a typed column, or a text that is not written as the model expects,
        raises a `TableError`. Infinite numbers in text columns raise in `result`.
        """
        for name in self.names:
            if name in self._inferences:
                self._inferences[name].add(batch.column(name), self.n_rows)
            elif (row := first_infinite(batch.column(name), self.n_rows)) is not None:
                raise infinity_error(name, row)
        self.n_rows += len(batch)

    @property
    def state(self) -> dict[str, InferenceState]:
        """The state of the type inference of each text column, by column name."""
        return {name: inference.state for name, inference in self._inferences.items()}

    def merge(self, state: Mapping[str, InferenceState], n_rows: int) -> bool:
        """Add the state of the next partition, which has `n_rows` rows.

        Returns False and changes nothing if no text format parses all texts of a column.
        """
        if not n_rows:
            return True
        if not all(self._inferences[name].shared_formats(each) for name, each in state.items()):
            return False
        for name, each in state.items():
            self._inferences[name].merge(each, self.n_rows)
        self.n_rows += n_rows
        return True

    def result(self, sample: pa.Table, rows: NDArray[np.int64]) -> ScanResult:
        """Infer the types, and return them with the parsed sample and notes for the user.

        `rows` are the row numbers of `sample` in the source. Infinite numbers raise a `TableError`.
        """
        if self._is_csv:  # other files also have numbers that are not text
            share_decimal_mark(self._inferences.values())
        formats = {name: inference.infer() for name, inference in self._inferences.items()}
        parser = ColumnParser(self.names, formats, self._missing.texts)
        table = parser.parse(sample, first_row=0)
        table.n_source_rows = self.n_rows
        parsed = {name: each.description for name, each in formats.items() if each is not TEXT}
        table.conventions = TextConventions(parsed, self._declared_missing)
        notes = [
            note
            for name, inference in self._inferences.items()
            for note in inference.notes(
                mask_missing_texts(sample[name].combine_chunks(), self._missing.array)
            )
        ]
        notes += describe_total(each.state.total for each in self._inferences.values())
        return ScanResult(self.n_rows, parser, table, rows, tuple(notes))
