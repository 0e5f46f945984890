import numpy as np
import pyarrow as pa
import pytest
from model_files import FAST

from altbi import ALTBI, OutlierDetector
from altbi.errors import TableError
from altbi.io import ScanResult
from altbi.model import _fit
from altbi.model._fit import check_data
from altbi.table import as_table
from altbi.torch import PrivacyBudget


def check(table, rows=None, **parameters):
    """Return the warnings about a sample of these rows."""
    sample = as_table(table)
    rows = np.arange(len(sample)) if rows is None else rows
    found = ScanResult(len(sample), None, sample, rows, ("a note of the first pass",))
    model = ALTBI(schedule=FAST, **parameters).fit(table).model_
    return list(check_data(found, model))


def test_properties_of_sample_are_reported():
    table = pa.table(
        {
            "one": [5] * 100,
            "holed": [None if row % 7 else float(row) for row in range(100)],
            "repeated": [row % 3 for row in range(100)],
        }
    )
    assert check(table)[0] == "a note of the first pass"
    warnings = " ".join(check(table))
    assert "'one' holds a single value" in warnings
    assert "'holed' has 85 missing values (85.00%)" in warnings
    assert "82 of 100 rows of the training sample (82.00%) are duplicates" in warnings
    assert "rises by the same step" not in warnings


@pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")
def test_unique_texts_are_reported():
    warnings = check(pa.table({"key": [f"id-{row}" for row in range(50)], "x": np.arange(50) % 7}))
    assert any("'key' holds 50 different texts" in warning for warning in warnings)


@pytest.mark.parametrize(("n_rows", "is_reported"), [(60, True), (9, False)])
def test_row_counters_are_reported(n_rows, is_reported):
    rows = np.sort(np.random.default_rng(0).choice(500, n_rows, replace=False))
    warnings = check(pa.table({"n": rows * 3, "x": rows**2 % 7}), rows)
    counters = [warning for warning in warnings if "rises by the same step" in warning]
    assert len(counters) == is_reported
    assert all("Column 'n'" in warning for warning in counters)


@pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")
def test_private_model_reveals_nothing_about_rows():
    table = pa.table({"one": [5.0] * 100, "n": np.arange(100.0)})
    budget = PrivacyBudget(3.0, delta=0.5, bounds=(0, 100))

    warnings = check(table, privacy=budget, threshold=0.0)

    assert [warning.split(" is ")[0] for warning in warnings] == [
        "a note of the first pass",
        "delta=0.5",
    ]


@pytest.mark.parametrize("n_rows", [300, 19_000])
def test_labelled_inliers_become_reference_rows(n_rows):
    rows = np.random.default_rng(0).normal(size=(n_rows, 2))
    rows[-20:] = np.linspace(30, 50, 40).reshape(20, 2)
    is_inlier = np.arange(n_rows) >= n_rows - 20
    detector = OutlierDetector(n_reference=50, schedule=FAST)

    model = detector.fit(rows, known_inlier=is_inlier).model_

    expected = model.encoder.standardize(as_table(rows[is_inlier]))
    found = {row.tobytes() for row in model.scorer.distance.rows}
    assert {row.tobytes() for row in expected} <= found
    assert len(found) == 50


def test_more_columns_than_a_model_file_holds_are_refused(monkeypatch):
    monkeypatch.setattr(_fit, "MAX_COLUMNS", 2)
    table = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(TableError, match="has 3 columns, but a fit supports at most 2"):
        OutlierDetector(schedule=FAST).fit(table)
