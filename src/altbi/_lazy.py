"""Packages whose names are imported when they are used."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def import_lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that imports each name from its own module.

    Parameters
    ----------
    package : str
        The package that has the names.
    modules : mapping of str to str
        The module of each name.

    Returns
    -------
    callable
        A function to be assigned to ``__getattr__``.
    """

    def get_name(name: str) -> Any:  # noqa: ANN401
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return get_name
