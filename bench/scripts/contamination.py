"""How well ``contamination="auto"`` guesses the share of outliers, on the ADBench tables at hand.

    python bench/scripts/contamination.py             run what is missing, print the tables
    python bench/scripts/contamination.py --no-runs   print the tables of the lines that are there

Runs are lines of bench/results/contamination.jsonl.
Each table (at most 20,000 rows of it) is fitted without labels; from the scores alone each rule
says how many rows are outliers. Printed are the error of that share and the F1 of the flagged rows,
on the tables whose file's name (as ``6_cardio``) has a SHA-256 that ends in an even digit, and on
the others: rules may be chosen on the even ones only. The oracle flags as many rows as there are
outliers: it knows the labels, and nobody else does.

The methods of PyThresh take part where they are installed, with their default settings:
``pip install pythresh ruptures pyclustering``. All run on the even tables with the plain scores
of seed 0; the three with the highest mean F1 there run on the odd tables as well.
One that fails, or takes longer than half a minute of processor time, on any table is out.
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

from altbi import ALTBI
from altbi.model._threshold import estimated_share, share_above_elbow, upper_group
from altbi_bench.catalogue.datasets import Dataset, is_available, is_chosen_on, load, select
from altbi_bench.catalogue.protocols import sampled
from altbi_bench.results_page.descriptions import SAMPLE
from altbi_bench.tables.grids import markdown_grid

LINES = Path(__file__).parent.parent / "results" / "contamination.jsonl"
SCORINGS = {"plain": ALTBI, "reference": ALTBI.reference}
# Scoring and seed; the first is where PyThresh's methods are chosen. The reference settings are
# slow, and stay with the small tables.
FITS = (("plain", 0), ("plain", 1), ("plain", 2), ("reference", 0))
SECONDS = 30
# All but DUMMY, which is given a share, and META, which has learned from these tables' labels.
PYTHRESH = (
    "AUCP", "BOOT", "CHAU", "CLF", "CLUST", "COMB", "CPD", "DECOMP", "DSN", "EB", "FGD",
    "FILTER", "FWFM", "GAMGMM", "GESD", "HIST", "IQR", "KARCH", "MAD", "MCST", "MIXMOD",
    "MOLL", "MTT", "OCSVM", "QMCD", "REGR", "VAE", "WIND", "YJ", "ZSCORE"
)  # fmt: skip
SHOWN = 3
TABLES = ("even", "odd", "all")
AUTO = '`contamination="auto"`'

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]
Line = dict[str, Any]


def logs(scores: Scores) -> Scores:
    """Logarithms of scores that may be negative: of their height above the lowest, in medians."""
    height = scores - scores.min()
    return np.log1p(height / (np.median(height) or 1))


def above(scores: Scores, threshold: float) -> float:
    """Share of the scores above a threshold; at least one row, at most half."""
    return min(max(float((scores > threshold).mean()), 1 / len(scores)), 0.5)


def deviation_rule(scores: Scores) -> float:
    """Share of the scores more than one standard deviation above the mean."""
    return above(scores, float(scores.mean() + scores.std()))


def mad_rule(scores: Scores, factor: float) -> float:
    """Share of the scores so many scaled median absolute deviations above the median."""
    median = np.median(scores)
    return above(scores, median + factor * 1.4826 * np.median(np.abs(scores - median)))


def boxplot_rule(scores: Scores) -> float:
    """Share of the scores beyond the upper whisker of a box plot."""
    low, high = np.quantile(scores, [0.25, 0.75])
    return above(scores, high + 1.5 * (high - low))


def mixture_rule(scores: Scores) -> float:
    """Share of the scores that belong to the higher of two normal distributions."""
    column = scores[:, None]
    mixture = GaussianMixture(2, random_state=0).fit(column)
    higher = mixture.predict(column) == mixture.means_.ravel().argmax()
    return min(max(float((higher & (scores > np.median(scores))).mean()), 1 / len(scores)), 0.5)


def two_means_rule(scores: Scores) -> float:
    """Share of the higher of two groups of which each is as close to its mean as it can be."""
    ordered = np.sort(scores)[::-1]
    sums, n_rows = np.cumsum(ordered), len(ordered)
    sizes = np.arange(1, n_rows // 2 + 1)
    upper = sums[sizes - 1] / sizes
    lower = (sums[-1] - sums[sizes - 1]) / (n_rows - sizes)
    return int(sizes[np.argmax(sizes * (n_rows - sizes) * (upper - lower) ** 2)]) / n_rows


def elbow_rule(scores: Scores) -> float:
    """Share of the scores above the elbow of their curve."""
    return share_above_elbow(np.sort(scores)[::-1])


def groups_rule(scores: Scores, least: float = 0) -> float:
    """Share of the upper of two groups of square roots, a tenth where they explain too little."""
    share, explained = upper_group(np.sort(scores)[::-1])
    return share if explained > least else 0.1


RULES: dict[str, Callable[[Scores], float]] = {
    AUTO: estimated_share,
    "a fixed 5 %": lambda scores: 0.05,
    "a fixed 10 %": lambda scores: 0.1,
    "a fixed 20 %": lambda scores: 0.2,
    "elbow": elbow_rule,
    "elbow of square roots": lambda scores: elbow_rule(np.sqrt(scores - scores.min())),
    "elbow of logs": lambda scores: elbow_rule(logs(scores)),
    "mean + 1 deviation": deviation_rule,
    "mean + 1 deviation of square roots": lambda scores: deviation_rule(
        np.sqrt(scores - scores.min())
    ),
    "median + 3 MAD": lambda scores: mad_rule(scores, 3),
    "median + 3 MAD of logs": lambda scores: mad_rule(logs(scores), 3),
    "box plot": boxplot_rule,
    "box plot of logs": lambda scores: boxplot_rule(logs(scores)),
    "two normals": mixture_rule,
    "two normals, logs": lambda scores: mixture_rule(logs(scores)),
    "two means": two_means_rule,
    "two means of square roots": groups_rule,
    "two means of square roots, else 10 %": lambda scores: groups_rule(scores, 0.75),
    "two means of logs": lambda scores: two_means_rule(logs(scores)),
}
ORACLE = "oracle share"


class TooSlowError(BaseException):
    """A method took longer than it may; no Exception, for methods catch those."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End what takes longer, in seconds of the processor: other programs may be busy too."""

    def stop(*_: object) -> None:
        raise TooSlowError(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def flagged_by_share(scores: Scores, share: float) -> Flags:
    """Flag rows as the detectors do."""
    return scores > np.percentile(scores, 100 * (1 - share))


def flagged_by_pythresh(scores: Scores, method: str) -> Flags:
    """Flag rows as a method of PyThresh does with its default settings."""
    module = importlib.import_module(f"pythresh.thresholds.{method.lower()}")
    with warnings.catch_warnings(), limited(SECONDS):
        warnings.simplefilter("ignore")
        return np.asarray(getattr(module, method)().eval(scores)) == 1


def judged(y: NDArray[np.int64], flags: Flags) -> list[float]:
    """Give the share of flagged rows and their F1."""
    hits = int((flags & (y == 1)).sum())
    return [round(float(flags.mean()), 5), round(2 * hits / int(flags.sum() + y.sum()), 4)]


def own_results(y: NDArray[np.int64], scores: Scores) -> dict[str, list[float]]:
    """Judge the rules and the oracle."""
    shares = {name: rule(scores) for name, rule in RULES.items()} | {ORACLE: float(y.mean())}
    return {name: judged(y, flagged_by_share(scores, share)) for name, share in shares.items()}


def pythresh_results(
    y: NDArray[np.int64], scores: Scores, methods: Iterable[str]
) -> dict[str, list[float] | str]:
    """Judge methods of PyThresh; one that fails gives the reason."""
    results: dict[str, list[float] | str] = {}
    for method in methods:
        try:
            results[method] = judged(y, flagged_by_pythresh(scores, method))
        except (Exception, TooSlowError) as cause:  # noqa: BLE001 - reported in its place
            results[method] = f"{type(cause).__name__}: {cause}"[:120]
    return results


def scores_of(
    dataset: Dataset, scoring: str, seed: int, folder: Path | None
) -> tuple[NDArray[np.int64], Scores]:
    """Fit and score a table, unless its scores are kept in a folder already."""
    part = dataset.parts[0]
    kept = folder / f"{part.name}-{scoring}-{seed}.npz" if folder else None
    if kept and kept.is_file():
        with np.load(kept) as arrays:
            return arrays["y"].astype(np.int64), arrays["scores"]
    X, y = sampled(*load(part), SAMPLE)
    scores = SCORINGS[scoring](random_state=seed).fit(X).outlier_score(X)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(kept, scores=scores, y=y.astype(np.int8))
    return y, scores


def read_lines() -> list[Line]:
    """Read the lines; of those about the same fit the last one counts."""
    if not LINES.is_file():
        return []
    lines = [json.loads(text) for text in LINES.read_text(encoding="utf-8").splitlines()]
    return list({(line["table"], line["scoring"], line["seed"]): line for line in lines}.values())


def of_fits(lines: list[Line], scoring: str, tables: str = "all", seed: int | None = None) -> list:
    """Take the lines of a scoring, on some tables, of one seed or all."""
    return [
        line
        for line in lines
        if line["scoring"] == scoring
        and (tables == "all" or is_chosen_on(line["table"]) == (tables == "even"))
        and seed in (None, line["seed"])
    ]


def broken(lines: list[Line]) -> dict[str, str]:
    """Methods of PyThresh that failed somewhere, and how."""
    return {
        method: result
        for line in lines
        for method, result in line["pythresh"].items()
        if isinstance(result, str)
    }


def chosen(lines: list[Line]) -> list[str]:
    """PyThresh's methods with the highest mean F1 on the even tables, the best first."""
    first = of_fits(lines, FITS[0][0], "even", FITS[0][1])
    methods = [
        each for each in PYTHRESH if all(type(line["pythresh"].get(each)) is list for line in first)
    ]
    return sorted(methods, key=lambda each: -mean(first, "pythresh", each)[1])[:SHOWN]


def mean(lines: list[Line], kind: str, method: str) -> tuple[float, float, float]:
    """Mean absolute error of the share, mean F1 and mean signed error; seeds are averaged first."""
    means = by_table(lines, kind, method).mean(axis=0)
    return float(means[0]), float(means[1]), float(means[2])


def by_table(lines: list[Line], kind: str, method: str) -> NDArray[np.float64]:
    """Absolute error of the share, F1, signed error and share of each table, by its name."""
    tables: dict[str, list[tuple[float, float, float, float]]] = {}
    for line in lines:
        result = line[kind][method]
        share, f1 = (0, 0) if isinstance(result, str) else result  # failed: nothing is flagged
        error = share - line["true"]
        tables.setdefault(line["table"], []).append((abs(error), f1, error, share))
    return np.array([np.mean(tables[name], axis=0) for name in sorted(tables)])


def compared(lines: list[Line], scoring: str, seed: int | None) -> str:
    """Write how far "auto" is from each rule, with standard errors over tables, and rank tables."""
    part = of_fits(lines, scoring, seed=seed)
    true = [line["true"] for line in sorted(part, key=lambda each: each["table"])]
    true = true[:: len(part) // len({line["table"] for line in part})]
    ours = by_table(part, "rules", AUTO)
    grid = [
        ['"auto" against', "F1", "tables won", "lost", "error", "rank correlation of its share"]
    ]
    for kind, name, title in shown(lines, part):
        theirs = by_table(part, kind, name)
        gain, error = ours[:, 1] - theirs[:, 1], ours[:, 0] - theirs[:, 0]
        rank = f"{spearmanr(theirs[:, 3], true)[0]:.2f}" if np.ptp(theirs[:, 3]) > 0.02 else ""
        won, lost = (gain > 1e-3).sum(), (gain < -1e-3).sum()
        grid.append([title, with_error(gain), str(won), str(lost), with_error(error), rank])
    return markdown_grid(grid) + "\n"


def with_error(values: NDArray[np.float64]) -> str:
    """Write a mean with its standard error."""
    return f"{values.mean():+.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def shown(lines: list[Line], part: list[Line]) -> list[tuple[str, str, str]]:
    """List own rules, and the best of PyThresh where all fits have them, the oracle last."""
    rows = [("rules", name, name) for name in part[0]["rules"]]
    rows[-1:-1] = [
        ("pythresh", name, f"PyThresh {name}")
        for name in chosen(lines)
        if all(name in line["pythresh"] for line in part)
    ]
    return rows


def run(folder: Path | None) -> None:
    """Fit and judge what has no line yet: even tables first, for methods are chosen on them."""
    LINES.parent.mkdir(exist_ok=True)
    for scoring, seed in FITS:
        for dataset in datasets_of(scoring):
            lines = read_lines()
            table = dataset.parts[0].name
            if not any(line["table"] == table for line in of_fits(lines, scoring, seed=seed)):
                line = {"table": table, "scoring": scoring, "seed": seed}
                line |= measured(*scores_of(dataset, scoring, seed, folder), to_run(line, lines))
                with LINES.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                sys.stderr.write(f"{table}, {scoring}, seed {seed}\n")


def datasets_of(scoring: str) -> list[Dataset]:
    """Give the tables of a scoring that are at hand, in the order of running."""
    suite = select(suite="tables" if scoring == "plain" else "small")
    return sorted(
        filter(is_available, suite),
        key=lambda each: (not is_chosen_on(each.parts[0].name), each.n_cells),
    )


def to_run(line: Line, lines: list[Line]) -> list[str]:
    """Say which methods of PyThresh a fit needs."""
    if importlib.util.find_spec("pythresh") is None or (line["scoring"], line["seed"]) != FITS[0]:
        return []
    if is_chosen_on(line["table"]):
        out = broken(lines)
        return [method for method in PYTHRESH if method not in out]
    return chosen(lines)


def measured(y: NDArray[np.int64], scores: Scores, methods: list[str]) -> Line:
    """Judge rules and methods on the scores of one fit."""
    return {
        "n_rows": len(y),
        "true": round(float(y.mean()), 5),
        "rules": own_results(y, scores),
        "pythresh": pythresh_results(y, scores, methods),
    }


def report(lines: list[Line], scoring: str, seed: int | None) -> str:
    """Write a table in Markdown, of one seed or all, after a sentence on what it is about."""
    parts = {tables: of_fits(lines, scoring, tables, seed) for tables in TABLES}
    grid = [["rule", *(f"error, {tables}" for tables in parts), "signed error, all"]]
    grid[0] += [f"F1, {tables}" for tables in parts]
    for kind, name, title in shown(lines, parts["all"]):
        means = [mean(part, kind, name) for part in parts.values()]
        errors, f1s = ([f"{each[i]:.3f}" for each in means] for i in (0, 1))
        grid.append([title, *errors, f"{means[-1][2]:+.3f}", *f1s])
    return f"{about(parts, scoring)}\n\n{markdown_grid(grid)}\n"


def about(parts: dict[str, list[Line]], scoring: str) -> str:
    """Say how many tables and seeds there are, and the true share."""
    sizes = {tables: len({line["table"] for line in part}) for tables, part in parts.items()}
    shares = [f"{np.mean([line['true'] for line in part]):.3f}" for part in parts.values()]
    return (
        f"Scores: {scoring}; seeds: {len({line['seed'] for line in parts['all']})}; "
        f"tables: {sizes['even']} even, {sizes['odd']} odd; "
        f"mean true share: {shares[0]} even, {shares[1]} odd, {shares[2]} all."
    )


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="print the lines that are there")
    parser.add_argument("--scores", type=Path, help="folder that keeps scores, to judge them anew")
    args = parser.parse_args()
    if not args.no_runs:
        run(args.scores)
    lines = read_lines()
    for scoring, seed in (FITS[0], ("plain", None), ("reference", None)):
        if of_fits(lines, scoring, seed=seed):
            sys.stdout.write(report(lines, scoring, seed) + "\n")
            sys.stdout.write(compared(lines, scoring, seed) + "\n")
    reasons = "; ".join(f"{method}: {why}" for method, why in broken(lines).items())
    sys.stdout.write(f"PyThresh methods that are out: {reasons or 'none'}.\n")


if __name__ == "__main__":
    main()
