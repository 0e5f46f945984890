"""Input of detectors: arrays, data frames, names, and errors about them."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from altbi import ALTBI, ODIM, OutlierDetector, Schedule
from altbi.errors import ModelFileError, ParameterError, TableError, TableWarning
from altbi.table import as_table
from altbi.torch import PrivacyBudget

SHORT = Schedule(T0=1, T1=1, T2=2)
NAMES = ["a", "b", "c", "d"]
X = np.random.default_rng(0).normal(size=(200, 4))


def test_frames_and_arrays_give_the_same_scores():
    array = ALTBI(schedule=SHORT).fit(X).outlier_score(X)
    tables = (
        pd.DataFrame(X, columns=NAMES),
        pl.DataFrame(X, schema=NAMES),
        pa.table(dict(zip(NAMES, X.T, strict=True))),
    )

    for table in tables:
        detector = ALTBI(schedule=SHORT).fit(table)
        assert np.array_equal(detector.outlier_score(table), array)
        assert detector.feature_names_in_.tolist() == NAMES


def test_warnings_point_to_the_calling_line():
    frame = pd.DataFrame({"text": [f"v{number}" for number in range(60)], "x": np.arange(60) % 7})
    with_missing = frame.assign(x=np.nan)

    with pytest.warns(TableWarning) as fit_warnings:
        detector = ALTBI(schedule=SHORT).fit(frame)
    with pytest.warns(TableWarning) as detector_warnings:
        detector.outlier_score(with_missing)
    with pytest.warns(TableWarning) as model_warnings:
        detector.model_.score(with_missing)

    found = (*fit_warnings, *detector_warnings, *model_warnings)
    assert {warning.filename for warning in found} == {__file__}


def test_mixing_frames_and_arrays_warns_as_scikit_learn():
    frame = pd.DataFrame(X, columns=NAMES)
    named, unnamed = ALTBI(schedule=SHORT).fit(frame), ALTBI(schedule=SHORT).fit(X)

    with pytest.warns(UserWarning, match="does not have valid feature names"):
        from_array = named.outlier_score(X)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        from_frame = unnamed.outlier_score(frame)

    assert np.array_equal(from_array, named.outlier_score(frame))
    assert np.array_equal(from_frame, unnamed.outlier_score(X))


def test_names_survive_saving(tmp_path):
    frame = pd.DataFrame(X, columns=NAMES)
    for table, names in ((frame, NAMES), (X, None)):
        detector = OutlierDetector(schedule=SHORT).fit(table)
        detector.save(tmp_path / "model.altbi")

        loaded = OutlierDetector.load(tmp_path / "model.altbi")

        found = getattr(loaded, "feature_names_in_", None)
        assert (None if found is None else found.tolist()) == names
        assert loaded.n_features_in_ == 4


def test_loading_with_another_class_is_refused(tmp_path):
    OutlierDetector(schedule=SHORT).fit(X).save(tmp_path / "model.altbi")

    for wrong in (ALTBI, ODIM):
        with pytest.raises(ModelFileError, match="holds the detector 'OutlierDetector'"):
            wrong.load(tmp_path / "model.altbi")


def test_single_and_double_precision_agree():
    single = ALTBI(schedule=SHORT).fit(X.astype(np.float32)).outlier_score(X.astype(np.float32))
    double = ALTBI(schedule=SHORT).fit(X).outlier_score(X)

    assert single.dtype == double.dtype == np.float64
    assert np.corrcoef(single, double)[0, 1] > 0.9999


def test_text_in_an_array_is_located():
    texts = X.astype(object)
    texts[5, 2] = "n/a?"

    with pytest.raises(TableError, match=r"'n/a\?' in column 2, row 5"):
        ALTBI().fit(texts)


@pytest.mark.parametrize("kind", ["M8[D]", "m8[s]"])
def test_arrays_of_dates_are_refused(kind):
    with pytest.raises(TableError, match="Put dates into a data frame"):
        ALTBI().fit(np.zeros((5, 2), dtype=kind))


@pytest.mark.parametrize("names", [[0, 1, 2, 3], [("a", 1), ("a", 2), ("b", 1), ("b", 2)]])
def test_other_column_order_is_refused(names):
    frame = pd.DataFrame(X)
    frame.columns = (
        pd.Index(names) if isinstance(names[0], int) else pd.MultiIndex.from_tuples(names)
    )
    detector = ALTBI(schedule=SHORT).fit(frame)

    assert detector.outlier_score(frame).shape == (len(X),)
    with pytest.raises(TableError, match="order"):
        detector.outlier_score(frame[frame.columns[::-1]])


@pytest.mark.parametrize("convert", [as_table, lambda table: table.to_reader()])
def test_tables_and_readers_are_matched_by_name(convert):
    arrow = pa.table(dict(zip(NAMES, X.T, strict=True)))
    detector = ALTBI(schedule=SHORT).fit(convert(arrow))

    assert detector.n_features_in_ == 4
    assert detector.outlier_score(convert(arrow)).shape == (len(X),)
    with pytest.raises(TableError, match="order"):
        detector.outlier_score(convert(arrow.select(["b", "a", "c", "d"])))


RECORDS = np.zeros((9, 2), dtype=[("a", "f8"), ("b", "i4")])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["a", "b"], "2D array"),
        ("abc", "got a str"),
        ([[["a"]]], "3 dimension"),
        (5, "scalar array instead. Reshape your data"),
        (None, "scalar array instead"),
        ([[1, 2], [3]], "sequence"),
        ({"a": [1]}, "got a dict"),
        (Path("a.csv"), "got a "),
        (X.astype(complex), "Complex data not supported"),
        (np.ma.MaskedArray(X.astype(complex), X > 0), "complex128"),
        (np.array([[1, 2j]], dtype=object), "complex"),
        (np.array([[1], [10**400]], dtype=object), "too large"),
        (RECORDS, "Cannot cast array"),
        (RECORDS[:, 0], "Cannot cast array"),
        (X[None], "dim 3"),
        (X[0], "1D array instead"),
        (X[:1], "1 sample(s)"),
        (X[:0], "0 sample(s)"),
        (X[:, :0], "0 feature(s)"),
        (pd.DataFrame(X, columns=[1, "a", "b", "c"]), "string names"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_input_that_is_not_a_table_is_refused(value, words):
    with pytest.raises(TableError) as caught:
        ALTBI().fit(value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame])
def test_other_numbers_of_columns_are_refused(convert):
    detector = ALTBI(schedule=SHORT).fit(convert(X))
    with pytest.raises(TableError, match=r"expecting 4 features|names should match"):
        detector.predict(convert(X[:, :3]))


def test_lazy_frame_is_refused():
    with pytest.raises(TableError, match="LazyFrame is lazy"):
        ALTBI().fit(pl.DataFrame(X, schema=NAMES).lazy())


@pytest.mark.parametrize("detector", [ODIM(), ALTBI(privacy=PrivacyBudget(1.0, bounds=(-5, 5)))])
def test_labels_are_refused_where_they_are_not_used(detector):
    with pytest.raises(ParameterError, match="known_inlier and known_outlier"):
        detector.fit(X, known_outlier=np.arange(len(X)) < 3)
