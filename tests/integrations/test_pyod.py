"""The PyOD face of the recommended detector."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest
from pyod.models.base import BaseDetector
from pyod.models.hbos import HBOS
from pyod.utils.utility import check_detector
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from altbi import IWAE, OutlierDetector, Schedule
from altbi.errors import ParameterError
from altbi.integrations.pyod import PyODDetector

SMALL = {
    "schedule": Schedule(n0=32, T0=2, T1=8, T2=10),
    "backbone": IWAE(hidden=(8,), latent=2),
}
OUTLIERS = [3, 77, 150]


@pytest.fixture(scope="module")
def rows():
    rows = np.random.default_rng(0).normal(size=(200, 4))
    rows[OUTLIERS] += 8.0
    return rows


@pytest.fixture(scope="module")
def fitted(rows):
    return PyODDetector(contamination=0.05, **SMALL).fit(rows)


class AtTwo:
    """A stand-in for a PyThresh object with a known threshold."""

    def fit(self, scores):
        self.thresh_ = np.sort(scores)[-2]
        self.labels_ = self.predict(scores)

    def predict(self, scores):
        return (scores >= self.thresh_).astype(int)


def test_fit_returns_a_pyod_detector(rows):
    detector = PyODDetector(**SMALL)

    assert isinstance(detector, BaseDetector)
    assert detector.fit(rows) is detector
    check_detector(detector)  # what PyOD's ensembles ask of their members


def test_scores_equal_those_of_the_detector(rows, fitted):
    plain = OutlierDetector(**SMALL).fit(rows)
    others = rows[::3] * 1.5

    np.testing.assert_array_equal(fitted.decision_scores_, plain.outlier_score(rows))
    np.testing.assert_array_equal(fitted.decision_function(others), plain.outlier_score(others))


def test_training_rows_keep_their_scores(rows, fitted):
    np.testing.assert_array_equal(fitted.decision_function(rows), fitted.decision_scores_)


def test_high_means_outlier(fitted):
    assert set(np.argsort(-fitted.decision_scores_)[:3]) == set(OUTLIERS)


def test_labels_follow_threshold_and_contamination(rows, fitted):
    assert set(np.unique(fitted.labels_)) == {0, 1}
    assert fitted.labels_.sum() == 0.05 * len(rows)
    np.testing.assert_array_equal(fitted.labels_, fitted.decision_scores_ > fitted.threshold_)
    np.testing.assert_array_equal(fitted.predict(rows), fitted.labels_)


def test_pythresh_object_sets_the_threshold(rows):
    detector = PyODDetector(contamination=AtTwo(), **SMALL).fit(rows)

    assert detector.labels_.sum() == 2
    np.testing.assert_array_equal(detector.predict(rows), detector.labels_)


@pytest.mark.parametrize("method", ["linear", "unify"])
def test_probabilities_add_up_and_rise_with_the_score(rows, fitted, method):
    probabilities = fitted.predict_proba(rows, method=method)

    assert probabilities.shape == (len(rows), 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    by_score = probabilities[np.argsort(fitted.decision_scores_), 1]
    assert (np.diff(by_score) >= 0).all()
    assert by_score[-1] > by_score[0]


def test_confidence_is_a_probability(rows, fitted):
    labels, confidence = fitted.predict(rows, return_confidence=True)

    np.testing.assert_array_equal(labels, fitted.labels_)
    np.testing.assert_array_equal(confidence, fitted.predict_confidence(rows))
    assert ((confidence >= 0) & (confidence <= 1)).all()


def test_rejection_withholds_some_labels(rows, fitted):
    labels = fitted.predict_with_rejection(rows, T=4, c_r=0.1)

    withheld = labels == -2
    assert 0 < withheld.sum() < len(rows)
    np.testing.assert_array_equal(labels[~withheld], fitted.labels_[~withheld])


def test_fit_predict_returns_the_labels(rows, fitted):
    with pytest.warns(FutureWarning, match="fit_predict"):
        labels = PyODDetector(contamination=0.05, **SMALL).fit_predict(rows)

    np.testing.assert_array_equal(labels, fitted.labels_)


def test_labels_of_the_user_are_not_used(rows, fitted):
    with pytest.warns(UserWarning, match="y should not be presented"):
        with_labels = PyODDetector(contamination=0.05, **SMALL).fit(rows, np.arange(len(rows)) % 2)

    np.testing.assert_array_equal(with_labels.decision_scores_, fitted.decision_scores_)


@pytest.mark.parametrize("contamination", [0.0, 0.51, -0.1, 1, float("nan")])
def test_wrong_contamination_is_refused_as_in_pyod(contamination):
    with pytest.raises(ValueError, match="contamination must be in") as theirs:
        HBOS(contamination=contamination)
    with pytest.raises(ValueError, match="contamination must be in") as ours:
        PyODDetector(contamination=contamination)

    assert str(ours.value) == str(theirs.value)


def test_other_parameters_are_checked_at_fit(rows):
    with pytest.raises(ParameterError, match="keep=2"):
        PyODDetector(keep=2).fit(rows)


def test_every_parameter_reaches_the_detector(rows):
    parameters = {
        "n_reference": 30,
        "n_groups": 4,
        "keep": 0.7,
        "whiten": True,
        "schedule": Schedule(n0=64, T0=2, T1=3, T2=5),
        "backbone": IWAE(n_samples=3),
        "max_rows": 60,
        "random_state": 9,
    }
    assert parameters.keys() == PyODDetector().get_params(deep=False).keys() - {"contamination"}

    detector = PyODDetector(**parameters).fit(rows)

    expected = OutlierDetector(**parameters).fit(rows).outlier_score(rows)
    assert np.array_equal(detector.decision_scores_, expected)


def test_defaults_are_those_of_the_detector():
    ours, theirs = (
        {name: p.default for name, p in inspect.signature(cls).parameters.items()}
        for cls in (PyODDetector, OutlierDetector)
    )

    assert ours.pop("contamination") == 0.1
    assert ours == {name: theirs[name] for name in ours}


def test_clone_copies_parameters_only(fitted):
    copy = clone(fitted)

    assert copy.get_params() == fitted.get_params()
    assert copy.get_params()["schedule__T2"] == 10
    assert not hasattr(copy, "decision_scores_")


def test_scoring_before_fit_is_refused(rows):
    with pytest.raises(NotFittedError):
        PyODDetector().decision_function(rows)


def test_detector_can_be_pickled(rows, fitted):
    loaded = pickle.loads(pickle.dumps(fitted))

    np.testing.assert_array_equal(loaded.decision_function(rows), fitted.decision_scores_)


@pytest.mark.slow
def test_without_pyod_the_error_names_the_extra():
    code = "import sys; sys.modules['pyod'] = None; import altbi.integrations.pyod"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert result.returncode == 1
    assert "MissingExtraError" in result.stderr
    assert "pip install 'altbi[pyod]'" in result.stderr
