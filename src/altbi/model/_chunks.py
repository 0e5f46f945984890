"""Score a table in chunks, so that peak memory does not depend on its length."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from altbi.encoding import Drift, TableEncoder
from altbi.networks import map_in_threads
from altbi.table import Table

Scores = NDArray[np.float64]

# Largest chunk. It is a multiple of the block size of the scorers, which pad incomplete blocks.
_CHUNK_VALUES = 1 << 20
_CHUNK_ROWS = 30720
_BLOCK_ROWS = 384
# Smaller tables have chunks of down to a quarter of that size, so that all threads have work.
_CHUNKS_PER_THREAD = 8


def score_chunks(
    score: Callable[[Table], Scores], table: Table, encoder: TableEncoder
) -> tuple[Scores, Drift]:
    """Score a table in as many threads as torch uses, and measure its drift.

    `score` returns the scores of one chunk. An empty table has no scores and no drift.
    """
    scores, drift = np.empty(len(table)), Drift()
    n_rows = _choose_chunk_rows(len(table), encoder.n_features_encoded)

    def score_chunk(first: int) -> Drift:
        """Score the chunk that starts at row `first`, and return its drift."""
        chunk = table.slice(first, min(first + n_rows, len(table)))
        scores[first : first + len(chunk)] = score(chunk)
        return encoder.drift(chunk)

    for chunk_drift in map_in_threads(score_chunk, range(0, len(table), n_rows)):
        drift += chunk_drift
    return scores, drift


def _choose_chunk_rows(n_rows: int, n_features_encoded: int) -> int:
    """Return the number of rows of a chunk: a multiple of 384, at most 30,720.

    Small tables have smaller chunks, so that each thread gets several. Tables with many encoded
    features have smaller chunks, so that one holds about a million values.
    """
    most = max(min(_CHUNK_VALUES // n_features_encoded, _CHUNK_ROWS) // _BLOCK_ROWS, 1)
    even = n_rows // (_CHUNKS_PER_THREAD * torch.get_num_threads() * _BLOCK_ROWS)
    n_blocks = min(max(even, most // 4, 1), most)
    return min(n_blocks * _BLOCK_ROWS, _CHUNK_ROWS)
