"""The promises of a detector: a row's score is its own, and training trains."""

import copy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from altbi import ALTBI, ODIM
from altbi.model._chunks import _chunk_rows
from altbi.encoding import TableEncoder
from altbi.scorers._loss import map_blocks
from altbi.errors import ParameterError, TableError
from altbi.table import as_table

PRESETS = [ALTBI.paper, ALTBI.reference]
CHOICES_OF_UPDATES = [("loss", "auto"), ("distance", "auto"), ("loss", 1), ("distance", 7)]
BRIEF_FLOW = {"backbone": "glow", "flow_steps": 2, "hidden": (8, 8), "updates": 2}
SYSTEMS = {
    "plain": ALTBI(),
    "paper": ALTBI.paper(),
    "reference": ALTBI.reference(),
    "glow": ALTBI(**BRIEF_FLOW, T1=35, T2=40, score_by="loss"),
    "odim": ODIM(n_models=2, draws=5),
}


def table_with_outliers(n_rows=600, n_columns=4, n_outliers=10, seed=0):
    """Rows near a line through space, and a few that are off the line but within its range."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 1)) * np.arange(1, n_columns + 1) / n_columns
    X += 0.05 * rng.normal(size=X.shape)
    odd = rng.choice(n_rows, n_outliers, replace=False)
    X[odd] = rng.permuted(X[odd] * 1.5 + 1, axis=1) * np.where(np.arange(n_columns) % 2, 1, -1)
    return X, np.isin(np.arange(n_rows), odd)


X, IS_ODD = table_with_outliers()


@pytest.fixture(scope="module", params=SYSTEMS)
def fitted(request):
    return clone(SYSTEMS[request.param]).fit(X)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_hold_the_documented_parameters(preset):
    shared = {
        "backbone": "iwae",
        "n0": 128,
        "gamma": 1.03,
        "rho": 0.92,
        "T0": 10,
        "T2": 80,
        "draws": 2,
        "flow_steps": "auto",
        "learning_rate": "auto",
        "max_batch": None,
        "score_by": "loss",
        "keep": 0.8,
        "n_reference": 1000,
        "n_groups": 5,
        "whiten": "auto",
        "push": 1.0,
        "trust": 0.75,
        "contamination": "auto",
        "threshold": None,
        "epsilon": None,
        "delta": 1e-6,
        "bounds": None,
        "clip": 1.0,
        "noise": "auto",
        "truncation": "tracked",
        "max_rows": 200_000,
        "device": "auto",
        "random_state": 0,
    }
    own = {
        "paper": {
            "T1": 60,
            "updates": 1,
            "first_truncated": 1,
            "hidden": (100, 50),
            "latent": 10,
            "network": "paper",
            "average": "plain",
            "weight_decay": 0.0,
        },
        "reference": {
            "T1": 61,
            "updates": 5,
            "first_truncated": 2,
            "hidden": "auto",
            "latent": "auto",
            "network": "reference",
            "average": "scaled",
            "weight_decay": 5e-7,
        },
    }

    assert preset().get_params() == shared | own[preset.__name__]
    assert preset(rho=0.9, random_state=4).get_params()["rho"] == 0.9


def test_the_plain_constructor_trains_as_the_reference_does_unless_it_only_chooses_rows():
    auto = {"updates": "auto"}
    assert ALTBI(score_by="loss").get_params() == ALTBI.reference().get_params() | auto
    assert ALTBI().get_params() == ALTBI.reference(score_by="distance").get_params() | auto
    plans = [ALTBI(score_by=by, updates=n)._schedule().updates for by, n in CHOICES_OF_UPDATES]
    assert plans == [5, 2, 1, 7]


def test_the_plain_detector_keeps_rows_and_no_network_and_the_others_the_reverse(fitted):
    remembers = getattr(fitted, "score_by", "loss") == "distance"

    assert hasattr(fitted, "snapshots_") == hasattr(fitted, "ensemble_") == (not remembers)
    assert (fitted.scorer_ is not None) == remembers


def test_what_one_way_of_scoring_left_does_not_stay_for_the_other():
    detector = ALTBI(T1=2, T2=4).fit(X)
    by_distance = detector.outlier_score(X)

    by_loss = detector.set_params(score_by="loss").fit(X).outlier_score(X)

    assert detector.scorer_ is None
    assert np.array_equal(by_loss, ALTBI(T1=2, T2=4, score_by="loss").fit(X).outlier_score(X))
    again = detector.set_params(score_by="distance").fit(X)
    assert np.array_equal(again.outlier_score(X), by_distance)
    assert not hasattr(again, "typical_rows_")


def test_the_model_decides_what_is_remembered():
    """A dense cluster is near to itself; only rows that the model learns late are left out."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(900, 4)), rng.normal(size=(60, 4)) * 0.1 + 3])
    odd = np.arange(960) >= 900

    def separation(detector):
        scores = detector.fit(X).outlier_score(X)
        return (scores[odd][:, None] > scores[~odd]).mean()

    assert separation(ALTBI()) > 0.97
    assert separation(ALTBI(keep=1.0)) < 0.6


def test_the_rows_to_remember_are_sought_in_a_bounded_part_of_the_sample(monkeypatch):
    monkeypatch.setattr("altbi.detectors._altbi.POOL_ROWS", 50)

    detector = ALTBI(T1=2, T2=4, keep=0.5).fit(X)

    assert len(detector.scorer_.rows) == 25
    rows = detector.encoder_.standardize(as_table(X))
    texts = {row.tobytes() for row in rows}
    assert all(row.tobytes() in texts for row in detector.scorer_.rows)
    assert _separation(detector.outlier_score(X)) > 0.85
    # From all over the table, not its first rows.
    remembered = {row.tobytes() for row in detector.scorer_.rows}
    places = [place for place, row in enumerate(rows) if row.tobytes() in remembered]
    assert 200 < np.median(places) < 400


def test_labelled_rows_do_not_move_the_threshold_of_a_large_table(monkeypatch):
    monkeypatch.setattr("altbi.detectors._altbi.POOL_ROWS", 300)
    monkeypatch.setattr("altbi.detectors._altbi.JUDGED_ROWS", 300)
    labelled = np.arange(len(X)) < 200

    detector = ALTBI(T1=2, T2=4, contamination=0.1).fit(X, known_outlier=labelled)

    assert abs((detector.predict(X) == -1).mean() - 0.1) < 0.04


def test_the_reference_flow_is_larger_and_the_paper_has_none():
    flow = ALTBI.reference(backbone="glow")

    assert (flow.flow_steps, flow.hidden) == (16, (256, 256))
    assert ALTBI.reference(backbone="glow", hidden=(8, 8)).hidden == (8, 8)
    light = ALTBI(backbone="glow")._blank_model(10)
    assert len(light.levels[0].steps) == 4
    assert light.levels[0].steps[0].coupling.second.shape == (64, 64)
    with pytest.raises(ParameterError, match="does not say enough"):
        ALTBI.paper(backbone="glow")
    with pytest.raises(ParameterError, match="two widths"):
        ALTBI(backbone="glow", hidden=(8, 8, 8)).fit(X)


def test_another_default_device_of_torch_changes_nothing():
    small = {"T0": 1, "T1": 2, "T2": 4}
    for detector in (ALTBI(**small), ALTBI(backbone="glow", flow_steps=1, hidden=(4, 4), **small)):
        plain = detector.fit(X).outlier_score(X)
        with torch.device("meta"):
            again = clone(detector).fit(X).outlier_score(X)
        assert np.array_equal(again, plain)


def test_outliers_score_higher_than_other_rows(fitted):
    assert _separation(fitted.outlier_score(X)) > 0.85


@pytest.mark.parametrize("preset", PRESETS)
def test_scores_differ_between_rows_and_from_those_of_an_untrained_model(preset):
    # An untrained network tells outliers apart quite well: separation would prove nothing. But a
    # row's loss is its negative log-likelihood, and what is likely has to be learned.
    trained = preset(average="plain").fit(X).outlier_score(X)
    untrained = preset(average="plain", learning_rate=1e-30).fit(X).outlier_score(X)

    assert len(np.unique(trained)) == len(X)
    assert np.median(trained) < np.median(untrained) - 2
    assert (trained[~IS_ODD] < untrained[~IS_ODD]).mean() > 0.9


def _separation(scores):
    """Share of pairs of an odd and a normal row in which the odd one scores higher."""
    return (scores[IS_ODD][:, None] > scores[~IS_ODD]).mean()


def test_the_loss_falls(fitted):
    losses = [progress.loss for progress in fitted.history_]

    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.5
    if isinstance(fitted, ALTBI):
        assert len(losses) == fitted.T0 + fitted.T2


def test_snapshots_are_as_many_as_planned_and_differ(fitted):
    if getattr(fitted, "score_by", "loss") == "distance":
        assert not hasattr(fitted, "snapshots_")  # it keeps rows
        return
    planned = fitted.T2 - fitted.T1 if isinstance(fitted, ALTBI) else fitted.n_models
    flow = getattr(fitted, "backbone", None) == "glow"
    weights = fitted.snapshots_["levels.0.steps.1.coupling.first" if flow else "mean.weight"]

    assert len(weights) == planned
    assert all((a != b).any() for a, b in pairwise(weights))
    draws = fitted.snapshots_["scoring_noise" if flow else "scoring_noise"]
    assert len({draw.tobytes() for draw in draws}) == len(draws)


def test_training_rows_score_the_same_in_a_fresh_call(fitted):
    assert np.array_equal(fitted.outlier_score(X), fitted.outlier_score(X.copy()))
    assert (fitted.score_samples(X) < fitted.offset_).sum() == (fitted.predict(X) == -1).sum()


@pytest.mark.parametrize("size", [1, 7, 256, 257])
def test_chunks_do_not_change_scores(fitted, size):
    chunks = [fitted.outlier_score(X[i : i + size]) for i in range(0, 3 * size, size)]

    assert np.array_equal(np.concatenate(chunks), fitted.outlier_score(X)[: 3 * size])


def test_order_and_repetition_do_not_change_scores(fitted):
    order = np.random.default_rng(0).integers(0, len(X), 900)

    assert np.array_equal(fitted.outlier_score(X[order]), fitted.outlier_score(X)[order])


def test_wild_neighbours_do_not_change_scores(fitted):
    wild = np.vstack([X, np.full((5, 4), 1e12), np.full((5, 4), np.nan)])

    assert np.array_equal(fitted.outlier_score(wild)[: len(X)], fitted.outlier_score(X))


def test_the_number_of_threads_changes_neither_fit_nor_scores(fitted):
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(clone(fitted).fit(X).outlier_score(X))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)

    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert np.array_equal(found[0], fitted.outlier_score(X))


def test_another_process_gives_the_same_scores(fitted, tmp_path):
    np.save(tmp_path / "X.npy", X)
    fitted.save(tmp_path / "model.altbi")
    code = (
        "import sys, numpy as np, altbi; "
        "folder = sys.argv[1]; X = np.load(folder + '/X.npy'); "
        f"loaded = altbi.{type(fitted).__name__}.load(folder + '/model.altbi'); "
        "np.save(folder + '/loaded.npy', loaded.anomaly_score(X)); "
        "again = type(loaded)(**loaded.get_params()).fit(X); "
        "np.save(folder + '/again.npy', again.anomaly_score(X))"
    )

    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)

    assert np.array_equal(np.load(tmp_path / "loaded.npy"), fitted.outlier_score(X))
    assert np.array_equal(np.load(tmp_path / "again.npy"), fitted.outlier_score(X))


def test_the_seed_decides():
    def scores(seed):
        return ALTBI.paper(random_state=seed).fit(X).outlier_score(X)

    assert np.array_equal(scores(1), scores(1))
    assert not np.array_equal(scores(1), scores(2))
    assert not np.array_equal(scores(None), scores(None))
    state = np.random.RandomState(3)
    assert not np.array_equal(scores(state), scores(state))
    again = scores(np.random.RandomState(3))
    assert np.array_equal(again, scores(np.random.RandomState(3)))


def test_the_global_random_state_is_neither_used_nor_changed():
    found = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002 - the caller's own, old habit
        torch.manual_seed(seed)
        before = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
        detector = ALTBI.paper().fit(X)
        found.append(detector.outlier_score(X))
        ALTBI.paper(random_state=None).fit(X).explain(X[:3])
        assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
        assert torch.equal(torch.random.get_rng_state(), before[1])

    assert np.array_equal(*found)


def test_scoring_leaves_autograd_as_it_was(fitted):
    fitted.outlier_score(X)

    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("n_rows", [2, 3, 5, 20, 127, 128, 129, 200])
@pytest.mark.parametrize("preset", PRESETS)
def test_small_tables_work(preset, n_rows):
    detector = preset(T0=1, T1=4, T2=6).fit(X[:n_rows])

    scores = detector.outlier_score(X[:n_rows])

    assert np.isfinite(scores).all()
    assert (detector.predict(X[:n_rows]) == -1).any()


def test_one_row_can_be_scored_but_not_learned_from(fitted):
    assert fitted.outlier_score(X[:1]).shape == (1,)
    with pytest.raises(ValueError, match=r"1 sample.*minimum of 2"):
        ALTBI().fit(X[:1])
    with pytest.raises(TableError, match=r"1 sample.*minimum of 2"):
        ALTBI().fit(pd.DataFrame(X[:1]))


def test_one_column_works():
    x = np.r_[np.random.default_rng(0).normal(size=300), 30.0][:, None]

    assert ALTBI().fit(x).outlier_score(x).argmax() == 300


def test_rows_that_are_all_alike_have_one_finite_score():
    scores = ALTBI().fit(np.ones((50, 3))).outlier_score(np.ones((4, 3)))

    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) == 1


@pytest.mark.parametrize("far", [1e12, 1e100, 1e308, -1e308])
def test_far_away_cells_have_finite_high_scores(fitted, far):
    odd = X[:1].copy()
    odd[0, 2] = far

    score = fitted.outlier_score(odd)[0]

    assert np.isfinite(score)
    assert score > fitted.outlier_score(X).max()


def test_frames_and_arrays_give_the_same_scores():
    names = ["a", "b", "c", "d"]
    array = ALTBI.paper().fit(X).outlier_score(X)
    frame = pd.DataFrame(X, columns=names)

    for table in (
        frame,
        pl.DataFrame(X, schema=names),
        pa.table(dict(zip(names, X.T, strict=True))),
    ):
        detector = ALTBI.paper().fit(table)
        assert np.array_equal(detector.outlier_score(table), array)
        assert detector.feature_names_in_.tolist() == names


def test_frames_and_arrays_can_be_mixed_with_scikit_learn_s_warning():
    frame = pd.DataFrame(X, columns=list("abcd"))
    named, unnamed = ALTBI.paper().fit(frame), ALTBI.paper().fit(X)

    with pytest.warns(UserWarning, match="does not have valid feature names"):
        from_array = named.outlier_score(X)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        from_frame = unnamed.outlier_score(frame)

    assert np.array_equal(from_array, named.outlier_score(frame))
    assert np.array_equal(from_frame, unnamed.outlier_score(X))


def test_single_and_double_precision_agree():
    single = ALTBI.paper().fit(X.astype(np.float32)).outlier_score(X.astype(np.float32))
    double = ALTBI.paper().fit(X).outlier_score(X)

    assert single.dtype == double.dtype == np.float64
    assert np.corrcoef(single, double)[0, 1] > 0.9999


def test_large_tables_are_learned_from_a_sample_that_knows_no_order():
    detector = ALTBI.paper(max_rows=300).fit(X)

    assert (detector.n_rows_in_, detector.n_sample_) == (600, 300)
    assert detector.outlier_score(X).shape == (600,)
    assert not np.array_equal(detector.offset_, ALTBI.paper().fit(X[:300]).offset_)


def test_all_that_is_learned_comes_from_the_seeded_sample():
    def seen(seed):
        return ALTBI.paper(max_rows=300, random_state=seed, T1=1, T2=2).fit(X).encoder_.columns

    assert all(column.present == 300 for column in seen(0))
    assert seen(0) == seen(0)
    assert seen(0) != seen(1)


def test_it_works_in_a_pipeline_and_a_grid_search():
    pipeline = make_pipeline(StandardScaler(), ALTBI.paper(T1=5, T2=8))
    search = GridSearchCV(
        pipeline,
        {"altbi__rho": [0.8, 1.0]},
        scoring=lambda model, rows, y=None: (model.predict(rows) == 1).mean(),
    )

    search.fit(X)

    assert set(search.predict(X)) == {-1, 1}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.cv_results_["params"] == [{"altbi__rho": 0.8}, {"altbi__rho": 1.0}]


def test_contamination_sets_the_share_of_outliers():
    for share in (0.02, 0.1, 0.5):
        detector = ALTBI.paper(contamination=share).fit(X)

        assert (detector.predict(X) == -1).mean() == pytest.approx(share, abs=1 / len(X))


@pytest.mark.parametrize(
    "wrong",
    [
        {"contamination": 0},
        {"contamination": 0.6},
        {"contamination": "often"},
        {"contamination": None},
        {"draws": 0},
        {"hidden": ()},
        {"hidden": "wide"},
        {"hidden": (3, "4")},
        {"latent": 0},
        {"network": "large"},
        {"average": "median"},
        {"learning_rate": 0},
        {"learning_rate": "fast"},
        {"weight_decay": -1},
        {"max_rows": 1},
        {"score_by": "likelihood"},
        {"keep": 0},
        {"keep": 1.5},
        {"n_groups": 0},
        {"whiten": 1},
        {"whiten": "always"},
        {"n_reference": 5},
        {"n_reference": 0.5},
        {"max_batch": 100},
        {"rho": 2},
        {"n0": "128"},
        {"random_state": -1},
        {"random_state": 2**64},
        {"random_state": "seed"},
    ],
)
def test_a_wrong_parameter_is_named_at_fit(wrong):
    name = next(iter(wrong))

    with pytest.raises(ParameterError, match=f"{name}=.*but expected"):
        ALTBI(**wrong).fit(X)


def test_not_fitted_is_said():
    for method in ("outlier_score", "score_samples", "decision_function", "predict", "explain"):
        with pytest.raises(NotFittedError):
            getattr(ALTBI(), method)(X)
    with pytest.raises(NotFittedError):
        ALTBI().save("nowhere")


def test_text_in_a_numeric_array_is_located():
    texts = X.astype(object)
    texts[5, 2] = "n/a?"

    with pytest.raises(TableError, match=r"'n/a\?' in column 2, row 5"):
        ALTBI().fit(texts)


def test_infinity_is_located_beyond_the_first_chunk(fitted, monkeypatch):
    monkeypatch.setattr("altbi.model._chunks._CHUNK_ROWS", 100)
    infinite = X.copy()
    infinite[431, 3] = np.inf

    with pytest.raises(TableError, match=r"'x3' contains infinity, first in row 431"):
        fitted.outlier_score(infinite)


def test_fits_at_the_same_time_do_not_disturb_each_other():
    alone = [ALTBI.paper(random_state=seed).fit(X).outlier_score(X) for seed in range(4)]

    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(lambda s: ALTBI.paper(random_state=s).fit(X).outlier_score(X), range(4))
        )

    assert np.array_equal(together, alone)


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", dtype=torch.bfloat16)],
    ids=["no_grad", "inference_mode", "autocast"],
)
def test_the_caller_s_torch_modes_change_nothing(fitted, mode):
    with mode():
        again = clone(fitted).fit(X)
        scores = again.outlier_score(X), fitted.outlier_score(X[:5])

    assert np.array_equal(scores[0], fitted.outlier_score(X))
    assert np.array_equal(scores[1], fitted.outlier_score(X)[:5])


def test_another_default_type_of_torch_changes_nothing(fitted):
    torch.set_default_dtype(torch.float64)
    try:
        again = clone(fitted).fit(X).outlier_score(X)
    finally:
        torch.set_default_dtype(torch.float32)

    assert np.array_equal(again, fitted.outlier_score(X))


def test_a_snapshot_s_losses_are_scaled_to_the_training_sample_s_range():
    detector = ALTBI.reference().fit(X)
    ensemble = detector.ensemble_
    rows = detector.encoder_.transform(as_table(X))

    losses = map_blocks(ensemble.stacked.losses, rows, ensemble.stacked.block_rows)

    scaled = (losses - ensemble.low[:, None]) / ensemble.width[:, None]
    assert np.allclose(scaled.min(axis=1), 0)
    assert np.allclose(scaled.max(axis=1), 1)
    assert np.allclose(scaled.mean(axis=0), detector.outlier_score(X))


def test_a_row_exactly_at_the_threshold_is_no_outlier(fitted):
    exact = copy.copy(fitted)
    exact.offset_ = float(fitted.score_samples(X[:1])[0])

    assert exact.predict(X[:1])[0] == 1


def test_large_tables_are_scored_in_chunks_of_bounded_size(fitted, monkeypatch):
    sizes = []
    whole = fitted.outlier_score(X)
    monkeypatch.setattr("altbi.model._chunks._CHUNK_ROWS", 100)
    scaled = TableEncoder._scaled

    def counted(encoder, table, scale):
        sizes.append(len(table))
        return scaled(encoder, table, scale)

    monkeypatch.setattr(TableEncoder, "_scaled", counted)

    scores = fitted.outlier_score(X)

    assert sizes == [100] * 6
    assert np.array_equal(scores, whole)


@pytest.mark.parametrize(
    ("n_rows", "width", "size"),
    [(10, 10, 7680), (160_000, 10, 9984), (10**9, 10, 30720), (10**6, 100, 10368), (10, 4000, 384)],
)
def test_chunks_are_whole_blocks_and_each_thread_has_some(n_rows, width, size):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert _chunk_rows(n_rows, width) == size
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["M8[D]", "m8[s]"])
def test_arrays_of_dates_are_refused(kind):
    with pytest.raises(TableError, match="Put dates into a data frame"):
        ALTBI().fit(np.zeros((5, 2), dtype=kind))


@pytest.mark.parametrize("names", [[0, 1, 2, 3], [("a", 1), ("a", 2), ("b", 1), ("b", 2)]])
def test_columns_in_another_order_are_refused_whatever_their_names_are(names):
    frame = pd.DataFrame(X)
    frame.columns = (
        pd.Index(names) if isinstance(names[0], int) else pd.MultiIndex.from_tuples(names)
    )
    detector = ALTBI.paper(T1=1, T2=2).fit(frame)

    assert detector.outlier_score(frame).shape == (len(X),)
    with pytest.raises(TableError, match="order"):
        detector.outlier_score(frame[frame.columns[::-1]])


@pytest.mark.parametrize("source", [as_table, lambda t: t.to_reader()])
def test_tables_of_our_own_and_readers_are_told_by_name(source):
    arrow = pa.table(dict(zip("abcd", X.T, strict=True)))
    detector = ALTBI.paper(T1=1, T2=2).fit(source(arrow))

    assert detector.n_features_in_ == 4
    assert detector.outlier_score(source(arrow)).shape == (len(X),)
    with pytest.raises(TableError, match="order"):
        detector.outlier_score(source(arrow.select(["b", "a", "c", "d"])))


@pytest.mark.parametrize(
    "nonsense", [["a", "b"], "abc", [[["a"]]], 5, None, [[1, 2], [3]], {"a": [1]}, Path("a.csv")]
)
def test_what_is_no_table_is_refused(nonsense):
    with pytest.raises((ValueError, TypeError), match=r"array|sequence"):
        ALTBI().fit(nonsense)


def test_a_lazy_frame_is_told_to_be_collected():
    with pytest.raises(TableError, match="LazyFrame is lazy"):
        ALTBI().fit(pl.DataFrame(X, schema=list("abcd")).lazy())


def test_masked_cells_are_missing_not_their_hidden_values(fitted):
    hidden = np.ma.masked_invalid(X.copy())
    hidden.data[3, 1] = 1e9
    hidden[3, 1] = np.ma.masked
    missing = X.copy()
    missing[3, 1] = np.nan

    assert np.array_equal(fitted.outlier_score(hidden), fitted.outlier_score(missing))


@pytest.mark.parametrize(("width", "whitens"), [(99, False), (100, True)])
def test_wide_tables_are_whitened_and_explained(width, whitens):
    rows = np.random.default_rng(0).normal(size=(60, width))
    detector = ALTBI(T0=1, T1=2, T2=3, n0=16).fit(rows)

    assert (detector.scorer_.whitening is not None) == whitens
    explanation = detector.explain(rows[:5])
    np.testing.assert_allclose(explanation.parts.sum(axis=1), explanation.score, rtol=1e-6)
    assert np.array_equal(explanation.score, detector.outlier_score(rows)[:5])


def test_a_network_that_only_chooses_stops_growing_with_the_columns():
    def cells(**changes):
        state = ALTBI(**changes)._blank_state(2000)
        return sum(tensor.numel() for tensor in state.values())

    assert cells(score_by="distance") < cells(score_by="loss") / 3
    assert cells(score_by="distance", hidden=(512, 256), latent=128) == cells(score_by="loss")
