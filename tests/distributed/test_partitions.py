"""What is found in parts of a table, put together, is what one pass finds."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.encoding import Drift
from altbi.distributed import Engine, Local
from altbi.errors import AltbiError, ParameterError, TableError
from altbi.io import ExpectedType, RowSampler, largest_sample_key, open_table
from altbi.jobs import ColumnSelection, Job, Scan, apart
from altbi.io._column_selection import SelectedColumns
from altbi.distributed._partition_folder import PartitionFolder, Plan
from altbi._score_statistics import ScoreCounts, TopRows
from altbi.table import sample_rows
from test_jobs import small

CELLS = st.sampled_from(
    ["1", "2.5", "1,5", "1.234,5", "x", "true", "", "NA", "inf", "2024-01-02", "03/04/2024", "007"]
)


@given(st.lists(st.lists(CELLS, min_size=1, max_size=6), min_size=1, max_size=4), st.integers(0, 2))
def test_types_settled_in_parts_are_those_of_one_pass(tmp_path_factory, parts, wanted):
    folder = tmp_path_factory.mktemp("csv")
    for number, cells in enumerate(parts):
        lines = [f'"{cell}",{row}\n' for row, cell in enumerate(cells)]
        (folder / f"{number}.csv").write_text("a,b\n" + "".join(lines))

    def told(engine):
        job = Job(open_table(folder), small(max_rows=5), engine=engine)
        kind, written = [("date", "dates as month/day/year"), ("number", "")][wanted - 1]
        expected = {"a": ExpectedType(kind, written)} if wanted else None
        chosen = SelectedColumns(features=("a", "b"), ids=(), label=None, kept=())
        try:
            found, _ = job._survey(chosen, ColumnSelection(), expected)
        except AltbiError as error:
            return str(error)
        return (
            found.n_rows,
            found.columns.state,
            found.sample_rows.tolist(),
            [str(found.sample.kinds), found.notes],
        )

    assert told(Local()) == told(None)


@given(st.integers(1, 400), st.integers(1, 120), st.integers(0, 5), st.integers(1, 90))
def test_samples_of_parts_are_the_sample_of_the_whole(n_rows, limit, seed, size):
    bar, found = largest_sample_key(n_rows, limit, seed), []
    for first in range(0, n_rows, size):
        sample = RowSampler(limit, seed, first_row=first, bar=bar)
        sample.add(pa.record_batch({"n": np.arange(first, min(first + size, n_rows))}))
        table, rows = sample.drawn()
        assert table["n"].to_pylist() == rows.tolist()
        found += rows.tolist()

    assert found == sample_rows(n_rows, limit, seed).tolist()


SCORES = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.5, -1.0, 7e300]), min_size=1, max_size=60)


@given(SCORES, st.integers(1, 9), st.integers(1, 25))
def test_what_is_found_in_parts_is_what_one_pass_finds(scores, limit, size):
    scores = np.array(scores)

    def added(first, part, found):
        batch = pa.record_batch({"n": np.arange(first, first + len(part))})
        for start in range(0, len(part), 4):  # in batches
            some = part[start : start + 4]
            found.add(batch.slice(start, 4), some, some > 1)
            found.compare(some, np.where(some > 2, np.nan, some > 0))
            found.drift += Drift(rows=len(some))
        return found

    whole, merged = added(0, scores, Scan(limit)), Scan(limit)
    for first in range(0, len(scores), size):
        merged.follow(added(first, scores[first : first + size], Scan(limit, first)))

    assert (merged.rows, merged.flagged) == (whole.rows, whole.flagged)
    assert merged.drift == whole.drift
    assert merged.counts.edges.tolist() == whole.counts.edges.tolist()
    assert merged.counts.counts.tolist() == whole.counts.counts.tolist()
    for ours, theirs in zip(merged.top.best(), whole.top.best(), strict=True):
        assert ours.to_pylist() == theirs.to_pylist() if hasattr(ours, "to_pylist") else True
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))
    for side in (0, 1):
        ours, theirs = (
            np.concatenate([pair[side] for pair in found.labelled]) for found in (merged, whole)
        )
        assert ours.tolist() == theirs.tolist()


def test_the_top_of_parts_keeps_the_first_of_equal_rows():
    whole = TopRows(2)
    for first in (0, 3, 6):
        part = TopRows(2)
        part.add(pa.record_batch({"n": [first, first + 1, first + 2]}), np.ones(3), first)
        whole.follow(*part.held())

    assert whole.best()[2].tolist() == [0, 1]


def test_counts_of_nothing_change_nothing():
    counts = ScoreCounts()
    counts.add(np.array([1.0, 2.0]))
    counts.add_bins(ScoreCounts().keys, ScoreCounts().counts)

    assert counts.counts.tolist() == [1, 1]


BAD = {
    "infinity": ["a,b\n1,1\n2,2\n", "a,b\n3,3\n", "a,b\n4,4\ninf,5\n"],
    "a bad label": ["a,b,y\n1,1,0\n", "a,b,y\n2,2,3\n"],
    "a broken line": ["a,b\n1,1\n", "a,b\n1,2\n1,2,3\n"],
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_as_by_one_process(tmp_path, name):
    for number, text in enumerate(BAD[name]):
        (tmp_path / f"{number}.csv").write_text(text)
    choice = ColumnSelection(label="y" if "label" in name else None)

    def told(engine):
        with pytest.raises(TableError) as caught:
            Job(open_table(tmp_path), small(), choice, engine=engine).fit()
        return str(caught.value)

    assert told(Local()) == told(None)
    assert told(None).startswith(str(tmp_path))


def test_a_file_that_grows_between_two_rounds_is_noticed(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text("a\n1\n2\n")

    class Grown(Engine):
        def run(self, function, items):
            yield from Local().run(function, items)
            with (tmp_path / "1.csv").open("a") as file:
                file.write("3\n")

    with pytest.raises(TableError, match="changed while it was read"):
        Job(open_table(tmp_path), small(), engine=Grown()).fit()


def test_infinity_in_a_parquet_file_is_told_with_its_row_in_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "MAX_PARTITION_ROWS", 10)
    pq.write_table(pa.table({"a": [*range(35), np.inf]}), tmp_path / "a", row_group_size=10)

    with pytest.raises(TableError, match="infinity, first in row 35"):
        Job(open_table(tmp_path / "a"), small(), engine=Local()).fit()


def test_dictionaries_that_differ_from_part_to_part_come_together(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "MAX_PARTITION_ROWS", 100)
    colours = pa.array([f"c{row % 7 + row // 100}" for row in range(400)]).dictionary_encode()
    table = pa.table({"a": np.random.default_rng(0).normal(size=400), "c": colours})
    (tmp_path / "in").mkdir()
    for number in range(4):
        part = pa.table({
            "a": table["a"].slice(100 * number, 100),
            "c": colours.slice(100 * number, 100).cast(pa.string()).dictionary_encode(),
        })  # fmt: skip
        pq.write_table(part, tmp_path / "in" / f"{number}.parquet")
    plain = Job(open_table(tmp_path / "in"), small())
    ready = plain.fit()
    best = plain.score(ready).top.best()

    job = Job(open_table(tmp_path / "in"), small(), engine=Local())
    found = job.score_into(job.fit(), tmp_path / "out")

    assert found.top.best()[0].to_pylist() == best[0].to_pylist()
    assert found.top.best()[1].tolist() == best[1].tolist()


def test_nothing_of_a_folder_is_trusted_without_its_fingerprint(tmp_path):
    X = pa.table({"a": np.random.default_rng(0).normal(size=50)})
    pq.write_table(X, tmp_path / "a")
    job = Job(open_table(tmp_path / "a"), small(), engine=Local())
    ready = job.fit()
    job.score_into(ready, tmp_path / "out")
    plan = Plan(columns=ready.columns, chosen=ready.chosen, top=200)

    assert not PartitionFolder(tmp_path / "out", plan, "other").is_done(0)


class TestCsvFolder:
    def write(self, folder, **files):
        for name, text in files.items():
            (folder / f"{name}.csv").write_text(text)
        return open_table(folder)

    def cells(self, source):
        batches = list(source.batches(source.schema.names))
        return pa.Table.from_batches(batches, source.schema).to_pydict()

    def test_files_are_one_table_in_the_order_of_their_names(self, tmp_path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "z.tsv").write_text("a;b\n9;z\n")
        (tmp_path / "_hidden.csv").write_text("junk")
        source = self.write(tmp_path, b="a;b\n2;x\n", a="a;b\n1,5;y\n", c="a;b\n")

        assert self.cells(source) == {"a": ["1,5", "2", "9"], "b": ["y", "x", "z"]}
        assert [path.rpartition("/")[2] for path in source.paths] == [
            "a.csv", "b.csv", "c.csv", "z.tsv"
        ]  # fmt: skip

    def test_another_header_is_refused_by_name(self, tmp_path):
        with pytest.raises(TableError, match=r"c\.csv: its columns are 'a', 'x', but expected"):
            self.write(tmp_path, a="a,b\n1,2\n", b="a,b\n1,2\n", c="a,x\n1,2\n")

    def test_files_without_a_header_need_the_same_number_of_cells(self, tmp_path):
        assert self.cells(self.write(tmp_path, a="1,2\n", b="3,4\n")) == {
            "x0": ["1", "3"], "x1": ["2", "4"]
        }  # fmt: skip
        with pytest.raises(TableError, match=r"c\.csv: its columns are 'x0', 'x1', 'x2'"):
            self.write(tmp_path, c="3,4,5\n")

    def test_files_without_rows_do_not_matter_unless_all_are(self, tmp_path):
        assert self.cells(self.write(tmp_path, a="", b="a,b\n", c="a,b\n1,2\n")) == {
            "a": ["1"], "b": ["2"]
        }  # fmt: skip
        (tmp_path / "c.csv").unlink()
        with pytest.raises(TableError, match="none of its 2 CSV files holds a row"):
            open_table(tmp_path)

    def test_parquet_beside_csv_has_to_be_chosen(self, tmp_path):
        pq.write_table(pa.table({"p": [1]}), tmp_path / "p.parquet")
        (tmp_path / "a.csv").write_text("a\n1\n")

        with pytest.raises(TableError, match="not one table"):
            open_table(tmp_path)
        assert open_table(tmp_path, format="csv").schema.names == ["a"]
        assert open_table(tmp_path, format="parquet").schema.names == ["p"]


def test_files_of_another_job_do_not_stay_beside_those_of_this_one(tmp_path):
    pq.write_table(pa.table({"x": np.arange(60) % 7}), tmp_path / "t.parquet")
    job = Job(open_table(tmp_path / "t.parquet"), small())

    job.detect(tmp_path / "out", "parquet", page=False)
    job.detect(tmp_path / "out", "parquet", page=False)
    with pytest.raises(ParameterError, match=r"scores\.parquet is of another job"):
        job.detect(tmp_path / "out", "csv", page=False)
    (tmp_path / "out" / "report.html").write_text("old")
    with pytest.raises(ParameterError, match=r"report\.html is of another job"):
        job.detect(tmp_path / "out", "parquet", page=False)


def test_scores_with_and_without_an_engine_do_not_mix_in_a_folder(tmp_path):
    pq.write_table(pa.table({"x": np.arange(60) % 7}), tmp_path / "t.parquet")
    source = open_table(tmp_path / "t.parquet")
    plain, apart = Job(source, small()), Job(source, small(), engine=Local())

    plain.detect(tmp_path / "out", page=False)
    with pytest.raises(ParameterError, match=r"scores\.csv is of another job"):
        apart.detect(tmp_path / "out", page=False)
    apart.detect(tmp_path / "parts", page=False)
    with pytest.raises(ParameterError, match="scores is of another job"):
        plain.detect(tmp_path / "parts", page=False)


@pytest.mark.parametrize("label", [None, "odd"])
def test_a_file_without_rows_changes_nothing(tmp_path, label):
    (tmp_path / "t").mkdir()
    for name, rows in (("a", 60), ("b", 0), ("c", 70)):
        lines = [f"{row % 7},{row % 5},{row % 2}\n" for row in range(rows)]
        (tmp_path / "t" / f"{name}.csv").write_text("x,y,odd\n" + "".join(lines))
    source, choice = open_table(tmp_path / "t"), ColumnSelection(label=label, exclude=("odd",))

    one = Job(source, small(), choice).detect(tmp_path / "one", page=False)
    parts = Job(source, small(), choice, engine=Local()).detect(tmp_path / "parts", page=False)

    assert parts.top == one.top
    assert parts.metrics == one.metrics
    assert pq.read_table(tmp_path / "parts" / "scores").num_rows == 130
