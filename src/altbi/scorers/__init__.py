"""Scorers, which compute the outlier score of encoded rows."""

from altbi.scorers._covariance import CovarianceScorer, fit_covariance_scorer
from altbi.scorers._distance import DistanceScorer, fit_distance_scorer
from altbi.scorers._loss import LossScorer, TypicalRows, fit_typical_rows
from altbi.scorers._rarity import RarityScorer, fit_rarity_scorer
from altbi.scorers._sum import Scale, SumScorer, fit_sum_scorer

__all__ = [
    "CovarianceScorer",
    "DistanceScorer",
    "LossScorer",
    "RarityScorer",
    "Scale",
    "SumScorer",
    "TypicalRows",
    "fit_covariance_scorer",
    "fit_distance_scorer",
    "fit_rarity_scorer",
    "fit_sum_scorer",
    "fit_typical_rows",
]
