"""Arrays that are reused by later calls, because allocating them takes as long as filling them.

The system sets fresh memory to zero page by page, and the memory of large arrays is returned to it
when they are deleted.
"""

import math
import threading
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray


@final
class Buffers:
    """Arrays of one type that are reused by later calls, by name."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.arrays: dict[str, NDArray[Any]] = {}
        self.views: dict[str, NDArray[Any]] = {}

    def get(self, name: str, *shape: int) -> NDArray[Any]:
        """Return an array of this shape, which the next call with the same name reuses.

        Its values are undefined, or those of the previous use. A new shape may reuse the same
        memory.
        """
        view = self.views.get(name)
        if view is None or view.shape != shape:
            size = math.prod(shape)
            if name not in self.arrays or self.arrays[name].size < size:
                self.arrays[name] = np.empty(size, self.dtype)
            view = self.views[name] = self.arrays[name][:size].reshape(shape)
        return view


@final
class ThreadBuffers(threading.local):
    """Buffers of the current thread in single and in double precision."""

    def __init__(self) -> None:
        self.single = Buffers(np.float32)
        self.double = Buffers(np.float64)
