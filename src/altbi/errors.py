"""Exceptions and warnings, and helpers for their messages."""

import importlib
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
    "escape_text",
    "import_extra",
    "infinity_error",
    "shorten",
]


class AltbiError(Exception):
    """Base class of all errors that `altbi` raises on purpose.

    Examples
    --------
    >>> import altbi
    >>> try:
    ...     altbi.open_table("sizes.csv", format="xlsx")
    ... except altbi.AltbiError as error:
    ...     print(error)
    format='xlsx', but expected one of csv, jsonl, parquet, arrow, npz, npy.
    """


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
        f"Column {name!r} contains infinity, first in row {row} (counted from 0), but expected "
        "finite numbers. Replace infinite values by finite numbers, or leave them empty (missing)."
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


def shorten(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters; a longer text is cut and ends with "…".

    >>> shorten("anticonstitutionally", 9)
    'anticons…'
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"
