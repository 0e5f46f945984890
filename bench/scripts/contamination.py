"""Errors of the share of outliers that ``contamination="auto"`` estimates, on ADBench tables.

    python bench/scripts/contamination.py             run what is missing, print the tables
    python bench/scripts/contamination.py --no-runs   print the tables of the existing records

Records are in bench/results/contamination.jsonl. A detector is fitted on at most 20,000 rows of
each table, without labels. Each rule estimates the share of outliers from the scores alone. The
script prints the error of that share and the F1 of the flagged rows. Tables are "even" or "odd" by
the last digit of the SHA-256 of the file's name (as ``6_cardio``); rules may be chosen on the even
ones only. The oracle knows the labels and flags as many rows as there are outliers.

The methods of PyThresh are compared if they are installed, with their default settings:
``pip install pythresh ruptures pyclustering``. All run on the even tables with the plain scores
of seed 0; the three with the highest mean F1 there also run on the odd tables. Methods that fail,
or take more than half a minute of processor time, on any table are excluded.
"""

import argparse
import importlib.util
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.mixture import GaussianMixture

from altbi import ALTBI, OutlierDetector
from altbi.model._threshold import estimate_contamination, find_elbow, find_upper_group
from altbi_bench.catalogue.datasets import Dataset, is_available, is_chosen_on, load, select
from altbi_bench.catalogue.protocols import sample_table
from altbi_bench.results_page.descriptions import SAMPLE
from altbi_bench.tables.grids import markdown_grid

RECORDS = Path(__file__).parent.parent / "results" / "contamination.jsonl"
DETECTORS = {"plain": OutlierDetector, "reference": ALTBI}
# Detector and seed; PyThresh's methods are chosen on the first. "reference" is slow, so it runs on
# the small tables only.
FITS = (("plain", 0), ("plain", 1), ("plain", 2), ("reference", 0))
SECONDS = 30
# All but DUMMY, whose share is a parameter, and META, which was trained on these tables' labels.
PYTHRESH = (
    "AUCP", "BOOT", "CHAU", "CLF", "CLUST", "COMB", "CPD", "DECOMP", "DSN", "EB", "FGD",
    "FILTER", "FWFM", "GAMGMM", "GESD", "HIST", "IQR", "KARCH", "MAD", "MCST", "MIXMOD",
    "MOLL", "MTT", "OCSVM", "QMCD", "REGR", "VAE", "WIND", "YJ", "ZSCORE"
)  # fmt: skip
MAX_SHOWN = 3
TABLES = ("even", "odd", "all")
AUTO = '`contamination="auto"`'

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]
Record = dict[str, Any]


def shifted_logs(scores: Scores) -> Scores:
    """Return the logarithms of ``1 + h / median(h)`` with ``h = scores - min(scores)``."""
    height = scores - scores.min()
    return np.log1p(height / (np.median(height) or 1))


def share_above(scores: Scores, threshold: float) -> float:
    """Return the share of the scores above a threshold; at least one row, at most half."""
    return min(max(float((scores > threshold).mean()), 1 / len(scores)), 0.5)


def deviation_rule(scores: Scores) -> float:
    """Return the share of the scores more than one standard deviation above the mean."""
    return share_above(scores, float(scores.mean() + scores.std()))


def mad_rule(scores: Scores, factor: float) -> float:
    """Return the share of the scores above the median by `factor` scaled MADs."""
    median = np.median(scores)
    return share_above(scores, median + factor * 1.4826 * np.median(np.abs(scores - median)))


def boxplot_rule(scores: Scores) -> float:
    """Return the share of the scores beyond the upper whisker of a box plot."""
    low, high = np.quantile(scores, [0.25, 0.75])
    return share_above(scores, high + 1.5 * (high - low))


def mixture_rule(scores: Scores) -> float:
    """Return the share of the scores that belong to the higher of two normal distributions."""
    column = scores[:, None]
    mixture = GaussianMixture(2, random_state=0).fit(column)
    higher = mixture.predict(column) == mixture.means_.ravel().argmax()
    return min(max(float((higher & (scores > np.median(scores))).mean()), 1 / len(scores)), 0.5)


def two_means_rule(scores: Scores) -> float:
    """Return the share of the higher of two groups by one-dimensional 2-means."""
    ordered = np.sort(scores)[::-1]
    sums, n_rows = np.cumsum(ordered), len(ordered)
    sizes = np.arange(1, n_rows // 2 + 1)
    upper = sums[sizes - 1] / sizes
    lower = (sums[-1] - sums[sizes - 1]) / (n_rows - sizes)
    return int(sizes[np.argmax(sizes * (n_rows - sizes) * (upper - lower) ** 2)]) / n_rows


def elbow_rule(scores: Scores) -> float:
    """Return the share of the scores above the elbow of their sorted curve."""
    return find_elbow(np.sort(scores)[::-1])


def groups_rule(scores: Scores, least: float = 0) -> float:
    """Return the share of the upper of two groups of square roots; 0.1 if they are not distinct."""
    share, explained = find_upper_group(np.sort(scores)[::-1])
    return share if explained > least else 0.1


RULES: dict[str, Callable[[Scores], float]] = {
    AUTO: estimate_contamination,
    "a fixed 5 %": lambda scores: 0.05,
    "a fixed 10 %": lambda scores: 0.1,
    "a fixed 20 %": lambda scores: 0.2,
    "elbow": elbow_rule,
    "elbow of square roots": lambda scores: elbow_rule(np.sqrt(scores - scores.min())),
    "elbow of logs": lambda scores: elbow_rule(shifted_logs(scores)),
    "mean + 1 deviation": deviation_rule,
    "mean + 1 deviation of square roots": lambda scores: deviation_rule(
        np.sqrt(scores - scores.min())
    ),
    "median + 3 MAD": lambda scores: mad_rule(scores, 3),
    "median + 3 MAD of logs": lambda scores: mad_rule(shifted_logs(scores), 3),
    "box plot": boxplot_rule,
    "box plot of logs": lambda scores: boxplot_rule(shifted_logs(scores)),
    "two normals": mixture_rule,
    "two normals, logs": lambda scores: mixture_rule(shifted_logs(scores)),
    "two means": two_means_rule,
    "two means of square roots": groups_rule,
    "two means of square roots, else 10 %": lambda scores: groups_rule(scores, 0.75),
    "two means of logs": lambda scores: two_means_rule(shifted_logs(scores)),
}
ORACLE = "oracle share"


class TooSlowError(BaseException):
    """A method exceeded its time limit; not an Exception, because methods catch those."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise an error after some seconds of processor time, whatever else runs on the machine."""

    def stop(*_: object) -> None:
        raise TooSlowError(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def flag_by_share(scores: Scores, share: float) -> Flags:
    """Return which rows the detectors flag for a share of outliers."""
    return scores > np.percentile(scores, 100 * (1 - share))


def flag_by_pythresh(scores: Scores, method: str) -> Flags:
    """Return which rows a method of PyThresh flags with its default settings."""
    module = importlib.import_module(f"pythresh.thresholds.{method.lower()}")
    with warnings.catch_warnings(), limit_time(SECONDS):
        warnings.simplefilter("ignore")
        return np.asarray(getattr(module, method)().eval(scores)) == 1


def evaluate(y: NDArray[np.int64], flags: Flags) -> list[float]:
    """Return the share of flagged rows and their F1."""
    hits = int((flags & (y == 1)).sum())
    return [round(float(flags.mean()), 5), round(2 * hits / int(flags.sum() + y.sum()), 4)]


def evaluate_rules(y: NDArray[np.int64], scores: Scores) -> dict[str, list[float]]:
    """Evaluate the rules and the oracle."""
    shares = {name: rule(scores) for name, rule in RULES.items()} | {ORACLE: float(y.mean())}
    return {name: evaluate(y, flag_by_share(scores, share)) for name, share in shares.items()}


def evaluate_pythresh(
    y: NDArray[np.int64], scores: Scores, methods: Iterable[str]
) -> dict[str, list[float] | str]:
    """Evaluate methods of PyThresh; the result of a failure is its reason."""
    results: dict[str, list[float] | str] = {}
    for method in methods:
        try:
            results[method] = evaluate(y, flag_by_pythresh(scores, method))
        except (Exception, TooSlowError) as cause:  # noqa: BLE001 - reported as the result
            results[method] = f"{type(cause).__name__}: {cause}"[:120]
    return results


def load_or_compute_scores(
    dataset: Dataset, scoring: str, seed: int, folder: Path | None
) -> tuple[NDArray[np.int64], Scores]:
    """Return labels and scores of a table; scores in the folder are used again."""
    file = dataset.files[0]
    cached = folder / f"{file.name}-{scoring}-{seed}.npz" if folder else None
    if cached and cached.is_file():
        with np.load(cached) as arrays:
            return arrays["y"].astype(np.int64), arrays["scores"]
    X, y = sample_table(*load(file), SAMPLE)
    scores = DETECTORS[scoring](random_state=seed).fit(X).outlier_score(X)
    if cached:
        cached.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(cached, scores=scores, y=y.astype(np.int8))
    return y, scores


def read_records() -> list[Record]:
    """Read the records; the last one of each fit counts."""
    if not RECORDS.is_file():
        return []
    records = [json.loads(text) for text in RECORDS.read_text(encoding="utf-8").splitlines()]
    return list(
        {
            (record["table"], record["scoring"], record["seed"]): record for record in records
        }.values()
    )


def filter_records(
    records: list[Record], scoring: str, tables: str = "all", seed: int | None = None
) -> list:
    """Return the records of a detector on some tables, of one seed or all."""
    return [
        record
        for record in records
        if record["scoring"] == scoring
        and (tables == "all" or is_chosen_on(record["table"]) == (tables == "even"))
        and seed in (None, record["seed"])
    ]


def find_failures(records: list[Record]) -> dict[str, str]:
    """Return the methods of PyThresh that failed on any table, and the reasons."""
    return {
        method: result
        for record in records
        for method, result in record["pythresh"].items()
        if isinstance(result, str)
    }


def choose_methods(records: list[Record]) -> list[str]:
    """Return PyThresh's methods with the highest mean F1 on the even tables, the best first."""
    first = filter_records(records, FITS[0][0], "even", FITS[0][1])
    methods = [
        each
        for each in PYTHRESH
        if all(type(record["pythresh"].get(each)) is list for record in first)
    ]
    return sorted(methods, key=lambda each: -mean(first, "pythresh", each)[1])[:MAX_SHOWN]


def mean(records: list[Record], kind: str, method: str) -> tuple[float, float, float]:
    """Return mean absolute error of the share, mean F1 and mean signed error over tables."""
    means = by_table(records, kind, method).mean(axis=0)
    return float(means[0]), float(means[1]), float(means[2])


def by_table(records: list[Record], kind: str, method: str) -> NDArray[np.float64]:
    """Return absolute error, F1, signed error and share of each table, averaged over seeds."""
    tables: dict[str, list[tuple[float, float, float, float]]] = {}
    for record in records:
        result = record[kind][method]
        share, f1 = (0, 0) if isinstance(result, str) else result  # a failure flags nothing
        error = share - record["true"]
        tables.setdefault(record["table"], []).append((abs(error), f1, error, share))
    return np.array([np.mean(tables[name], axis=0) for name in sorted(tables)])


def format_comparison(records: list[Record], scoring: str, seed: int | None) -> str:
    """Format the differences of "auto" from each rule, with standard errors over tables."""
    subset = filter_records(records, scoring, seed=seed)
    true = [record["true"] for record in sorted(subset, key=lambda each: each["table"])]
    true = true[:: len(subset) // len({record["table"] for record in subset})]
    ours = by_table(subset, "rules", AUTO)
    grid = [
        ['"auto" against', "F1", "tables won", "lost", "error", "rank correlation of its share"]
    ]
    for kind, name, title in list_rules(records, subset):
        theirs = by_table(subset, kind, name)
        gain, error = ours[:, 1] - theirs[:, 1], ours[:, 0] - theirs[:, 0]
        rank = f"{spearmanr(theirs[:, 3], true)[0]:.2f}" if np.ptp(theirs[:, 3]) > 0.02 else ""
        won, lost = (gain > 1e-3).sum(), (gain < -1e-3).sum()
        grid.append([title, format_mean(gain), str(won), str(lost), format_mean(error), rank])
    return markdown_grid(grid) + "\n"


def format_mean(values: NDArray[np.float64]) -> str:
    """Format a mean with its standard error."""
    return f"{values.mean():+.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def list_rules(records: list[Record], subset: list[Record]) -> list[tuple[str, str, str]]:
    """Return own rules, the best methods of PyThresh if all fits have them, and the oracle."""
    rows = [("rules", name, name) for name in subset[0]["rules"]]
    rows[-1:-1] = [
        ("pythresh", name, f"PyThresh {name}")
        for name in choose_methods(records)
        if all(name in record["pythresh"] for record in subset)
    ]
    return rows


def run(folder: Path | None) -> None:
    """Run fits without a record; even tables come first, because methods are chosen on them."""
    RECORDS.parent.mkdir(exist_ok=True)
    for scoring, seed in FITS:
        for dataset in list_datasets(scoring):
            records = read_records()
            table = dataset.files[0].name
            if not any(
                record["table"] == table for record in filter_records(records, scoring, seed=seed)
            ):
                record = {"table": table, "scoring": scoring, "seed": seed}
                record |= evaluate_fit(
                    *load_or_compute_scores(dataset, scoring, seed, folder),
                    select_methods(record, records),
                )
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                sys.stderr.write(f"{table}, {scoring}, seed {seed}\n")


def list_datasets(scoring: str) -> list[Dataset]:
    """Return the available tables of a detector, in the order of running."""
    suite = select(suite="tables" if scoring == "plain" else "small")
    return sorted(
        filter(is_available, suite),
        key=lambda each: (not is_chosen_on(each.files[0].name), each.n_cells),
    )


def select_methods(record: Record, records: list[Record]) -> list[str]:
    """Return the methods of PyThresh that a fit needs."""
    if (
        importlib.util.find_spec("pythresh") is None
        or (record["scoring"], record["seed"]) != FITS[0]
    ):
        return []
    if is_chosen_on(record["table"]):
        failed = find_failures(records)
        return [method for method in PYTHRESH if method not in failed]
    return choose_methods(records)


def evaluate_fit(y: NDArray[np.int64], scores: Scores, methods: list[str]) -> Record:
    """Evaluate rules and methods on the scores of one fit."""
    return {
        "n_rows": len(y),
        "true": round(float(y.mean()), 5),
        "rules": evaluate_rules(y, scores),
        "pythresh": evaluate_pythresh(y, scores, methods),
    }


def format_report(records: list[Record], scoring: str, seed: int | None) -> str:
    """Format a table in Markdown, of one seed or all, with an introduction."""
    subsets = {tables: filter_records(records, scoring, tables, seed) for tables in TABLES}
    grid = [["rule", *(f"error, {tables}" for tables in subsets), "signed error, all"]]
    grid[0] += [f"F1, {tables}" for tables in subsets]
    for kind, name, title in list_rules(records, subsets["all"]):
        means = [mean(subset, kind, name) for subset in subsets.values()]
        errors, f1s = ([f"{each[i]:.3f}" for each in means] for i in (0, 1))
        grid.append([title, *errors, f"{means[-1][2]:+.3f}", *f1s])
    return f"{describe(subsets, scoring)}\n\n{markdown_grid(grid)}\n"


def describe(subsets: dict[str, list[Record]], scoring: str) -> str:
    """Return a sentence with the numbers of tables and seeds, and the true share."""
    sizes = {
        tables: len({record["table"] for record in subset}) for tables, subset in subsets.items()
    }
    shares = [
        f"{np.mean([record['true'] for record in subset]):.3f}" for subset in subsets.values()
    ]
    return (
        f"Scores: {scoring}; seeds: {len({record['seed'] for record in subsets['all']})}; "
        f"tables: {sizes['even']} even, {sizes['odd']} odd; "
        f"mean true share: {shares[0]} even, {shares[1]} odd, {shares[2]} all."
    )


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the tables")
    parser.add_argument("--scores", type=Path, help="folder in which scores are cached")
    args = parser.parse_args()
    if not args.no_runs:
        run(args.scores)
    records = read_records()
    for scoring, seed in (FITS[0], ("plain", None), ("reference", None)):
        if filter_records(records, scoring, seed=seed):
            sys.stdout.write(format_report(records, scoring, seed) + "\n")
            sys.stdout.write(format_comparison(records, scoring, seed) + "\n")
    reasons = "; ".join(f"{method}: {why}" for method, why in find_failures(records).items())
    sys.stdout.write(f"Excluded methods of PyThresh: {reasons or 'none'}.\n")


if __name__ == "__main__":
    main()
