"""Some rows are known: only normal ones, a few normal ones, or a few odd ones, not all rightly."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from altbi import ALTBI
from altbi.errors import ParameterError

RNG = np.random.default_rng(0)
# A hundred rows near the origin, a cluster that is odd and dense, so that it looks normal.
NORMAL = RNG.normal(size=(300, 5))
CLUSTER = RNG.normal(size=(60, 5)) * 0.3 + 2
X = np.vstack([NORMAL, CLUSTER])
IS_ODD = np.arange(len(X)) >= 300
FAST = {"T0": 5, "T1": 15, "T2": 25, "score_by": "loss"}
LOSS = {"score_by": "loss"}


def marked(*rows):
    return np.isin(np.arange(len(X)), rows)


def separation(scores, rows=slice(None)):
    scores, odd = scores[rows], IS_ODD[rows]
    return (scores[odd][:, None] > scores[~odd]).mean()


def test_no_marks_are_no_change():
    plain = ALTBI(**FAST).fit(X).outlier_score(X)

    assert np.array_equal(ALTBI(**FAST).fit(X, known_inlier=marked()).outlier_score(X), plain)
    assert np.array_equal(ALTBI(**FAST).fit(X, known_outlier=marked()).outlier_score(X), plain)


def test_all_known_to_be_normal_is_training_without_truncation():
    everyone = np.ones(len(X), dtype=bool)

    known = ALTBI(**FAST).fit(X, known_inlier=everyone).outlier_score(X)

    assert np.array_equal(known, ALTBI(rho=1, **FAST).fit(X).outlier_score(X))
    assert not np.array_equal(known, ALTBI(**FAST).fit(X).outlier_score(X))


def test_known_inliers_become_likelier():
    some = marked(*range(300, 330))
    plain = ALTBI(rho=0.7, average="plain", **LOSS).fit(X)
    known = ALTBI(rho=0.7, average="plain", **LOSS).fit(X, known_inlier=some)

    fell = plain.outlier_score(X) - known.outlier_score(X)

    assert fell[IS_ODD].mean() > fell[~IS_ODD].mean() + 0.2


def test_a_few_labels_find_the_others_of_their_kind_even_if_some_are_wrong():
    labelled = marked(*range(300, 308), 4, 7)
    rest = ~labelled

    plain = separation(ALTBI(**LOSS).fit(X).outlier_score(X), rest)
    dropped = separation(
        ALTBI(outlier_weight=0, **LOSS).fit(X, known_outlier=labelled).outlier_score(X), rest
    )
    pushed = separation(ALTBI().fit(X, known_outlier=labelled).outlier_score(X), rest)

    assert pushed > 0.95
    assert pushed > max(plain, dropped) + 0.1


def test_without_push_labelled_rows_are_left_out_of_training_only():
    labelled = marked(*range(300, 360))

    detector = ALTBI(outlier_weight=0, **FAST).fit(X, known_outlier=labelled)

    assert detector.n_sample_ == len(X)
    assert detector.outlier_score(X).shape == (len(X),)
    label_trust = ALTBI(outlier_weight=0, label_trust=0.1, **FAST).fit(X, known_outlier=labelled)
    assert np.array_equal(label_trust.outlier_score(X), detector.outlier_score(X))
    assert not np.array_equal(detector.outlier_score(X), ALTBI(**FAST).fit(X).outlier_score(X))


def test_marks_follow_their_rows_into_the_sample():
    many = np.vstack([X] * 3)
    labelled = np.tile(IS_ODD, 3)

    sampled = ALTBI(max_rows=150, **FAST).fit(many, known_outlier=labelled)

    # More labels than the sample has rows are sampled with the rest.
    assert sampled.n_sample_ == 150
    few = np.isin(np.arange(len(many)), [301, 302])
    detector = ALTBI(max_rows=150, **FAST).fit(many, known_outlier=few)
    plain = ALTBI(max_rows=150, **FAST).fit(many)
    assert detector.n_sample_ in (151, 152)
    assert not np.array_equal(detector.snapshots_["mean.weight"], plain.snapshots_["mean.weight"])


def test_marks_belong_to_rows_by_index_or_by_place():
    frame = pd.DataFrame(X).rename(columns=str)
    mask = marked(3, 301)
    plain = ALTBI(**FAST).fit(frame, known_outlier=mask).outlier_score(frame)

    series = pd.Series(mask)
    assert np.array_equal(
        ALTBI(**FAST).fit(frame, known_outlier=series).outlier_score(frame), plain
    )
    with pytest.raises(ParameterError, match="another index"):
        ALTBI(**FAST).fit(frame, known_outlier=series[::-1])


def test_all_labelled_outliers_get_their_turn():
    seen = set()

    class Watching(nn.Module):
        def __init__(self, n_features):
            super().__init__()
            self.centre = nn.Parameter(torch.zeros(n_features))

        def forward(self, rows):
            if self.training:
                seen.update(rows[-32:, 0].tolist())
            return (rows - self.centre).square().sum(1)

    labelled = marked(*range(300, 360))
    detector = ALTBI(backbone=Watching, **FAST).fit(X, known_outlier=labelled)

    odd = detector.encoder_.transform(detector._checked(X))[labelled, 0]
    assert set(odd.tolist()) <= seen


def test_the_seed_decides_with_labels_too():
    labelled = marked(*range(300, 360))  # more than fit into one batch

    def scores(seed):
        torch.manual_seed(seed + 7)
        return ALTBI(random_state=seed, **FAST).fit(X, known_outlier=labelled).outlier_score(X)

    assert np.array_equal(scores(1), scores(1))
    assert not np.array_equal(scores(1), scores(2))


@pytest.mark.parametrize("backbone", ["iwae", "glow"])
def test_novelty_scores_new_rows_by_a_table_of_normal_ones(backbone):
    detector = ALTBI.novelty(backbone=backbone, flow_steps=2, hidden=(8, 8)).fit(NORMAL[:200])

    scores = detector.outlier_score(np.vstack([NORMAL[200:], CLUSTER * 2]))
    assert (scores[100:][:, None] > scores[:100]).mean() > 0.95


def test_novelty_has_ten_more_steps():
    assert ALTBI.novelty().get_params() == ALTBI(T2=90, **LOSS).get_params()
    assert ALTBI.novelty(rho=1, T2=70).get_params() == ALTBI(rho=1, T2=70, **LOSS).get_params()


@pytest.mark.parametrize(
    ("marks", "problem"),
    [
        ({"known_inlier": np.ones(3, dtype=bool)}, r"known_inlier has the shape \(3,\)"),
        ({"known_outlier": np.ones((360, 1), dtype=bool)}, r"shape \(360, 1\)"),
        ({"known_inlier": np.arange(360)}, "type int64"),
        ({"known_outlier": np.ones(360, dtype=bool)}, "leaves 0 of 360 rows"),
        ({"known_outlier": np.arange(360) > 0}, "leaves 1 of 360 rows"),
        ({"known_outlier": [[True], []]}, "known_outlier is no array"),
        ({"known_inlier": marked(4), "known_outlier": marked(3, 4)}, "Row 4 .* both"),
    ],
)
def test_marks_that_make_no_sense_are_refused(marks, problem):
    with pytest.raises(ParameterError, match=problem):
        ALTBI().fit(X, **marks)


@pytest.mark.parametrize("wrong", [{"push": -1}, {"trust": 0}, {"trust": 1.5}, {"push": "much"}])
def test_a_wrong_weight_is_named(wrong):
    (name,) = wrong
    with pytest.raises(ParameterError, match=f"ALTBI: {name}="):
        ALTBI(**wrong).fit(X)
