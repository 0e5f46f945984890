import json
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from sklearn.datasets import load_breast_cancer

from altbi import ALTBI
from altbi._demo import biopsies, run
from altbi.cli import main
from altbi.cli._output import format_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return run(tmp_path_factory.mktemp("demo") / "new" / "folder")


def as_set(rows):
    return {tuple(row) for row in rows}


def measurements(table):
    return np.column_stack([column.to_numpy() for column in table.drop(["diagnosis"]).columns])


def is_malignant(table):
    return np.array(table["diagnosis"].to_pylist()) == "malignant"


def test_the_table_holds_all_benign_rows_and_ten_malignant_ones():
    data = load_breast_cancer()
    table = biopsies(seed=0)
    rows, malignant = measurements(table), is_malignant(table)

    assert table.shape == (367, 31)
    assert table.column_names == [*data.feature_names, "diagnosis"]
    assert as_set(rows[~malignant]) == as_set(data.data[data.target == 1])
    assert len(as_set(rows[malignant])) == 10
    assert as_set(rows[malignant]) <= as_set(data.data[data.target == 0])


def test_the_seed_sets_the_malignant_rows_and_their_places():
    first, again, other = biopsies(seed=0), biopsies(seed=0), biopsies(seed=1)

    assert first.equals(again)
    assert (is_malignant(first) != is_malignant(other)).any()
    rows, others = (
        measurements(first)[is_malignant(first)],
        measurements(other)[is_malignant(other)],
    )
    assert as_set(rows) != as_set(others)


def test_it_finds_what_the_plain_detector_finds_without_the_diagnoses(demo):
    table = biopsies(seed=0)
    rows = table.drop(["diagnosis"])
    detector = ALTBI().fit(rows)
    scores = detector.outlier_score(rows)
    order = np.argsort(-scores, kind="stable")

    assert [row.number for row in demo.summary.top] == order[:200].tolist()
    assert [row.score for row in demo.summary.top] == scores[order[:200]].tolist()
    assert demo.summary.flagged == (detector.predict(rows) == -1).sum()
    assert demo.in_top_ten == is_malignant(table)[order[:10]].sum()
    assert demo.in_top_twenty == is_malignant(table)[order[:20]].sum()
    assert "diagnosis" not in [column.name for column in demo.summary.columns]


def test_malignant_rows_come_first_far_more_often_than_by_chance(demo):
    assert 4 <= demo.in_top_ten <= demo.in_top_twenty <= demo.malignant == 10


def test_clues_quote_the_table(demo):
    table = biopsies(seed=0)

    for row in demo.summary.top[:10]:
        assert row.reasons
        for clue in row.reasons:
            value = table[clue.column][row.number].as_py()
            assert float(clue.value) == pytest.approx(value, rel=1e-5)


def test_rows_stand_beside_benign_or_malignant_rows_of_the_table(demo):
    table = biopsies(seed=0)
    place = demo.summary.shown_columns.index("mean radius")
    radii = {f"{radius:.5g}" for radius in table["mean radius"].to_pylist()}

    for row in demo.summary.top[:10]:
        assert len(row.nearest) == 3
        assert {f"{float(cells[place]):.5g}" for cells in row.nearest} <= radii


def test_it_writes_table_scores_reasons_model_and_page(demo):
    assert [Path(file).name for file in demo.files] == [
        "biopsies.csv", "scores.csv", "reasons.csv", "model.altbi", "report.html",
    ]  # fmt: skip
    folder = Path(demo.files[0]).parent
    assert {path.name for path in folder.iterdir()} == {Path(file).name for file in demo.files}
    scores = pyarrow.csv.read_csv(folder / "scores.csv")
    assert scores.column_names == ["row", "score", "outlier"]
    again = ALTBI.load(folder / "model.altbi").outlier_score(biopsies(0).drop(["diagnosis"]))
    assert scores["score"].to_pylist() == again.tolist()
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_the_text_fits_a_terminal_and_tells_the_numbers(demo):
    text = format_demo(demo)

    assert max(map(len, text.splitlines())) <= 100 or any(len(file) > 90 for file in demo.files)
    assert text.endswith("\n")
    words = " ".join(text.split())
    assert "367 breast biopsies" in words
    assert f"{demo.in_top_ten} are malignant" in words
    assert f"of the first twenty, {demo.in_top_twenty}" in words
    assert "not used for training" in words
    assert all(file in text for file in demo.files)


def test_the_command_says_it_as_json(capsys, tmp_path):
    assert main(["demo", "--json", "--seed", "3", "--output", str(tmp_path / "out")]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] == 367
    assert facts["in_top_ten"] <= facts["in_top_twenty"] <= 10
    assert [Path(file).exists() for file in facts["files"]] == [True] * 5
