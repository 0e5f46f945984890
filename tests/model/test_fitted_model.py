from dataclasses import dataclass, replace
from datetime import datetime
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from altbi.distributed import ScoreBatches
from altbi.encoding import TableEncoder
from altbi.errors import ParameterError, TableError
from altbi.io import open_table
from altbi.model import FittedModel, _fitted_model
from altbi.model._fitted_model import score_chunks
from altbi.pipeline import Pipeline
from altbi.scorers import DistanceScorer
from altbi.table import as_table
from small_tables import fast_altbi, fast_detector


@pytest.mark.parametrize("chunk_rows", [1, 7, 1000])
def test_chunks_do_not_change_scores_or_drift(monkeypatch, chunk_rows):
    rows = np.random.default_rng(0).normal(size=(101, 3))
    encoder = TableEncoder().fit(as_table(rows[:50]))
    monkeypatch.setattr(_fitted_model, "_CHUNK_ROWS", chunk_rows)

    def score(table):
        assert len(table) <= chunk_rows
        return encoder.transform(table).sum(1, dtype=np.float64)

    scores, drift = score_chunks(score, as_table(rows), encoder)

    assert np.array_equal(scores, encoder.transform(as_table(rows)).sum(1, dtype=np.float64))
    assert drift == encoder.drift(as_table(rows))
    assert drift.rows == 101


@pytest.mark.parametrize("n_features", [1, 10, 5000, 10**7])
@pytest.mark.parametrize("n_rows", [1, 10_000, 10**8])
def test_chunk_size_is_bounded(n_rows, n_features):
    size = _fitted_model._choose_chunk_rows(n_rows, n_features)

    assert size % 304 == 0
    assert 304 <= size <= 30400
    assert size == 304 or size * n_features <= 2**20
    if n_rows == 10**8 and n_features == 1:
        assert size == 30400
    if n_rows == 1 and n_features == 1:
        assert size == 30400 // 4


def test_repr_is_short_and_has_no_values():
    rows = np.full((1200, 2), 7.125) + np.arange(1200)[:, None] * 1e-6

    by_distance, by_loss = (
        repr(detector.fit(rows).model_) for detector in (fast_detector(), fast_altbi())
    )

    assert by_distance == (
        "FittedModel(OutlierDetector, 1,200 rows, 2 columns, scores by 960 reference rows)"
    )
    assert by_loss == "FittedModel(ALTBI, 1,200 rows, 2 columns, scores by loss)"


@pytest.mark.parametrize("convert", [np.asarray, lambda rows: pa.table(list(rows.T), list("ab"))])
@pytest.mark.parametrize("method", ["score", "explain"])
def test_other_numbers_of_columns_are_refused(convert, method):
    model = fast_detector().fit(np.random.default_rng(0).normal(size=(50, 3))).model_
    table = convert(np.ones((4, 2)))

    with pytest.raises(TableError, match="has 2 columns, but the model was fitted on 3"):
        getattr(model, method)(table)


def test_frames_and_arrays_are_prepared():
    values = np.random.default_rng(0).normal(size=(50, 2))
    table = pa.table(list(values.T), list("ab"))
    model = fast_detector().fit(table).model_

    for rows in (table, table.to_pandas(), model.prepare(table)):
        scores, drift = model.score_table(rows)
        assert np.array_equal(scores, model.score(table))
        assert drift.rows == 50


@dataclass(frozen=True)
class BrokenScorer:
    """A scorer whose scores are the first column, and NaN above 5 and infinite below -5."""

    scorer: object

    def score_table(self, table, encoder):
        values = table.numbers([0])[:, 0]
        return np.where(values > 5, np.nan, np.where(values < -5, -np.inf, values))


@pytest.fixture(scope="module")
def broken():
    """Return a detector for which rows 7 and 8 of `ROWS` have no finite score."""
    detector = fast_detector().fit(ROWS[:7])
    detector.model_ = replace(detector.model_, scorer=BrokenScorer(detector.model_.scorer))
    return detector


ROWS = np.column_stack([[0.0, 1, 2, 3, 4, 0, 1, 9, -9], np.arange(9.0)])
NO_SCORE = r"ow 7 \(counted from 0\) has no finite score, so it is neither an inlier nor an outlier"


@pytest.mark.parametrize(
    "method", ["outlier_score", "score_samples", "decision_function", "predict"]
)
def test_rows_without_a_finite_score_are_no_inliers(broken, method):
    assert len(getattr(broken, method)(ROWS[:7])) == 7
    with pytest.raises(TableError, match=NO_SCORE):
        getattr(broken, method)(ROWS)
    with pytest.raises(TableError, match=r"ow 0 .* no finite score"):
        getattr(broken, method)(ROWS[8:])


def test_tables_with_such_rows_are_not_scored(broken, tmp_path):
    """Neither in batches nor in partitions: no file has a row without a score."""
    path = tmp_path / "rows.npy"
    np.save(path, ROWS)
    source = open_table(path)

    pipeline = Pipeline(source)
    with pytest.raises(TableError, match=f"^{path}: R{NO_SCORE}"):
        pipeline.score(pipeline.prepare(broken.model_))
    batches = pa.RecordBatch.from_arrays(list(ROWS.T), ["x0", "x1"])
    scorer = ScoreBatches("model.altbi")
    with (
        mock.patch("altbi.distributed._score_batches.load_cached", return_value=broken.model_),
        pytest.raises(TableError, match=NO_SCORE),
    ):
        list(scorer([batches]))


def test_errors_name_rows_of_later_chunks(broken):
    """Chunks of a file are tables whose first row has a number."""
    chunk = broken.model_.prepare(ROWS)
    chunk.first_row = 100
    with pytest.raises(TableError, match=r"^Row 107 \(counted from 0\) has no finite score"):
        broken.model_.score_table(chunk)

    model = fast_detector().fit(ROWS[:7]).model_
    chunk = model.prepare(np.column_stack([[1, 2, np.inf], [1, 2, 3]]))
    chunk.first_row = 100
    with pytest.raises(TableError, match=r"infinity, first in row 102 \(counted from 0\)"):
        model.score_table(chunk)


def test_explained_rows_have_finite_scores():
    model = fast_detector().fit(ROWS[:7]).model_
    with (
        mock.patch.object(DistanceScorer, "score", lambda _, rows: np.full(len(rows), np.nan)),
        pytest.raises(TableError, match="no finite score"),
    ):
        model.explain(ROWS[:2])
    chunk = as_table(pa.table(list(ROWS.T[:, :2]), ["x0", "x1"]))
    chunk.first_row = 100
    with (
        mock.patch.object(FittedModel, "prepare", lambda _, table: table),
        mock.patch.object(DistanceScorer, "score", lambda _, rows: np.full(len(rows), np.nan)),
        pytest.raises(TableError, match=r"^Row 100 "),
    ):
        model.explain(chunk)


def test_order_of_named_columns_does_not_matter():
    rng = np.random.default_rng(0)
    frame = pa.table({"b": rng.normal(size=60), "a": rng.normal(size=60) * 5})
    model = fast_detector().fit(frame).model_
    assert np.array_equal(model.score(frame.select(["a", "b"])), model.score(frame))
    with pytest.raises(TableError, match="columns \\['b'\\] are missing"):
        model.score(frame.rename_columns(["c", "a"]))


def test_wrong_cells_have_the_highest_cell_scores():
    rng = np.random.default_rng(0)
    frame = pa.table(
        {
            "city": [("Leeds", "York", "Birmingham")[i % 3] for i in range(300)],
            "size": rng.normal(size=300),
            "day": np.datetime64("2026-01-01", "s") + np.arange(300) * np.timedelta64(1, "D"),
        }
    )
    wrong = frame.to_pydict()
    wrong["city"][17], wrong["size"][44], wrong["day"][8] = "Birminghm", 50.0, datetime(1900, 1, 1)
    table = pa.table(wrong)
    model = fast_detector().fit(table).model_

    scores = model.cell_scores(table)

    assert scores.shape == (300, 3)
    assert (scores >= 0).all()
    assert scores[:, [0, 2]].argmax(axis=0).tolist() == [17, 8]
    assert scores[44, 1] > np.quantile(scores[:, 1], 0.95)
    assert np.array_equal(model.cell_scores(table.slice(17, 1)), scores[17:18])


def test_models_by_loss_have_no_cell_scores():
    with pytest.raises(ParameterError, match="Fit an OutlierDetector"):
        fast_altbi().fit(ROWS[:7]).model_.cell_scores(ROWS)
