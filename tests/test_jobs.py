import gzip
import json
import shutil
import warnings
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from altbi.explain._explained_rows import expected_text
from altbi.jobs import ColumnSelection, Job
from sklearn.metrics import average_precision_score, roc_auc_score

from altbi import ALTBI
from altbi.distributed import Local
from altbi.errors import ParameterError, TableError
from altbi.io import open_table
from altbi.report import cell_text, holds_text

SMALL = {"n0": 32, "T0": 1, "T1": 2, "T2": 4, "hidden": (8,), "latent": 2}


def small(**changes):
    return ALTBI(**SMALL | changes)


def mixed(n_rows, seed=0):
    """Make a table of all kinds of columns, with missing cells."""
    rng = np.random.default_rng(seed)

    def some(values):
        return pa.array(values, mask=rng.random(n_rows) < 0.03)

    return pa.table(
        {
            "size": some(rng.normal(size=n_rows)),
            "count": some(rng.integers(0, 1000, n_rows)),
            "colour": some(rng.choice(["red", "green", "a, b", 'say "x"'], n_rows)),
            "sold": some(rng.random(n_rows) < 0.3),
            "day": some(np.datetime64("2024-01-01", "us") + rng.integers(0, 10**12, n_rows)),
            "invoice": pa.array([f"{i:07}" for i in range(n_rows)]),
        }
    )  # fmt: skip


def write_csv(table, path):
    pyarrow.csv.write_csv(table, path)


def write_semicolons(table, path):
    options = pyarrow.csv.WriteOptions(delimiter=";")
    pyarrow.csv.write_csv(table, path, options)


def write_gzip(table, path):
    plain = path.with_suffix(".plain")
    write_csv(table, plain)
    with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=1) as packed:
        shutil.copyfileobj(source, packed)
    plain.unlink()


def write_folder(table, path):
    path.mkdir()
    third = len(table) // 3
    for number, first in enumerate(range(0, len(table), third)):
        part = table.slice(first, third)
        pyarrow.parquet.write_table(part, path / f"part-{number}.parquet", row_group_size=50_000)


def write_stream(table, path):
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=10_000)


def write_lines(table, path):
    with path.open("w") as file:
        for row in table.to_pylist():
            if row["day"] is not None:
                row["day"] = row["day"].isoformat()
            file.write(json.dumps(row) + "\n")


WRITERS = {
    "csv": write_csv,
    "csv.gz": write_gzip,
    "semicolons": write_semicolons,
    "parquet": lambda table, path: pyarrow.parquet.write_table(table, path, row_group_size=30_000),
    "folder": write_folder,
    "arrow": lambda table, path: pyarrow.feather.write_feather(table, str(path)),
    "stream": write_stream,
    "jsonl": write_lines,
}


class Collected:
    """A destination that keeps what it is given."""

    def __init__(self):
        self.tables = []

    def __call__(self, schema):
        self.schema = schema
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def write(self, table):
        assert table.schema == self.schema
        self.tables.append(table)

    @property
    def table(self):
        return pa.concat_tables(self.tables)


def scored(path, detector, *, fitted=False, **choice):
    job = Job(open_table(path), detector, ColumnSelection(**choice))
    output = Collected()
    ready = job.prepare() if fitted else job.fit()
    found = job.score(ready, output)
    return output.table, found, ready


def in_memory(table, detector):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return detector.fit(table).outlier_score(table)


@pytest.mark.parametrize(("n_rows", "max_rows"), [(400, 1000), (140_000, 20_000)])
@pytest.mark.parametrize("format_", WRITERS)
def test_a_file_scores_as_its_table_in_memory(tmp_path, format_, n_rows, max_rows):
    table = mixed(n_rows)
    WRITERS[format_](table, tmp_path / "table")
    detector = small(max_rows=max_rows, random_state=7)

    output, found, _ = scored(tmp_path / "table", detector, ids=("invoice",))

    expected = small(max_rows=max_rows, random_state=7)
    scores = in_memory(table.drop(["invoice"]), expected)
    assert output["score"].to_pylist() == scores.tolist()
    assert output["outlier"].to_pylist() == (-scores < expected.offset_).tolist()
    assert output["row"].to_pylist() == list(range(n_rows))
    assert output["invoice"].to_pylist() == table["invoice"].to_pylist()
    assert (found.rows, found.flagged) == (n_rows, int((-scores < expected.offset_).sum()))
    assert (detector.n_rows_in_, detector.n_sample_) == (n_rows, min(n_rows, max_rows))


@pytest.mark.parametrize(("n_rows", "max_rows"), [(400, 1000), (140_000, 20_000)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_an_array_file_scores_as_its_array(tmp_path, write, order, n_rows, max_rows):
    rng = np.random.default_rng(0)
    X = np.asarray(rng.normal(size=(n_rows, 3)), order=order)
    y = (rng.random(n_rows) < 0.1).astype(int)
    write(tmp_path / "table.npz", X=X, y=y)

    output, found, _ = scored(tmp_path / "table.npz", small(max_rows=max_rows), label="y")

    scores = in_memory(X, small(max_rows=max_rows))
    assert output["score"].to_pylist() == scores.tolist()
    assert np.concatenate([labels for _, labels in found.labelled]).tolist() == (y == 1).tolist()


def test_a_model_scores_another_file_as_it_scores_a_table(tmp_path):
    detector = small().fit(mixed(500).drop(["invoice"]))
    other = mixed(300, seed=1)
    write_csv(other.select(other.column_names[::-1]), tmp_path / "other.csv")

    output, _, ready = scored(tmp_path / "other.csv", detector, fitted=True)

    assert output["score"].to_pylist() == detector.outlier_score(other.drop(["invoice"])).tolist()
    assert any("'invoice'" in note and "not used" in note for note in ready.notes)


@pytest.mark.parametrize("engine", [None, Local()])
def test_a_row_of_a_file_has_the_same_score_in_a_file_of_its_own(tmp_path, engine):
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + rng.integers(0, 300, 200)
    amounts = [f"{amount:,.2f}" for amount in rng.normal(1500, 300, 200)]
    lines = [
        f"{day:%d/%m/%Y};{amount.translate(str.maketrans(',.', '.,'))};{kind}"
        for day, amount, kind in zip(
            days.astype(datetime), amounts, rng.choice(["a", "?"], 200), strict=True
        )
    ]
    lines[7] = "05/04/2024;1.800;a"  # a day of April, and 1800
    lines[8] = "25/04/2024;1.800,50;?"
    whole, alone = tmp_path / "whole.csv", tmp_path / "alone.csv"
    whole.write_text("\n".join(["day;amount;kind", *lines]))
    alone.write_text("\n".join(["day;amount;kind", lines[7]]))
    Job(open_table(whole), small(), ColumnSelection(missing=("?",)), engine=engine).detect(
        tmp_path / "out", page=False
    )
    detector = ALTBI.load(tmp_path / "out/model.altbi")

    def scores(path):
        job = Job(open_table(path), detector, top=len(lines))
        found = job.score(job.prepare())
        _, values, rows = found.top.sort_by_score()
        return values[np.argsort(rows)]

    whole_scores = scores(whole)
    assert scores(alone)[0] == whole_scores[7]
    missing = tmp_path / "missing.csv"
    missing.write_text("\n".join(["day;amount;kind", lines[8].replace("?", "")]))
    assert scores(missing)[0] == whole_scores[8]


def test_a_model_of_an_array_takes_columns_by_their_place(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2))
    detector = small().fit(X)
    write_csv(pa.table({"a": X[:, 0], "id": range(200), "b": X[:, 1]}), tmp_path / "t.csv")

    output, _, _ = scored(tmp_path / "t.csv", detector, fitted=True, ids=("id",))

    assert output["score"].to_pylist() == detector.outlier_score(X).tolist()
    with pytest.raises(TableError, match=r"3 columns, but the model was fitted on an array of 2"):
        scored(tmp_path / "t.csv", detector, fitted=True)


def test_the_label_is_compared_and_never_learned(tmp_path):
    table = mixed(400).drop(["invoice"])
    label = np.random.default_rng(1).random(400) < 0.2
    write_csv(table.append_column("bad", pa.array(label.astype(int))), tmp_path / "with.csv")
    job = Job(open_table(tmp_path / "with.csv"), small(), ColumnSelection(label="bad"))

    summary = job.detect(tmp_path / "out", page=False)

    scores = in_memory(table, small())
    assert summary.metrics.auc == roc_auc_score(label, scores)
    assert summary.metrics.average_precision == average_precision_score(label, scores)
    assert summary.metrics.outliers == label.sum()
    assert [row.label for row in summary.top] == label[np.argsort(-scores, kind="stable")][
        :200
    ].tolist()


@pytest.mark.parametrize(
    ("cells", "choice"),
    [
        (["1", "0", "", "1"], "bad"),
        (["true", "False", "", "TRUE"], "bad"),
        (["1.0", "0.0", "", "1.0"], "bad"),
        (["fraud", "fine", "", "fraud"], "bad=fraud"),
        (["1", "0", "NA", "1"], "bad"),
        (["fraud", "fine", "null", "fraud"], "bad=fraud"),
        (["NA", "fine", "", "NA"], "bad=NA"),
    ],
)
def test_labels_may_be_written_in_several_ways(tmp_path, cells, choice):
    table = pa.table({"x": np.arange(40.0), "bad": cells * 10})
    write_csv(table, tmp_path / "t.csv")

    _, found, _ = scored(tmp_path / "t.csv", small(), label=choice)

    assert found.labelled[0][1].tolist() == [True, False, True] * 10


def test_labels_can_be_named_missing_in_every_format(tmp_path):
    table = pa.table({"x": np.arange(40.0), "bad": ["1", "0", "?", "NA"] * 10})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")

    _, found, _ = scored(tmp_path / "t.parquet", small(), label="bad", missing=("?", "NA"))

    assert found.labelled[0][1].tolist() == [True, False] * 10


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.binary()])
def test_labels_that_are_no_texts_are_refused(tmp_path, kind):
    cells = pa.array([[1], [0]] * 20 if kind != pa.binary() else [b"\xff", b"0"] * 20, kind)
    pyarrow.parquet.write_table(pa.table({"x": np.arange(40.0), "bad": cells}), tmp_path / "t.pq")

    with pytest.raises(TableError, match=r"t\.pq: the labels in column 'bad' are of the type"):
        scored(tmp_path / "t.pq", small(), label="bad")


def test_a_label_is_one_column(tmp_path):
    write_csv(pa.table({"x": [1.0, 2.0], "a": [0, 1], "b": [0, 1]}), tmp_path / "t.csv")

    for label in ("a,b", "a,b=1"):
        with pytest.raises(ParameterError, match="--label names 'a', 'b', but expected one"):
            scored(tmp_path / "t.csv", small(), label=label)


def test_texts_named_missing_are_missing_in_every_format(tmp_path):
    words = pa.array((["a", "b", "?"] * 14)[:40])
    table = pa.table({"x": np.arange(40.0), "word": words, "kind": words.dictionary_encode()})
    write_csv(table, tmp_path / "t.csv")
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "t.arrow")

    read = {}
    for name in ("t.csv", "t.parquet", "t.arrow"):
        detector = small()
        output, _, _ = scored(tmp_path / name, detector, missing=("?",))
        read[name] = (output["score"].to_pylist(), tuple(detector.encoder_.describe_changes()))

    assert read["t.csv"] == read["t.parquet"] == read["t.arrow"]
    assert all("has 13 missing cells" in note for note in read["t.csv"][1])
    assert len(read["t.csv"][1]) == 2


def test_labels_of_another_kind_need_a_word(tmp_path):
    write_csv(pa.table({"x": [1.0, 2.0], "bad": ["fraud", "fine"]}), tmp_path / "t.csv")

    with pytest.raises(TableError, match=r"\['fraud', 'fine'\].*--label bad=VALUE"):
        scored(tmp_path / "t.csv", small(), label="bad")


def test_columns_are_chosen_by_name_with_commas_or_without(tmp_path):
    table = pa.table({name: np.random.default_rng(0).normal(size=50) for name in ("a", "b", "c,d")})
    write_csv(table, tmp_path / "t.csv")
    source = open_table(tmp_path / "t.csv")

    def features(**choice):
        return Job(source, small(), ColumnSelection(**choice)).fit().chosen.features

    assert features() == ("a", "b", "c,d")
    assert features(columns=("a,b",)) == ("a", "b")
    assert features(columns=("c,d", "a")) == ("c,d", "a")
    assert features(exclude=("c,d",), ids=("b",)) == ("a",)
    with pytest.raises(ParameterError, match=r"no column has it\. Did you mean 'c,d'"):
        features(exclude=("c;d",))
    with pytest.raises(ParameterError, match="at least one column"):
        features(exclude=("a", "b", "c,d"))


def test_a_model_s_columns_cannot_be_left_out(tmp_path):
    table = mixed(100)
    write_csv(table, tmp_path / "t.csv")
    detector = small().fit(table.select(["size", "count"]))

    assert scored(tmp_path / "t.csv", detector, fitted=True, exclude=("colour",))
    assert scored(tmp_path / "t.csv", detector, fitted=True, columns=("count", "size"))
    for choice in ({"exclude": ("size",)}, {"columns": ("count",)}, {"label": "size=1"}):
        with pytest.raises(ParameterError, match="'size' cannot be left out"):
            scored(tmp_path / "t.csv", detector, fitted=True, **choice)
    write_csv(table.drop(["size"]), tmp_path / "other.csv")
    with pytest.raises(TableError, match="'size' of the model are not there"):
        scored(tmp_path / "other.csv", detector, fitted=True)


def test_labels_that_are_all_alike_are_noted(tmp_path):
    write_csv(pa.table({"x": np.arange(40.0), "bad": [0] * 40}), tmp_path / "t.csv")
    job = Job(open_table(tmp_path / "t.csv"), small(), ColumnSelection(label="bad"))

    summary = job.detect(tmp_path / "out", page=False)

    assert summary.metrics is None
    assert "The labels in column 'bad' are all alike: nothing to compare." in summary.notes


def test_kept_columns_are_as_they_are_written_and_names_do_not_clash(tmp_path):
    (tmp_path / "t.csv").write_text("score,zip\n1.50,007\nNA,010\n2,100\n")

    output, _, _ = scored(tmp_path / "t.csv", small(), keep=True)

    assert output.column_names == ["altbi_row", "altbi_score", "altbi_outlier", "score", "zip"]
    assert output["score"].to_pylist() == ["1.50", "NA", "2"]
    assert output["zip"].to_pylist() == ["007", "010", "100"]


def test_scores_of_before_are_kept_beside_those_of_now(tmp_path):
    old = [0.1, 0.2, 0.3]
    table = pa.table({"x": [1.0, 2.0, 9.0], "score": old, "altbi_score": old, "altbi_row": old})
    write_csv(table, tmp_path / "t.csv")

    output, _, _ = scored(tmp_path / "t.csv", small(), columns=("x",), keep=True)

    assert output.column_names == [
        "altbi_altbi_row", "altbi_altbi_score", "altbi_altbi_outlier",
        "x", "score", "altbi_score", "altbi_row",
    ]  # fmt: skip
    plain, _, _ = scored(tmp_path / "t.csv", small(), columns=("x",))
    assert output["altbi_altbi_score"] == plain["score"]
    assert output["altbi_score"].to_pylist() == ["0.1", "0.2", "0.3"]


@pytest.fixture(scope="module")
def detected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detected")
    table = mixed(3000)
    write_csv(table, folder / "t.csv")
    job = Job(open_table(folder / "t.csv"), small(), ColumnSelection(ids=("invoice",)), top=50)
    return table, job.detect(str(folder / "out")), folder / "out"


def test_the_levels_of_the_summary_are_exact(detected):
    table, summary, _ = detected
    scores = in_memory(table.drop(["invoice"]), small())

    assert [count for _, count in summary.levels] == [
        int((scores > threshold).sum()) for threshold, _ in summary.levels
    ]
    thresholds = [threshold for threshold, _ in summary.levels]
    assert thresholds == sorted(thresholds, reverse=True)
    assert (summary.threshold, summary.flagged) in summary.levels
    counts = {count for _, count in summary.levels}
    assert set(range(50)) <= counts
    assert max(counts) == 3000
    assert 50 < len(summary.levels) < 300


def test_the_bins_of_the_summary_hold_all_rows(detected):
    table, summary, _ = detected
    scores = in_memory(table.drop(["invoice"]), small())

    assert sum(count for _, _, count in summary.bins) == 3000
    for (_, end, _), (start, _, _) in zip(summary.bins, summary.bins[1:], strict=False):
        assert end == start
    assert summary.bins[0][0] <= scores.min()
    assert summary.bins[-1][1] >= scores.max()
    for start, end, count in summary.bins:
        margin = 2**-15 * np.abs([start, end])
        least = ((scores >= start + margin[0]) & (scores < end - margin[1])).sum()
        most = ((scores >= start - margin[0]) & (scores < end + margin[1])).sum()
        assert least <= count <= most


def test_the_files_agree_with_the_summary(detected):
    table, summary, folder = detected
    scores = pyarrow.csv.read_csv(
        folder / "scores.csv",
        convert_options=pyarrow.csv.ConvertOptions(column_types={"invoice": pa.string()}),
    )
    reasons = pyarrow.csv.read_csv(folder / "reasons.csv").to_pylist()

    assert scores["invoice"].to_pylist() == table["invoice"].to_pylist()
    assert sum(scores["outlier"].to_pylist()) == summary.flagged
    order = np.argsort(-scores["score"].to_numpy(), kind="stable")[:50]
    assert [row.number for row in summary.top] == order.tolist()
    assert list(dict.fromkeys(line["row"] for line in reasons)) == order.tolist()
    again = ALTBI.load(folder / "model.altbi").outlier_score(table.drop(["invoice"]))
    assert again.tolist() == scores["score"].to_pylist()
    for row in summary.top:
        assert row.ids == (f"{row.number:07}",)
        named = [line["column"] for line in reasons if line["row"] == row.number]
        assert [clue.column for clue in row.reasons] == named


def test_the_summary_tells_columns_and_training(detected):
    _, summary, _ = detected

    assert {column.name for column in summary.columns} == {"size", "count", "colour", "sold", "day"}
    assert sum(column.share for column in summary.columns) == pytest.approx(1)
    shares = [column.share for column in summary.columns]
    assert shares == sorted(shares, reverse=True)
    assert sum(c.named for c in summary.columns) == sum(len(row.reasons) for row in summary.top)
    assert [step.step for step in summary.history] == list(range(5))
    assert summary.versions["torch"]


def remembered(folder):
    """The rows that a model remembers, as texts by column."""
    model = ALTBI.load(folder / "model.altbi")
    columns = zip(model.encoder_.names, model.encoder_.decode(model.scorer_.rows), strict=True)
    return {name: [cell_text(cell) for cell in cells.to_pylist()] for name, cells in columns}


def test_top_rows_stand_beside_the_nearest_remembered_rows(detected):
    table, summary, folder = detected
    rows = set(zip(*(remembered(folder)[name] for name in summary.shown_columns), strict=True))
    model = ALTBI.load(folder / "model.altbi")
    explanation = model.explain(table.drop(["invoice"]))

    assert summary.score_by == "distance"
    for row in summary.top[:10]:
        nearest = explanation.nearest(row.number).select(summary.shown_columns)
        assert row.nearest == tuple(
            tuple(map(cell_text, cells.values())) for cells in nearest.to_pylist()
        )
        assert set(row.nearest) <= rows
        for clue in row.reasons:
            place = summary.shown_columns.index(clue.column)
            assert clue.nearest == tuple(cells[place] for cells in row.nearest)


def test_a_model_that_scores_by_loss_has_no_nearest_rows(tmp_path):
    write_csv(mixed(200), tmp_path / "t.csv")
    job = Job(open_table(tmp_path / "t.csv"), small(score_by="loss"), ColumnSelection(ids=("invoice",)))

    summary = job.detect(tmp_path / "out", page=False)

    assert summary.score_by == "loss"
    assert not any(row.nearest for row in summary.top)
    assert not any(clue.nearest for row in summary.top for clue in row.reasons)
    names = pyarrow.csv.read_csv(tmp_path / "out" / "reasons.csv").column_names
    assert names[-3:] == ["expected", "deviations", "part"]


def test_few_neighbours_are_all_that_is_shown(tmp_path):
    write_csv(mixed(200), tmp_path / "t.csv")
    detector = small(n_groups=1, n_reference=3)
    job = Job(open_table(tmp_path / "t.csv"), detector, ColumnSelection(ids=("invoice",)))

    summary = job.detect(tmp_path / "out", page=False)

    assert {len(row.nearest) for row in summary.top} == {2}
    names = pyarrow.csv.read_csv(tmp_path / "out" / "reasons.csv").column_names
    assert names[-2:] == ["nearest_1", "nearest_2"]


def test_columns_of_days_are_compared_with_days(tmp_path):
    rng = np.random.default_rng(0)
    days = np.datetime64("1900-01-01", "D") + rng.integers(0, 45_000, 300)
    days[7] = np.datetime64("2400-05-06")
    write_csv(pa.table({"day": days, "size": rng.normal(size=300)}), tmp_path / "t.csv")
    job = Job(open_table(tmp_path / "t.csv"), small())

    summary = job.detect(tmp_path / "out", page=False)

    (clue,) = [clue for clue in summary.top[0].reasons if clue.column == "day"]
    assert clue.value == "2400-05-06"
    assert {clue.expected, *clue.nearest} <= set(map(str, days))
    line = pyarrow.csv.read_csv(tmp_path / "out" / "reasons.csv").to_pylist()[0]
    told = [line["expected"], *(line[f"nearest_{rank}"] for rank in (1, 2, 3))]
    assert list(map(str, told)) == [clue.expected, *clue.nearest]


def test_what_is_expected_is_told_like_the_value():
    day, evening = datetime(2024, 2, 28), datetime(2024, 2, 28, 23, 58)

    assert expected_text(evening, day) == "2024-02-29"
    assert expected_text(evening, evening) == "2024-02-28 23:58:00"
    assert expected_text(datetime.max, day) == "9999-12-31"
    assert expected_text(None, day) == ""
    assert expected_text(evening, None) == "2024-02-28 23:58:00"
    assert expected_text(1234.5678, 1.0, digits=4) == "1235"


def test_rows_are_explained_by_number_in_the_order_asked_for(detected):
    _, _, folder = detected
    job = Job(open_table(folder.parent / "t.csv"), ALTBI.load(folder / "model.altbi"))
    ready = job.prepare()

    reasons = job.reasons(ready, job.explain_at(ready, [2999, 3, 3])).to_pylist()

    assert list(dict.fromkeys(line["row"] for line in reasons)) == [2999, 3]
    with pytest.raises(TableError, match=r"row 3000 was asked for, but the last of its 3000 rows"):
        job.explain_at(ready, [3000])


def test_what_is_worth_knowing_is_noted(tmp_path):
    rows = ["n,one,gap,copy", *(f"{i},5,{'' if i % 7 else i},{i % 3}" for i in range(100))]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    notes = " ".join(Job(open_table(tmp_path / "t.csv"), small()).fit().notes)

    assert "'one' holds a single value" in notes
    assert "'gap' has 85 missing cells" in notes
    assert "'n' rises by the same step" in notes
    assert "copies" not in notes

    exclude = ColumnSelection(exclude=("n", "gap"))
    notes = " ".join(Job(open_table(tmp_path / "t.csv"), small(), exclude).fit().notes)
    assert "97 of 100 rows of the training sample (97.00%) look the same" in notes


def test_a_random_seed_is_refused(tmp_path):
    write_csv(pa.table({"x": [1.0, 2.0, 3.0]}), tmp_path / "t.csv")

    with pytest.raises(ParameterError, match="whole number"):
        Job(open_table(tmp_path / "t.csv"), small(random_state=None)).fit()


def test_notes_of_the_file_the_types_and_the_surprises_are_all_told(tmp_path):
    rows = [f"{i % 5}.5;{'red' if i % 2 else 'blue'}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["size;", *rows]))
    job = Job(open_table(tmp_path / "t.csv"), small())
    assert any("unnamed_2" in note for note in job.fit().notes)

    rows = [f"{i % 5},5;green" for i in range(60)]
    (tmp_path / "new.csv").write_text("\n".join(["size;unnamed_2", *rows]))
    job = Job(open_table(tmp_path / "new.csv"), job.detector)
    ready = job.prepare()
    found = job.score(ready)
    notes = " ".join(job.summary(ready, found, job.explain_top(ready, found)).notes)
    assert "'size' is read as numbers with a decimal comma" in notes
    assert "'unnamed_2' (60 cells); they count as '(other)'" in notes


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_an_empty_text_is_a_text_where_the_format_has_gaps(tmp_path, format_):
    cells = np.where(np.arange(200) % 20 == 0, "x", "")
    table = pa.table({"a": np.random.default_rng(0).normal(size=200), "b": cells, "key": cells})
    path = tmp_path / f"t.{format_}"
    {"csv": write_csv, "parquet": pyarrow.parquet.write_table}[format_](table, path)
    job = Job(open_table(path), small(), ColumnSelection(ids=("key",)), top=200)
    ready = job.fit()
    found = job.score(ready)
    explained = job.explain_top(ready, found)
    summary = job.summary(ready, found, explained)

    empty = "''" if format_ == "parquet" else ""
    place = summary.shown_columns.index("b")
    shown = {row.number: (row.cells[place], row.ids) for row in summary.top}
    assert shown[0] == ("x", ("x",))
    assert shown[1] == (empty, ("",))
    (fact,) = (column for column in summary.columns if column.name == "b")
    assert fact.holds == ("'', x" if format_ == "parquet" else "x")
    told = [line for line in job.reasons(ready, explained).to_pylist() if line["column"] == "b"]
    assert {line["value"] for line in told if line["row"] % 20} <= {empty}
    assert {line["id_key"] for line in told} <= {"", "x"}
    assert any(line["expected"] == empty for line in told if line["row"] % 20 == 0)


def test_arrays_beside_the_table_are_no_unknown_columns(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 2))
    np.savez(tmp_path / "t.npz", X=X, y=np.zeros(50))
    detector = Job(open_table(tmp_path / "t.npz"), small())
    assert detector.fit().chosen.features == ("x0", "x1")

    notes = Job(open_table(tmp_path / "t.npz"), detector.detector).prepare().notes
    assert not [note for note in notes if "does not know" in note]


def test_bad_labels_are_found_before_the_fit(tmp_path):
    write_csv(pa.table({"x": [1.0, 2.0], "bad": ["fraud", "fine"]}), tmp_path / "t.csv")
    job = Job(open_table(tmp_path / "t.csv"), small(), ColumnSelection(label="bad"))

    with pytest.raises(TableError, match="--label bad=VALUE"):
        job.fit()
    assert not hasattr(job.detector, "offset_")


def test_errors_are_told_with_the_table_s_name_once(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x\n1\ninf\n")
    with pytest.raises(TableError) as refusal:
        Job(open_table(path), small()).fit()
    assert str(refusal.value).startswith(f"{path}: Column 'x' contains infinity")

    path.write_text("x,y\n1,2\n3\n")
    with pytest.raises(TableError) as refusal:
        Job(open_table(path), small()).fit()
    assert str(refusal.value).count(str(path)) == 1


def test_infinity_is_told_with_its_row_in_the_file(tmp_path):
    """A model scores without a look at numbers in the first pass of a typed file's later rows."""
    values = np.zeros(70_000, dtype=np.float32)
    values[69_999] = np.inf
    pyarrow.parquet.write_table(pa.table({"x": values}), tmp_path / "t.parquet")
    detector = small().fit(pa.table({"x": np.arange(50.0)}))

    with pytest.raises(TableError, match="'x' contains infinity, first in row 69999"):
        Job(open_table(tmp_path / "t.parquet"), detector).prepare()


def test_what_a_fit_would_warn_of_is_noted_instead(tmp_path):
    write_csv(
        pa.table({"x": np.arange(60.0) % 7, "t": [f"v{i}" for i in range(60)]}), tmp_path / "t"
    )

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notes = Job(open_table(tmp_path / "t"), small()).fit().notes
    assert any("'t' holds 60 different texts" in note for note in notes)


def test_labels_may_be_dictionaries_padded_or_named_with_equal_signs(tmp_path):
    words = pa.array([" bad ", "good"] * 20).dictionary_encode()
    table = pa.table({"x": np.arange(40.0), "a=b": words})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")

    _, found, _ = scored(tmp_path / "t.parquet", small(), label="a=b=bad")

    assert found.labelled[0][1].tolist() == [True, False] * 20


def test_a_row_of_the_next_chunk_is_found(tmp_path):
    numbers = np.arange(66_000.0)
    pyarrow.parquet.write_table(pa.table({"x": numbers}), tmp_path / "t.parquet")
    job = Job(open_table(tmp_path / "t.parquet"), small().fit(pa.table({"x": numbers[:100]})))

    explained = job.explain_at(job.prepare(), [65_536, 65_535])

    assert explained.cells["x"].to_pylist() == [65_536, 65_535]


def test_unknown_labels_stay_unknown_and_missing_cells_are_counted(tmp_path):
    bad = [None if i % 2 else i % 4 == 0 for i in range(40)]
    size = [None if i % 4 == 1 else float(i) for i in range(40)]
    write_csv(pa.table({"size": size, "bad": bad}), tmp_path / "t.csv")
    job = Job(open_table(tmp_path / "t.csv"), small(), ColumnSelection(label="bad"), top=40)

    summary = job.detect(tmp_path / "out", page=False)

    assert {row.number: row.label for row in summary.top} == dict(enumerate(bad))
    (column,) = summary.columns
    assert (column.missing, column.holds) == (0.25, "0 to 39")
    reasons = pyarrow.csv.read_csv(tmp_path / "out" / "reasons.csv").to_pylist()
    flagged = {row.number for row in summary.top if row.score > summary.threshold}
    assert {line["row"] for line in reasons if line["outlier"]} == flagged


def test_cells_and_columns_are_put_into_words():
    assert [cell_text(v) for v in (None, float("nan"), True, 3.0, 1.5)] == [
        "",
        "",
        "true",
        "3",
        "1.5",
    ]
    assert cell_text(0.1 + 0.2, digits=None) == "0.30000000000000004"
    table = pa.table(
        {
            "flag": [True, False],
            "on": [True, True],
            "day": pa.array([0, 86_400], pa.timestamp("s")),
            "word": ["b", "a"],
            "none": pa.nulls(2, pa.float64()),
        }
    )
    columns = small().fit(table).encoder_.columns
    words = [holds_text(column) for column in columns]
    assert words == ["true or false", "true", "1970-01-01 to 1970-01-02", "2 more", "nothing"]


@pytest.mark.parametrize("name", ["row", "outlier"])
def test_no_name_of_the_output_clashes(tmp_path, name):
    write_csv(pa.table({name: np.arange(20.0), "x": np.arange(20.0) % 3}), tmp_path / "t.csv")

    output, _, _ = scored(tmp_path / "t.csv", small(), ids=(name,))

    assert output.column_names == ["altbi_row", name, "altbi_score", "altbi_outlier"]


def test_a_counter_is_noticed_in_a_sample_and_a_few_rows_are_no_counter(tmp_path):
    write_csv(pa.table({"n": np.arange(500) * 3, "x": np.arange(500) % 7}), tmp_path / "t.csv")
    notes = Job(open_table(tmp_path / "t.csv"), small(max_rows=60)).fit().notes
    assert [note for note in notes if "rises by the same step" in note and "'n'" in note]

    write_csv(pa.table({"n": [1, 2, 3], "x": [5, 1, 4]}), tmp_path / "few.csv")
    notes = Job(open_table(tmp_path / "few.csv"), small()).fit().notes
    assert not [note for note in notes if "rises by the same step" in note]


def test_a_far_score_has_a_wide_bin_of_its_own_and_reasons_keep_all_digits(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    x[3] = 123456.789012
    names = [f"c{i}" for i in range(35)]
    table = pa.table({name: rng.normal(size=1000) for name in names} | {"x": x})
    write_csv(table, tmp_path / "t.csv")
    detector = small().fit(table.set_column(35, "x", [rng.normal(size=1000)]))
    job = Job(open_table(tmp_path / "t.csv"), detector)
    ready = job.prepare()
    found = job.score(ready)
    explained = job.explain_top(ready, found)
    summary = job.summary(ready, found, explained)

    *others, last = summary.bins
    widths = [end - start for start, end, _ in others]
    assert max(widths) == pytest.approx(min(widths))
    assert last[1] - last[0] > 10 * widths[0]
    assert len(summary.shown_columns) == 30
    assert summary.top[0].number == 3
    assert "123456.789012" in job.reasons(ready, explained)["value"].to_pylist()
