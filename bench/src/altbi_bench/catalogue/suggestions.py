"""Errors about unknown names, with suggestions."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from altbi.errors import ParameterError

__all__ = ["unknown_name_error"]

MAX_SUGGESTIONS = 4


def unknown_name_error(
    kind: str, names: Sequence[str], known: Iterable[str], hint: str
) -> ParameterError:
    """Return an error about unknown names, with known names that are similar to each.

    >>> hint = "`altbi-bench systems` lists all"
    >>> print(unknown_name_error("system", ["knn", "X"], ["kNN", "HBOS"], hint))
    No system is called 'knn' (did you mean 'kNN'?), 'X'. `altbi-bench systems` lists all.
    """
    by_lower = {name.lower(): name for name in known}
    described = [repr(name) + _suggest(name, by_lower) for name in names]
    return ParameterError(f"No {kind} is called {', '.join(described)}. {hint}.")


def _suggest(name: str, by_lower: Mapping[str, str]) -> str:
    """Return the names with the same beginning, or else the most similar one."""
    same_start = [each for each in by_lower if name and each.startswith(name.lower())]
    near = same_start[:MAX_SUGGESTIONS] or difflib.get_close_matches(name.lower(), by_lower, n=1)
    suggested = [repr(by_lower[each]) for each in near if by_lower[each] != name]
    return f" (did you mean {' or '.join(suggested)}?)" if suggested else ""
