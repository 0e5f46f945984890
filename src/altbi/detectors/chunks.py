"""Tables scored in chunks: memory does not grow with the table, and all threads have work."""

from collections.abc import Callable

import numpy as np

from altbi.detectors.base import Scores
from altbi.encode import Surprises, TableEncoder
from altbi.ensemble import in_threads
from altbi.table import Table

__all__ = ["over_chunks"]

# Cells and rows that one thread encodes and scores at a time: what is computed of a chunk stays
# near the processor. Whole blocks, which scorers pad.
_CHUNK_CELLS = 1 << 18
_CHUNK_ROWS = 7680
_BLOCK_ROWS = 384


def over_chunks(
    score: Callable[[Table], Scores], table: Table, encoder: TableEncoder
) -> tuple[Scores, Surprises]:
    """Score a table, and say what it holds that the training sample did not."""
    scores, surprises = np.empty(len(table)), Surprises()
    blocks = max(_CHUNK_CELLS // encoder.width // _BLOCK_ROWS, 1)
    size = min(blocks * _BLOCK_ROWS, _CHUNK_ROWS)

    def part(first: int) -> Surprises:
        chunk = table.slice(first, min(first + size, len(table)))
        scores[first : first + len(chunk)] = score(chunk)
        return encoder.surprises(chunk)

    for found in in_threads(part, range(0, len(table), size)):
        surprises += found
    return scores, surprises
