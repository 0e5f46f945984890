"""What the runs show, in sentences and tests: whatever they say."""

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

__all__ = ["OURS", "is_enough", "leaders", "significance", "standing"]

OURS = "ALTBI"
# With fewer, one row more or less at the top moves a table's result.
FEW_OUTLIERS = 10
# Data sets that are named where ours is far behind.
MOST_NAMED = 5


def is_enough(main: Comparison) -> bool:
    """Tell whether ours was run with two others at least, all on two data sets at least."""
    shared, means = shared_means(main)
    return OURS in means and len(means) > 2 and len(shared) > 1


def significance(main: Comparison) -> list[str]:
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
        "The p of a pair is scipy's: exact for up to 50 data sets without ties, else by the normal "
        "approximation (or, with ties on few data sets, by all permutations).",
    ]


def explained(main: Comparison, precision: Comparison, runs: Iterable[Run]) -> list[str]:
    """Say in a few sentences what AUC and average precision of all systems say."""
    if not is_enough(main):
        return ["There are too few runs to say anything."]
    return [
        f"O{leaders(main, precision)[1:]}",
        *(_told_pairs(found) for found in (main, precision)),
        *_confirmed(main),
        *(_behind(found) for found in (main, precision)),
        *_left_out(main),
        *_few_outliers(main, runs),
    ]


def standing(where: str, found: Comparison) -> list[str]:
    """Say who has the highest mean AUC on other data sets, or in another setting, and our place."""
    shared, means = shared_means(found)
    if OURS not in means or len(means) < 2:
        return []
    order = _ordered(means)
    place = (
        f"{order[1]} the second highest ({means[order[1]]:.3f})"
        if order[0] == OURS
        else f"{OURS} has {means[OURS]:.3f} (place {order.index(OURS) + 1} of {len(order)})"
    )
    return [
        f"{where}, over the {len(shared)} data sets that all {len(order)} systems ran, {order[0]} "
        f"has the highest mean AUC ({means[order[0]]:.3f}), {place}."
    ]


def leaders(main: Comparison, precision: Comparison) -> str:
    """Say who has the highest means and the best mean rank, and where ours stands if it has not."""
    (shared, means), precisions = shared_means(main), shared_means(precision)[1]
    ranks, order = mean_ranks(main.scores), _ordered(means)
    best = (order[0], _ordered(precisions)[0], min(ranks, key=ranks.__getitem__))
    # A name that was said just before is not said again.
    second, third = ("" if name == before else f"{name} " for before, name in pairwise(best))
    leads = (
        f"{best[0]} has the highest mean AUC ({means[best[0]]:.3f})",
        f"{second}the highest mean average precision ({precisions[best[1]]:.3f})",
        f"{third}the best mean rank ({ranks[best[2]]:.1f})",
    )
    ours = (
        f" {OURS} has {means[OURS]:.3f} (place {order.index(OURS) + 1} of {len(order)}), "
        f"{precisions[OURS]:.3f} and {ranks[OURS]:.1f}."
        if set(best) != {OURS}
        else ""
    )
    told = f"{leads[0]}, {leads[1]}, and {leads[2]}.{ours}"
    return f"over the {len(shared)} data sets that all {len(order)} systems ran, {told}"


def _behind(found: Comparison) -> str:
    """Say how often ours leads, and where it is furthest behind the best of the others."""
    scores = found.scores
    ours = scores.pop(OURS)
    others = {
        name: [(cells[name], system) for system, cells in scores.items() if name in cells]
        for name in ours
    }
    best = {name: max(cells) for name, cells in others.items() if cells}
    gaps = {name: round(ours[name] - best[name][0], DECIMALS) for name in best}
    write_in_background = [
        f"{name} ({ours[name]:.3f}, {best[name][1]} {best[name][0]:.3f})"
        for name in sorted(gaps, key=gaps.__getitem__)[:MOST_NAMED]
        if gaps[name] < 0
    ]
    n_alone = sum(gap > 0 for gap in gaps.values())
    n_shared = sum(gap == 0 for gap in gaps.values())
    told = [
        f"{METRICS[found.metric]}, among these {len(found.systems)} systems: {OURS} alone has the "
        f"highest on {n_alone} of {len(gaps)} data sets",
        f", and shares it on {n_shared}" if n_shared else "",
        f". It is furthest behind the best other on {', '.join(write_in_background)}"
        if write_in_background
        else "",
    ]
    return "".join(told) + "."


def _left_out(main: Comparison) -> list[str]:
    """Name the data sets that do not count because a system failed, or has not run there."""
    shared = shared_means(main)[0]
    names = [line.dataset.label for line in main.lines if line not in shared]
    if not names:
        return []
    return [f"Not counted, because some system failed or has not run there: {', '.join(names)}."]


def _few_outliers(main: Comparison, runs: Iterable[Run]) -> list[str]:
    """Name the tables, or samples of them, whose results hang on a handful of rows."""
    last = keep_latest(runs)
    few = [
        f"{line.dataset.label} ({count})"
        for line in main.lines
        if (cell := line.ours[OURS]) is not None
        and (count := last[cell.jobs[0]].n_outliers) is not None
        and count < FEW_OUTLIERS
    ]
    return [f"Fewer than {FEW_OUTLIERS} outliers are in {', '.join(few)}."] if few else []


def _ordered(values: Mapping[str, float]) -> list[str]:
    """Name systems, the highest first."""
    return sorted(values, key=values.__getitem__, reverse=True)


def _told_pairs(found: Comparison) -> str:
    return (
        f"{METRICS[found.metric]}, by Wilcoxon's signed ranks, each pair on the data sets that "
        f"both ran, with Holm's correction (5 %): {_verdict(found)}."
    )


def _verdict(found: Comparison) -> str:
    """Say against which systems ours is better, worse, or neither."""
    pairs = wilcoxon_holm(found.scores, against=OURS)
    better = [pair.second for pair in pairs if pair.significant and pair.favours_first]
    worse = [pair.second for pair in pairs if pair.significant and not pair.favours_first]
    neither = [pair.second for pair in pairs if not pair.significant]
    everyone = f"each of the {len(pairs)} others" if len(better) == len(pairs) else ""
    rest = f"; no difference is shown against {_listed(neither)}" if neither else ""
    return (
        f"{OURS} is better than {everyone or _listed(better)} and worse than {_listed(worse)}{rest}"
    )


def _confirmed(main: Comparison) -> list[str]:
    """Say the same of the tables that ours was not chosen on, if there are any."""
    aside = [line.dataset for line in main.lines if not is_chosen_on(line.dataset.parts[0].name)]
    found = main.only(aside)
    if not is_enough(found) or found == main:
        return []
    return [
        f"{OURS} was designed while these tables were looked at. On the {len(found.lines)} of them "
        "that were set aside, only to confirm (docs/benchmark/accuracy.md), the test of AUC says: "
        f"{_verdict(found)}."
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
