from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from model_files import FAST

from altbi import OutlierDetector
from altbi.io import ColumnParser
from altbi.model._score_source import ScoreCounts, TopRows, score_batch

SCORES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60)


@given(SCORES, st.integers(1, 7))
def test_counts_do_not_depend_on_chunks(scores, size):
    scores = np.array(scores)
    total, chunked = ScoreCounts(), ScoreCounts()
    total.add(scores)
    for first in range(0, len(scores), size):
        chunked.add(scores[first : first + size])

    assert chunked.edges.tolist() == total.edges.tolist()
    assert chunked.counts.tolist() == total.counts.tolist()
    assert total.count_at_least().tolist() == [int((scores >= edge).sum()) for edge in total.edges]
    bins = np.searchsorted(total.edges, scores, side="right") - 1
    above_edge = scores - total.edges[bins]
    assert (above_edge >= 0).all()
    assert (above_edge <= np.abs(scores) * 2**-16 + 1e-300).all()


def test_merged_histograms_have_all_counts():
    first, second = ScoreCounts(), ScoreCounts()
    first.add(np.array([1.0, 2.0]))
    second.add(np.array([2.0, -3.0]))
    first.add_bins(second.keys, second.counts)
    first.add_bins(ScoreCounts().keys, ScoreCounts().counts)

    np.testing.assert_allclose(first.edges, [-3.0, 1.0, 2.0], rtol=2**-16)
    assert first.counts.tolist() == [1, 1, 2]


def test_memory_of_counts_is_bounded():
    counts = ScoreCounts()
    for seed in range(12):
        counts.add(np.random.default_rng(seed).uniform(1, 2, size=200_000))
        assert sum(len(keys) for keys, _ in counts._histograms) <= 2**16 + 2**18

    assert len(counts.edges) <= 2**16
    assert counts.counts.sum() == 12 * 200_000


def test_negative_zero_counts_as_zero():
    counts = ScoreCounts()
    counts.add(np.array([0.0, -0.0]))

    assert counts.counts.tolist() == [2]
    assert counts.edges.tolist() == [0.0]


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, -1.0]), min_size=1, max_size=80), st.data())
def test_top_rows_are_those_of_full_sort(scores, data):
    limit, size = data.draw(st.integers(1, 10)), data.draw(st.integers(1, 20))
    scores = np.array(scores)
    top = TopRows(limit)
    for first in range(0, len(scores), size):
        chunk = scores[first : first + size]
        numbers = np.arange(first, first + len(chunk))
        top.add(pa.record_batch({"n": numbers}), chunk, first)

    table, top_scores, rows = top.sort_by_score()

    order = np.argsort(-scores, kind="stable")[:limit]
    assert rows.tolist() == table["n"].to_pylist() == order.tolist()
    assert top_scores.tolist() == scores[order].tolist()
    table, top_scores, rows = top.sort_by_row()
    assert rows.tolist() == table["n"].to_pylist() == sorted(order.tolist())
    assert top_scores.tolist() == scores[np.sort(order)].tolist()


def test_later_rows_replace_the_lowest_top_row():
    top = TopRows(2)
    for row, score in enumerate([9.0, *[1.0] * 8, 5.0]):
        top.add(pa.record_batch({"n": [row]}), np.array([score]), row)

    _, scores, rows = top.sort_by_score()
    assert (rows.tolist(), scores.tolist()) == ([0, 9], [9.0, 5.0])


def test_memory_of_top_rows_is_bounded():
    top = TopRows(5)
    for first in range(0, 30_000, 1000):
        scores = np.arange(first, first + 1000.0)  # every row has a higher score than all before
        top.add(pa.record_batch({"n": scores}), scores, first)
        assert sum(len(batch) for batch in top._batches) <= 20

    assert top.sort_by_score()[2].tolist() == [29999, 29998, 29997, 29996, 29995]


def test_score_equal_to_threshold_is_not_flagged():
    table = pa.table({"x": np.random.default_rng(0).normal(size=50)})
    model = OutlierDetector(schedule=FAST).fit(table).model_
    threshold = float(np.sort(model.score(table))[-4])

    scored = score_batch(
        replace(model, threshold=threshold), ColumnParser(["x"], {}, ()), table.to_batches()[0], 0
    )

    assert scored.flagged.sum() == 3
    np.testing.assert_array_equal(scored.flagged, scored.scores > threshold)
