"""Names that nobody has: one sentence with what was meant, perhaps."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from altbi.errors import ParameterError

__all__ = ["no_such"]

MOST = 4


def no_such(what: str, names: Sequence[str], known: Iterable[str], where: str) -> ParameterError:
    """Refuse names, each beside the known ones that begin so, or the one that is most like it.

    >>> print(no_such("system", ["knn", "X"], ["kNN", "HBOS"], "`altbi-bench systems` lists all"))
    No system is called 'knn' (did you mean 'kNN'?), 'X'. `altbi-bench systems` lists all.
    """
    by_lower = {name.lower(): name for name in known}
    told = [repr(name) + _meant(name, by_lower) for name in names]
    return ParameterError(f"No {what} is called {', '.join(told)}. {where}.")


def _meant(name: str, by_lower: Mapping[str, str]) -> str:
    begin_so = [each for each in by_lower if name and each.startswith(name.lower())]
    near = begin_so[:MOST] or difflib.get_close_matches(name.lower(), by_lower, n=1)
    meant = [repr(by_lower[each]) for each in near if by_lower[each] != name]
    return f" (did you mean {' or '.join(meant)}?)" if meant else ""
