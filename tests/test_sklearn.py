"""scikit-learn's own contract, whole: no expected failures, none skipped."""

from functools import partial
from unittest import SkipTest

import numpy as np
import pytest
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

from altbi import ALTBI, ODIM

PRESETS = {
    "plain": ALTBI,
    "paper": ALTBI.paper,
    "reference": ALTBI.reference,
    "glow": partial(ALTBI, backbone="glow", flow_steps=1, hidden=(4, 4), T0=1, T1=8, T2=10),
    "odim": partial(ODIM, n_models=2, draws=3),
}


def named_checks():
    # The plain constructor and reference() hold the same parameters (tested elsewhere), and are
    # different entries here because that will change.
    for preset, build in PRESETS.items():
        for estimator, check in estimator_checks_generator(build()):
            name = getattr(check, "func", check).__name__
            extra = "-".join(f"{k}={v}" for k, v in getattr(check, "keywords", {}).items())
            yield pytest.param(estimator, check, id=f"{preset}-{name}-{extra}")


@pytest.mark.parametrize(("estimator", "check"), list(named_checks()))
@pytest.mark.filterwarnings("error::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_check(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"a check that is skipped checks nothing: {reason}")


def test_the_tags_promise_a_deterministic_and_validating_detector():
    tags = get_tags(ALTBI())

    assert tags.estimator_type == "outlier_detector"
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert tags.input_tags.allow_nan
    assert not tags.input_tags.sparse


def test_decision_and_labels_follow_from_the_score():
    X = np.random.default_rng(0).normal(size=(100, 3))
    detector = ALTBI.paper().fit(X)

    assert np.array_equal(detector.score_samples(X), -detector.outlier_score(X))
    assert np.array_equal(
        detector.decision_function(X), detector.score_samples(X) - detector.offset_
    )
    assert np.array_equal(detector.predict(X) == -1, detector.decision_function(X) < 0)
    assert np.array_equal(ALTBI.paper().fit_predict(X), detector.predict(X))
