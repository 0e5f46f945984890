"""What every engine offers: it calls a function on items, somewhere."""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeVar, final

__all__ = ["Engine", "Local"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(abc.ABC):
    """Calls a function on items; what comes of it does not depend on where.

    As a context manager, it ends what it has started.
    """

    @abc.abstractmethod
    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Give the place of each item with its result, as they come, each exactly once.

        Parameters
        ----------
        function : callable
            A function of a module, so that other processes find it. It may be called again for an
            item whose process was lost. What it raises ends the run and reaches the caller.
        items : sequence
            Small values that can be pickled.
        """

    def close(self) -> None:  # noqa: B027 - some have nothing to end
        """End what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class Local(Engine):
    """One item after the other, in this process.

    Examples
    --------
    >>> list(Local().run(abs, [-1, 2]))
    [(0, 1), (1, 2)]
    """

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Give the results in the order of the items."""
        yield from enumerate(map(function, items))
