"""Scorers, which compute the outlier score of encoded rows."""

from altbi.scorers._distance import DistanceScorer, fit_distance_scorer
from altbi.scorers._loss import LossScorer, TypicalRows, fit_typical_rows

__all__ = [
    "DistanceScorer",
    "LossScorer",
    "TypicalRows",
    "fit_distance_scorer",
    "fit_typical_rows",
]
