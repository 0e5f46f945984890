"""Variants of the recommended detector: one component changed at a time, and ideas that failed.

    python bench/scripts/accuracy.py

Each variant is fitted on at most 5,000 rows of each available table without labels, with five
seeds, and scores these rows. Records are in bench/results/accuracy.jsonl; existing ones are not run
again. The table has AUC and average precision, averaged over the seeds that all variants have: over
all tables, over those on which settings may be chosen (the sha256 of the file's stem ends in an
even digit), and over the others. It also has the paired difference from the recommended detector
("plain"), with its 95 % interval over tables.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import rankdata
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score

from altbi import ALTBI, IWAE, Schedule
from altbi.encoding import TableEncoder
from altbi.model._fit import MAX_SELECTING_FEATURES, WHITENED_FEATURES
from altbi.model._settings import SCORING_UPDATES
from altbi.networks import default_sizes
from altbi.scorers._distance import DistanceScorer, compute_whitening, fit_distance_scorer
from altbi.table import as_table
from altbi_bench.catalogue.datasets import Dataset, is_available, is_chosen_on, load, select
from altbi_bench.catalogue.protocols import sample_table
from altbi_bench.runs.json_records import append_json_record, read_json_records
from altbi_bench.statistics import paired_effect
from altbi_bench.tables.grids import markdown_grid

RECORDS = Path(__file__).parents[1] / "results" / "accuracy.jsonl"
ROWS, SEEDS = 5000, 5
PLAIN = "plain"

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
Records = dict[tuple[str, int, str], list[float]]


@dataclass(frozen=True, slots=True)
class Data:
    """One table, and the arrays that several variants use."""

    X: NDArray[np.float64]
    z_scores: Rows
    seed: int
    losses: dict[int, Scores] = field(default_factory=dict)
    whitened: list[Rows] = field(default_factory=list)

    @property
    def is_wide(self) -> bool:
        """Whether the recommended detector whitens it."""
        return self.X.shape[1] in WHITENED_FEATURES

    @property
    def rows(self) -> Rows:
        """Rows between which the recommended detector computes distances."""
        return self.whitened_rows() if self.is_wide else self.z_scores

    def whitened_rows(self) -> Rows:
        """Return whitened rows; they are computed once."""
        if not self.whitened:
            self.whitened.append(self.whiten(self.z_scores))
        return self.whitened[0]

    def whiten(self, rows: Rows) -> Rows:
        """Whiten rows by the covariance of those with small losses."""
        kept = np.argsort(self.loss(), kind="stable")[: round(0.8 * len(self.X))]
        return rows @ compute_whitening(rows[kept])

    def loss(self, updates: int = 2) -> Scores:
        """Return scores by loss after a number of updates in each step; they are computed once."""
        if updates not in self.losses:
            is_wide = self.X.shape[1] > MAX_SELECTING_FEATURES and updates < SCORING_UPDATES
            sizes = default_sizes(MAX_SELECTING_FEATURES) if is_wide else ("auto", "auto")
            detector = ALTBI(
                schedule=Schedule(updates=updates),
                backbone=IWAE(hidden=sizes[0], latent=sizes[1]),
                random_state=self.seed,
            )
            self.losses[updates] = detector.fit(self.X).outlier_score(self.X)
        return self.losses[updates]

    def forest(self) -> Scores:
        """Return the scores of an isolation forest."""
        return -IsolationForest(random_state=self.seed).fit(self.X).score_samples(self.X)


Variant = Callable[[Data], Scores]


def score_by_distance(data: Data, rows: Rows, losses: Scores, **changes: float) -> Scores:
    """Return scores by distance to reference rows, with some parameters changed."""
    settings = {"keep": 0.8, "n_reference": 1000, "n_groups": 5, "seed": data.seed} | changes
    certain = np.zeros(len(rows), dtype=bool)
    scorer, _ = fit_distance_scorer(rows, losses, is_inlier=certain, **settings)
    return scorer.score(rows)


def with_settings(**changes: float) -> Variant:
    """Return a variant with some parameters changed."""
    return lambda data: score_by_distance(data, data.rows, data.loss(), **changes)


def with_scaling(scale: Callable[[Data], NDArray[np.floating]]) -> Variant:
    """Return a variant with another scaling of the columns."""

    def scores(data: Data) -> Scores:
        rows = scale(data).astype(np.float32)
        return score_by_distance(data, data.whiten(rows) if data.is_wide else rows, data.loss())

    return scores


def with_rounds(
    distance: Callable[[Rows, Rows], Scores], rounds: int = 2, size: int = 1000
) -> Variant:
    """Return a variant with another distance or number of rounds of the selection."""

    def scores(data: Data) -> Scores:
        generator, losses = np.random.default_rng(data.seed), data.loss()
        for _ in range(rounds):
            kept = np.argsort(losses, kind="stable")[: max(round(0.8 * len(losses)), 11)]
            losses = distance(data.rows, data.rows[generator.permutation(kept)[:size]])
        return losses

    return scores


def mean_square(rows: Rows, reference: Rows) -> Scores:
    """Return the scores of the recommended detector."""
    return DistanceScorer(reference, 5).score(rows)


def nearest(rows: Rows, reference: Rows, metric: str = "sqeuclidean", k: int = 5) -> Scores:
    """Return the distances to the k nearest rows, nearest first, without one exact match."""
    count = min(k, len(reference) - 1)
    found = np.sort(np.partition(cdist(rows, reference, metric), count, axis=1)[:, : count + 1])
    return np.where(found[:, :1] == 0, found[:, 1:], found[:, :-1])


def mean_of_nearest(k: int) -> Callable[[Rows, Rows], Scores]:
    """Return the mean squared distance to the k nearest of all reference rows."""
    return lambda rows, reference: nearest(rows, reference, k=k).mean(axis=1)


def city_blocks(rows: Rows, reference: Rows) -> Scores:
    """Return the mean city-block distance to the nearest row of each group."""
    groups = [nearest(rows, reference[i::5], "cityblock", k=1)[:, 0] for i in range(5)]
    return np.mean(groups, axis=0)


def local_distance(rows: Rows, reference: Rows) -> Scores:
    """Return the distance to the fifth neighbour, divided by that of the nearest rows."""
    own = nearest(reference, reference, "euclidean")[:, -1] + 1e-3
    order = np.argpartition(cdist(rows, reference), 4, axis=1)[:, :5]
    return nearest(rows, reference, "euclidean")[:, -1] / own[order].mean(axis=1)


def clipped_at(limit: float) -> Callable[[Data], NDArray[np.floating]]:
    """Return a scaling by robust z-scores with another limit."""

    def scale_columns(data: Data) -> NDArray[np.floating]:
        centre = np.median(data.X, axis=0)
        quartiles = np.subtract(*np.percentile(data.X, [75, 25], axis=0)) / 1.349
        scale = np.where(quartiles > 0, quartiles, data.X.std(axis=0))
        return np.clip((data.X - centre) / np.where(scale > 0, scale, 1), -limit, limit)

    return scale_columns


def standardised(data: Data) -> NDArray[np.floating]:
    """Return z-scores by mean and standard deviation."""
    scale = data.X.std(axis=0)
    return np.clip((data.X - data.X.mean(axis=0)) / np.where(scale > 0, scale, 1), -20, 20)


def ranked(data: Data) -> NDArray[np.floating]:
    """Return ranks as shares of the table."""
    return rankdata(data.X, axis=0) / len(data.X)


def weighted(data: Data) -> Rows:
    """Weight columns by the spread of the rows left out relative to the rows kept."""
    order = np.argsort(score_by_distance(data, data.rows, data.loss()), kind="stable")
    kept, left = np.split(data.rows[order], [round(0.8 * len(order))])
    spread = ((left - np.median(kept, axis=0)) ** 2).mean(axis=0) + 1e-3
    weights = np.clip(spread / (kept.var(axis=0) + 1e-3), 1e-3, 1e3) ** 0.25
    return data.rows * weights / np.sqrt((weights**2).mean())


def vote(data: Data) -> Scores:
    """Return the sum of the ranks by loss and by distance."""
    return rankdata(data.loss()) + rankdata(score_by_distance(data, data.rows, data.loss()))


# The names are those of the records.
VARIANTS: dict[str, Variant] = {
    PLAIN: with_settings(),
    "one update a step": lambda data: score_by_distance(data, data.rows, data.loss(1)),
    "five updates a step": lambda data: score_by_distance(data, data.rows, data.loss(5)),
    "loss alone, two updates a step": Data.loss,
    "loss alone, five (reference)": lambda data: data.loss(5),
    "no model: any rows remembered": with_settings(keep=1.0),
    "no model: own distances only": lambda data: score_by_distance(
        data, data.rows, score_by_distance(data, data.rows, data.loss() * 0, keep=1.0)
    ),
    "isolation forest in place of the model": lambda data: score_by_distance(
        data, data.rows, data.forest()
    ),
    "isolation forest alone": Data.forest,
    "one round": with_rounds(mean_square, rounds=1),
    "four rounds": with_rounds(mean_square, rounds=4),
    "keep 0.5": with_settings(keep=0.5),
    "keep 0.7": with_settings(keep=0.7),
    "keep 0.9": with_settings(keep=0.9),
    "one lot": with_settings(n_groups=1),
    "3 lots": with_settings(n_groups=3),
    "10 lots": with_settings(n_groups=10),
    "250 remembered": with_settings(n_reference=250),
    "500 remembered": with_settings(n_reference=500),
    "2000 remembered": with_settings(n_reference=2000),
    "the 5 nearest of all": with_rounds(mean_of_nearest(5)),
    "the 10 nearest of all": with_rounds(mean_of_nearest(10)),
    "city-block distance": with_rounds(city_blocks),
    "distance against the neighbours' own": with_rounds(local_distance),
    "mean and standard deviation": with_scaling(standardised),
    "held within 5 deviations": with_scaling(clipped_at(5)),
    "held within 50 deviations": with_scaling(clipped_at(50)),
    "ranks": with_scaling(ranked),
    "whitened, whatever the width": lambda data: score_by_distance(
        data, data.whitened_rows(), data.loss()
    ),
    "not whitened, whatever the width": lambda data: score_by_distance(
        data, data.z_scores, data.loss()
    ),
    "columns weighed by what strays": lambda data: score_by_distance(
        data, weighted(data), data.loss()
    ),
    "vote of loss and distance": vote,
}


def run(dataset: Dataset, seed: int, records: Records, path: Path) -> None:
    """Measure the variants without a record for one table and seed."""
    stem = Path(dataset.files[0].path).stem
    missing = [name for name in VARIANTS if (stem, seed, name) not in records]
    if not missing:
        return
    X, y = sample_table(*load(dataset.files[0]), ROWS)
    data = Data(X, TableEncoder().fit(as_table(X)).standardize(as_table(X)), seed)
    for name in missing:
        scores = VARIANTS[name](data)
        found = [float(roc_auc_score(y, scores)), float(average_precision_score(y, scores))]
        records[stem, seed, name] = found
        append_json_record(path, [stem, seed, name, *found])


def read(path: Path) -> Records:
    """Read all complete records."""
    return {
        tuple(key): measures
        for *key, auc, ap in read_json_records(path)
        for measures in [[auc, ap]]
    }


def find_complete(records: Records) -> tuple[list[str], list[int]]:
    """Return the tables that have all variants with the first seed, and the seeds of all these."""
    stems = sorted({stem for stem, _, _ in records})
    stems = [stem for stem in stems if all((stem, 0, name) in records for name in VARIANTS)]
    complete = [
        seed
        for seed in range(SEEDS)
        if all((stem, seed, name) in records for stem in stems for name in VARIANTS)
    ]
    return stems, complete


def format_table(records: Records) -> str:
    """Format one row for each variant."""
    stems, seeds = find_complete(records)
    even = np.array([is_chosen_on(stem) for stem in stems])
    means = {
        name: np.array([[records[stem, seed, name] for seed in seeds] for stem in stems]).mean(
            axis=1
        )
        for name in VARIANTS
    }
    head = [
        f"seeds: {len(seeds)}",
        f"all {len(stems)}",
        f"{even.sum()} even",
        f"{(~even).sum()} odd",
    ]
    head += ["AUC against plain", "average precision against plain"]
    rows = [head]
    for name, found in means.items():
        subsets = [found, found[even], found[~even]]
        cells = [" / ".join(f"{value:.3f}" for value in each.mean(axis=0)) for each in subsets]
        differences = (found - means[PLAIN]).T
        rows.append([name, *cells, *(str(paired_effect(each)) for each in differences)])
    return markdown_grid(rows)


def main() -> None:
    """Run, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    parser.add_argument("--records", type=Path, default=RECORDS)
    args = parser.parse_args()
    records = read(args.records)
    available = [each for each in select(suite="tables") if is_available(each.files[0])]
    for seed, dataset in product(range(SEEDS), [] if args.no_runs else available):
        run(dataset, seed, records, args.records)
        sys.stderr.write(f"{dataset.name}, seed {seed}\n")
    sys.stdout.write(format_table(records) + "\n")


if __name__ == "__main__":
    main()
