import errno
import gzip
import shutil
import threading
import warnings
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from threadpoolctl import threadpool_limits

import altbi
from altbi import _threads
from altbi._threads import count_threads
from altbi.distributed import Local
from altbi.distributed._pipeline import DistributedPipeline
from altbi.errors import ParameterError, TableError
from altbi.io import ColumnSelection, open_in_memory, open_sql, open_table
from altbi.pipeline import Pipeline
from altbi.report._summarize import build_reasons_table
from small_tables import (
    CollectingWriter,
    create_pipeline,
    fast_detector,
    fast_settings,
    mixed_table,
    write_csv,
    write_json_lines,
)


def write_semicolons(table, path):
    pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(delimiter=";"))


def write_gzip(table, path):
    write_csv(table, path.with_suffix(".plain"))
    with path.with_suffix(".plain").open("rb") as plain, gzip.open(path, "wb") as compressed:
        shutil.copyfileobj(plain, compressed)


def write_folder(table, path):
    path.mkdir()
    third = len(table) // 3
    for number, first in enumerate(range(0, len(table), third)):
        partition = table.slice(first, third)
        pyarrow.parquet.write_table(partition, path / f"{number}.parquet", row_group_size=50_000)


def write_stream(table, path):
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=10_000)


WRITERS = {
    "csv": write_csv,
    "csv.gz": write_gzip,
    "semicolons": write_semicolons,
    "parquet": lambda table, path: pyarrow.parquet.write_table(table, path, row_group_size=30_000),
    "folder": write_folder,
    "arrow": lambda table, path: pyarrow.feather.write_feather(table, str(path)),
    "stream": write_stream,
    "jsonl": write_json_lines,
}
SIZES = [(400, 1000), (70_000, 5_000)]


def score_file(path, model=None, settings=None, **options):
    """Return the output, the score summary and the prepared table."""
    pipeline = create_pipeline(path, **options)
    if model is None:
        prepared = pipeline.fit(settings or fast_settings())
    else:
        prepared = pipeline.prepare(model)
    writer = CollectingWriter()
    return (writer, pipeline.score(prepared, writer), prepared)


def scores_of(path, model=None, settings=None, **options):
    writer, _, _ = score_file(path, model, settings, **options)
    return writer.table["score"].to_pylist()


def fit_in_memory(table, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fast_detector(**parameters).fit(table).model_


def run(path, folder, *, report=False, settings=None, **options):
    pipeline = create_pipeline(path, **options)
    return pipeline.run(settings or fast_settings(), folder, report=report)


@pytest.fixture(scope="module", params=SIZES, ids=["small", "sampled"])
def in_memory(request):
    n_rows, max_rows = request.param
    table = mixed_table(n_rows)
    features = table.drop(["invoice"])
    model = fit_in_memory(features, max_rows=max_rows, random_state=7)
    return table, model, model.score(features), max_rows


@pytest.mark.slow
@pytest.mark.parametrize("format_", WRITERS)
def test_file_has_scores_of_table_in_memory(tmp_path, format_, in_memory):
    table, model, scores, max_rows = in_memory
    WRITERS[format_](table, tmp_path / "table")
    settings = fast_settings(max_rows=max_rows, random_state=7)

    writer, scored, prepared = score_file(tmp_path / "table", None, settings, ids=("invoice",))

    output, flagged = writer.table, scores > model.threshold
    assert output["score"].to_pylist() == scores.tolist()
    assert output["outlier"].to_pylist() == flagged.tolist()
    assert output["row"].to_pylist() == list(range(len(table)))
    assert output["invoice"].to_pylist() == table["invoice"].to_pylist()
    assert (scored.n_rows, scored.n_flagged) == (len(table), int(flagged.sum()))
    training = prepared.model.training_table
    assert (training.n_rows, training.n_sample) == (len(table), min(len(table), max_rows))


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "max_rows"), SIZES)
@pytest.mark.parametrize(("write", "order"), [(np.savez, "C"), (np.savez_compressed, "F")])
def test_array_file_has_scores_of_its_array(tmp_path, write, order, n_rows, max_rows):
    rng = np.random.default_rng(0)
    X = np.asarray(rng.normal(size=(n_rows, 3)), order=order)
    y = (rng.random(n_rows) < 0.1).astype(int)
    write(tmp_path / "table.npz", X=X, y=y)

    writer, scored, _ = score_file(
        tmp_path / "table.npz", None, fast_settings(max_rows=max_rows), label="y"
    )

    scores = fit_in_memory(X, max_rows=max_rows).score(X)
    assert writer.table["score"].to_pylist() == scores.tolist()
    assert np.concatenate([labels for _, labels in scored.labelled]).tolist() == (y == 1).tolist()


@pytest.fixture(scope="module")
def mixed_model():
    return fit_in_memory(mixed_table(500).drop(["invoice"]))


def test_model_scores_another_file(tmp_path, mixed_model):
    other = mixed_table(300, seed=1)
    write_csv(other.select(other.column_names[::-1]), tmp_path / "other.csv")

    writer, _, prepared = score_file(tmp_path / "other.csv", mixed_model)

    expected = mixed_model.score(other.drop(["invoice"]))
    assert writer.table["score"].to_pylist() == expected.tolist()
    assert any("'invoice'" in note and "does not use" in note for note in prepared.notes)


@pytest.mark.parametrize(
    ("format_", "advice"),
    [("csv", "pass the number of lines above it to --skip"), ("excel", "from the sheet"), ("", "")],
)
def test_table_without_any_column_may_have_titles(mixed_model, format_, advice):
    source = open_in_memory(pa.table({"Statement": ["a"], "unnamed_2": ["b"]}))
    source.format = format_

    with pytest.raises(TableError, match=rf"are not there; .*{advice}") as caught:
        Pipeline(source).prepare(mixed_model)
    assert ("first line" in str(caught.value)) == bool(advice)


def test_models_of_arrays_expect_no_header():
    source = open_in_memory(pa.table({"Statement": [1.0]}))
    source.format = "csv"

    with pytest.raises(TableError, match=r"with 2\. Select as many with --columns\.$"):
        Pipeline(source).prepare(fit_in_memory(np.arange(60.0).reshape(30, 2) % 7))


def test_table_with_some_columns_has_a_header(mixed_model):
    source = open_in_memory(mixed_table(5).drop(["invoice", mixed_model.encoder.names[0]]))
    source.format = "csv"

    with pytest.raises(TableError, match=r"the model was fitted on\.$"):
        Pipeline(source).prepare(mixed_model)


@pytest.mark.parametrize("engine", [None, Local()])
def test_row_keeps_its_score_in_another_file(tmp_path, engine):
    rng = np.random.default_rng(0)
    days = (np.datetime64("2024-01-01") + rng.integers(0, 300, 200)).astype(datetime)
    amounts = [f"{amount:,.2f}" for amount in rng.normal(1500, 300, 200)]
    lines = [
        f"{day:%d/%m/%Y};{amount.translate(str.maketrans(',.', '.,'))};{kind}"
        for day, amount, kind in zip(days, amounts, rng.choice(["a", "?"], 200), strict=True)
    ]
    lines[7] = "05/04/2024;1.800;a"  # April, and 1800: ambiguous without the other rows
    lines[8] = "25/04/2024;1.800,50;?"
    head = "day;amount;kind"
    for name, rows in {
        "all": lines,
        "one": [lines[7]],
        "missing": [lines[8].replace("?", "")],
    }.items():
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *rows]))
    detection = altbi.detect(
        tmp_path / "all.csv", detector=fast_detector(), missing="?", engine=engine, report=False
    )
    model = detection.model()

    everything = scores_of(tmp_path / "all.csv", model)
    assert scores_of(tmp_path / "one.csv", model) == [everything[7]]
    assert scores_of(tmp_path / "missing.csv", model) == [everything[8]]


def test_model_of_array_selects_columns_by_position(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = fit_in_memory(X)
    write_csv(pa.table({"a": X[:, 0], "id": range(200), "b": X[:, 1]}), tmp_path / "t.csv")

    assert scores_of(tmp_path / "t.csv", model, ids=("id",)) == model.score(X).tolist()
    with pytest.raises(TableError, match=r"3 columns, but the model was fitted on an array with 2"):
        score_file(tmp_path / "t.csv", model)


def test_label_is_compared_and_not_used_for_training(tmp_path):
    table = mixed_table(400).drop(["invoice"])
    label = np.random.default_rng(1).random(400) < 0.2
    write_csv(table.append_column("bad", pa.array(label.astype(int))), tmp_path / "t.csv")

    summary = run(tmp_path / "t.csv", tmp_path / "out", label="bad")

    scores = fit_in_memory(table).score(table)
    precision = average_precision_score(label, scores)
    assert summary.metrics.auc == pytest.approx(roc_auc_score(label, scores), rel=1e-12)
    assert summary.metrics.average_precision == pytest.approx(precision, rel=1e-12)
    assert summary.metrics.outliers == label.sum()
    order = np.argsort(-scores, kind="stable")[:200]
    assert [row.label for row in summary.top] == label[order].tolist()


@pytest.mark.parametrize(
    ("texts", "label"),
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
def test_labels_may_be_written_in_several_ways(tmp_path, texts, label):
    write_csv(pa.table({"x": np.arange(40.0), "bad": texts * 10}), tmp_path / "t.csv")

    _, scored, _ = score_file(tmp_path / "t.csv", label=label)

    assert scored.labelled[0][1].tolist() == [True, False, True] * 10


@pytest.mark.parametrize(
    ("column", "labels", "options", "expected"),
    [
        ("bad", pa.array(["1", "0", "?", "NA"] * 10), {"missing": ("?", "NA")}, [True, False] * 10),
        ("a=b", pa.array([" bad ", "good"] * 20).dictionary_encode(), {}, [True, False] * 20),
    ],
)
def test_labels_of_typed_files(tmp_path, column, labels, options, expected):
    table = pa.table({"x": np.arange(40.0), column: labels})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    label = column if options else f"{column}=bad"

    _, scored, _ = score_file(tmp_path / "t.parquet", label=label, **options)

    assert scored.labelled[0][1].tolist() == expected


@pytest.mark.parametrize(
    "labels", [pa.array([[1], [0]] * 20), pa.array([b"\xff", b"0"] * 20, pa.binary())]
)
def test_labels_that_are_not_text_are_an_error(tmp_path, labels):
    pyarrow.parquet.write_table(pa.table({"x": np.arange(40.0), "bad": labels}), tmp_path / "t.pq")

    with pytest.raises(TableError, match=r"t\.pq: .*'bad'"):
        score_file(tmp_path / "t.pq", label="bad")


def test_invalid_labels_are_found_before_training(tmp_path):
    write_csv(pa.table({"x": [1.0, 2.0], "bad": ["fraud", "fine"]}), tmp_path / "t.csv")
    activities = []

    def record(activity, items, total, size):
        activities.append(activity)
        return items

    source = open_table(tmp_path / "t.csv")
    pipeline = Pipeline(source, ColumnSelection(label="bad"), on_progress=record)
    with pytest.raises(TableError, match=r"\['fraud', 'fine'\].*--label bad=VALUE"):
        pipeline.fit(fast_settings())
    assert activities == ["reading"]


def test_label_is_a_single_column(tmp_path):
    write_csv(pa.table({"x": [1.0, 2.0], "a": [0, 1], "b": [0, 1]}), tmp_path / "t.csv")

    for label in ("a,b", "a,b=1"):
        with pytest.raises(ParameterError, match=r"--label.*'a', 'b'"):
            score_file(tmp_path / "t.csv", label=label)


def test_missing_texts_are_missing_in_every_format(tmp_path):
    words = pa.array((["a", "b", "?"] * 14)[:40])
    table = pa.table({"x": np.arange(40.0), "word": words, "kind": words.dictionary_encode()})
    write_csv(table, tmp_path / "t.csv")
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "t.arrow")

    found = []
    for name in ("t.csv", "t.parquet", "t.arrow"):
        writer, _, prepared = score_file(tmp_path / name, missing=("?",))
        notes = [note for note in prepared.notes if "13 missing" in note]
        found.append((writer.table["score"].to_pylist(), notes))

    assert found[0] == found[1] == found[2]
    assert len(found[0][1]) == 2


def test_columns_are_selected_by_name(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.normal(size=50) for name in ("a", "b", "c,d")})
    write_csv(table, tmp_path / "t.csv")

    def features(**options):
        return create_pipeline(tmp_path / "t.csv", **options).fit(fast_settings()).selected.features

    assert features() == ("a", "b", "c,d")
    assert features(columns=("a,b",)) == ("a", "b")
    assert features(columns=("c,d", "a")) == ("c,d", "a")
    assert features(exclude=("c,d",), ids=("b",)) == ("a",)
    with pytest.raises(ParameterError, match="'c,d'"):
        features(exclude=("c;d",))
    with pytest.raises(ParameterError, match="at least one column"):
        features(exclude=("a", "b", "c,d"))


def test_columns_of_a_model_cannot_be_excluded(tmp_path):
    table = mixed_table(100)
    write_csv(table, tmp_path / "t.csv")
    model = fit_in_memory(table.select(["size", "count"]))

    assert len(scores_of(tmp_path / "t.csv", model, exclude=("colour",))) == 100
    assert len(scores_of(tmp_path / "t.csv", model, columns=("count", "size"))) == 100
    for options in ({"exclude": ("size",)}, {"columns": ("count",)}, {"label": "size=1"}):
        with pytest.raises(ParameterError, match="'size'"):
            score_file(tmp_path / "t.csv", model, **options)
    write_csv(table.drop(["size"]), tmp_path / "other.csv")
    with pytest.raises(TableError, match="'size'"):
        score_file(tmp_path / "other.csv", model)


def test_constant_labels_are_the_first_warning(tmp_path):
    table = {"x": np.arange(40.0), "constant": [1] * 40, "bad": [0] * 40}
    write_csv(pa.table(table), tmp_path / "t.csv")

    summary = run(tmp_path / "t.csv", tmp_path / "out", label="bad")

    assert summary.metrics is None
    assert "'bad': all labels are the same" in summary.notes[0]
    assert len(summary.notes) > 1


def test_kept_columns_are_unchanged(tmp_path):
    (tmp_path / "t.csv").write_text("score,zip\n1.50,007\nNA,010\n2,100\n")

    output = score_file(tmp_path / "t.csv", keep=True)[0].table

    assert output.column_names == ["altbi_row", "altbi_score", "altbi_outlier", "score", "zip"]
    assert output["score"].to_pylist() == ["1.50", "NA", "2"]
    assert output["zip"].to_pylist() == ["007", "010", "100"]


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        (["row", "x"], {"ids": ("row",)}, ["altbi_row", "row", "altbi_score", "altbi_outlier"]),
        (["outlier", "x"], {"ids": ("outlier",)}, None),
        (
            ["x", "score", "altbi_row"],
            {"columns": ("x",), "keep": True},
            [
                "altbi_altbi_row",
                "altbi_altbi_score",
                "altbi_altbi_outlier",
                "x",
                "score",
                "altbi_row",
            ],
        ),
    ],
)
def test_output_names_do_not_clash_with_columns(tmp_path, names, options, expected):
    table = pa.table({name: np.arange(20.0) % (3 + i) for i, name in enumerate(names)})
    write_csv(table, tmp_path / "t.csv")

    output = score_file(tmp_path / "t.csv", **options)[0].table

    expected = expected or ["altbi_row", names[0], "altbi_score", "altbi_outlier"]
    assert output.column_names == expected


@pytest.fixture(scope="module")
def detected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detected")
    table = mixed_table(3000)
    write_csv(table, folder / "t.csv")
    summary = run(folder / "t.csv", folder / "out", report=True, ids=("invoice",), top=50)
    return table, summary, folder / "out"


@pytest.mark.slow
def test_files_agree_with_the_summary(detected):
    table, summary, folder = detected
    text = pyarrow.csv.ConvertOptions(column_types={"invoice": pa.string()})
    scores = pyarrow.csv.read_csv(folder / "scores.csv", convert_options=text)
    reasons = pyarrow.csv.read_csv(folder / "reasons.csv").to_pylist()

    assert sorted(path.name for path in folder.iterdir()) == [
        "duplicates.csv", "model.altbi", "reasons.csv", "report.html", "scores.csv",
    ]  # fmt: skip
    assert scores["invoice"].to_pylist() == table["invoice"].to_pylist()
    assert sum(scores["outlier"].to_pylist()) == summary.flagged
    order = np.argsort(-scores["score"].to_numpy(), kind="stable")[:50]
    assert [row.number for row in summary.top] == order.tolist()
    assert list(dict.fromkeys(record["row"] for record in reasons)) == order.tolist()
    again = altbi.load(folder / "model.altbi").score(table.drop(["invoice"]))
    assert again.tolist() == scores["score"].to_pylist()
    for row in summary.top:
        assert row.ids == (f"{row.number:07}",)
        named = [record["column"] for record in reasons if record["row"] == row.number]
        assert [reason.column for reason in row.reasons] == named


def test_rows_are_explained_in_the_given_order(detected):
    _, _, folder = detected
    pipeline = create_pipeline(folder.parent / "t.csv")
    prepared = pipeline.prepare(altbi.load(folder / "model.altbi"))

    explained = pipeline.explain_at(prepared, [2999, 3, 3])

    records = build_reasons_table(explained, prepared.selected).to_pylist()
    assert list(dict.fromkeys(record["row"] for record in records)) == [2999, 3]
    with pytest.raises(TableError, match=r"row 3000 .* 3000 rows"):
        pipeline.explain_at(prepared, [3000])
    with pytest.raises(TableError, match=r"row -1 does not exist. Rows are counted from 0"):
        pipeline.explain_at(prepared, [3, -1])
    with pytest.raises(ParameterError, match="Pass at least one"):
        pipeline.explain_at(prepared, [])


class FullDisk(CollectingWriter):
    """A writer that can only write one table."""

    def write(self, table):
        if self.tables:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(table)


def test_error_of_the_output_ends_all_threads(tmp_path):
    numbers = np.arange(280_000.0)
    pyarrow.parquet.write_table(pa.table({"x": numbers}), tmp_path / "t.parquet")
    pipeline = create_pipeline(tmp_path / "t.parquet")
    prepared = pipeline.prepare(fit_in_memory(pa.table({"x": numbers[:100]})))
    before = threading.active_count(), count_threads()

    with pytest.raises(OSError, match="No space left"), threadpool_limits(2, "blas"):
        pipeline.score(prepared, FullDisk())

    # The error that pytest keeps refers to the frames of `score`.
    assert (threading.active_count(), count_threads()) == before
    assert _threads._BLAS.n_open == 0


def test_rows_of_later_chunks_are_found(tmp_path):
    numbers = np.arange(66_000.0)
    pyarrow.parquet.write_table(pa.table({"x": numbers}), tmp_path / "t.parquet")
    pipeline = create_pipeline(tmp_path / "t.parquet")
    prepared = pipeline.prepare(fit_in_memory(pa.table({"x": numbers[:100]})))

    explained = pipeline.explain_at(prepared, [65_536, 65_535])

    assert explained.cells["x"].to_pylist() == [65_536, 65_535]


def test_data_checks_become_notes(tmp_path):
    rows = ["n,one,gap,copy", *(f"{i},5,{'' if i % 7 else i},{i % 3}" for i in range(100))]
    (tmp_path / "t.csv").write_text("\n".join(rows))

    def notes(**options):
        return create_pipeline(tmp_path / "t.csv", **options).fit(fast_settings()).notes

    for column in ("'one'", "'gap' has 85 missing", "'n'"):
        assert any(column in note for note in notes())
    assert any("97 of 100 rows" in note for note in notes(exclude=("n", "gap")))


def test_counters_are_found_in_a_sample(tmp_path):
    write_csv(pa.table({"n": np.arange(500) * 3, "x": np.arange(500) % 7}), tmp_path / "t.csv")
    write_csv(pa.table({"n": [1, 2, 3], "x": [5, 1, 4]}), tmp_path / "few.csv")

    found = create_pipeline(tmp_path / "t.csv").fit(fast_settings(max_rows=60)).notes
    few = create_pipeline(tmp_path / "few.csv").fit(fast_settings()).notes

    assert [note for note in found if "'n'" in note and "--exclude" in note]
    assert not [note for note in few if "'n'" in note and "--exclude" in note]


def test_fit_reports_notes_instead_of_warnings(tmp_path):
    table = pa.table({"x": np.arange(60.0) % 7, "t": [f"v{i}" for i in range(60)]})
    write_csv(table, tmp_path / "t")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notes = create_pipeline(tmp_path / "t").fit(fast_settings()).notes
    assert any("'t'" in note and "60" in note for note in notes)


def test_fit_leaves_warning_filters_alone(tmp_path):
    """Filters belong to the process, so two fits at once would restore them in the wrong order."""
    write_csv(pa.table({"x": np.arange(60.0) % 7}), tmp_path / "t")
    before, seen = list(warnings.filters), []

    def record(activity, items, total, size):
        for item in items:
            seen.append(list(warnings.filters) == before)
            yield item

    pipeline = Pipeline(open_table(tmp_path / "t"), on_progress=record)
    pipeline.score(pipeline.fit(fast_settings()))

    assert len(seen) > 3
    assert all(seen)


def test_notes_of_file_types_and_drift_are_combined(tmp_path):
    rows = [f"{i % 5}.5;{'red' if i % 2 else 'blue'}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["size;", *rows]))
    prepared = create_pipeline(tmp_path / "t.csv").fit(fast_settings())
    assert any("unnamed_2" in note for note in prepared.notes)

    rows = [f"({i % 5}.5);green" for i in range(60)]
    (tmp_path / "new.csv").write_text("\n".join(["size;unnamed_2", *rows]))
    pipeline = create_pipeline(tmp_path / "new.csv")
    prepared = pipeline.prepare(prepared.model)
    scored = pipeline.score(prepared)
    explained = pipeline.explain_top(prepared, scored)
    notes = " ".join(pipeline.summarize(prepared, scored, explained).notes)
    assert "Numbers in parentheses are negative" in notes
    assert "'unnamed_2' (60" in notes


def test_random_state_must_be_an_integer(tmp_path):
    write_csv(pa.table({"x": [1.0, 2.0, 3.0]}), tmp_path / "t.csv")

    with pytest.raises(ParameterError, match="expected an integer"):
        create_pipeline(tmp_path / "t.csv").fit(fast_settings(random_state=None))


def test_arrays_next_to_the_table_are_not_unused_columns(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 2))
    np.savez(tmp_path / "t.npz", X=X, y=np.zeros(50))
    fitted = create_pipeline(tmp_path / "t.npz").fit(fast_settings())

    prepared = create_pipeline(tmp_path / "t.npz").prepare(fitted.model)

    assert fitted.selected.features == ("x0", "x1")
    assert not [note for note in prepared.notes if "does not use" in note]


@pytest.mark.parametrize(
    ("text", "message"), [("x\n1\ninf\n", "'x' contains infinity"), ("x,y\n1,2\n3\n", r"t\.csv")]
)
def test_errors_name_the_table_once(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)

    with pytest.raises(TableError, match=message) as caught:
        create_pipeline(tmp_path / "t.csv").fit(fast_settings())

    assert str(caught.value).startswith(str(tmp_path / "t.csv"))
    assert str(caught.value).count(str(tmp_path)) == 1


def test_infinity_is_reported_with_its_row(tmp_path):
    values = np.zeros(70_000, dtype=np.float32)
    values[69_999] = np.inf
    pyarrow.parquet.write_table(pa.table({"x": values}), tmp_path / "t.parquet")
    model = fit_in_memory(pa.table({"x": np.arange(50.0)}))

    pipeline = create_pipeline(tmp_path / "t.parquet")
    with pytest.raises(TableError, match="'x' contains infinity, first in row 69999"):
        pipeline.fit(fast_settings())
    with pytest.raises(TableError, match="'x' contains infinity, first in row 69999"):
        pipeline.score(pipeline.prepare(model))


@pytest.mark.parametrize(("write", "n_passes"), [(pyarrow.parquet.write_table, 1), (write_csv, 2)])
def test_scoring_reads_a_table_with_types_once(tmp_path, monkeypatch, write, n_passes):
    write(pa.table({"x": np.arange(50.0)}), tmp_path / "t")
    pipeline = create_pipeline(tmp_path / "t")
    read, passes = pipeline.source.batches, []
    monkeypatch.setattr(
        pipeline.source, "batches", lambda columns: passes.append(columns) or read(columns)
    )

    prepared = pipeline.prepare(fit_in_memory(pa.table({"x": np.arange(50.0)})))
    scored = pipeline.score(prepared)

    assert len(passes) == n_passes
    assert (prepared.n_rows, scored.n_rows) == (50, 50)


def test_stream_without_number_of_rows_is_counted(tmp_path):
    write_stream(pa.table({"x": np.arange(50.0)}), tmp_path / "t.arrow")
    pipeline = create_pipeline(tmp_path / "t.arrow")

    prepared = pipeline.prepare(fit_in_memory(pa.table({"x": np.arange(50.0)})))

    assert (pipeline.source.n_rows, prepared.n_rows) == (None, 50)


def test_files_of_other_runs_are_not_left_in_the_folder(tmp_path):
    pyarrow.parquet.write_table(pa.table({"x": np.arange(60) % 7}), tmp_path / "t.parquet")
    pipeline = create_pipeline(tmp_path / "t.parquet")
    settings, out = fast_settings(), tmp_path / "out"

    pipeline.run(settings, out, "parquet", report=False)
    pipeline.run(settings, out, "parquet", report=False)
    with pytest.raises(ParameterError, match=r"scores\.parquet: it belongs to another run"):
        pipeline.run(settings, out, "csv", report=False)
    (out / "report.html").write_text("old")
    with pytest.raises(ParameterError, match=r"report\.html: it belongs to another run"):
        pipeline.run(settings, out, "parquet", report=False)


def test_distributed_and_plain_scores_do_not_mix(tmp_path):
    pyarrow.parquet.write_table(pa.table({"x": np.arange(60) % 7}), tmp_path / "t.parquet")
    source, settings = open_table(tmp_path / "t.parquet"), fast_settings()
    plain, partitioned = Pipeline(source), DistributedPipeline(source, ColumnSelection(), Local())

    plain.run(settings, tmp_path / "plain", report=False)
    with pytest.raises(ParameterError, match=r"scores\.csv: it belongs to another run"):
        partitioned.run(settings, tmp_path / "plain", report=False)
    partitioned.run(settings, tmp_path / "partitions", report=False)
    with pytest.raises(ParameterError, match="scores: it belongs to another run"):
        plain.run(settings, tmp_path / "partitions", report=False)


def test_columns_that_cannot_be_written_are_an_error(tmp_path):
    table = pa.table({"x": np.arange(40.0), "list": [[1]] * 40})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    pipeline = create_pipeline(tmp_path / "t.parquet", columns=("x",), keep=True)

    with pytest.raises(TableError, match=r"'list'.* csv files"):
        pipeline.run(fast_settings(), tmp_path / "out", report=False)
    # Ids are also written to reasons.csv.
    pipeline = create_pipeline(tmp_path / "t.parquet", columns=("x",), ids=("list",))
    with pytest.raises(TableError, match=r"'list'.* csv files"):
        pipeline.run(fast_settings(), tmp_path / "out", "parquet", report=False)

    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_query_has_scores_of_table_in_memory(tmp_path):
    table = mixed_table(400)
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
    features = table.drop(["invoice"])
    model = fit_in_memory(features, random_state=7)

    pipeline = Pipeline(
        open_sql(f"select * from '{tmp_path}/table.parquet'"), ColumnSelection(ids=("invoice",))
    )
    writer = CollectingWriter()
    pipeline.score(pipeline.fit(fast_settings(random_state=7)), writer)

    assert writer.table["score"].to_pylist() == model.score(features).tolist()
    assert writer.table["invoice"].to_pylist() == table["invoice"].to_pylist()


def test_total_in_an_id_column_is_reported(tmp_path):
    rows = "".join(f"i{number},{number % 7}.5\n" for number in range(60))
    (tmp_path / "t.csv").write_text(f"invoice,amount\n{rows}Total,210\n")

    for options in ({"id": "invoice"}, {"columns": "invoice,amount"}):
        detection = altbi.detect(tmp_path / "t.csv", detector=fast_detector(), **options)
        notes = [note for note in detection.summary.notes if "seems to be a total" in note]
        assert notes == [
            "Row 60 (counted from 0) seems to be a total of the rows above it ('Total'). Remove it "
            "from the file if so."
        ]


def write_formulas(folder):
    """Write a table whose ids look like quoted formulas; the last row is an outlier."""
    ids = [f"'=1+{number}" for number in range(40)]
    sizes = [*(float(number % 7) for number in range(39)), 999.0]
    write_csv(pa.table({"key": ids, "size": sizes, "weight": sizes}), folder / "formulas.csv")
    return folder / "formulas.csv"


@pytest.mark.parametrize(("raw", "text"), [(False, "''=1+39"), (True, "'=1+39")])
def test_raw_files_have_formulas_unchanged(tmp_path, raw, text):
    path = write_formulas(tmp_path)

    found = altbi.detect(path, tmp_path / "out", id="key", raw=raw, detector=fast_detector())

    for name in ("scores.csv", "reasons.csv"):
        written = pyarrow.csv.read_csv(tmp_path / "out" / name)
        column = next(each for each in written.column_names if "key" in each)
        assert text in written[column].to_pylist()
    assert found.to_pandas()["key"].iloc[39] == "'=1+39"
