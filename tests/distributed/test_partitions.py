import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_tables import PARTITION_ROWS, create_pipeline, score_with

from altbi.distributed import Engine, Local, _partitions
from altbi.encoding import Drift
from altbi.errors import AltbiError, TableError
from altbi.io import (
    ColumnSelection,
    ExpectedType,
    SelectedColumns,
    open_table,
)
from altbi.model import _fitted_model
from altbi.model._fitted_model import score_chunks
from altbi.model._score_source import ScoredBatch, ScoreSummary
from altbi.pipeline import Pipeline
from altbi.table import RowSampler, compute_largest_sample_key, sample_rows
from small_tables import fast_settings

TEXTS = st.sampled_from(
    [
        *("1", "2.5", "1,5", "1.234,5", "1.234", "x", "true", "", "NA", "inf", "007", "$5", "5 €"),
        *("2024-01-02", "03/04/2024", "13/04/2024"),
    ]
)
EXPECTED = [
    None,
    *(ExpectedType("date", written) for written in ("", "dates as month/day/year")),
    *(ExpectedType("number", written) for written in ("", "amounts in $")),
    ExpectedType("number", "numbers with points between thousands"),
]


@pytest.mark.slow
@given(
    st.lists(st.lists(TEXTS, min_size=1, max_size=6), min_size=1, max_size=4),
    st.sampled_from(EXPECTED),
)
def test_scan_of_partitions_equals_one_pass(tmp_path_factory, files, expected):
    folder = tmp_path_factory.mktemp("csv")
    for number, texts in enumerate(files):
        lines = [f'"{text}",{row}\n' for row, text in enumerate(texts)]
        (folder / f"{number}.csv").write_text("a,b\n" + "".join(lines))
    selected = SelectedColumns(features=("a", "b"), ids=(), label=None, kept=())

    def scan(pipeline):
        types = None if expected is None else {"a": expected}
        try:
            found, _ = pipeline._scan(selected, ColumnSelection(), 5, fast_settings(), types)
        except AltbiError as error:
            return str(error)
        sample = found.sample_rows.tolist(), str(found.sample.kinds)
        return found.n_rows, found.parser.state, sample, found.notes

    assert scan(create_pipeline(Local(), folder, ColumnSelection())) == scan(
        Pipeline(open_table(folder))
    )


@given(st.integers(1, 400), st.integers(1, 120), st.integers(0, 5), st.integers(1, 90))
def test_samples_of_partitions_equal_one_sample(n_rows, limit, seed, size):
    largest, found = compute_largest_sample_key(n_rows, limit, seed), []
    for first in range(0, n_rows, size):
        sampler = RowSampler(limit, seed, first_row=first, max_key=largest)
        sampler.add(pa.record_batch({"n": np.arange(first, min(first + size, n_rows))}))
        table, rows = sampler.result()
        assert table["n"].to_pylist() == rows.tolist()
        found += rows.tolist()

    assert found == sample_rows(n_rows, limit, seed).tolist()


SCORES = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.5, -1.0, 7e300]), min_size=1, max_size=60)


def add_rows(summary, first, scores):
    """Add rows in batches of four."""
    batch = pa.record_batch({"n": np.arange(first, first + len(scores))})
    for start in range(0, len(scores), 4):
        some = scores[start : start + 4]
        summary.add(batch.slice(start, 4), ScoredBatch(some, some > 1, Drift(rows=len(some))))
        summary.add_labels(some, np.where(some > 2, np.nan, some > 0))
    return summary


@given(SCORES, st.integers(1, 9), st.integers(1, 25))
def test_summaries_of_partitions_equal_one_summary(scores, top, size):
    scores = np.array(scores)

    expected, merged = add_rows(ScoreSummary(top), 0, scores), ScoreSummary(top)
    for first in range(0, len(scores), size):
        partition = scores[first : first + size]
        merged.append(add_rows(ScoreSummary(top, first), first, partition))

    assert (merged.n_rows, merged.n_flagged) == (expected.n_rows, expected.n_flagged)
    assert merged.drift == expected.drift
    assert merged.counts.edges.tolist() == expected.counts.edges.tolist()
    assert merged.counts.counts.tolist() == expected.counts.counts.tolist()
    (table, *arrays), (expected_table, *expected_arrays) = (
        merged.top.sort_by_score(),
        expected.top.sort_by_score(),
    )
    assert table.to_pylist() == expected_table.to_pylist()
    assert [array.tolist() for array in arrays] == [array.tolist() for array in expected_arrays]
    # Of rows with equal scores, the first are kept.
    assert arrays[1].tolist() == np.argsort(-scores, kind="stable")[:top].tolist()
    for side in (0, 1):
        values = np.concatenate([pair[side] for pair in merged.labelled])
        assert values.tolist() == np.concatenate([p[side] for p in expected.labelled]).tolist()


INVALID = {
    "infinity": ["a,b\n1,1\n2,2\n", "a,b\n3,3\n", "a,b\n4,4\ninf,5\n"],
    "label": ["a,b,y\n1,1,0\n", "a,b,y\n2,2,3\n"],
    "line": ["a,b\n1,1\n", "a,b\n1,2\n1,2,3\n"],
}


@pytest.mark.parametrize("problem", INVALID)
def test_errors_are_those_of_one_process(tmp_path, problem):
    for number, text in enumerate(INVALID[problem]):
        (tmp_path / f"{number}.csv").write_text(text)
    selection = ColumnSelection(label="y" if problem == "label" else None)

    def read_error(pipeline):
        with pytest.raises(TableError) as caught:
            pipeline.fit(fast_settings())
        return str(caught.value)

    message = read_error(Pipeline(open_table(tmp_path), selection))
    assert message.startswith(str(tmp_path))
    assert read_error(create_pipeline(Local(), tmp_path, selection)) == message


def test_file_that_grows_between_rounds_is_an_error(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text("a\n1\n2\n")

    class GrowingEngine(Engine):
        def run(self, function, items):
            yield from Local().run(function, items)
            with (tmp_path / "1.csv").open("a") as file:
                file.write("3\n")

    with pytest.raises(TableError, match="changed while it was read"):
        create_pipeline(GrowingEngine(), tmp_path, ColumnSelection()).fit(fast_settings())


def test_infinity_is_reported_with_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(_partitions, "MAX_PARTITION_ROWS", 10)
    pq.write_table(pa.table({"a": [*range(35), np.inf]}), tmp_path / "a", row_group_size=10)

    with pytest.raises(TableError, match="infinity, first in row 35"):
        create_pipeline(Local(), tmp_path / "a", ColumnSelection()).fit(fast_settings())


def test_dictionaries_of_partitions_are_merged(tmp_path):
    colours = pa.array([f"c{row % 7 + row // 100}" for row in range(400)])
    sizes = pa.array(np.random.default_rng(0).normal(size=400))
    (tmp_path / "in").mkdir()
    for number in range(4):
        partition = {
            "a": sizes.slice(100 * number, 100),
            "c": colours.slice(100 * number, 100).dictionary_encode(),
        }
        pq.write_table(pa.table(partition), tmp_path / "in" / f"{number}.parquet")
    plain = Pipeline(open_table(tmp_path / "in"))
    prepared = plain.fit(fast_settings())
    expected = plain.explain_top(prepared, plain.score(prepared))

    pipeline = create_pipeline(Local(), tmp_path / "in", ColumnSelection())
    prepared = pipeline.fit(fast_settings())
    scored = pipeline.score_into(prepared, tmp_path / "out")
    explained = pipeline.explain_top(prepared, scored)

    assert len(prepared.partitions) == 4
    assert explained.cells.to_pylist() == expected.cells.to_pylist()
    assert explained.explanation.score.tolist() == expected.explanation.score.tolist()


@pytest.mark.parametrize(("limit", "sizes"), [(1200, [1200] * 5), (1, [600] * 10)])
def test_row_groups_are_not_split(paths, limit, sizes):
    partitions = open_table(paths["one parquet file"]).partitions(limit)

    assert [partition.n_rows for partition in partitions] == sizes


def test_rows_without_a_finite_score_stop_the_run(paths, model, tmp_path, monkeypatch):
    """The last row of the fourth partition has none; finished partitions are kept."""

    def overflow(score, table, encoder):
        scores, drift = score_chunks(score, table, encoder)
        if table.first_row == 3 * PARTITION_ROWS:
            scores[-1] = np.nan
        return scores, drift

    monkeypatch.setattr(_fitted_model, "score_chunks", overflow)
    message = rf"ow {4 * PARTITION_ROWS - 1} \(counted from 0\) has no finite score"
    with pytest.raises(TableError, match=message):
        score_with(Local(), paths["parquet folder"], model, tmp_path / "out")

    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == 3
    with pytest.raises(TableError, match="not finished"):
        open_table(tmp_path / "out")
