"""One family of errors; each says where, what, what was expected and what to do."""

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
    "import_extra",
    "infinity_error",
]


class AltbiError(Exception):
    """Anything that `altbi` refuses to do."""


class TableError(AltbiError, ValueError):
    """The table cannot be used as it is."""


class TableWarning(UserWarning):
    """The table was changed on its way in."""


class ParameterError(AltbiError, ValueError):
    """A parameter has a value that makes no sense."""


class TrainingError(AltbiError, RuntimeError):
    """Training did not come to an end."""


class ModelFileError(AltbiError, ValueError):
    """The model file is broken, foreign, or of another version."""


class EngineError(AltbiError, RuntimeError):
    """Work in several processes, or on several machines, did not come to its end."""


class MissingExtraError(AltbiError, ImportError):
    """An optional dependency is not installed."""


def import_extra(module: str, *, extra: str) -> ModuleType:
    """Import an optional dependency, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise MissingExtraError(
            f"{module!r} is not installed. Install it with: pip install 'altbi[{extra}]'"
        ) from cause


def infinity_error(name: str, row: int) -> TableError:
    """Say where an infinite number stands."""
    return TableError(
        f"Column {name!r} contains infinity, first in row {row} (counted from 0), but expected "
        "finite numbers. Replace infinite cells by a finite number, or leave them empty (missing)."
    )
