"""scikit-learn's estimator checks of the baselines: no expected failures, none skipped."""

from functools import partial
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from altbi_bench import baselines

# Two of them need three columns, more than some checks have.
ESTIMATORS = {
    name: partial(getattr(baselines, name), epochs=1)
    for name in baselines.__all__
    if name not in {"Baseline", "DTEIG", "ICL"}
}


def named_checks():
    for baseline, build in ESTIMATORS.items():
        for estimator, check in estimator_checks_generator(build()):
            name = getattr(check, "func", check).__name__
            extra = "-".join(f"{k}={v}" for k, v in getattr(check, "keywords", {}).items())
            yield pytest.param(estimator, check, id=f"{baseline}-{name}-{extra}")


@pytest.mark.parametrize(("estimator", "check"), list(named_checks()))
@pytest.mark.filterwarnings("error::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_check(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"a check that is skipped checks nothing: {reason}")
