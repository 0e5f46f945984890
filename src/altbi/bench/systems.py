"""The systems compared: each is fitted on a table without labels, then scores the same rows.

Libraries are imported when a system is built, so that the catalogue itself costs nothing and the
time of an import is not taken for the time of a fit.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from altbi.bench.datasets import Rows

__all__ = ["SYSTEMS", "Fit", "Scores"]

Scores = NDArray[np.floating]
# Fitted on rows; what comes back scores these same rows, high = outlier.
Fit = Callable[[Rows], Callable[[], Scores]]

NEIGHBOURS = 32
NEIGHBOUR_ROWS = 20_000


def altbi_paper(seed: int) -> Fit:
    """ALTBI as the paper's Algorithm 1 says."""
    from altbi import ALTBI

    detector = ALTBI.paper(random_state=seed)
    return lambda rows: partial(detector.fit(rows).anomaly_score, rows)


def altbi_reference(seed: int) -> Fit:
    """ALTBI as the authors' code does."""
    from altbi import ALTBI

    detector = ALTBI.reference(random_state=seed)
    return lambda rows: partial(detector.fit(rows).anomaly_score, rows)


def isolation_forest(seed: int) -> Fit:
    """Isolation forest of scikit-learn, all defaults, on raw columns."""
    from sklearn.ensemble import IsolationForest

    def fit(rows: Rows) -> Callable[[], Scores]:
        forest = IsolationForest(random_state=seed).fit(rows)
        return lambda: -forest.score_samples(rows)

    return fit


def nearest_neighbours(seed: int) -> Fit:
    """Distance to the 32nd neighbour on standardised columns.

    Neighbours are looked for among at most 20,000 rows, a seeded sample of a larger table, but
    every row is scored. A row is not its own neighbour. Without a sample the seed changes nothing.
    """
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    def fit(rows: Rows) -> Callable[[], Scores]:
        rows = StandardScaler().fit_transform(rows)
        size = min(len(rows), NEIGHBOUR_ROWS)
        sample = np.random.default_rng(seed).choice(len(rows), size, replace=False)
        nth = min(NEIGHBOURS, size - 1)
        index = NearestNeighbors(n_neighbors=nth + 1).fit(rows[sample])
        in_sample = np.zeros(len(rows), dtype=bool)
        in_sample[sample] = True

        def score() -> Scores:
            distances, _ = index.kneighbors(rows)
            # A row of the sample finds itself first, at distance 0: its neighbours come one later.
            return np.where(in_sample, distances[:, nth], distances[:, nth - 1])

        return score

    return fit


SYSTEMS: dict[str, Callable[[int], Fit]] = {
    "ALTBI-I (paper)": altbi_paper,
    "ALTBI-I (reference)": altbi_reference,
    "IForest": isolation_forest,
    "kNN-32": nearest_neighbours,
}
