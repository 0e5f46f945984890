"""What the runs show, in sentences and tests: whatever they say."""

from collections.abc import Iterable, Mapping, Sequence

from altbi.bench.grid import markdown_grid
from altbi.bench.lines import Run, latest
from altbi.bench.statistics import (
    Pair,
    critical_difference,
    friedman,
    mean_ranks,
    wilcoxon_holm,
)
from altbi.bench.tables import Comparison, shared_means

__all__ = ["OURS", "findings", "is_enough", "tests"]

OURS = "ALTBI"
# With fewer, one row more or less at the top moves a table's result.
FEW_OUTLIERS = 10


def is_enough(main: Comparison) -> bool:
    """Tell whether ours was run with two others at least, all on two data sets at least."""
    shared, means = shared_means(main)
    return OURS in means and len(means) > 2 and len(shared) > 1


def tests(main: Comparison) -> list[str]:
    """Friedman's test, and all pairs with ours."""
    found = friedman(main.scores)
    distance = critical_difference(found.n_systems, found.n_datasets)
    rows = [
        [
            pair.second,
            f"{pair.n_datasets}",
            f"{pair.mean_difference:+.3f}",
            f"{pair.median_difference:+.3f}",
            f"{pair.wins}",
            f"{pair.losses}",
            f"{pair.p_value:.2g}",
            f"{pair.adjusted_p_value:.2g}",
        ]
        for pair in wilcoxon_holm(main.scores, against=OURS)
    ]
    head = [
        f"{OURS} against",
        "data sets",
        "mean difference",
        "median",
        "wins",
        "losses",
        "p",
        "p after Holm",
    ]
    return [
        f"Friedman's test that all are alike: chi² = {found.statistic:.1f}, p = "
        f"{found.p_value:.2g} (Iman and Davenport's F = {found.f_statistic:.2f}, p = "
        f"{found.f_p_value:.2g}); mean ranks further apart than {distance:.2f} differ (Nemenyi, 5 "
        "%); bars in the figure join those that do not.",
        markdown_grid([head, *rows]),
    ]


def findings(main: Comparison, precision: Comparison, runs: Iterable[Run]) -> list[str]:
    """Say in a few sentences what AUC and average precision of all systems say."""
    shared, means = shared_means(main)
    if not is_enough(main):
        return ["There are too few runs to say anything."]
    precisions = shared_means(precision)[1]
    ranks = mean_ranks(main.scores)
    order = sorted(means, key=means.__getitem__, reverse=True)
    pairs = wilcoxon_holm(main.scores, against=OURS)
    return [
        f"Over the {len(shared)} data sets that all {len(means)} systems ran, {order[0]} has the "
        f"highest mean AUC ({means[order[0]]:.3f}), {_best(precisions)} the highest mean average "
        f"precision ({max(precisions.values()):.3f}), and {_best(ranks, lowest=True)} the best "
        f"mean rank ({min(ranks.values()):.1f}). {OURS} has {means[OURS]:.3f} (place "
        f"{order.index(OURS) + 1} of {len(order)}), {precisions[OURS]:.3f} and {ranks[OURS]:.1f}.",
        _told_pairs(pairs),
        *_left_out(main),
        *_few_outliers(main, runs),
    ]


def _left_out(main: Comparison) -> list[str]:
    """Name the data sets that do not count because a system failed, or has not run there."""
    shared = shared_means(main)[0]
    names = [line.dataset.label for line in main.lines if line not in shared]
    if not names:
        return []
    return [f"Not counted, because some system failed or has not run there: {', '.join(names)}."]


def _few_outliers(main: Comparison, runs: Iterable[Run]) -> list[str]:
    """Name the tables, or samples of them, whose results hang on a handful of rows."""
    last = latest(runs)
    few = [
        f"{line.dataset.label} ({count})"
        for line in main.lines
        if (cell := line.ours[OURS]) is not None
        and (count := last[cell.jobs[0]].n_outliers) is not None
        and count < FEW_OUTLIERS
    ]
    return [f"Fewer than {FEW_OUTLIERS} outliers are in {', '.join(few)}."] if few else []


def _best(values: Mapping[str, float], *, lowest: bool = False) -> str:
    return (min if lowest else max)(values, key=values.__getitem__)


def _told_pairs(pairs: Sequence[Pair]) -> str:
    """Say against which systems ours is better, worse, or neither."""
    better = [pair.second for pair in pairs if pair.significant and pair.favours_first]
    worse = [pair.second for pair in pairs if pair.significant and not pair.favours_first]
    neither = len(pairs) - len(better) - len(worse)
    return (
        f"By Wilcoxon's signed ranks of AUC, each pair on the data sets that both ran, with Holm's "
        f"correction (5 %), {OURS} is better than "
        f"{_listed(better)} and worse than {_listed(worse)}; against the other {neither} no "
        "difference is shown."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
