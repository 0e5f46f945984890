"""scikit-learn's own contract: no expected failure, no skipped check."""

from unittest import SkipTest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

from altbi import ALTBI, IWAE, ODIM, OutlierDetector, Schedule
from altbi.torch import Glow

DETECTORS = {
    "OutlierDetector": OutlierDetector(schedule=Schedule(T0=2, T1=8, T2=10)),
    "ALTBI": ALTBI(schedule=Schedule(T0=2, T1=8, T2=10)),
    "ALTBI.paper": ALTBI.paper(),
    "ALTBI with Glow": ALTBI(
        backbone=Glow(flow_steps=1, hidden=(4, 4)), schedule=Schedule(T0=1, T1=8, T2=10)
    ),
    "ODIM": ODIM(n_models=2, backbone=IWAE(n_samples=3)),
}


def name_checks():
    for detector, estimator in DETECTORS.items():
        for checked, check in estimator_checks_generator(clone(estimator)):
            name = getattr(check, "func", check).__name__
            extra = "-".join(f"{k}={v}" for k, v in getattr(check, "keywords", {}).items())
            yield pytest.param(checked, check, id=f"{detector}-{name}-{extra}")


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), list(name_checks()))
@pytest.mark.filterwarnings("error::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_check(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"a skipped check checks nothing: {reason}")


@pytest.mark.parametrize("name", DETECTORS)
def test_tags_describe_a_deterministic_detector(name):
    tags = get_tags(DETECTORS[name])

    assert tags.estimator_type == "outlier_detector"
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert tags.input_tags.allow_nan
    assert not tags.input_tags.sparse


def test_fit_predict_equals_fit_and_predict():
    X = np.random.default_rng(0).normal(size=(100, 3))
    detector = DETECTORS["ALTBI"]

    assert np.array_equal(clone(detector).fit_predict(X), clone(detector).fit(X).predict(X))
