"""What each part of the plain detector is worth: one part changed at a time, and ideas that failed.

    python bench/scripts/accuracy.py

At most 5,000 rows of each table at hand, five seeds one after the other, all rows trained on and
scored, no labels but in the metrics. Runs are lines of bench/results/accuracy.jsonl; what is there
is not run again. The table has AUC and average precision, averaged over the seeds that all have,
over all tables, over those that may be chosen on (the sha256 of the file's stem ends in an even
digit) and over the others, and the paired difference from the plain detector with its 95 %
interval over tables.
"""

import argparse
import json
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

from altbi import ALTBI
from altbi.detectors._altbi import CHOOSING_UNITS, SCORING_UPDATES, WHITENED_UNITS
from altbi.encoding import TableEncoder
from altbi.scorers._distance import DistanceScorer, fit_distance_scorer, compute_whitening
from altbi.networks import default_sizes
from altbi.table import as_table
from altbi_bench.catalogue.datasets import Dataset, is_available, is_chosen_on, load, select
from altbi_bench.catalogue.protocols import sampled
from altbi_bench.statistics import paired_effect
from altbi_bench.tables.grids import markdown_grid

LINES = Path(__file__).parents[1] / "results" / "accuracy.jsonl"
ROWS, SEEDS = 5000, 5
PLAIN = "plain"

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
Lines = dict[tuple[str, int, str], list[float]]


@dataclass(frozen=True, slots=True)
class TableScan:
    """One table, and what is computed of it once for all variants."""

    X: NDArray[np.float64]
    deviations: Rows
    seed: int
    losses: dict[int, Scores] = field(default_factory=dict)
    whitened: list[Rows] = field(default_factory=list)

    @property
    def is_wide(self) -> bool:
        """Whether the plain detector whitens it."""
        return self.X.shape[1] in WHITENED_UNITS

    @property
    def rows(self) -> Rows:
        """What the plain detector measures distances in."""
        return self.white() if self.is_wide else self.deviations

    def white(self) -> Rows:
        """Rows after whitening by those with small losses; computed when first asked for."""
        if not self.whitened:
            self.whitened.append(self.turned(self.deviations))
        return self.whitened[0]

    def turned(self, rows: Rows) -> Rows:
        """Whiten rows by those with small losses."""
        kept = np.argsort(self.loss(), kind="stable")[: round(0.8 * len(self.X))]
        return rows @ compute_whitening(rows[kept])

    def loss(self, updates: int = 2) -> Scores:
        """Score by the loss after so many updates a step; fitted when it is first asked for."""
        if updates not in self.losses:
            wide = self.X.shape[1] > CHOOSING_UNITS and updates < SCORING_UPDATES
            hidden, latent = default_sizes(CHOOSING_UNITS) if wide else ("auto", "auto")
            detector = ALTBI.reference(
                updates=updates, hidden=hidden, latent=latent, random_state=self.seed
            )
            self.losses[updates] = detector.fit(self.X).outlier_score(self.X)
        return self.losses[updates]

    def forest(self) -> Scores:
        """Score by an isolation forest."""
        return -IsolationForest(random_state=self.seed).fit(self.X).score_samples(self.X)


Variant = Callable[[TableScan], Scores]


def memory(look: TableScan, rows: Rows, losses: Scores, **changes: float) -> Scores:
    """Score by the distance to remembered rows, as the plain detector does but for the changes."""
    settings = {"keep": 0.8, "n_reference": 1000, "n_groups": 5, "seed": look.seed} | changes
    nobody = np.zeros(len(rows), dtype=bool)
    found = fit_distance_scorer(rows, losses, certain=nobody, **settings)  # type: ignore[arg-type]
    return found.score(rows)


def with_settings(**changes: float) -> Variant:
    """Change parameters of the plain detector."""
    return lambda look: memory(look, look.rows, look.loss(), **changes)


def on_columns(scaled: Callable[[TableScan], NDArray[np.floating]]) -> Variant:
    """Measure distances in columns that are scaled in another way."""

    def scores(look: TableScan) -> Scores:
        rows = scaled(look).astype(np.float32)
        return memory(look, look.turned(rows) if look.is_wide else rows, look.loss())

    return scores


def in_rounds(
    distance: Callable[[Rows, Rows], Scores], rounds: int = 2, size: int = 1000
) -> Variant:
    """Choose the memory as the plain detector does, with another distance or number of rounds."""

    def scores(look: TableScan) -> Scores:
        generator, losses = np.random.default_rng(look.seed), look.loss()
        for _ in range(rounds):
            kept = np.argsort(losses, kind="stable")[: max(round(0.8 * len(losses)), 11)]
            losses = distance(look.rows, look.rows[generator.permutation(kept)[:size]])
        return losses

    return scores


def mean_square(rows: Rows, remembered: Rows) -> Scores:
    """Measure as the plain detector does."""
    return DistanceScorer(remembered, 5).score(rows)


def nearest(rows: Rows, remembered: Rows, metric: str = "sqeuclidean", k: int = 5) -> Scores:
    """Distances to the k nearest, one exact match left out, nearest first."""
    count = min(k, len(remembered) - 1)
    found = np.sort(np.partition(cdist(rows, remembered, metric), count, axis=1)[:, : count + 1])
    return np.where(found[:, :1] == 0, found[:, 1:], found[:, :-1])


def of_all(k: int) -> Callable[[Rows, Rows], Scores]:
    """Mean squared distance to the k nearest of all remembered rows."""
    return lambda rows, remembered: nearest(rows, remembered, k=k).mean(axis=1)


def city_blocks(rows: Rows, remembered: Rows) -> Scores:
    """Mean city-block distance to the nearest row of each lot."""
    groups = [nearest(rows, remembered[lot::5], "cityblock", k=1)[:, 0] for lot in range(5)]
    return np.mean(groups, axis=0)


def local(rows: Rows, remembered: Rows) -> Scores:
    """Distance to the fifth neighbour against that of the nearest remembered rows."""
    own = nearest(remembered, remembered, "euclidean")[:, -1] + 1e-3
    order = np.argpartition(cdist(rows, remembered), 4, axis=1)[:, :5]
    return nearest(rows, remembered, "euclidean")[:, -1] / own[order].mean(axis=1)


def clipped(limit: float) -> Callable[[TableScan], NDArray[np.floating]]:
    """Hold the deviations nearer to, or further from, the centre."""

    def scaled(look: TableScan) -> NDArray[np.floating]:
        centre = np.median(look.X, axis=0)
        quartiles = np.subtract(*np.percentile(look.X, [75, 25], axis=0)) / 1.349
        scale = np.where(quartiles > 0, quartiles, look.X.std(axis=0))
        return np.clip((look.X - centre) / np.where(scale > 0, scale, 1), -limit, limit)

    return scaled


def standardised(look: TableScan) -> NDArray[np.floating]:
    """Deviations from the mean in standard deviations."""
    scale = look.X.std(axis=0)
    return np.clip((look.X - look.X.mean(axis=0)) / np.where(scale > 0, scale, 1), -20, 20)


def ranked(look: TableScan) -> NDArray[np.floating]:
    """Give the share of the table that is smaller."""
    return rankdata(look.X, axis=0) / len(look.X)


def weighted(look: TableScan) -> Rows:
    """Columns weigh more in which the rows left out stray further than those kept."""
    order = np.argsort(memory(look, look.rows, look.loss()), kind="stable")
    kept, left = np.split(look.rows[order], [round(0.8 * len(order))])
    stray = ((left - np.median(kept, axis=0)) ** 2).mean(axis=0) + 1e-3
    weights = np.clip(stray / (kept.var(axis=0) + 1e-3), 1e-3, 1e3) ** 0.25
    return look.rows * weights / np.sqrt((weights**2).mean())


def vote(look: TableScan) -> Scores:
    """Mean rank by loss and by distance."""
    return rankdata(look.loss()) + rankdata(memory(look, look.rows, look.loss()))


VARIANTS: dict[str, Variant] = {
    PLAIN: with_settings(),
    "one update a step": lambda look: memory(look, look.rows, look.loss(1)),
    "five updates a step": lambda look: memory(look, look.rows, look.loss(5)),
    "loss alone, two updates a step": TableScan.loss,
    "loss alone, five (reference)": lambda look: look.loss(5),
    "no model: any rows remembered": with_settings(keep=1.0),
    "no model: own distances only": lambda look: memory(
        look, look.rows, memory(look, look.rows, look.loss() * 0, keep=1.0)
    ),
    "isolation forest in place of the model": lambda look: memory(look, look.rows, look.forest()),
    "isolation forest alone": TableScan.forest,
    "one round": in_rounds(mean_square, rounds=1),
    "four rounds": in_rounds(mean_square, rounds=4),
    "keep 0.5": with_settings(keep=0.5),
    "keep 0.7": with_settings(keep=0.7),
    "keep 0.9": with_settings(keep=0.9),
    "one lot": with_settings(n_groups=1),
    "3 lots": with_settings(n_groups=3),
    "10 lots": with_settings(n_groups=10),
    "250 remembered": with_settings(n_reference=250),
    "500 remembered": with_settings(n_reference=500),
    "2000 remembered": with_settings(n_reference=2000),
    "the 5 nearest of all": in_rounds(of_all(5)),
    "the 10 nearest of all": in_rounds(of_all(10)),
    "city-block distance": in_rounds(city_blocks),
    "distance against the neighbours' own": in_rounds(local),
    "mean and standard deviation": on_columns(standardised),
    "held within 5 deviations": on_columns(clipped(5)),
    "held within 50 deviations": on_columns(clipped(50)),
    "ranks": on_columns(ranked),
    "whitened, whatever the width": lambda look: memory(look, look.white(), look.loss()),
    "not whitened, whatever the width": lambda look: memory(look, look.deviations, look.loss()),
    "columns weighed by what strays": lambda look: memory(look, weighted(look), look.loss()),
    "vote of loss and distance": vote,
}


def run(dataset: Dataset, seed: int, lines: Lines, path: Path) -> None:
    """Measure what is missing of one table and seed."""
    stem = Path(dataset.parts[0].file).stem
    missing = [name for name in VARIANTS if (stem, seed, name) not in lines]
    if not missing:
        return
    X, y = sampled(*load(dataset.parts[0]), ROWS)
    look = TableScan(X, TableEncoder().fit(as_table(X)).standardize(as_table(X)), seed)
    for name in missing:
        scores = VARIANTS[name](look)
        found = [float(roc_auc_score(y, scores)), float(average_precision_score(y, scores))]
        lines[stem, seed, name] = found
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([stem, seed, name, *found]) + "\n")


def read(path: Path) -> Lines:
    """Read the lines that were written to their end."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    runs = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return {(stem, seed, name): [auc, ap] for stem, seed, name, auc, ap in runs}


def complete(lines: Lines) -> tuple[list[str], list[int]]:
    """Give the tables that have all variants with the first seed, and the seeds of all those."""
    stems = sorted({stem for stem, _, _ in lines})
    stems = [stem for stem in stems if all((stem, 0, name) in lines for name in VARIANTS)]
    whole = [
        seed
        for seed in range(SEEDS)
        if all((stem, seed, name) in lines for stem in stems for name in VARIANTS)
    ]
    return stems, whole


def table(lines: Lines) -> str:
    """One row for each variant."""
    stems, seeds = complete(lines)
    even = np.array([is_chosen_on(stem) for stem in stems])
    means = {
        name: np.array([[lines[stem, seed, name] for seed in seeds] for stem in stems]).mean(axis=1)
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
        parts = [found, found[even], found[~even]]
        cells = [" / ".join(f"{value:.3f}" for value in part.mean(axis=0)) for part in parts]
        differences = (found - means[PLAIN]).T
        rows.append([name, *cells, *(str(paired_effect(each)) for each in differences)])
    return markdown_grid(rows)


def main() -> None:
    """Run, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    parser.add_argument("--lines", type=Path, default=LINES)
    args = parser.parse_args()
    lines = read(args.lines)
    at_hand = [each for each in select(suite="tables") if is_available(each.parts[0])]
    for seed, dataset in product(range(SEEDS), [] if args.no_runs else at_hand):
        run(dataset, seed, lines, args.lines)
        sys.stderr.write(f"{dataset.name}, seed {seed}\n")
    sys.stdout.write(table(lines) + "\n")


if __name__ == "__main__":
    main()
