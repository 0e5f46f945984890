"""Tables scored in chunks: memory does not grow with the table, and all threads have work."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from altbi.encoding import Drift, TableEncoder
from altbi.networks import map_in_threads
from altbi.table import Table

__all__ = ["score_chunks"]

Scores = NDArray[np.float64]

# Cells and rows that one thread encodes and scores at a time, at most: what Python does once for a
# chunk, while other threads wait, is then little beside it. Whole blocks, which scorers pad.
_CHUNK_CELLS = 1 << 20
_CHUNK_ROWS = 30720
_BLOCK_ROWS = 384
# Chunks of smaller tables are smaller, down to a quarter: each thread has so many, and none waits
# long for the last.
_CHUNKS_EACH = 8


def score_chunks(
    score: Callable[[Table], Scores], table: Table, encoder: TableEncoder
) -> tuple[Scores, Drift]:
    """Score a table, and say what it holds that the training sample did not."""
    scores, drift = np.empty(len(table)), Drift()
    size = _chunk_rows(len(table), encoder.n_features_encoded)

    def part(first: int) -> Drift:
        chunk = table.slice(first, min(first + size, len(table)))
        scores[first : first + len(chunk)] = score(chunk)
        return encoder.drift(chunk)

    for found in map_in_threads(part, range(0, len(table), size)):
        drift += found
    return scores, drift


def _chunk_rows(n_rows: int, width: int) -> int:
    most = max(min(_CHUNK_CELLS // width, _CHUNK_ROWS) // _BLOCK_ROWS, 1)
    even = n_rows // (_CHUNKS_EACH * torch.get_num_threads() * _BLOCK_ROWS)
    blocks = min(max(even, most // 4, 1), most)
    return min(blocks * _BLOCK_ROWS, _CHUNK_ROWS)
