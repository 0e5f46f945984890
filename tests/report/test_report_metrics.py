import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from altbi.errors import ParameterError
from altbi.report._metrics import compute_auc, compute_average_precision

ROWS = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2).filter(
    lambda rows: 0 < sum(label for label, _ in rows) < len(rows)
)


@given(ROWS)
def test_metrics_with_ties_equal_those_of_sklearn(rows):
    labels, scores = map(np.array, zip(*rows, strict=True))

    assert compute_auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))
    assert compute_average_precision(labels, scores) == pytest.approx(
        average_precision_score(labels, scores)
    )


@pytest.mark.parametrize("n_outliers", [1, 500, 999])
def test_metrics_without_ties_equal_those_of_sklearn(n_outliers):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(1000) < n_outliers).astype(float)
    scores = rng.normal(size=1000) * 1e10 + labels

    assert compute_auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert compute_average_precision(labels, scores) == pytest.approx(
        average_precision_score(labels, scores), abs=1e-12
    )


@pytest.mark.parametrize(
    ("scores", "auc", "precision"),
    [([1, 2, 3, 4], 1.0, 1.0), ([4, 3, 2, 1], 0.0, 5 / 12), ([7, 7, 7, 7], 0.5, 0.5)],
)
def test_extreme_orders_have_known_metrics(scores, auc, precision):
    labels = [False, False, True, True]

    assert compute_auc(labels, scores) == auc
    assert compute_average_precision(labels, scores) == pytest.approx(precision)


@pytest.mark.parametrize("compute", [compute_auc, compute_average_precision])
@pytest.mark.parametrize("labels", [[True, True], [False, False], []])
def test_labels_of_one_class_are_an_error(compute, labels):
    with pytest.raises(ParameterError, match="All labels are the same"):
        compute(labels, np.arange(len(labels)))
