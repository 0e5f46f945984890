import json
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from sklearn.datasets import load_breast_cancer

import altbi
from altbi import OutlierDetector
from altbi._demo import create_table, run_demo
from altbi.cli import main
from altbi.cli._printing import print_demo
from altbi.errors import TableError


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return run_demo(tmp_path_factory.mktemp("demo") / "new" / "folder")


def to_set(rows):
    return {tuple(row) for row in rows}


def measurements(table):
    return np.column_stack([column.to_numpy() for column in table.drop(["diagnosis"]).columns])


def is_malignant(table):
    return np.array(table["diagnosis"].to_pylist()) == "malignant"


def test_table_has_benign_and_ten_malignant_rows():
    data = load_breast_cancer()
    table = create_table(seed=0)
    rows, malignant = measurements(table), is_malignant(table)

    assert table.shape == (367, 31)
    assert table.column_names == [*data.feature_names, "diagnosis"]
    assert to_set(rows[~malignant]) == to_set(data.data[data.target == 1])
    assert len(to_set(rows[malignant])) == 10
    assert to_set(rows[malignant]) <= to_set(data.data[data.target == 0])


def test_missing_data_file_is_named(monkeypatch):
    monkeypatch.setattr("altbi._demo.find_spec", lambda name: None)

    with pytest.raises(TableError, match=r"breast_cancer\.csv is missing"):
        create_table(seed=0)


def test_seed_determines_the_table():
    first, again, other = create_table(seed=0), create_table(seed=0), create_table(seed=1)

    assert first.equals(again)
    assert (is_malignant(first) != is_malignant(other)).any()
    rows, others = (
        measurements(first)[is_malignant(first)],
        measurements(other)[is_malignant(other)],
    )
    assert to_set(rows) != to_set(others)


@pytest.mark.slow
def test_demo_has_the_scores_of_the_detector(demo):
    table = create_table(seed=0)
    rows = table.drop(["diagnosis"])
    detector = OutlierDetector().fit(rows)
    scores = detector.outlier_score(rows)
    order = np.argsort(-scores, kind="stable")

    assert [row.number for row in demo.summary.top] == order[:200].tolist()
    assert [row.score for row in demo.summary.top] == scores[order[:200]].tolist()
    assert demo.summary.flagged == (detector.predict(rows) == -1).sum()
    assert demo.in_top_ten == is_malignant(table)[order[:10]].sum()
    assert demo.in_top_twenty == is_malignant(table)[order[:20]].sum()
    assert "diagnosis" not in [column.name for column in demo.summary.columns]


@pytest.mark.slow
def test_malignant_rows_have_high_scores(demo):
    assert 4 <= demo.in_top_ten <= demo.in_top_twenty <= demo.malignant == 10


def test_reasons_have_values_of_the_table(demo):
    table = create_table(seed=0)

    for row in demo.summary.top[:10]:
        assert row.reasons
        for reason in row.reasons:
            value = table[reason.column][row.number].as_py()
            assert float(reason.value) == pytest.approx(value, rel=1e-5)


def test_similar_rows_are_rows_of_the_table(demo):
    table = create_table(seed=0)
    column = demo.summary.shown_columns.index("mean radius")
    radii = {f"{radius:.5g}" for radius in table["mean radius"].to_pylist()}

    for row in demo.summary.top[:10]:
        assert len(row.nearest) == 3
        assert {f"{float(values[column]):.5g}" for values in row.nearest} <= radii


def test_demo_writes_all_files(demo):
    assert [Path(file).name for file in demo.files] == [
        "biopsies.csv", "scores.csv", "reasons.csv", "duplicates.csv", "model.altbi", "report.html",
    ]  # fmt: skip
    folder = Path(demo.files[0]).parent
    assert {path.name for path in folder.iterdir()} == {Path(file).name for file in demo.files}
    scores = pyarrow.csv.read_csv(folder / "scores.csv")
    assert scores.column_names == ["row", "score", "outlier"]
    again = altbi.load(folder / "model.altbi").score(create_table(0).drop(["diagnosis"]))
    assert scores["score"].to_pylist() == again.tolist()
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_text_has_the_numbers(demo, capsys):
    print_demo(demo)
    text = capsys.readouterr().out

    assert max(map(len, text.splitlines())) <= 100 or any(len(file) > 90 for file in demo.files)
    assert text.endswith("\n")
    words = " ".join(text.split())
    assert "367 breast biopsies" in words
    assert f"{demo.in_top_ten} are malignant" in words
    assert f"of the first twenty, {demo.in_top_twenty}" in words
    assert "not used for training" in words
    assert all(file in text for file in demo.files)


@pytest.mark.slow
def test_command_prints_json(capsys, tmp_path):
    assert main(["demo", "--json", "--seed", "3", "--output", str(tmp_path / "out")]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] == 367
    assert facts["in_top_ten"] <= facts["in_top_twenty"] <= 10
    assert [Path(file).exists() for file in facts["files"]] == [True] * 6
