import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi._score_statistics import ScoreCounts, TopRows

SCORES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60)


@given(SCORES, st.integers(1, 7))
def test_counts_are_those_of_all_scores_in_any_chunks(scores, size):
    scores = np.array(scores)
    whole, parts = ScoreCounts(), ScoreCounts()
    whole.add(scores)
    for first in range(0, len(scores), size):
        parts.add(scores[first : first + size])

    assert parts.edges.tolist() == whole.edges.tolist()
    assert parts.counts.tolist() == whole.counts.tolist()
    assert whole.least().tolist() == [int((scores >= edge).sum()) for edge in whole.edges]
    places = np.searchsorted(whole.edges, scores, side="right") - 1
    below = scores - whole.edges[places]
    assert (below >= 0).all()
    assert (below <= np.abs(scores) * 2**-16 + 1e-300).all()


def test_bins_do_not_become_many():
    counts = ScoreCounts()
    for seed in range(5):
        counts.add(np.random.default_rng(seed).uniform(1, 2, size=200_000))

    assert len(counts.edges) <= 2**16
    assert counts.counts.sum() == 1_000_000


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, -1.0]), min_size=1, max_size=80), st.data())
def test_the_top_rows_are_those_of_a_whole_sort(scores, data):
    limit, size = data.draw(st.integers(1, 10)), data.draw(st.integers(1, 20))
    scores = np.array(scores)
    top = TopRows(limit)
    for first in range(0, len(scores), size):
        part = scores[first : first + size]
        numbers = np.arange(first, first + len(part))
        top.add(pa.record_batch({"n": numbers}), part, first)

    table, best, rows = top.sort_by_score()

    order = np.argsort(-scores, kind="stable")[:limit]
    assert rows.tolist() == table["n"].to_pylist() == order.tolist()
    assert best.tolist() == scores[order].tolist()


def test_memory_of_the_top_rows_is_bounded():
    top = TopRows(5)
    for first in range(0, 100_000, 1000):
        scores = np.arange(first, first + 1000.0)  # every row beats all before it
        top.add(pa.record_batch({"n": scores}), scores, first)
        assert sum(len(part) for part in top._parts) <= 20

    assert top.sort_by_score()[2].tolist() == [99999, 99998, 99997, 99996, 99995]


def test_zero_has_no_sign():
    counts = ScoreCounts()
    counts.add(np.array([0.0, -0.0]))

    assert counts.counts.tolist() == [2]
    assert pytest.approx(0) == counts.edges[0]
