"""Errors of known kinds, written into tables: each erroneous row has exactly one."""

import datetime
import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import pyarrow as pa

__all__ = [
    "ERROR_PLANS",
    "KINDS",
    "ErrorPlan",
    "Injected",
    "edit_text",
    "inject_errors",
    "write_otherwise",
]

SENTINEL = 999_999_999
LONG_AGO = datetime.datetime(1900, 1, 1)
# Days after the last date of the table for a date in the future.
FUTURE_DAYS = (365, 3_650)
MAX_SMALL, MIN_LARGE = 20, 51
# Attempts to write an error that the plan admits before another row is taken.
N_ATTEMPTS = 100

Values = dict[str, list[Any]]
Write = Callable[["_Writer", int], bool]


@final
@dataclass(frozen=True, slots=True)
class ErrorPlan:
    """Which columns of a table admit which errors; a kind without columns is left out.

    Parameters
    ----------
    amounts, sentinels, zeros, negatives : tuple of str
        Numeric columns for values times 100, 999999999, 0 and negative values.
    swaps, intervals : tuple of pairs of str
        Columns whose values are swapped, and dates that start and end something.
    texts : tuple of str
        Columns for typos and lower case. Typos need at most 20 or more than 50 categories.
    pairs : tuple of pairs of str
        Columns for wrong pairs: the value of the first one is replaced, the second one shows that
        it is wrong.
    dates : tuple of str
        Columns for dates in 1900 and in the future.
    formats : tuple of str
        Text columns whose values can be written otherwise.
    """

    amounts: tuple[str, ...] = ()
    sentinels: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    swaps: tuple[tuple[str, str], ...] = ()
    intervals: tuple[tuple[str, str], ...] = ()
    texts: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    dates: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


ERROR_PLANS: dict[str, ErrorPlan] = {
    "ecommerce_fraud": ErrorPlan(
        amounts=("purchase_value",),
        sentinels=("purchase_value", "age"),
        zeros=("purchase_value", "age"),
        negatives=("purchase_value", "age"),
        swaps=(("purchase_value", "ip_address"),),
        intervals=(("signup_time", "purchase_time"),),
        texts=("source", "browser", "sex"),
        dates=("signup_time", "purchase_time"),
        formats=("device_id", "browser"),
    ),
    "vehicle_claims_fraud": ErrorPlan(
        amounts=("Deductible",),
        sentinels=("Age", "Deductible"),
        zeros=("Deductible", "DriverRating"),
        negatives=("Age", "Deductible"),
        swaps=(("Age", "Deductible"),),
        texts=("Make", "PolicyType", "VehicleCategory", "AccidentArea", "MaritalStatus", "Fault"),
        pairs=(("BasePolicy", "PolicyType"), ("VehicleCategory", "PolicyType")),
        formats=("PolicyType", "VehiclePrice", "AgeOfVehicle", "AgeOfPolicyHolder"),
    ),
    "adult_income": ErrorPlan(
        amounts=("fnlwgt",),
        sentinels=("age", "hours_per_week", "fnlwgt"),
        zeros=("age", "hours_per_week", "fnlwgt"),
        negatives=("age", "hours_per_week", "fnlwgt"),
        swaps=(("education_num", "age"),),
        texts=("workclass", "education", "marital_status", "occupation", "relationship"),
        pairs=(("education", "education_num"),),
        formats=("education", "marital_status", "occupation", "native_country"),
    ),
    "payments": ErrorPlan(
        amounts=("amount",),
        sentinels=("amount", "latitude", "longitude"),
        zeros=("amount", "latitude", "longitude"),
        negatives=("amount",),
        swaps=(("latitude", "longitude"),),
        intervals=(("account_opened", "transaction_time"),),
        texts=("merchant_category", "card_type", "city", "state", "currency"),
        pairs=(("city", "postcode"), ("postcode", "city"), ("state", "city")),
        dates=("birth_date", "account_opened", "transaction_time"),
        formats=("postcode", "device_id", "fee", "card_type"),
    ),
}


@final
@dataclass(frozen=True, slots=True)
class Injected:
    """A table with errors.

    Parameters
    ----------
    frame : pyarrow.Table
        The table.
    rows : dict
        Indices of the erroneous rows by kind.
    """

    frame: pa.Table
    rows: dict[str, list[int]]

    @property
    def n_errors(self) -> int:
        """Number of erroneous rows."""
        return sum(map(len, self.rows.values()))


def edit_text(text: str, chance: random.Random, letters: str = string.ascii_lowercase) -> str:
    """Return a text after a random insertion, deletion, transposition or replacement.

    The result may equal the text, if two equal letters are transposed.

    >>> edit_text("birmingham", random.Random(1))
    'bisrmingham'
    """
    index = chance.randrange(len(text))
    letter = chance.choice(letters)
    return chance.choice(
        [
            text[:index] + letter + text[index:],
            text[:index] + text[index + 1 :],
            text[:index] + text[index : index + 2][::-1] + text[index + 2 :],
            text[:index] + letter + text[index + 1 :],
        ]
    )


def write_otherwise(text: str) -> str:
    """Return a text in another format: a unit, another separator, or a hyphen in the middle.

    >>> [write_otherwise(each) for each in ("12.50", "Visa Debit", "A-1", "4711")]
    ['12.50 USD', 'Visa_Debit', 'A 1', '47-11']
    """
    if "." in text and text.replace(".", "", 1).isdigit():
        return f"{text} USD"
    for separator, other in ((" ", "_"), ("-", " "), ("_", " ")):
        if separator in text:
            return text.replace(separator, other)
    middle = len(text) // 2
    return f"{text[:middle]}-{text[middle:]}"


@final
@dataclass(slots=True)
class _Writer:
    """Writes errors into lists of values; each method returns whether it changed the row."""

    plan: ErrorPlan
    values: Values
    chance: random.Random
    distinct: dict[str, list[Any]] = field(init=False)
    pairs: dict[tuple[str, str], set[tuple[Any, Any]]] = field(init=False)
    complete: list[str] = field(init=False)
    erroneous: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.distinct = {
            name: [each for each in dict.fromkeys(values) if each is not None]
            for name, values in self.values.items()
        }
        self.pairs = {
            (a, b): set(zip(self.values[a], self.values[b], strict=True))
            for a, b in self.plan.pairs
        }
        self.complete = [name for name, values in self.values.items() if None not in values]

    def write_value(self, row: int, names: Sequence[str], change: Callable[[Any], Any]) -> bool:
        """Replace the value of one of the columns by one that the column does not have."""
        if not names:
            return False
        name = self.chance.choice(names)
        old = self.values[name][row]
        new = old if old is None else change(old)
        if new == old or new in self.distinct[name] or new == "":
            return False
        self.values[name][row] = new
        return True

    def swap(self, row: int, pairs: Sequence[tuple[str, str]]) -> bool:
        """Swap the values of two columns."""
        if not pairs:
            return False
        first, second = (self.values[name] for name in self.chance.choice(pairs))
        if first[row] is None or second[row] is None or first[row] == second[row]:
            return False
        first[row], second[row] = second[row], first[row]
        return True

    def write_wrong_pair(self, row: int) -> bool:
        """Replace a value by another one of the column that never occurs with its partner."""
        if not self.plan.pairs:
            return False
        pair = self.chance.choice(self.plan.pairs)
        value, partner = self.chance.choice(self.distinct[pair[0]]), self.values[pair[1]][row]
        if (value, partner) in self.pairs[pair]:
            return False
        self.values[pair[0]][row] = value
        return True

    def remove_value(self, row: int) -> bool:
        """Remove a value from a column without missing values."""
        self.values[self.chance.choice(self.complete)][row] = None
        return True

    def copy_row(self, row: int) -> bool:
        """Replace a row by a copy of another one that has no error."""
        other = self.chance.randrange(len(next(iter(self.values.values()))))
        if other == row or other in self.erroneous:
            return False
        for values in self.values.values():
            values[row] = values[other]
        self.erroneous.add(other)  # it stays as it is
        return True

    def select_texts(self, least: int, most: float) -> list[str]:
        """Return the columns for typos with a number of categories in a range."""
        return [name for name in self.plan.texts if least <= len(self.distinct[name]) <= most]

    def draw_future(self) -> datetime.datetime:
        """Return a date after the last one of all columns with dates."""
        latest: datetime.datetime = max(max(self.distinct[name]) for name in self.plan.dates)
        return latest + datetime.timedelta(days=self.chance.randint(*FUTURE_DAYS))


def _write_future(writer: _Writer, row: int) -> bool:
    return writer.write_value(row, writer.plan.dates, lambda _: writer.draw_future())


def _write_typo(writer: _Writer, row: int, least: int, most: float) -> bool:
    names = writer.select_texts(least, most)
    return writer.write_value(row, names, lambda text: edit_text(text, writer.chance))


KINDS: dict[str, Write] = {
    "amount x 100": lambda w, row: w.write_value(row, w.plan.amounts, lambda v: round(v * 100, 6)),
    "sentinel": lambda w, row: w.write_value(row, w.plan.sentinels, lambda v: type(v)(SENTINEL)),
    "zero": lambda w, row: w.write_value(row, w.plan.zeros, lambda v: type(v)(0)),
    "negative": lambda w, row: w.write_value(row, w.plan.negatives, lambda v: -v),
    "swapped columns": lambda w, row: w.swap(row, w.plan.swaps),
    "typo, small category": lambda w, row: _write_typo(w, row, 2, MAX_SMALL),
    "typo, large category": lambda w, row: _write_typo(w, row, MIN_LARGE, float("inf")),
    "lower case": lambda w, row: w.write_value(row, w.plan.texts, str.lower),
    "wrong pair": lambda w, row: w.write_wrong_pair(row),
    "date in 1900": lambda w, row: w.write_value(row, w.plan.dates, lambda _: LONG_AGO),
    "date in the future": _write_future,
    "end before start": lambda w, row: w.swap(row, w.plan.intervals),
    "missing value": lambda w, row: w.remove_value(row),
    "duplicate row": lambda w, row: w.copy_row(row),
    "format change": lambda w, row: w.write_value(row, w.plan.formats, write_otherwise),
}


def inject_errors(frame: pa.Table, plan: ErrorPlan, seed: int, n_each: int = 15) -> Injected:
    """Return a copy of a table with `n_each` errors of each kind that it admits.

    Parameters
    ----------
    frame : pyarrow.Table
        The table.
    plan : ErrorPlan
        The columns for each kind.
    seed : int
        Seed of rows, columns and errors.
    n_each : int
        Number of errors of each kind.

    Returns
    -------
    Injected
        The table with errors, and their rows.
    """
    values: Values = {name: frame[name].to_pylist() for name in frame.column_names}
    writer = _Writer(plan, values, random.Random(seed))
    found: dict[str, list[int]] = {}
    for kind, write in KINDS.items():
        rows = _write_kind(writer, write, len(frame), n_each)
        if rows:
            found[kind] = sorted(rows)
    columns = [pa.array(values[each.name], type=each.type) for each in frame.schema]
    return Injected(pa.Table.from_arrays(columns, schema=frame.schema), found)


def _write_kind(writer: _Writer, write: Write, n_rows: int, n_errors: int) -> list[int]:
    """Write errors of one kind into rows without error, and return these rows."""
    rows: list[int] = []
    for _ in range(N_ATTEMPTS * n_errors):
        row = writer.chance.randrange(n_rows)
        if len(rows) < n_errors and row not in writer.erroneous and write(writer, row):
            writer.erroneous.add(row)
            rows.append(row)
    return rows
