"""Tables scored in chunks: memory does not grow with the table, and all threads have work."""

from collections.abc import Callable

import numpy as np
import torch

from altbi.detectors.base import Scores
from altbi.encode import Surprises, TableEncoder
from altbi.ensemble import in_threads
from altbi.table import Table

__all__ = ["over_chunks"]

# Cells and rows that one thread encodes and scores at a time, at most: what Python does once for a
# chunk, while other threads wait, is then little beside it. Whole blocks, which scorers pad.
_CHUNK_CELLS = 1 << 20
_CHUNK_ROWS = 30720
_BLOCK_ROWS = 384
# Chunks of smaller tables are smaller, down to a quarter: each thread has so many, and none waits
# long for the last.
_CHUNKS_EACH = 8


def over_chunks(
    score: Callable[[Table], Scores], table: Table, encoder: TableEncoder
) -> tuple[Scores, Surprises]:
    """Score a table, and say what it holds that the training sample did not."""
    scores, surprises = np.empty(len(table)), Surprises()
    size = _chunk_rows(len(table), encoder.width)

    def part(first: int) -> Surprises:
        chunk = table.slice(first, min(first + size, len(table)))
        scores[first : first + len(chunk)] = score(chunk)
        return encoder.surprises(chunk)

    for found in in_threads(part, range(0, len(table), size)):
        surprises += found
    return scores, surprises


def _chunk_rows(n_rows: int, width: int) -> int:
    most = max(min(_CHUNK_CELLS // width, _CHUNK_ROWS) // _BLOCK_ROWS, 1)
    even = n_rows // (_CHUNKS_EACH * torch.get_num_threads() * _BLOCK_ROWS)
    blocks = min(max(even, most // 4, 1), most)
    return min(blocks * _BLOCK_ROWS, _CHUNK_ROWS)
