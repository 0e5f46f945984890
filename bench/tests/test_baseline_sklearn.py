"""Tests of the baselines by scikit-learn's estimator checks, without expected failures."""

from functools import partial
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from altbi_bench import baselines

pytestmark = pytest.mark.slow

# DTEIG and ICL need three columns, more than some checks have.
ESTIMATORS = {
    name: partial(getattr(baselines, name), epochs=1)
    for name in baselines.__all__
    if name not in {"Baseline", "DTEIG", "ICL"}
}
# Baselines share a base class. Two of them run all checks, and the others run SHORT.
FULL = {"RDA", "DeepSAD"}
SHORT = {
    "check_estimators_overwrite_params",
    "check_fit2d_1sample",
    "check_no_attributes_set_in_init",
    "check_outliers_train",
    "check_parameters_default_constructible",
}


def list_checks():
    for baseline, build in ESTIMATORS.items():
        for estimator, check in estimator_checks_generator(build()):
            name = getattr(check, "func", check).__name__
            if baseline in FULL or name in SHORT:
                extra = "-".join(f"{k}={v}" for k, v in getattr(check, "keywords", {}).items())
                yield pytest.param(estimator, check, id=f"{baseline}-{name}-{extra}")


CHECKS = list(list_checks())


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
@pytest.mark.filterwarnings("error::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_check(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"skipped: {reason}")


def test_short_list_has_existing_checks():
    names = {param.id.split("-")[1] for param in CHECKS}

    assert names >= SHORT
