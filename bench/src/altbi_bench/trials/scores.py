"""The single scores that were tried, by name; all are functions of an encoded table."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from altbi.scorers import DistanceScorer, fit_covariance_scorer, fit_distance_scorer
from altbi.scorers._distance import compute_whitening
from altbi.scorers._rarity import fit_rarity_scorer
from altbi_bench.trials.encoded_table import FIRST_GROUPS, EncodedTable
from altbi_bench.trials.histograms import (
    Binning,
    EqualBins,
    MassPoints,
    score_by_histograms,
    score_by_tails,
)

__all__ = ["SCORES", "Score", "score_by_covariance"]

Floats = NDArray[np.floating]
Scores = NDArray[np.float64]
Score = Callable[[EncodedTable], Scores]

# Smallest variance, as a share of the median variance.
LEAST_VARIANCE = 1e-3
# Rounds and share of rows of the C-steps.
N_C_STEPS, C_STEP_SHARE = 4, 0.75
C_STEP_RIDGE = 0.1


def score_by_covariance(rows: Floats, reference: Floats, ridge: float | None) -> Scores:
    """Return squared Mahalanobis distances; `ridge` is added to variances, as a share of them.

    None shrinks correlations by Ledoit and Wolf's rule.
    """
    center = reference.mean(axis=0, dtype=np.float64)
    variances = reference.var(axis=0, dtype=np.float64)
    positive = variances[variances > 0]
    least = LEAST_VARIANCE * float(np.median(positive)) if len(positive) else 1.0
    spread = np.sqrt(np.maximum(variances, least))
    scaled = (reference - center) / spread
    if ridge is None:
        from sklearn.covariance import ledoit_wolf

        correlation = ledoit_wolf(scaled, assume_centered=True)[0]
    else:
        correlation = scaled.T @ scaled / (len(scaled) - 1)
        correlation += ridge * np.eye(len(correlation))
    centred = (rows - center) / spread
    precision = np.linalg.pinv(correlation, hermitian=True)
    return np.asarray(((centred @ precision) * centred).sum(axis=1))


def score_by_c_steps(table: EncodedTable) -> Scores:
    """Return squared Mahalanobis distances after C-steps, which start from the rows kept."""
    scores = score_by_covariance(table.filled, table.kept, C_STEP_RIDGE)
    n_kept = max(int(C_STEP_SHARE * len(scores)), 10)
    for _ in range(N_C_STEPS):
        nearest = table.filled[np.argsort(scores, kind="stable")[:n_kept]]
        scores = score_by_covariance(table.filled, nearest, C_STEP_RIDGE)
    return scores


def score_by_variances(table: EncodedTable) -> Scores:
    """Return squared distances from the mean of the rows kept, relative to their variances."""
    centred = table.filled - table.kept.mean(axis=0)
    scores: Scores = (centred**2 / np.maximum(table.kept.var(axis=0), 1e-3)).sum(axis=1)
    return scores


def _covariance(table: EncodedTable) -> Scores:
    numbers = table.encoder.number_features
    return fit_covariance_scorer(table.reference.rows[:, numbers]).score(table.z_scores[:, numbers])


def _rarity(table: EncodedTable) -> Scores:
    rows = table.z_scores[:, table.encoder.number_features]
    return fit_rarity_scorer(rows).score(rows)


def _reference_covariance(ridge: float | None) -> Score:
    return lambda table: score_by_covariance(
        table.filled, np.nan_to_num(table.reference.rows), ridge
    )


def _distance(**changes: float | bool) -> Score:
    """Return a score by distance with some settings of the selection changed."""
    return lambda table: table.select_reference(table.losses, **changes).distance.score(  # type: ignore[arg-type]
        table.z_scores
    )


def _histogram(binning: Binning, *, of_reference: bool = False) -> Score:
    def score(table: EncodedTable) -> Scores:
        rows = np.nan_to_num(table.reference.rows) if of_reference else table.filled
        return score_by_histograms(table.filled, rows, binning)

    return score


def _tails(kind: str, *, of_reference: bool = False) -> Score:
    def score(table: EncodedTable) -> Scores:
        rows = np.nan_to_num(table.reference.rows) if of_reference else table.filled
        return score_by_tails(table.filled, rows)[kind]

    return score


def _forest(table: EncodedTable, *, of_reference: bool = False) -> Scores:
    from sklearn.ensemble import IsolationForest

    rows = np.nan_to_num(table.reference.rows) if of_reference else table.filled
    scores: Scores = -IsolationForest(random_state=table.seed).fit(rows).score_samples(table.filled)
    return scores


def _distance_in(transform: Callable[[EncodedTable], Floats]) -> Score:
    """Return a score by distance in another space; the plain distance selects the rows."""

    def score(table: EncodedTable) -> Scores:
        rows = np.ascontiguousarray(transform(table), dtype=np.float32)
        scorer, _ = fit_distance_scorer(
            rows,
            table.reference.distance.score(table.z_scores),
            keep=table.reference_settings.keep,
            n_reference=table.reference_settings.n_reference,
            n_groups=FIRST_GROUPS,
            seed=table.seed,
            is_inlier=np.zeros(len(rows), dtype=bool),
        )
        return scorer.score(rows)

    return score


def _to_normal_ranks(table: EncodedTable) -> Floats:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri(rankdata(table.filled, axis=0) / (len(table.filled) + 1)))


def _to_logs(table: EncodedTable) -> Floats:
    return np.asarray(np.sign(table.filled) * np.log1p(np.abs(table.filled)))


def _standardize(table: EncodedTable) -> Floats:
    filled = np.nan_to_num(table.X)
    spread = filled.std(axis=0)
    return np.asarray((filled - filled.mean(axis=0)) / np.where(spread > 0, spread, 1))


def _neighbours(k: int, *, is_mean: bool = False) -> Score:
    """Return a score by the k-th nearest other row, or by the mean distance to k."""

    def score(table: EncodedTable) -> Scores:
        from sklearn.neighbors import NearestNeighbors

        rows = _standardize(table)
        count = min(k, len(rows) - 1)
        found = NearestNeighbors(n_neighbors=count).fit(rows).kneighbors()[0]
        return np.asarray(found.mean(axis=1) if is_mean else found[:, -1])

    return score


def _reference_neighbours(table: EncodedTable) -> Scores:
    """Return distances to the 33rd nearest reference row, which may be the row itself."""
    from sklearn.neighbors import NearestNeighbors

    rows = np.nan_to_num(table.reference.rows)
    found = NearestNeighbors(n_neighbors=min(33, len(rows))).fit(rows).kneighbors(table.filled)[0]
    return np.asarray(found[:, -1])


def _cosine(table: EncodedTable) -> Scores:
    """Return distances between rows that are scaled to length 1 after the mean is subtracted."""
    rows = np.nan_to_num(table.reference.rows)
    whitening = compute_whitening(table.kept) if table.is_whitened else np.eye(table.n_features)
    center = rows.mean(axis=0)

    def project(values: Floats) -> NDArray[np.float32]:
        projected = (values - center) @ whitening
        lengths = np.linalg.norm(projected, axis=1, keepdims=True)
        return np.asarray(projected / np.where(lengths > 0, lengths, 1), dtype=np.float32)

    return DistanceScorer(project(rows), 5, None).score(project(table.filled))


def _mean_of_seeds(table: EncodedTable, score: Score) -> Scores:
    """Return the mean of scores over seeds."""
    return np.asarray(np.mean([score(each) for each in (table, *table.other_seeds)], axis=0))


def _log_distance(table: EncodedTable) -> Scores:
    distances = table.reference.distance.score(table.z_scores)
    return np.log1p(distances / (np.median(distances) or 1.0))


def _detector(table: EncodedTable) -> Scores:
    return table.score_sum(table.detector_reference)


def _detector_with(*, keep: float) -> Score:
    """Return the detector's score with another share of rows that are kept."""

    def score(table: EncodedTable) -> Scores:
        n_groups = table.reference_settings.n_groups
        return table.score_sum(table.select_reference(table.losses, keep=keep, n_groups=n_groups))

    return score


def _detector_with_one_selection(table: EncodedTable) -> Scores:
    return table.score_sum(table.select_once(table.losses, table.reference_settings.n_groups))


def _weighted(n_groups: int, weights: tuple[float, ...]) -> Score:
    """Return the detector's sum with other groups and weights; wide tables have one term only."""

    def score(table: EncodedTable) -> Scores:
        terms = table.scale_terms(n_groups)
        if len(terms) == 1:
            return terms[0]
        return np.asarray(sum(w * term for w, term in zip(weights, terms, strict=True)))

    return score


def _list_distances() -> Iterator[tuple[str, Score]]:
    yield "distance", lambda table: table.reference.distance.score(table.z_scores)
    yield "distance, keep 1", _distance(keep=1.0)
    yield "distance, keep 0.9", _distance(keep=0.9)
    yield (
        "distance, one selection",
        lambda table: table.select_once(table.losses).distance.score(table.z_scores),
    )
    yield "distance, never whitened", _distance(whiten=False)
    yield "distance, always whitened", _distance(whiten=True)
    for n_groups in (1, 2, 10, 20):
        yield f"distance, groups: {n_groups}", _distance(n_groups=n_groups)
    yield "distance, mean of 3 seeds", partial(_mean_of_seeds, score=_log_distance)
    yield "distance, ranks", _distance_in(_to_normal_ranks)
    yield "distance, logs", _distance_in(_to_logs)
    yield "distance, standard deviations", _distance_in(_standardize)
    yield "distance, cosine", _cosine
    yield "5th neighbour", _neighbours(5)
    yield "32nd neighbour", _neighbours(32)
    yield "mean of 32 neighbours", _neighbours(32, is_mean=True)
    yield "33rd reference row", _reference_neighbours
    yield "squared z-scores", lambda table: (table.filled**2).sum(axis=1, dtype=np.float64)
    yield "largest z-score", lambda table: np.abs(table.filled).max(axis=1).astype(np.float64)


def _list_covariances() -> Iterator[tuple[str, Score]]:
    yield "covariance", _covariance
    for ridge in (1e-6, 1e-4, 1e-3, 1e-2, 1e-1):
        yield f"covariance, ridge {ridge:g}", _reference_covariance(ridge)
    yield "covariance, Ledoit-Wolf", _reference_covariance(None)
    yield (
        "covariance, all rows kept",
        lambda table: score_by_covariance(table.filled, table.kept, 1e-4),
    )
    yield (
        "covariance, all rows",
        lambda table: score_by_covariance(table.filled, table.filled, 1e-4),
    )
    yield "covariance, C-steps", score_by_c_steps
    yield "covariance, diagonal", score_by_variances


def _list_histograms() -> Iterator[tuple[str, Score]]:
    yield "rarity", _rarity
    for n_bins in (5, 10, 50):
        yield f"rarity, bins: {n_bins}", _histogram(EqualBins(n_bins))
    for share in (0.0, 0.002, 0.03):
        yield f"rarity, outer share {share:g}", _histogram(EqualBins(outer_share=share))
    yield "rarity, left-closed", _histogram(EqualBins(side="right"))
    yield "rarity, right-closed", _histogram(EqualBins(side="left"))
    yield "rarity, mass points", _histogram(MassPoints())
    yield "rarity, reference rows", _histogram(EqualBins(), of_reference=True)
    yield "tails", _tails("two-sided")
    yield "tails, reference rows", _tails("two-sided", of_reference=True)
    yield "largest tail", _tails("largest")
    yield "ECOD", _tails("ecod")


def _list_others() -> Iterator[tuple[str, Score]]:
    yield "isolation forest", _forest
    yield "isolation forest, reference rows", partial(_forest, of_reference=True)
    yield "IWAE's loss", lambda table: table.losses
    yield "detector", _detector
    yield "detector, keep 1", _detector_with(keep=1.0)
    yield "detector, keep 0.9", _detector_with(keep=0.9)
    yield "detector, keep 0.7", _detector_with(keep=0.7)
    yield "detector, one selection", _detector_with_one_selection
    yield "detector, mean of 3 seeds", partial(_mean_of_seeds, score=_detector)
    for n_groups in (5, 10, 20, 40):
        for weights in ((1.0, 1.0, 0.5), (0.5, 1.0, 0.5)):
            yield _name_weighted(n_groups, weights), _weighted(n_groups, weights)
    for weights in WITHOUT_A_TERM.values():
        yield _name_weighted(20, weights), _weighted(20, weights)


def _name_weighted(n_groups: int, weights: tuple[float, ...]) -> str:
    return f"groups: {n_groups}, weights " + ", ".join(f"{weight:g}" for weight in weights)


# Weights of distance, covariance and rarity with one changed.
WITHOUT_A_TERM = {
    "without rarity": (0.5, 1.0, 0.0),
    "without covariance": (0.5, 0.0, 0.5),
    "without distance": (0.0, 1.0, 0.5),
    "unit weights": (1.0, 1.0, 1.0),
}
# What is removed from the detector, and the name of the score.
ABLATIONS = {label: _name_weighted(20, weights) for label, weights in WITHOUT_A_TERM.items()}


# The names are those of the records. "distance", "covariance" and "rarity" are terms with five
# groups of reference rows, and "detector" is the sum that the package has.
SCORES: dict[str, Score] = dict(
    [*_list_distances(), *_list_covariances(), *_list_histograms(), *_list_others()]
)
