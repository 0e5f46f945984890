"""What every detector must satisfy: a row's score is its own, and a fit can be repeated."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_limits

from altbi import ALTBI, IWAE, ODIM, OutlierDetector, Schedule
from altbi.encoding import TableEncoder
from altbi.errors import TableError
from altbi.torch import Glow

SHORT = Schedule(T0=4, T1=16, T2=20)
DETECTORS = {
    "OutlierDetector": OutlierDetector(schedule=SHORT),
    "ALTBI": ALTBI(schedule=SHORT),
    "ALTBI.paper": ALTBI.paper(),
    "ALTBI with Glow": ALTBI(
        schedule=Schedule(updates=2, T1=26, T2=30), backbone=Glow(flow_steps=2, hidden=(8, 8))
    ),
    # With few networks, the scores of some seeds are no better than AUC 0.8.
    "ODIM": ODIM(n_models=4, backbone=IWAE(n_samples=5), random_state=1),
}


def make_table(n_rows=600, n_columns=4, n_outliers=10, seed=0):
    """Return rows near a line, and a few that leave the line within its range."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 1)) * np.arange(1, n_columns + 1) / n_columns
    X += 0.05 * rng.normal(size=X.shape)
    outliers = rng.choice(n_rows, n_outliers, replace=False)
    signs = np.where(np.arange(n_columns) % 2, 1, -1)
    X[outliers] = rng.permuted(X[outliers] * 1.5 + 1, axis=1) * signs
    return X, np.isin(np.arange(n_rows), outliers)


X, IS_OUTLIER = make_table()


@pytest.fixture(scope="module", params=DETECTORS)
def fitted(request):
    return clone(DETECTORS[request.param]).fit(X)


@pytest.fixture(scope="module")
def scores(fitted):
    return fitted.outlier_score(X)


@pytest.mark.slow
def test_outliers_score_higher_than_inliers(scores):
    assert (scores[IS_OUTLIER][:, None] > scores[~IS_OUTLIER]).mean() > 0.85


@pytest.mark.slow
def test_training_lowers_the_loss(fitted):
    losses = [step.loss for step in fitted.history_]

    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.3


def test_signs_follow_scikit_learn(fitted, scores):
    assert np.array_equal(fitted.score_samples(X), -scores)
    assert np.array_equal(fitted.decision_function(X), -scores - fitted.offset_)
    assert np.array_equal(fitted.predict(X) == -1, scores > fitted.model_.threshold)


def test_row_at_the_threshold_is_an_inlier():
    score = OutlierDetector(schedule=SHORT).fit(X).outlier_score(X[:1])[0]
    detector = OutlierDetector(schedule=SHORT, threshold=score).fit(X)

    assert detector.predict(X[:1])[0] == 1


@pytest.mark.parametrize("size", [1, 7, 257])
def test_chunks_do_not_change_scores(fitted, scores, size):
    chunks = [fitted.outlier_score(X[i : i + size]) for i in range(0, 2 * size, size)]

    assert np.array_equal(np.concatenate(chunks), scores[: 2 * size])


def test_order_and_repetition_do_not_change_scores(fitted, scores):
    order = np.random.default_rng(0).integers(0, len(X), 900)

    assert np.array_equal(fitted.outlier_score(X[order]), scores[order])


def test_extreme_neighbours_do_not_change_scores(fitted, scores):
    extreme = np.vstack([X, np.full((5, 4), 1e12), np.full((5, 4), np.nan)])

    assert np.array_equal(fitted.outlier_score(extreme)[: len(X)], scores)


@pytest.mark.slow
def test_threads_change_neither_fit_nor_scores(fitted, scores):
    before = torch.get_num_threads()
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            with threadpool_limits(threads, "blas"):
                assert np.array_equal(clone(fitted).fit(X).outlier_score(X), scores)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_another_process_gives_the_same_scores(fitted, scores, tmp_path):
    np.save(tmp_path / "X.npy", X)
    fitted.save(tmp_path / "model.altbi")
    code = (
        "import sys, numpy as np, altbi; "
        "folder = sys.argv[1]; X = np.load(folder + '/X.npy'); "
        "np.save(folder + '/model.npy', altbi.load(folder + '/model.altbi').score(X)); "
        f"loaded = altbi.{type(fitted).__name__}.load(folder + '/model.altbi'); "
        "np.save(folder + '/again.npy', loaded.fit(X).outlier_score(X))"
    )

    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)

    assert np.array_equal(np.load(tmp_path / "model.npy"), scores)
    assert np.array_equal(np.load(tmp_path / "again.npy"), scores)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
    ],
    ids=["no_grad", "inference_mode", "autocast", "default device"],
)
def test_torch_modes_of_the_caller_change_nothing(fitted, scores, mode):
    with mode():
        again = clone(fitted).fit(X)
        in_mode = again.outlier_score(X), fitted.outlier_score(X[:5])

    assert np.array_equal(in_mode[0], scores)
    assert np.array_equal(in_mode[1], scores[:5])


@pytest.mark.slow
def test_default_dtype_of_torch_changes_nothing(fitted, scores):
    torch.set_default_dtype(torch.float64)
    try:
        again = clone(fitted).fit(X).outlier_score(X)
    finally:
        torch.set_default_dtype(torch.float32)

    assert np.array_equal(again, scores)


def test_scoring_restores_autograd(fitted):
    fitted.outlier_score(X)

    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("far", [1e12, 1e308, -1e308])
def test_extreme_values_have_finite_high_scores(fitted, scores, far):
    row = X[:1].copy()
    row[0, 2] = far

    score = fitted.outlier_score(row)[0]

    assert np.isfinite(score)
    assert score > scores.max()


def test_single_row_can_be_scored(fitted, scores):
    assert np.array_equal(fitted.outlier_score(X[:1]), scores[:1])


def test_single_row_cannot_be_fitted(fitted):
    with pytest.raises(ValueError, match=r"1 sample.*minimum of 2"):
        clone(fitted).fit(X[:1])
    with pytest.raises(TableError, match=r"1 sample.*minimum of 2"):
        clone(fitted).fit(pd.DataFrame(X[:1]))


def test_masked_values_are_missing(fitted):
    hidden = np.ma.masked_invalid(X.copy())
    hidden.data[3, 1] = 1e9
    hidden[3, 1] = np.ma.masked
    missing = X.copy()
    missing[3, 1] = np.nan

    assert np.array_equal(fitted.outlier_score(hidden), fitted.outlier_score(missing))


def test_infinity_is_located_beyond_the_first_chunk(fitted, monkeypatch):
    monkeypatch.setattr("altbi.model._fitted_model._CHUNK_ROWS", 100)
    infinite = X.copy()
    infinite[431, 3] = np.inf

    with pytest.raises(TableError, match=r"'x3' contains infinity, first in row 431"):
        fitted.outlier_score(infinite)


def test_large_tables_are_scored_in_bounded_chunks(fitted, scores, monkeypatch):
    sizes = []
    transform = {name: getattr(TableEncoder, name) for name in ("transform", "standardize")}

    def count(name):
        def encode(encoder, table):
            sizes.append(len(table))
            return transform[name](encoder, table)

        return encode

    monkeypatch.setattr("altbi.model._fitted_model._CHUNK_ROWS", 100)
    for name in transform:
        monkeypatch.setattr(TableEncoder, name, count(name))

    assert np.array_equal(fitted.outlier_score(X), scores)
    assert sizes == [100] * 6


@pytest.mark.parametrize("name", DETECTORS)
def test_unfitted_detectors_say_so(name):
    detector = clone(DETECTORS[name])
    for method in ("outlier_score", "score_samples", "decision_function", "predict", "explain"):
        with pytest.raises(NotFittedError):
            getattr(detector, method)(X)
    with pytest.raises(NotFittedError):
        detector.save("nowhere")


def test_contributions_add_up_to_the_score(fitted, scores):
    explanation = fitted.explain(X[:30])

    total = explanation.contributions.sum(axis=1) + explanation.remainder
    np.testing.assert_allclose(total, explanation.score, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(explanation.score, scores[:30], rtol=1e-5)


def test_saved_detector_has_the_same_parameters(fitted, scores, tmp_path):
    fitted.save(tmp_path / "model.altbi")

    loaded = type(fitted).load(tmp_path / "model.altbi")

    assert loaded.get_params() == fitted.get_params()
    assert loaded.history_ == fitted.history_
    assert loaded.offset_ == fitted.offset_
    assert np.array_equal(loaded.outlier_score(X), scores)


@pytest.mark.slow
def test_fits_in_threads_do_not_disturb_each_other(fitted, scores):
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda _: clone(fitted).fit(X).outlier_score(X), range(2)))

    assert np.array_equal(together[0], scores)
    assert np.array_equal(together[1], scores)


@pytest.mark.slow
def test_global_random_state_is_neither_used_nor_changed(fitted, scores):
    np.random.seed(1)  # noqa: NPY002 - the caller's own state
    torch.manual_seed(1)
    before = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002

    again = clone(fitted).fit(X)
    again.explain(X[:3])

    assert np.array_equal(again.outlier_score(X), scores)
    assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.random.get_rng_state(), before[1])
