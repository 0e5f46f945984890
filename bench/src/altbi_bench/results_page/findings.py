"""Findings from the records: sentences and statistical tests."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from altbi_bench.catalogue.datasets import is_chosen_on
from altbi_bench.runs.records import Run, keep_latest
from altbi_bench.statistics import (
    DECIMALS,
    critical_difference,
    friedman,
    mean_ranks,
    wilcoxon_holm,
)
from altbi_bench.tables.comparison import METRICS, Comparison, shared_means
from altbi_bench.tables.grids import markdown_grid

__all__ = [
    "OURS",
    "describe_leaders",
    "describe_standing",
    "format_significance",
    "has_enough_runs",
]

OURS = "ALTBI"
# With fewer outliers, a single row changes the result of a table.
FEW_OUTLIERS = 10
# Largest number of data sets that a sentence lists.
MAX_LISTED = 5


def has_enough_runs(main: Comparison) -> bool:
    """Return whether there are enough runs: ours and two others on at least two data sets."""
    shared, means = shared_means(main)
    return OURS in means and len(means) > 2 and len(shared) > 1


def format_significance(main: Comparison) -> list[str]:
    """Format Friedman's test, and the tests of all pairs with ours."""
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
        f"Friedman's test that all systems are equal: chi² = {found.statistic:.1f}, p = "
        f"{found.p_value:.2g} (Iman and Davenport's F = {found.f_statistic:.2f}, p = "
        f"{found.f_p_value:.2g}); mean ranks differ significantly if their difference exceeds "
        f"{distance:.2f} (Nemenyi, 5 %). Bars in the figure join systems that do not differ.",
        markdown_grid([head, *rows]),
        "The p-value of a pair is scipy's: exact for up to 50 data sets without ties, otherwise "
        "by the normal approximation (with ties on few data sets, by all permutations).",
    ]


def describe_findings(main: Comparison, precision: Comparison, runs: Iterable[Run]) -> list[str]:
    """Return sentences about AUC and average precision of all systems."""
    if not has_enough_runs(main):
        return ["There are too few runs for a comparison."]
    return [
        f"O{describe_leaders(main, precision)[1:]}",
        *(_describe_pairs(found) for found in (main, precision)),
        *_describe_unselected_tables(main),
        *(_describe_losses(found) for found in (main, precision)),
        *_describe_left_out(main),
        *_describe_few_outliers(main, runs),
    ]


def describe_standing(where: str, found: Comparison) -> list[str]:
    """Return a sentence about the highest mean AUC, and about ours."""
    shared, means = shared_means(found)
    if OURS not in means or len(means) < 2:
        return []
    order = _sort_systems(means)
    standing = (
        f"{order[1]} the second highest ({means[order[1]]:.3f})"
        if order[0] == OURS
        else f"{OURS} has {means[OURS]:.3f} (rank {order.index(OURS) + 1} of {len(order)})"
    )
    return [
        f"{where}, over the {len(shared)} data sets that all {len(order)} systems ran, {order[0]} "
        f"has the highest mean AUC ({means[order[0]]:.3f}), {standing}."
    ]


def describe_leaders(main: Comparison, precision: Comparison) -> str:
    """Return a sentence about the highest means and the best mean rank, and about ours."""
    (shared, means), precisions = shared_means(main), shared_means(precision)[1]
    ranks, order = mean_ranks(main.scores), _sort_systems(means)
    best = (order[0], _sort_systems(precisions)[0], min(ranks, key=ranks.__getitem__))
    # A name is not repeated directly after itself.
    second, third = ("" if name == before else f"{name} " for before, name in pairwise(best))
    leads = (
        f"{best[0]} has the highest mean AUC ({means[best[0]]:.3f})",
        f"{second}the highest mean average precision ({precisions[best[1]]:.3f})",
        f"{third}the best mean rank ({ranks[best[2]]:.1f})",
    )
    ours = (
        f" {OURS} has {means[OURS]:.3f} (rank {order.index(OURS) + 1} of {len(order)}), "
        f"{precisions[OURS]:.3f} and {ranks[OURS]:.1f}."
        if set(best) != {OURS}
        else ""
    )
    text = f"{leads[0]}, {leads[1]}, and {leads[2]}.{ours}"
    return f"over the {len(shared)} data sets that all {len(order)} systems ran, {text}"


def _describe_losses(found: Comparison) -> str:
    """Return a sentence on how often ours is best, and where it is furthest behind."""
    scores = found.scores
    ours = scores.pop(OURS)
    others = {
        name: [(cells[name], system) for system, cells in scores.items() if name in cells]
        for name in ours
    }
    best = {name: max(cells) for name, cells in others.items() if cells}
    differences = {name: round(ours[name] - best[name][0], DECIMALS) for name in best}
    behind = [
        f"{name} ({ours[name]:.3f}, {best[name][1]} {best[name][0]:.3f})"
        for name in sorted(differences, key=differences.__getitem__)[:MAX_LISTED]
        if differences[name] < 0
    ]
    n_alone = sum(each > 0 for each in differences.values())
    n_shared = sum(each == 0 for each in differences.values())
    texts = [
        f"{METRICS[found.metric]}, among these {len(found.systems)} systems: {OURS} alone has the "
        f"highest on {n_alone} of {len(differences)} data sets",
        f", and shares it on {n_shared}" if n_shared else "",
        f". It is furthest behind the best other on {', '.join(behind)}" if behind else "",
    ]
    return "".join(texts) + "."


def _describe_left_out(main: Comparison) -> list[str]:
    """Return a sentence on data sets that do not count, because some system has no result."""
    shared = shared_means(main)[0]
    names = [each.dataset.label for each in main.results if each not in shared]
    if not names:
        return []
    return [f"Not counted, because some system failed or has not run there: {', '.join(names)}."]


def _describe_few_outliers(main: Comparison, runs: Iterable[Run]) -> list[str]:
    """Return a sentence on tables with few outliers."""
    last = keep_latest(runs)
    few = [
        f"{each.dataset.label} ({count})"
        for each in main.results
        if (cell := each.ours[OURS]) is not None
        and (count := last[cell.jobs[0]].n_outliers) is not None
        and count < FEW_OUTLIERS
    ]
    return [f"Fewer than {FEW_OUTLIERS} outliers are in {', '.join(few)}."] if few else []


def _sort_systems(values: Mapping[str, float]) -> list[str]:
    """Return the systems, the highest first."""
    return sorted(values, key=values.__getitem__, reverse=True)


def _describe_pairs(found: Comparison) -> str:
    return (
        f"{METRICS[found.metric]}, by Wilcoxon's signed-rank test, each pair on the data sets that "
        f"both ran, with Holm's correction (5 %): {_verdict(found)}."
    )


def _verdict(found: Comparison) -> str:
    """Return a phrase with the systems that ours is better than, worse than, or neither."""
    pairs = wilcoxon_holm(found.scores, against=OURS)
    better = [pair.second for pair in pairs if pair.significant and pair.favours_first]
    worse = [pair.second for pair in pairs if pair.significant and not pair.favours_first]
    neither = [pair.second for pair in pairs if not pair.significant]
    everyone = f"each of the {len(pairs)} others" if len(better) == len(pairs) else ""
    rest = f"; no difference is shown against {_join_names(neither)}" if neither else ""
    losses = _join_names(worse)
    return f"{OURS} is better than {everyone or _join_names(better)} and worse than {losses}{rest}"


def _describe_unselected_tables(main: Comparison) -> list[str]:
    """Return a sentence about the tables that were not used to choose settings, if any."""
    others = [each.dataset for each in main.results if not is_chosen_on(each.dataset.files[0].name)]
    found = main.only(others)
    if not has_enough_runs(found) or found == main:
        return []
    return [
        f"{OURS} was designed with these tables. {len(found.results)} of them did not select its "
        "settings, but were evaluated many times (docs/benchmark/accuracy.md). On these, the test "
        "of AUC says: "
        f"{_verdict(found)}."
    ]


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
