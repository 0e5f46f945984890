"""Progress of long passes over a table."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["ProgressCallback", "no_progress"]

Item = TypeVar("Item")

# Called with the name of the activity, its items, the total (if known), and the size of an item.
# It passes the items on.
ProgressCallback = Callable[[str, Iterable[Any], int | None, Callable[[Any], int]], Iterable[Any]]


def no_progress(
    activity: str, items: Iterable[Item], total: int | None, size: Callable[[Item], int]
) -> Iterable[Item]:
    """Return the items unchanged, without reporting progress."""
    return items
