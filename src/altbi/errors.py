"""Exceptions and warnings, and helpers for their messages."""

import importlib
import reprlib
from collections.abc import Sequence
from types import ModuleType

__all__ = [
    "AltbiError",
    "EngineError",
    "MissingExtraError",
    "ModelFileError",
    "ParameterError",
    "TableError",
    "TableWarning",
    "TrainingError",
    "describe_cause",
    "escape_text",
    "import_extra",
    "infinity_error",
    "list_names",
    "quote",
    "shorten",
    "shorten_message",
]

MAX_MESSAGE, MESSAGE_START = 500, 200
MAX_CAUSE = 200  # characters of the message of another library
MAX_NAME, MAX_NAMES = 40, 150  # characters of one name, and of a list of names
MAX_INTEGER_BITS = 10_000  # Python refuses to convert much larger integers to text


class AltbiError(Exception):
    """Base class of all errors that `altbi` raises on purpose.

    Their text has at most 500 characters: from a longer one, the middle is left out.

    Examples
    --------
    >>> import altbi
    >>> try:
    ...     altbi.open_table("sizes.csv", format="xlsx")
    ... except altbi.AltbiError as error:
    ...     print(error)
    format='xlsx', but expected one of csv, jsonl, parquet, arrow, npz, npy, excel.
    """

    def __str__(self) -> str:
        """Return the message, without its middle if it is long."""
        return shorten_message(super().__str__())


class TableError(AltbiError, ValueError):
    """A table is invalid or cannot be read."""


class TableWarning(UserWarning):
    """A table has values that were changed or that may need attention."""


class ParameterError(AltbiError, ValueError):
    """A parameter has an invalid value."""


class TrainingError(AltbiError, RuntimeError):
    """Training failed, for example because the loss became NaN."""


class ModelFileError(AltbiError, ValueError):
    """A model file is damaged, not a model file, or of an unsupported version."""


class EngineError(AltbiError, RuntimeError):
    """Distributed work failed, for example in a worker."""


class MissingExtraError(AltbiError, ImportError):
    """An optional dependency is not installed; the message names the package to install."""


def import_extra(module: str, *, extra: str | None) -> ModuleType:
    """Import an optional dependency and return the module.

    If the import fails, a `MissingExtraError` names the extra of altbi to install, or the module
    itself if `extra` is None.
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        package = module if extra is None else f"'altbi[{extra}]'"
        raise MissingExtraError(
            f"{module!r} is not installed. Install it with: pip install {package}"
        ) from cause


def infinity_error(name: str, row: int) -> TableError:
    """Return (do not raise) the `TableError` for an infinite value in a column."""
    return TableError(
        f"Column {quote(name)} contains infinity, first in row {row} (counted from 0), but "
        "expected finite numbers. Replace infinite values by finite numbers, or leave "
        "them empty (missing)."
    )


def escape_text(text: str) -> str:
    r"""Return the text with all characters that are not printable replaced by Python escapes.

    This includes newlines, terminal escape sequences and lone surrogates.

    >>> escape_text("café \x1b[2J")
    'café \\x1b[2J'
    """
    if text.isprintable():  # nearly always, and much faster
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def quote(text: object, limit: int = 60) -> str:
    r"""Return the `repr` of a value for a message, in at most `limit` printable characters.

    A longer one is cut and has "…" in place of the rest. Long containers are never converted as a
    whole, and neither are integers that are too long for `repr`.

    >>> quote("größe\x1b"), quote("a" * 100_000, 9), quote([1] * 100_000)
    ("'größe\\x1b'", "'aaaaaa…'", '[1, 1, 1, 1, 1, 1, …]')
    """
    if not isinstance(text, str):
        return shorten(escape_text(_represent(text, limit)), limit)
    start = str(text[:limit])
    shown = repr(start)
    if len(text) <= limit and len(shown) <= limit:
        return shown
    while start and len(shown) >= limit:  # an escape such as \x1b is never cut
        start = start[:-1]
        shown = repr(start)
    return f"{shown[:-1]}…{shown[-1]}"


def _represent(value: object, limit: int) -> str:
    """Return the `repr` of a value that is not text; long containers and integers are cut."""
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        return f"an integer of {value.bit_length()} bits"
    cut = reprlib.Repr()
    cut.maxstring = cut.maxlong = cut.maxother = limit
    cut.fillvalue = "…"
    return cut.repr(value)


def list_names(names: Sequence[str], limit: int = 10) -> str:
    """Return quoted names, separated by commas, for a message.

    A long list is cut after `limit` names, or after 150 characters.

    >>> list_names(["a", "b", "c"], limit=2)
    "'a', 'b', … (3 in all)"
    """
    shown = ""
    for number, name in enumerate(names):
        if number == limit or len(shown) > MAX_NAMES:
            return f"{shown}, … ({len(names)} in all)"
        shown += f"{', ' if shown else ''}{quote(name, MAX_NAME)}"
    return shown


def describe_cause(cause: BaseException | str) -> str:
    r"""Return the first line of another library's message: at most 200 characters, safe to print.

    A period at its end is removed. An error without a message is described by its type, and a
    missing key as such.

    >>> describe_cause(ValueError("no number.\nmore")), describe_cause(KeyError("a"))
    ('no number', "missing 'a'")
    """
    text = f"missing {cause}" if isinstance(cause, KeyError) else str(cause)
    if isinstance(cause, BaseException) and not isinstance(cause, UnicodeError | KeyError):
        # The errors of pyarrow for pandas frames have the message as their first argument.
        text = cause.args[0] if cause.args and isinstance(cause.args[0], str) else text
    line = next(iter(text.strip().splitlines()), "") or type(cause).__name__
    return shorten(escape_text(line), MAX_CAUSE).rstrip(".")


def shorten_message(text: str) -> str:
    """Return a message of at most 500 characters; from a longer one, the middle is left out.

    The start has the place, and the end what to do.

    >>> shorten_message("a.csv: " + "x" * 1000 + " is wrong.")[-20:]
    'xxxxxxxxxx is wrong.'
    """
    if len(text) <= MAX_MESSAGE:
        return text
    return f"{text[:MESSAGE_START]} … {text[MESSAGE_START + 3 - MAX_MESSAGE :]}"


def shorten(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters; a longer text is cut and ends with "…".

    >>> shorten("anticonstitutionally", 9)
    'anticons…'
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"
