"""What a model file says of itself: read from its header alone, checked, safe to show."""

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import Any

from altbi.encode import Column, TableEncoder
from altbi.errors import ModelFileError
from altbi.files.readings import PLAIN
from altbi.privacy.ledger import Ledger
from altbi.storage import read_header, require
from altbi.table import Writing
from altbi.terminal import printable, shortened

__all__ = ["ModelFacts", "read_facts", "render"]

WIDTH = 100
NAME_WIDTH = 36
SHOWN_LEVELS = 4
LEVEL_WIDTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
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
    remembered : int
        Rows of that sample that the file holds.
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
    writing : Writing
        How their cells stood in the file of the training table.
    """

    file: str
    format_version: int
    altbi_version: str
    detector: str
    parameters: dict[str, Any]
    rows: int
    sample: int
    remembered: int
    threshold: float
    last_loss: float | None
    epsilon_rdp: float | None
    epsilon_prv: float | None
    delta: float | None
    privacy: dict[str, Any] | None
    columns: tuple[Column, ...]
    writing: Writing


def read_facts(path: str | PathLike[str]) -> ModelFacts:
    """Read the header of a model file, without torch; one that makes no sense is refused."""
    header = read_header(path)
    try:
        facts = _facts(path, header)
    except (KeyError, IndexError, TypeError, ValueError) as cause:
        raise ModelFileError(
            f"{path}: the file's header makes no sense ({_problem(cause)}). Save the model again."
        ) from None
    _check(path, facts)
    return facts


def _facts(path: str | PathLike[str], header: dict[str, Any]) -> ModelFacts:
    table, ledger = header["table"], header["privacy"]
    if ledger is not None:
        ledger = Ledger.from_json(ledger).to_json()
    return ModelFacts(
        file=str(path),
        format_version=header["format_version"],
        altbi_version=header["altbi_version"],
        detector=header["detector"],
        parameters=header["parameters"],
        rows=table["rows"],
        sample=table["sample"],
        remembered=table["remembered"],
        threshold=-header["offset"],
        last_loss=header["history"][-1]["loss"],
        epsilon_rdp=ledger and ledger["epsilon_rdp"],
        epsilon_prv=ledger and ledger["epsilon_prv"],
        delta=ledger and ledger["delta"],
        privacy=ledger,
        columns=TableEncoder.from_json(header["encoder"]).columns,
        writing=Writing.from_json(table.get("writing")),
    )


def _check(path: str | PathLike[str], facts: ModelFacts) -> None:
    """Refuse values of a wrong kind; the columns were checked by the encoder."""
    names = (facts.altbi_version, facts.detector)
    counts = (facts.rows, facts.sample, facts.remembered)
    numbers = (facts.threshold, facts.last_loss if facts.privacy is None else 0.0)
    require(path, all(isinstance(name, str) for name in names), "it does not name its detector")
    require(path, all(type(count) is int for count in counts), "it counts no rows")
    held = 0 <= facts.remembered <= facts.sample
    require(path, held, "it holds more rows than its sample")
    require(path, all(map(_is_float, numbers)), "its threshold or its loss is no number")
    parameters = facts.parameters
    require(
        path,
        isinstance(parameters, dict)
        and all(_is_plain_parameter(*item) for item in parameters.items()),
        "its parameters are not plain values",
    )


def _problem(cause: Exception) -> str:
    return f"missing {cause}" if isinstance(cause, KeyError) else str(cause).rstrip(".")


def _is_float(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _is_plain_parameter(name: str, value: object) -> bool:
    """Tell whether a parameter is a value or a list of them; bounds may be lists by column."""
    if name == "bounds" and isinstance(value, dict):
        return all(isinstance(ends, list) and _is_plain(ends) for ends in value.values())
    return _is_plain(value)


def _is_plain(value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(item is None or isinstance(item, str | int) or _is_float(item) for item in items)


def render(facts: ModelFacts) -> str:
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
            printable(", ".join(parameters)), WIDTH, initial_indent="  ", subsequent_indent="  "
        ),
        "",
        *_column_lines(facts.columns),
        *_writing_lines(facts.writing),
    ]
    return "".join(printable(line) + "\n" for line in lines)


def _held(facts: ModelFacts) -> str:
    """Say how much of the training table can be read from the file."""
    if not facts.remembered:
        return "none of the training table: the model scores by loss"
    return (
        f"{facts.remembered} of the training table, in deviations: treat the file as you treat "
        "the table"
    )


def _last_loss(facts: ModelFacts) -> str:
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


def _writing_lines(writing: Writing) -> Iterator[str]:
    """Say how files to be scored are read: as that of the training table was."""
    said = [f"{name!r} as {said}" for name, said in writing.readings.items() if said not in PLAIN]
    said += [f"{text!r} as missing" for text in writing.missing]
    if said:
        yield ""
        yield from textwrap.wrap(
            printable(f"in text files   {', '.join(said)}"), WIDTH, subsequent_indent=" " * 16
        )


def _column_lines(columns: tuple[Column, ...]) -> Iterator[str]:
    names = [shortened(printable(column.name), NAME_WIDTH) for column in columns]
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
        shown = [shortened(repr(level), LEVEL_WIDTH) for level in column.levels[:SHOWN_LEVELS]]
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
