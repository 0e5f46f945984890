"""Tests of the paper's truncation in private training."""

import warnings

import numpy as np
import torch

from altbi import ALTBI, Schedule
from altbi.torch import PrivacyBudget
from altbi_bench.truncation import Previous


def test_threshold_is_the_previous_batch_quantile():
    rule = Previous()
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])

    assert rule.select(losses, 0.5).all()
    rule.observe(losses, noise=9.0, expected_rows=5, share=0.5)

    assert rule.select(losses, 0.5).tolist() == [True, True, True, False, False]
    assert rule.select(losses, 1.0).all()
    rule.observe(losses[:0], noise=0.0, expected_rows=5, share=0.5)
    assert rule.threshold == 3.0


def test_ledger_has_no_guarantee_and_fit_warns():
    X = np.random.default_rng(0).uniform(size=(200, 3))
    budget = PrivacyBudget(epsilon=10, delta=1e-5, bounds=(0, 1), truncation=Previous)
    detector = ALTBI(privacy=budget, schedule=Schedule(n0=32, T0=1, T1=2, T2=3))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        detector.fit(X)

    ledger = detector.model_.ledger
    assert (ledger.truncation, ledger.guarantee) == ("previous", False)
    assert any("not a guarantee" in str(each.message) for each in caught)
    assert np.isfinite(detector.outlier_score(X)).all()
