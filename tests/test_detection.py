import csv
import gc
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import altbi
from altbi.distributed import Local
from altbi.errors import MissingExtraError, ParameterError, TableError, TableWarning
from small_tables import fast_altbi, fast_detector, fast_settings


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    size = rng.normal(size=120)
    size[17] = 400.0
    weight = rng.normal(size=120)
    weight[[90, 91]] = 25.0, 30.0
    return pa.table(
        {
            "key": [f"{i:03}" for i in range(120)],
            "size": size,
            "weight": weight,
            "bad": (np.arange(120) == 17).astype(int),
        }
    )


@pytest.fixture(scope="module")
def features(table):
    return table.select(["size", "weight"])


@pytest.fixture(scope="module")
def scores(features):
    return fast_detector().fit(features).outlier_score(features)


def test_duplicates_are_read_with_their_ids(table):
    rows = table.to_pylist()
    rows[90] = rows[30] | {"key": "=1+1"}

    found = detect(pa.Table.from_pylist(rows), id="key", exclude="bad").duplicates()

    assert found["row"].to_pylist() == [30, 90]
    assert found["id_key"].to_pylist() == ["030", "=1+1"]
    assert set(found["kind"].to_pylist()) == {"same row"}


@pytest.mark.parametrize("duplicates", [-1, 2.5, None, "all"])
def test_wrong_number_of_checked_rows_is_refused(table, duplicates):
    with pytest.raises(ParameterError, match="duplicates="):
        detect(table, duplicates=duplicates)


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """Let temporary folders be created in a folder of the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def detect(table, *arguments, **options):
    options = {"detector": fast_detector(), "report": False} | options
    return altbi.detect(table, *arguments, **options)


@pytest.mark.parametrize(
    "convert", [lambda t: t, lambda t: t.to_pandas(), pl.from_arrow, lambda t: t.to_pandas().values]
)
def test_tables_in_memory_have_equal_scores(features, scores, convert):
    detection = detect(convert(features))

    assert detection.scores()["score"].to_pylist() == scores.tolist()
    assert detection.n_rows == 120
    assert detection.top[0].number == 17
    assert repr(detection) == f"Detection of {detection.n_flagged} outliers among 120 rows"


def write_arrow(table, path):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("write", [None, pyarrow.parquet.write_table, write_arrow])
def test_string_views_are_read_like_texts(table, tmp_path, write):
    kinds = pa.array(["?", "red", "green", "blue"] * 30)
    texts = {"key": table["key"], "kind": kinds, "size": table["size"]}
    options = {"id": "key", "missing": "?"}
    views = {name: texts[name].cast(pa.string_view()) for name in ("key", "kind")}
    views = pa.table(texts | views)
    if write is not None:
        write(views, tmp_path / "t")

    found = detect(views if write is None else tmp_path / "t", **options)

    expected = detect(pa.table(texts), **options)
    assert found.scores().equals(expected.scores())
    assert found.scores()["key"].to_pylist() == table["key"].to_pylist()
    assert found.summary.columns == expected.summary.columns
    assert found.summary.columns[1].missing == 0.25


def test_polars_categories_are_read_like_texts(table):
    kinds = pl.Series("kind", ["red", "green", "blue"] * 40)
    frame = pl.DataFrame([kinds, pl.Series("size", table["size"].to_numpy())])

    found = detect(frame.with_columns(pl.col("kind").cast(pl.Categorical)), keep_columns=True)

    assert found.scores()["score"].equals(detect(frame).scores()["score"])
    assert found.scores()["kind"].to_pylist() == kinds.to_list()


@pytest.mark.parametrize("convert", [Path, str, altbi.open_table])
def test_files_have_the_scores_of_their_table(features, scores, tmp_path, convert):
    pyarrow.csv.write_csv(features, tmp_path / "t.csv")

    detection = detect(convert(str(tmp_path / "t.csv")))

    assert detection.scores()["score"].to_pylist() == scores.tolist()
    assert detection.summary.table == str(tmp_path / "t.csv")


@pytest.mark.parametrize("format_", ["csv", "parquet", "arrow", "jsonl"])
def test_every_scores_format_can_be_read(table, tmp_path, format_):
    detection = detect(table, tmp_path / "out", id="key", scores_format=format_, label="bad")

    found = detection.scores()

    assert (tmp_path / "out" / f"scores.{format_}").is_file()
    assert found.column_names == ["row", "key", "score", "outlier"]
    assert found["row"].to_pylist() == list(range(120))
    assert found["key"].to_pylist() == table["key"].to_pylist()
    assert sum(found["outlier"].to_pylist()) == detection.n_flagged


def test_flagged_rows_are_sorted_by_score(features, scores):
    detection = detect(features, detector=fast_detector(contamination=0.1))

    flagged = detection.flagged()

    assert flagged["row"].to_pylist() == np.argsort(-scores)[:12].tolist()
    assert flagged["score"].to_pylist() == sorted(scores, reverse=True)[:12]
    assert all(flagged["outlier"].to_pylist())
    assert flagged["score"].to_pylist()[-1] > detection.threshold


def test_flagged_finds_columns_with_a_prefix(table):
    renamed = table.rename_columns(["credit_score", "score", "outlier", "row"])

    detection = detect(renamed, id="credit_score", exclude="row", keep_columns=True)

    flagged = detection.flagged()
    assert flagged.column_names[:4] == ["altbi_row", "credit_score", "altbi_score", "altbi_outlier"]
    assert flagged["altbi_row"][0].as_py() == 17
    assert len(flagged) == detection.n_flagged


def test_ids_stay_as_they_are_in_the_table(table):
    detection = detect(table, id="key", exclude=["bad"])

    assert detection.scores()["key"].to_pylist() == table["key"].to_pylist()
    assert detection.top[0].ids == ("017",)
    assert detection.reasons()["id_key"][0].as_py() == "017"


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.dictionary("i1", "string")])
@pytest.mark.parametrize("text", ["{:03}", "2020-01-01 00:00:{:02}"])
def test_text_ids_of_all_types_stay_text(table, format_, type_, text):
    keys = pa.array([text.format(number % 60) for number in range(120)])
    ids = keys.dictionary_encode().cast(type_) if "dict" in str(type_) else keys.cast(type_)

    found = detect(table.set_column(0, "key", ids), id="key", scores_format=format_).scores()

    assert found["key"].to_pylist() == keys.to_pylist()
    assert found.column_names == ["row", "key", "score", "outlier"]


def test_texts_with_newlines_are_read_from_csv(table):
    keys = [f"{number}\n" * 5_000 for number in range(120)]

    found = detect(table.set_column(0, "key", [keys]), id="key")

    assert found.scores()["key"].to_pylist() == keys
    assert found.scores()["row"].to_pylist() == list(range(120))


HOSTILE = {"=key": ["=1+1", "'=1", "'a", "-5", "\t@x", "plain"] * 20, "@kind": ["-x", "+y"] * 60}
HOSTILE["-code"] = ["007", "008"] * 60


@pytest.mark.parametrize("format_", ["csv", "parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("raw", [False, True])
def test_formulas_are_read_back_unchanged(table, tmp_path, format_, raw):
    hostile = pa.table({**HOSTILE, "=size": table["size"]})
    options = {"id": "=key", "keep_columns": True, "scores_format": format_, "raw": raw}

    detection = detect(hostile, tmp_path / "out", **options)

    assert detection.scores().drop(["row", "score", "outlier"]) == hostile
    assert detection.flagged()["=key"][0].as_py() == detection.top[0].ids[0]
    reasons = detection.reasons().to_pylist()
    assert reasons[0]["id_=key"] == detection.top[0].ids[0] == "plain"
    assert reasons[0]["column"] == "=size"
    assert {reason["value"] for reason in reasons if reason["column"] == "@kind"} <= {"-x", "+y"}


@pytest.mark.parametrize("raw", [False, True])
def test_only_raw_files_have_formulas(table, tmp_path, raw):
    hostile = pa.table({**HOSTILE, "=size": table["size"]})

    detect(hostile, tmp_path / "out", id="=key", keep_columns=True, raw=raw)

    for name in ("scores.csv", "reasons.csv"):
        rows = csv.reader((tmp_path / "out" / name).open(newline="", encoding="utf-8"))
        cells = {cell for row in rows for cell in row}
        assert bool({cell for cell in cells if cell[:1] in "=@\t"} - {""}) == raw
        assert ("=1+1" in cells, "'=1+1" in cells) == (raw, not raw)


def test_reasons_keep_column_names_of_digits(table):
    detection = detect(pa.table({"2019": table["size"], "2020": table["weight"]}))

    assert set(detection.reasons()["column"].to_pylist()) <= {"2019", "2020"}


def test_reasons_name_the_unusual_values(table):
    reasons = detect(table, columns=["size", "weight"], top=3).reasons()

    assert reasons["row"].unique().to_pylist()[0] == 17
    first = reasons.to_pylist()[0]
    assert (first["column"], first["value"], first["reason"]) == ("size", "400", 1)
    assert abs(float(first["expected"])) < 5
    assert reasons["value"].type == reasons["nearest_1"].type == pa.string()
    assert len(reasons["row"].unique()) == 3


@pytest.mark.parametrize("n_constant", [1, 2])
def test_warnings_about_the_data_are_notes(table, n_constant, recwarn):
    for number in range(n_constant):
        table = table.append_column(f"constant {number}", pa.array([1] * len(table)))

    detection = detect(table, id="key", exclude="bad")

    assert [note.split(" holds")[0] for note in detection.notes] == [
        f"Column 'constant {number}'" for number in range(n_constant)
    ]
    assert repr(detection).endswith(
        ["(1 warning in notes)", "(2 warnings in notes)"][n_constant - 1]
    )
    assert not [each for each in recwarn if issubclass(each.category, TableWarning)]


def test_label_is_compared_with_the_scores(table):
    detection = detect(table, id="key", label="bad")

    assert detection.summary.metrics.outliers == 1
    assert detection.summary.metrics.auc == 1.0
    assert {column.name for column in detection.summary.columns} == {"size", "weight"}


def test_missing_texts_become_missing_values(tmp_path):
    rows = [f"{i % 7},{'gone' if i % 10 == 0 else i % 3}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows]))

    kinds = {column.name: column for column in detect(tmp_path / "t.csv").summary.columns}
    treated = {
        column.name: column for column in detect(tmp_path / "t.csv", missing="gone").summary.columns
    }

    assert (kinds["b"].kind, kinds["b"].missing) == ("category", 0)
    assert (treated["b"].kind, treated["b"].missing) == ("number", 0.1)


def test_model_scores_like_the_detection(features, scores):
    detection = detect(features)

    assert detection.model().score(features).tolist() == scores.tolist()
    assert detection.model().threshold == detection.threshold


def test_pandas_index_is_kept(features):
    frame = features.to_pandas().set_axis([f"row {i}" for i in range(120)], axis=0)

    found = detect(frame).to_pandas()

    assert found.index.equals(frame.index)
    assert found["score"].idxmax() == "row 17"
    assert list(detect(features).to_pandas().index) == list(range(120))
    assert isinstance(found, pd.DataFrame)


def test_missing_pandas_is_named(features, monkeypatch):
    detection = detect(features)
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(MissingExtraError, match=r"^'pandas' is not .*: pip install pandas$"):
        detection.to_pandas()


@pytest.mark.slow
def test_temporary_folder_is_removed_with_the_object(features, temporary_folder):
    detection = detect(features)
    folder = detection.folder
    assert folder.parent.parent == temporary_folder
    assert {path.name for path in folder.iterdir()} == {
        "duplicates.csv", "model.altbi", "reasons.csv", "scores.csv",
    }  # fmt: skip

    del detection
    gc.collect()

    assert not folder.parent.exists()


@pytest.mark.slow
def test_output_folder_outlives_the_object(features, tmp_path, temporary_folder):
    detect(features, tmp_path / "out")
    gc.collect()

    assert (tmp_path / "out" / "scores.csv").exists()
    assert not any(temporary_folder.iterdir())


@pytest.mark.slow
def test_report_is_written_by_default(features, temporary_folder):
    detection = altbi.detect(features, detector=fast_detector(), command="my command")

    assert detection.report == detection.folder / "report.html"
    assert "my command" in detection.report.read_text()
    assert detect(features).report is None


def test_failed_detection_leaves_no_folder(tmp_path, temporary_folder):
    infinite = pa.table({"x": [1.0, 2.0, np.inf]})

    with pytest.raises(TableError, match="infinity"):
        detect(infinite)
    with pytest.raises(TableError, match="infinity"):
        detect(infinite, tmp_path / "out")

    assert not any(temporary_folder.iterdir())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [{"detector": "ALTBI"}, {"scores_format": "xlsx"}, {"columns": "height"}, {"top": 0}],
)
def test_invalid_options_are_parameter_errors(features, temporary_folder, options):
    with pytest.raises(ParameterError):
        detect(features, **options)
    assert not any(temporary_folder.iterdir())


@pytest.mark.parametrize("detector", [fast_altbi(), fast_settings(random_state=3)])
def test_detector_may_be_estimator_or_settings(features, detector):
    detection = detect(features, detector=detector)

    expected = "loss" if isinstance(detector, altbi.ALTBI) else "distance"
    assert detection.summary.score_by == expected


@pytest.mark.slow
def test_engine_writes_a_folder_of_scores(table, tmp_path):
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    options = {"id": "key", "label": "bad"}

    plain = detect(tmp_path / "t.parquet", **options)
    partitioned = detect(tmp_path / "t.parquet", tmp_path / "out", engine=Local(), **options)

    assert (tmp_path / "out" / "scores").is_dir()
    assert partitioned.scores().equals(plain.scores())
    assert partitioned.flagged().equals(plain.flagged())
    assert partitioned.reasons().equals(plain.reasons())


@pytest.mark.parametrize("scores_format", ["csv", "jsonl"])
def test_dates_beyond_python_are_reported(tmp_path, scores_format):
    days = pa.array([0] * 40 + [2**31 - 1], pa.int32()).cast(pa.date32())
    table = pa.table({"size": np.arange(41.0), "day": days})

    detection = altbi.detect(
        table, tmp_path / "out", keep_columns=True, scores_format=scores_format, top=41
    )

    assert "2147483647 d" in (tmp_path / "out" / "report.html").read_text()
    assert detection.n_rows == 41
