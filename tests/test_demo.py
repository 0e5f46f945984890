import json
from dataclasses import asdict

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from altbi import ALTBI
from altbi.demo import biopsies, render, run


@pytest.fixture(scope="module")
def demo():
    return run()


def as_set(rows):
    return {tuple(row) for row in rows}


def test_the_table_holds_all_benign_rows_and_ten_malignant_ones():
    data = load_breast_cancer()
    table, malignant = biopsies(seed=0)
    rows = np.column_stack([column.to_numpy() for column in table.columns])

    assert table.shape == (367, 30)
    assert table.column_names == list(data.feature_names)
    assert as_set(rows[~malignant]) == as_set(data.data[data.target == 1])
    assert len(as_set(rows[malignant])) == 10
    assert as_set(rows[malignant]) <= as_set(data.data[data.target == 0])


def test_the_seed_sets_the_malignant_rows_and_their_places():
    first, places = biopsies(seed=0)
    again, _ = biopsies(seed=0)
    other, other_places = biopsies(seed=1)

    assert first.equals(again)
    assert (places != other_places).any()
    malignant, other_malignant = first.filter(places), other.filter(other_places)
    assert set(malignant["mean radius"].to_pylist()) != set(
        other_malignant["mean radius"].to_pylist()
    )


def test_it_shows_what_the_plain_detector_finds(demo):
    table, malignant = biopsies(seed=0)
    detector = ALTBI().fit(table)
    scores = detector.anomaly_score(table)
    order = np.argsort(-scores, kind="stable")

    assert [finding.row for finding in demo.top] == order[:10].tolist()
    np.testing.assert_allclose([finding.score for finding in demo.top], scores[order[:10]])
    assert demo.flagged == (detector.predict(table) == -1).sum()
    assert demo.flagged_malignant == malignant[detector.predict(table) == -1].sum()
    assert demo.in_top_twenty == malignant[order[:20]].sum()


def test_malignant_rows_come_first_far_more_often_than_by_chance(demo):
    assert demo.in_top_ten == sum(finding.malignant for finding in demo.top)
    assert 4 <= demo.in_top_ten <= demo.in_top_twenty <= demo.malignant == 10


def test_clues_quote_the_table(demo):
    table, _ = biopsies(seed=0)

    for finding in demo.top:
        assert len({clue.column for clue in finding.clues}) == 3
        for clue in finding.clues:
            assert clue.value == table[clue.column][finding.row].as_py()
            assert np.isfinite(clue.expected)


def test_the_text_fits_a_terminal_and_tells_the_numbers(demo):
    text = render(demo)

    assert max(map(len, text.splitlines())) <= 100
    assert text.endswith("\n")
    words = " ".join(text.split())
    assert f"{demo.rows} breast biopsies" in words
    assert f"{demo.in_top_ten} are malignant" in words
    assert f"flags {demo.flagged} rows" in words
    assert "not used for training" in words
    assert all(clue.column in text for finding in demo.top for clue in finding.clues)


def test_the_result_is_plain_json(demo):
    assert json.loads(json.dumps(asdict(demo), allow_nan=False))["rows"] == 367
