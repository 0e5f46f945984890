"""Packages whose names are imported when they are used."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def import_lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that imports each name at its first use.

    `modules` has, for each name, the full name of the module that defines it. The name of the
    package is for error messages.
    """

    def get_name(name: str) -> Any:  # noqa: ANN401
        """Import the module of a name and return the name's value.

        An unknown name raises an `AttributeError`.
        """
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return get_name
