"""One encoded table with the losses and reference rows that many trials share."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from altbi.encoding import TableEncoder
from altbi.model._fit import (
    choose_sizing_features,
    choose_uses,
    fit_loss_scorer,
    is_whitened,
)
from altbi.model._settings import FitSettings, ReferenceSettings, outlier_detector_settings
from altbi.rarities import fit_value_rarities
from altbi.scorers import DistanceScorer, SumScorer, fit_distance_scorer, fit_sum_scorer
from altbi.scorers._distance import compute_whitening
from altbi.table import as_table

__all__ = ["FIRST_GROUPS", "EncodedTable", "Reference"]

# Groups of reference rows in most trials. The detector has more since then.
FIRST_GROUPS = 5

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True)
class Reference:
    """Reference rows, and the scorer by distance to them."""

    distance: DistanceScorer
    rows: Rows


@final
@dataclass(frozen=True)
class EncodedTable:
    """A table as `OutlierDetector` encodes it; losses and reference rows are computed once.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
        The table.
    encoder : TableEncoder
        Encoder that is fitted on the table.
    features, z_scores : ndarray of shape (n_rows, n_features_encoded)
        Inputs of the network, and rows between which distances are computed.
    settings : FitSettings
        Settings of the detector, with the seed.
    seed : int
        Seed of the network and of the selection of reference rows.
    """

    X: NDArray[np.float64]
    encoder: TableEncoder
    features: Rows
    z_scores: Rows
    settings: FitSettings
    seed: int

    @classmethod
    def encode(cls, X: NDArray[np.float64], seed: int = 0) -> Self:
        """Fit the encoder and encode a table."""
        table = as_table(X)
        encoder = TableEncoder().fit(table)
        settings = outlier_detector_settings(random_state=seed)
        features, z_scores = encoder.transform(table), encoder.standardize(table)
        return cls(X, encoder, features, z_scores, settings, seed)

    @property
    def n_features(self) -> int:
        """Number of encoded features."""
        return self.z_scores.shape[1]

    @property
    def reference_settings(self) -> ReferenceSettings:
        """How the detector selects reference rows."""
        assert self.settings.reference is not None
        return self.settings.reference

    @property
    def is_whitened(self) -> bool:
        """Whether the detector whitens distances in this table."""
        return is_whitened(self.reference_settings, self.encoder)

    @cached_property
    def filled(self) -> Rows:
        """Robust z-scores with 0, the median, for missing values."""
        return np.nan_to_num(self.z_scores)

    @cached_property
    def losses(self) -> Scores:
        """Losses of all rows by the IWAE, as means over snapshots."""
        sized_for = choose_sizing_features(self.settings, self.features.shape[1])
        steps = self.settings.training.run(self.features, None, self.seed, sized_for=sized_for)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return fit_loss_scorer(end.value, self.settings, self.features, self.encoder)[1]

    @cached_property
    def other_seeds(self) -> tuple["EncodedTable", ...]:
        """The same table with two other seeds."""
        return tuple(EncodedTable.encode(self.X, self.seed + 1 + n) for n in range(2))

    @cached_property
    def reference(self) -> Reference:
        """Reference rows in five groups, which most trials share."""
        return self.select_reference(self.losses)

    @cached_property
    def detector_reference(self) -> Reference:
        """Reference rows as the detector selects them."""
        return self.select_reference(self.losses, n_groups=self.reference_settings.n_groups)

    @cached_property
    def _terms_by_groups(self) -> dict[int, list[Scores]]:
        """Results of `scale_terms` that are computed."""
        return {}

    def scale_terms(self, n_groups: int) -> list[Scores]:
        """Return the detector's terms without weights, for a number of groups; computed once."""
        if n_groups not in self._terms_by_groups:
            fitted = self.fit_sum(self.select_reference(self.losses, n_groups=n_groups))
            terms = [
                scale.apply(scorer.score(self.z_scores[:, features]))
                for scorer, _, scale, features in fitted.squared_terms
            ]
            if fitted.rarity is not None:
                sums = fitted.add_rarities(self.z_scores, None)
                terms.append(fitted.scales[-1].apply(sums))
            self._terms_by_groups[n_groups] = terms
        return self._terms_by_groups[n_groups]

    @cached_property
    def kept(self) -> Rows:
        """The 80 % of rows with the smallest distances, with 0 for missing values."""
        distances = self.reference.distance.score(self.z_scores)
        n_kept = max(round(self.reference_settings.keep * len(self.X)), 10)
        return self.filled[np.argsort(distances, kind="stable")[:n_kept]]

    def select_reference(
        self,
        losses: Scores,
        *,
        keep: float | None = None,
        whiten: bool | None = None,
        n_groups: int = FIRST_GROUPS,
    ) -> Reference:
        """Select reference rows by losses in the detector's two rounds; None: its own setting."""
        defaults = self.reference_settings
        distance, rows = fit_distance_scorer(
            self.z_scores,
            losses,
            keep=defaults.keep if keep is None else keep,
            n_reference=defaults.n_reference,
            n_groups=n_groups,
            whiten=self.is_whitened if whiten is None else whiten,
            seed=self.seed,
            is_inlier=np.zeros(len(losses), dtype=bool),
        )
        return Reference(distance, rows)

    def select_once(self, losses: Scores, n_groups: int = FIRST_GROUPS) -> Reference:
        """Select reference rows by losses in one round."""
        defaults = self.reference_settings
        n_kept = max(round(defaults.keep * len(losses)), 2)
        kept = np.argsort(losses, kind="stable")[:n_kept]
        whitening = compute_whitening(self.z_scores[kept]) if self.is_whitened else None
        sampled = np.random.default_rng(self.seed).permutation(kept)[: defaults.n_reference]
        rows = self.z_scores[np.sort(sampled)]
        return Reference(DistanceScorer(np.nan_to_num(rows), n_groups, whitening), rows)

    def fit_sum(self, reference: Reference) -> SumScorer:
        """Fit the detector's sum with these reference rows, without the signs of numbers."""
        numbers = self.encoder.number_features
        return fit_sum_scorer(reference.distance, reference.rows, self.z_scores, numbers)

    def score_sum(self, reference: Reference) -> Scores:
        """Return the scores of all rows by the detector's sum with these reference rows."""
        table = as_table(self.X)
        values = fit_value_rarities(table, choose_uses(self.encoder, table))
        rarities = values.score(table)
        numbers = self.encoder.number_features
        fitted = fit_sum_scorer(
            reference.distance, reference.rows, self.z_scores, numbers, values, rarities
        )
        return fitted.score(self.z_scores, rarities)
