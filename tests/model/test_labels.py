from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from altbi import ALTBI, OutlierDetector, Schedule
from altbi.errors import ParameterError
from altbi.table import as_table
from altbi.torch import Glow

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=(300, 5))
# A dense cluster: it looks normal without labels.
CLUSTER = RNG.normal(size=(60, 5)) * 0.3 + 2
X = np.vstack([NORMAL, CLUSTER])
IS_OUTLIER = np.arange(len(X)) >= 300
FAST = Schedule(T0=2, T1=4, T2=6)


def label(*rows):
    return np.isin(np.arange(len(X)), rows)


def score(detector, **labels):
    return detector.fit(X, **labels).outlier_score(X)


def compute_auc(scores, rows=slice(None)):
    scores, is_outlier = scores[rows], IS_OUTLIER[rows]
    return (scores[is_outlier][:, None] > scores[~is_outlier]).mean()


@pytest.fixture(scope="module")
def unlabelled_scores():
    return score(ALTBI(schedule=FAST))


def test_empty_labels_do_not_change_scores(unlabelled_scores):
    for name in ("known_inlier", "known_outlier"):
        scores = score(ALTBI(schedule=FAST), **{name: label()})
        assert np.array_equal(scores, unlabelled_scores)


def test_all_inliers_disable_truncation(unlabelled_scores):
    scores = score(ALTBI(schedule=FAST), known_inlier=np.ones(len(X), dtype=bool))

    untruncated = score(ALTBI(schedule=FAST._copy_with(rho=1.0)))
    assert np.array_equal(scores, untruncated)
    assert not np.array_equal(scores, unlabelled_scores)


def test_known_inliers_get_lower_scores():
    detector = ALTBI(schedule=Schedule(rho=0.7), average="plain")

    decrease = score(detector) - score(detector, known_inlier=label(*range(300, 330)))

    assert decrease[IS_OUTLIER].mean() > decrease[~IS_OUTLIER].mean() + 0.2


def test_few_labels_with_errors_find_similar_outliers():
    labels = label(*range(300, 308), 4, 7)
    others = ~labels

    def compute_mean_auc(detector, **labels):
        # Without labels, the network of some seeds learns the cluster, and that of others does not.
        seeded = (detector(random_state=seed) for seed in range(3))
        return np.mean([compute_auc(score(each, **labels), others) for each in seeded])

    unlabelled = compute_mean_auc(ALTBI)
    excluded = compute_mean_auc(partial(ALTBI, outlier_weight=0), known_outlier=labels)
    labelled = compute_mean_auc(OutlierDetector, known_outlier=labels)

    assert labelled > 0.95
    assert labelled > max(unlabelled, excluded) + 0.1


def test_zero_outlier_weight_only_excludes_outliers_from_training(unlabelled_scores):
    labels = label(*range(300, 360))
    detector = ALTBI(schedule=FAST, outlier_weight=0).fit(X, known_outlier=labels)
    scores = detector.outlier_score(X)

    assert detector.model_.training_table.n_sample == len(X)
    assert not np.array_equal(scores, unlabelled_scores)
    little_trust = ALTBI(schedule=FAST, outlier_weight=0, label_trust=0.1)
    assert np.array_equal(score(little_trust, known_outlier=labels), scores)


def test_labelled_outliers_are_no_reference_rows():
    detector = OutlierDetector(schedule=FAST, keep=1.0).fit(X, known_outlier=IS_OUTLIER)

    encoder = detector.encoder_
    normal = encoder.standardize(as_table(NORMAL, encoder.names))
    assert np.array_equal(detector.model_.scorer.distance.rows, normal)


def test_few_labelled_outliers_are_added_to_sample():
    table = np.vstack([X] * 3)

    def fit(**labels):
        return ALTBI(schedule=FAST, max_rows=150).fit(table, **labels).model_

    plain, few = fit(), fit(known_outlier=np.isin(np.arange(len(table)), [301, 302]))
    many = fit(known_outlier=np.tile(IS_OUTLIER, 3))  # more labels than the sample has rows

    assert many.training_table.n_sample == 150
    assert few.training_table.n_sample in (151, 152)
    name = "mean.weight"
    assert not np.array_equal(few.scorer.arrays[name], plain.scorer.arrays[name])


def test_labels_are_matched_by_index_or_position():
    frame = pd.DataFrame(X).rename(columns=str)
    series = pd.Series(label(3, 301))

    by_position = ALTBI(schedule=FAST).fit(frame, known_outlier=series.to_numpy())
    by_index = ALTBI(schedule=FAST).fit(frame, known_outlier=series)

    assert np.array_equal(by_index.outlier_score(frame), by_position.outlier_score(frame))
    with pytest.raises(ParameterError, match="another index"):
        ALTBI(schedule=FAST).fit(frame, known_outlier=series[::-1])


def test_all_labelled_outliers_are_used_in_training():
    seen = set()

    class Recorder(nn.Module):
        def __init__(self, n_features):
            super().__init__()
            self.centre = nn.Parameter(torch.zeros(n_features))

        def forward(self, rows):
            if self.training:
                seen.update(rows[-32:, 0].tolist())
            return (rows - self.centre).square().sum(1)

    labels = label(*range(300, 360))
    detector = ALTBI(backbone=Recorder, schedule=FAST).fit(X, known_outlier=labels)

    outliers = detector.encoder_.transform(as_table(X, detector.encoder_.names))[labels, 0]
    assert set(outliers.tolist()) <= seen


def test_seed_decides_scores_with_labels():
    labels = label(*range(300, 360))  # more than a batch holds

    def score_with(seed):
        torch.manual_seed(seed + 7)
        return score(ALTBI(schedule=FAST, random_state=seed), known_outlier=labels)

    first = score_with(1)
    assert np.array_equal(score_with(1), first)
    assert not np.array_equal(score_with(2), first)


@pytest.mark.parametrize(
    "backbone", [None, Glow(flow_steps=2, hidden=(8, 8))], ids=["iwae", "glow"]
)
def test_detector_of_normal_rows_scores_new_outliers(backbone):
    detector = ALTBI(schedule=Schedule(T2=90), backbone=backbone).fit(NORMAL[:200])

    scores = detector.outlier_score(np.vstack([NORMAL[200:], CLUSTER * 2]))
    assert (scores[100:][:, None] > scores[:100]).mean() > 0.95


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"known_inlier": np.ones(3, dtype=bool)}, r"known_inlier has the shape \(3,\)"),
        ({"known_outlier": np.ones((360, 1), dtype=bool)}, r"shape \(360, 1\)"),
        ({"known_inlier": np.arange(360)}, "type int64"),
        ({"known_outlier": np.ones(360, dtype=bool)}, "leaves 0 of 360 rows"),
        ({"known_outlier": np.arange(360) > 0}, "leaves 1 of 360 rows"),
        ({"known_outlier": [[True], []]}, "known_outlier is not an array"),
        ({"known_inlier": label(4), "known_outlier": label(3, 4)}, "Row 4 .* both"),
    ],
)
def test_invalid_labels_raise_error(labels, problem):
    with pytest.raises(ParameterError, match=problem):
        ALTBI().fit(X, **labels)


@pytest.mark.parametrize(
    "parameters",
    [{"outlier_weight": -1}, {"label_trust": 0}, {"label_trust": 1.5}, {"outlier_weight": "much"}],
)
def test_invalid_label_parameters_raise_error(parameters):
    (name,) = parameters
    with pytest.raises(ParameterError, match=f"ALTBI: {name}="):
        ALTBI(**parameters).fit(X)
