"""What a model file says of itself: read from its header alone, checked, safe to show."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import Any

from altbi._terminal import escape_text, shorten
from altbi.encoding import Column, TableEncoder
from altbi.errors import ModelFileError
from altbi.io import PLAIN_FORMATS
from altbi.model._container import read_header
from altbi.model._header import parse_header
from altbi.model._privacy_ledger import Ledger
from altbi.table import TextConventions

__all__ = ["ModelDescription", "read_description", "render"]

WIDTH = 100
NAME_WIDTH = 36
SHOWN_CATEGORIES = 4
CATEGORY_WIDTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """A model in plain values.

    Attributes
    ----------
    file : str
        The file's path.
    format_version : int
        Version of the file format.
    altbi_version : str
        The altbi that wrote the file.
    detector : str
        Name of the detector.
    parameters : dict
        Its parameters.
    rows, sample : int
        Rows of the training table, and of the sample that training saw.
    reference_rows : int
        Rows of the training table that the file holds.
    threshold : float
        Rows with an anomaly score above it are outliers.
    last_loss : float or None
        Training loss of the last step; not told under a privacy budget.
    epsilon_rdp, epsilon_prv, delta : float or None
        What was spent of a privacy budget, by two accountants; None without a budget.
    privacy : dict or None
        The whole ledger.
    columns : tuple of Column
        The columns as the sample showed them.
    writing : TextConventions
        How their cells stood in the file of the training table.
    """

    file: str
    format_version: int
    altbi_version: str
    detector: str
    parameters: dict[str, Any]
    rows: int
    sample: int
    reference_rows: int
    threshold: float
    last_loss: float | None
    epsilon_rdp: float | None
    epsilon_prv: float | None
    delta: float | None
    privacy: dict[str, Any] | None
    columns: tuple[Column, ...]
    conventions: TextConventions


def read_description(path: str | PathLike[str]) -> ModelDescription:
    """Read the header of a model file; values of a wrong type raise a `ModelFileError`."""
    header = parse_header(path, read_header(path))
    try:
        ledger = None if header.privacy is None else Ledger.from_json(header.privacy).to_json()
        columns = TableEncoder.from_json(header.encoder).columns
    except ModelFileError as error:
        raise ModelFileError(
            f"{path}: the file is not valid ({str(error).rstrip('.')}). Save the model again."
        ) from None
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
        epsilon_rdp=None if ledger is None else ledger["epsilon_rdp"],
        epsilon_prv=None if ledger is None else ledger["epsilon_prv"],
        delta=None if ledger is None else ledger["delta"],
        privacy=ledger,
        columns=columns,
        conventions=header.table.conventions,
    )


def render(facts: ModelDescription) -> str:
    """Tell the facts to a terminal; whatever comes from the file is escaped."""
    parameters = (f"{name}={value!r}" for name, value in facts.parameters.items())
    about = "about " if facts.privacy else ""  # no count is exact under a privacy budget
    lines = [
        f"{facts.file}: {facts.detector}, written by altbi {facts.altbi_version}, "
        f"model format {facts.format_version}",
        "",
        f"training table  {about}{facts.rows} rows, {len(facts.columns)} columns; "
        f"trained on {about}{facts.sample} of the rows",
        f"rows held       {_held(facts)}",
        f"threshold       rows with an anomaly score above {facts.threshold:.6g} are outliers",
        f"last loss       {_last_loss(facts)}",
        *_privacy_lines(facts.privacy),
        "",
        "parameters",
        *textwrap.wrap(
            escape_text(", ".join(parameters)), WIDTH, initial_indent="  ", subsequent_indent="  "
        ),
        "",
        *_column_lines(facts.columns),
        *_writing_lines(facts.conventions),
    ]
    return "".join(escape_text(line) + "\n" for line in lines)


def _held(facts: ModelDescription) -> str:
    """Say how much of the training table can be read from the file."""
    if not facts.reference_rows:
        return "none of the training table: the model scores by loss"
    return (
        f"{facts.reference_rows} of the training table, in deviations: treat the file as you treat "
        "the table"
    )


def _last_loss(facts: ModelDescription) -> str:
    return "not told" if facts.last_loss is None else f"{facts.last_loss:.6g}"


def _privacy_lines(ledger: dict[str, Any] | None) -> Iterator[str]:
    """Tell the ledger: what was spent, on what, and what that covers."""
    if ledger is None:
        yield "privacy         none: the file was fitted without a privacy budget"
        return
    spent = f"epsilon {ledger['epsilon_prv']:.4g} (PRV), {ledger['epsilon_rdp']:.4g} (RDP)"
    if not ledger["guarantee"]:
        spent = f"no guarantee; {spent}"
    yield f"privacy         {spent} of {ledger['epsilon']:.4g} at delta {ledger['delta']:.3g}"
    yield f"                {ledger['adjacency']}"
    for title, items in (("covered", ledger["covered"]), ("not covered", ledger["not_covered"])):
        for item in items:
            yield from textwrap.wrap(
                f"{title}: {item}", WIDTH, initial_indent=" " * 16, subsequent_indent=" " * 18
            )
    yield ""
    yield f"{'noise':>9}  {'of the rows':>16}  {'times':>6}  release"
    for what, noise, least, most, times in Ledger.from_json(ledger).lines():
        shares = f"{least:.2%} to {most:.2%}" if least < most else f"{most:.2%}"
        yield f"{noise:>9.4g}  {shares:>16}  {times:>6}  {what}"


def _writing_lines(conventions: TextConventions) -> Iterator[str]:
    """Say how files to be scored are read: as that of the training table was."""
    said = [
        f"{name!r} as {said}"
        for name, said in conventions.text_formats.items()
        if said not in PLAIN_FORMATS
    ]
    said += [f"{text!r} as missing" for text in conventions.missing]
    if said:
        yield ""
        yield from textwrap.wrap(
            escape_text(f"in text files   {', '.join(said)}"), WIDTH, subsequent_indent=" " * 16
        )


def _column_lines(columns: tuple[Column, ...]) -> Iterator[str]:
    names = [shorten(escape_text(column.name), NAME_WIDTH) for column in columns]
    width = max(map(len, ["column", *names]))
    yield f"{'column':{width}}  {'kind':8}  {'missing':>8}  values"
    for name, column in zip(names, columns, strict=True):
        missing = "not told" if column.declared else column.missing
        yield f"{name:{width}}  {column.kind:8}  {missing:>8}  {_values(column)}"


def _values(column: Column) -> str:
    """Say in a few words which values a column has."""
    if not column.present:
        return "none"
    if column.kind == "category":
        shown = [
            shorten(repr(category), CATEGORY_WIDTH)
            for category in column.categories[:SHOWN_CATEGORIES]
        ]
        more = column.distinct - len(shown)
        return ", ".join([*shown, f"{more} more"] if more else shown)
    if column.kind == "date":
        return f"{_date(column.low)} to {_date(column.high)}"
    if column.kind == "boolean":
        return " and ".join(sorted({str(bool(value)) for value in (column.low, column.high)}))
    return f"{column.low:.6g} to {column.high:.6g}"


def _date(seconds: float) -> str:
    try:
        return str(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))
    except OverflowError:
        return f"{seconds:.6g} seconds since 1970"
