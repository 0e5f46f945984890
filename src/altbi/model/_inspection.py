"""Describe a model file by its header alone."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import Any

import msgspec

from altbi.encoding import Column, validate_state
from altbi.errors import ModelFileError, escape_text, shorten
from altbi.io import PLAIN_FORMATS
from altbi.model._file import invalid_file_error, parse_header, read_header_text
from altbi.model._privacy_accounting import Release
from altbi.model._privacy_ledger import Ledger, summarize_releases
from altbi.table import TextConventions

LINE_WIDTH = 100
NAME_WIDTH = 36
CATEGORY_WIDTH = 24
MAX_CATEGORIES = 4
# A hostile file may hold any number of texts of any length. JSON has all of them.
MAX_ITEMS = 100
MAX_USUAL = 50  # columns of a table whose usual roles are listed
ITEM_WIDTH = 500
INDENT = " " * 16


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a model file's header, for people and programs that inspect it."""

    file: str
    format_version: int
    altbi_version: str
    detector: str
    parameters: dict[str, Any]
    rows: int  # of the training table
    sample: int  # rows that were used for training
    reference_rows: int  # reference rows in the file; 0 for scores by loss
    threshold: float
    last_loss: float | None  # None under a privacy budget
    epsilon_rdp: float | None  # privacy cost by two accountants; None without a budget
    epsilon_prv: float | None
    delta: float | None
    privacy: dict[str, Any] | None  # the privacy ledger
    columns: tuple[Column, ...]
    conventions: TextConventions


def read_description(path: str | PathLike[str]) -> ModelDescription:
    """Read the header of a model file and describe it; tensors are neither read nor checked.

    Invalid values raise a `ModelFileError`.
    """
    header = parse_header(path, read_header_text(path))
    try:
        ledger = None if header.privacy is None else Ledger.from_json(header.privacy)
        validate_state(header.encoder)
    except ModelFileError as error:
        raise invalid_file_error(path, error) from None
    return ModelDescription(
        file=str(path),
        format_version=header.format_version,
        altbi_version=header.altbi_version,
        detector=header.detector,
        parameters=header.parameters,
        rows=header.table.n_rows,
        sample=header.table.n_sample,
        reference_rows=header.n_reference,
        threshold=header.threshold,
        last_loss=header.history[-1].loss,
        epsilon_rdp=None if ledger is None else ledger.epsilon_rdp,
        epsilon_prv=None if ledger is None else ledger.epsilon_prv,
        delta=None if ledger is None else ledger.delta,
        privacy=None if ledger is None else ledger.to_json(),
        columns=header.encoder.columns,
        conventions=header.table.conventions,
    )


def render(model: ModelDescription) -> str:
    """Return a description as text for a terminal.

    All text from the file is escaped; long lists of parameters and text formats are cut.
    """
    parameters = [f"{name}={value!r}" for name, value in model.parameters.items()]
    about = "about " if model.privacy else ""  # counts have noise under a privacy budget
    last_loss = "not released" if model.last_loss is None else f"{model.last_loss:.6g}"
    lines = [
        f"{model.file}: {model.detector}, written by altbi "
        f"{shorten(model.altbi_version, NAME_WIDTH)}, "
        f"model format {model.format_version}",
        "",
        f"training table  {about}{model.rows} rows, {len(model.columns)} columns; "
        f"trained on {about}{model.sample} of the rows",
        f"reference rows  {_describe_reference(model)}",
        f"threshold       rows with an outlier score above {model.threshold:.6g} are outliers",
        f"last loss       {last_loss}",
        *_format_ledger(model.privacy),
        "",
        "parameters",
        *_wrap(_join_items(parameters), "  ", "  "),
        "",
        *_format_columns(model.columns),
        *_format_uses(model.columns),
        *_format_conventions(model.conventions),
    ]
    return "".join(escape_text(line) + "\n" for line in lines)


def _join_items(items: Sequence[str]) -> str:
    """Return texts separated by commas; long texts are cut, and so is a long list."""
    shown = [shorten(item, ITEM_WIDTH) for item in items[:MAX_ITEMS]]
    n_more = len(items) - len(shown)
    return ", ".join([*shown, f"{n_more} more (all with --json)"] if n_more else shown)


def _wrap(text: str, first_indent: str, indent: str) -> list[str]:
    """Split a text into indented lines of at most 100 characters.

    It is escaped first, so that line breaks in it stay visible.
    """
    return textwrap.wrap(
        escape_text(text), LINE_WIDTH, initial_indent=first_indent, subsequent_indent=indent
    )


def _describe_reference(model: ModelDescription) -> str:
    """Return the number of reference rows as text, with a warning that they are table data."""
    if not model.reference_rows:
        return "none: rows are scored by loss"
    return (
        f"{model.reference_rows} rows of the training table, as robust z-scores: protect the file "
        "like the table"
    )


def _format_ledger(ledger: dict[str, Any] | None) -> Iterator[str]:
    """Yield lines about a privacy ledger in JSON form: cost, coverage and a table of releases.

    None yields one line: the model was fitted without a privacy budget.
    """
    if ledger is None:
        yield "privacy         none: the model was fitted without a privacy budget"
        return
    spent = f"epsilon {ledger['epsilon_prv']:.4g} (PRV), {ledger['epsilon_rdp']:.4g} (RDP)"
    if not ledger["guarantee"]:
        spent = f"no guarantee; {spent}"
    yield f"privacy         {spent} of {ledger['epsilon']:.4g} at delta {ledger['delta']:.3g}"
    yield f"{INDENT}{ledger['adjacency']}"
    for title, items in (("covered", ledger["covered"]), ("not covered", ledger["not_covered"])):
        for item in items:
            yield from _wrap(f"{title}: {item}", INDENT, f"{INDENT}  ")
    yield ""
    yield f"{'noise':>9}  {'share of rows':>16}  {'times':>6}  release"
    releases = msgspec.convert(ledger["releases"], tuple[Release, ...])
    for what, noise, low, high, times in summarize_releases(releases):
        shares = f"{low:.2%} to {high:.2%}" if low < high else f"{high:.2%}"
        yield f"{noise:>9.4g}  {shares:>16}  {times:>6}  {shorten(what, LINE_WIDTH)}"


def _format_columns(columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield the lines of a text table, one for each column, after a header line.

    They have name, kind, number of missing values ("unknown" if the column was declared), values.
    """
    names = list(map(_format_name, columns))
    width = max(map(len, ["column", *names]))
    yield f"{'column':{width}}  {'kind':8}  {'missing':>8}  values"
    for name, column in zip(names, columns, strict=True):
        missing = "unknown" if column.is_declared else column.n_missing
        yield f"{name:{width}}  {column.kind:8}  {missing:>8}  {_describe_values(column)}"


def _format_name(column: Column) -> str:
    """Return the name of a column, escaped and cut; only the start of a long name is escaped."""
    return shorten(escape_text(shorten(column.name, NAME_WIDTH + 1)), NAME_WIDTH)


def _format_uses(columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield the lines of a table of roles: column, role, and why; one line if there are none.

    Of tables with more than 50 columns, those that are used as others of their kind are counted.
    """
    yield ""
    known = [(column, column.role) for column in columns if column.role is not None]
    if not known:
        yield "roles           not inferred: each column is used as its kind"
        return
    listed = [pair for pair in known if len(columns) <= MAX_USUAL or not pair[1].is_usual]
    listed = listed[:MAX_ITEMS]
    width = max(map(len, ["column", *(_format_name(column) for column, _ in listed)]))
    yield f"{'column':{width}}  {'role':10}  why: inferred, unless stated by the user"
    for column, role in listed:
        start = f"{_format_name(column):{width}}  {role.role:10}  "
        yield from _wrap(role.explanation, start, " " * len(start))
    if len(listed) < len(columns):
        shown = {column.name for column, _ in listed}
        counts = Counter(role.role for column, role in known if column.name not in shown)
        others = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
        yield f"and {len(columns) - len(listed):,} more columns: {others} (all with --json)"


def _describe_values(column: Column) -> str:
    """Return the range of numbers or dates, the booleans, or the four most frequent categories.

    A column without values returns "none". Long categories are cut.
    """
    if not column.n_present:
        return "none"
    if column.kind == "category":
        shown = [
            shorten(repr(shorten(category, CATEGORY_WIDTH + 1)), CATEGORY_WIDTH)
            for category in column.categories[:MAX_CATEGORIES]
        ]
        n_more = column.n_categories - len(shown)
        return ", ".join([*shown, f"{n_more} more"] if n_more else shown)
    if column.kind == "date":
        return f"{_format_date(column.low)} to {_format_date(column.high)}"
    if column.kind == "boolean":
        return " and ".join(sorted({str(bool(value)) for value in (column.low, column.high)}))
    return f"{column.low:.6g} to {column.high:.6g}"


def _format_date(seconds: float) -> str:
    """Format seconds since 1970 as date and time in UTC.

    Years that Python's `datetime` does not support are formatted as seconds.
    """
    try:
        return str(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))
    except OverflowError:
        return f"{seconds:.6g} seconds since 1970"


def _format_conventions(conventions: TextConventions) -> Iterator[str]:
    """Yield lines about text formats other than the default, and about texts that mean missing.

    Nothing is yielded if there are none, and a long list is cut.
    """
    rules = [
        f"{name!r} as {format_}"
        for name, format_ in conventions.text_formats.items()
        if format_ not in PLAIN_FORMATS
    ]
    rules += [f"{text!r} as missing" for text in conventions.missing]
    if rules:
        yield ""
        yield from _wrap(f"in text files   {_join_items(rules)}", "", INDENT)
