"""Names that nobody has: one sentence with what was meant, perhaps."""

import difflib
from collections.abc import Iterable, Sequence

from altbi.errors import ParameterError

__all__ = ["no_such"]


def no_such(what: str, names: Sequence[str], known: Iterable[str], where: str) -> ParameterError:
    """Refuse names, each beside the known one that is most like it, whatever its case.

    >>> print(no_such("system", ["knn", "X"], ["kNN", "HBOS"], "`altbi bench systems` lists all"))
    No system is called 'knn' (did you mean 'kNN'?), 'X'. `altbi bench systems` lists all.
    """
    by_lower = {name.lower(): name for name in known}
    told = []
    for name in names:
        near = difflib.get_close_matches(name.lower(), by_lower, n=1)
        told.append(repr(name) + (f" (did you mean {by_lower[near[0]]!r}?)" if near else ""))
    return ParameterError(f"No {what} is called {', '.join(told)}. {where}.")
