"""The systems compared: each is fitted on a table without labels, then scores the same rows.

Libraries are imported when a system is built, so that the catalogue itself costs nothing and the
time of an import is not taken for the time of a fit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from altbi.bench.datasets import Rows

if TYPE_CHECKING:
    from altbi.detectors import Detector

__all__ = ["OTHER_SYSTEMS", "SYSTEMS", "Fit", "Scores"]

Scores = NDArray[np.floating]
# Fitted on rows; what comes back scores these same rows, high = outlier.
Fit = Callable[[Rows], Callable[[], Scores]]

NEIGHBOURS = 32
NEIGHBOUR_ROWS = 20_000


def altbi(preset: str, seed: int, **changes: Any) -> Fit:  # noqa: ANN401 - ALTBI's arguments
    """ALTBI as one of its presets, "plain" being the constructor, with changes."""
    from altbi import ALTBI

    make = ALTBI if preset == "plain" else getattr(ALTBI, preset)
    return _fitted_on_all(make(random_state=seed, **changes))


def odim(seed: int) -> Fit:
    """ODIM as the authors' code does, variances in place of deviations included."""
    from altbi import ODIM

    return _fitted_on_all(ODIM.reference(random_state=seed))


def _fitted_on_all(detector: Detector) -> Fit:
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
    "ALTBI-I (paper)": partial(altbi, "paper"),
    "ALTBI-I (reference)": partial(altbi, "reference"),
    "IForest": isolation_forest,
    "kNN-32": nearest_neighbours,
}

# The method's other systems, which take longer.
OTHER_SYSTEMS: dict[str, Callable[[int], Fit]] = {
    "ALTBI-G (light)": partial(altbi, "plain", backbone="glow"),
    "ALTBI-G (reference)": partial(altbi, "reference", backbone="glow"),
    "ODIM": odim,
}
