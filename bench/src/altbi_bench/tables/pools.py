"""Tables of the runs on the pools: means by pool, and paired differences to one system."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

from altbi_bench.catalogue.pools import POOLS, is_in_half
from altbi_bench.runs.pools import OURS, POOL_SYSTEMS, SLOW

__all__ = [
    "CANDIDATE",
    "Difference",
    "PoolScores",
    "apply_rule",
    "left_out_rows",
    "metric_rows",
    "slow_rows",
]

Record = Mapping[str, Any]
Table = tuple[str, str]  # pool and name
NOTHING = "-"
# Name of a changed `OURS`, whose records are in another file.
CANDIDATE = "candidate"
# A candidate may lower the mean of a pool by this much.
MAX_LOSS = 0.005


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """A mean paired difference over tables and its standard error; NaN: unknown."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the mean of differences and its standard error, which needs two of them."""
        if not values:
            return cls(math.nan, math.nan)
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.nan
        return cls(statistics.fmean(values), error)

    @classmethod
    def mean_of(cls, differences: Sequence[Self]) -> Self:
        """Return the mean of independent differences."""
        error = math.hypot(*(each.error for each in differences)) / len(differences)
        return cls(statistics.fmean(each.mean for each in differences), error)

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return NOTHING
        error = NOTHING if math.isnan(self.error) else f"{self.error:.3f}"
        return f"{self.mean:+.3f} ± {error}"


@final
class PoolScores:
    """One metric of all systems on the tables of one half: means over seeds.

    A table on which a system failed with any seed has no value for this system.

    Parameters
    ----------
    records : iterable of dict
        Records of the runs.
    metric : {"auc", "ap"}
        The metric.
    half : {"select", "confirm"}
        The half.
    """

    def __init__(self, records: Iterable[Record], metric: str, half: str) -> None:
        found: dict[str, dict[Table, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.failures: dict[str, dict[Table, str]] = defaultdict(dict)
        self.tables: dict[Table, None] = {}  # in the order of the records
        for record in records:
            if not is_in_half(record["pool"], record["half"], half):
                continue
            table = (record["pool"], record["table"])
            self.tables[table] = None
            if "error" in record:
                self.failures[record["system"]][table] = record["error"]
            else:
                found[record["system"]][table].append(record[metric])
        self.values: dict[str, dict[Table, float]] = {
            system: {
                table: statistics.fmean(values)
                for table, values in by_table.items()
                if table not in self.failures[system]
            }
            for system, by_table in found.items()
        }

    def find_values(self, system: str, pool: str) -> dict[Table, float]:
        """Return the values of a system on the tables of a pool."""
        return {
            table: value for table, value in self.values.get(system, {}).items() if table[0] == pool
        }

    def compute_mean(self, system: str, pool: str) -> float:
        """Return the mean of a system over the tables of a pool; NaN if it has none."""
        values = self.find_values(system, pool).values()
        return statistics.fmean(values) if values else math.nan

    def compute_difference(self, system: str, pool: str) -> Difference:
        """Return system minus `OURS` on the tables of a pool that both have."""
        ours = self.find_values(OURS, pool)
        return Difference.of(
            [
                value - ours[table]
                for table, value in self.find_values(system, pool).items()
                if table in ours
            ]
        )


def metric_rows(scores: PoolScores) -> list[list[str]]:
    """Return a grid: a row for each fast system, with its mean and its difference by pool.

    The last column is the mean over pools. The row of `OURS` says whether it is the first, or
    within one standard error of the paired difference to the first.
    """
    systems = [system for system in POOL_SYSTEMS if system not in SLOW]
    systems += [system for system in scores.values if system == CANDIDATE]
    differences = {
        system: [scores.compute_difference(system, pool) for pool in POOLS] for system in systems
    }
    columns = {
        system: [*by_pool, Difference.mean_of(by_pool)] for system, by_pool in differences.items()
    }
    counts = [sum(pool == each for pool, _ in scores.tables) for each in POOLS]
    head = ["", *(f"{pool} ({n})" for pool, n in zip(POOLS, counts, strict=True)), "mean of pools"]
    rows = []
    for system in systems:
        means = _format_means(scores, system, counts)
        row = [system]
        for index, mean in enumerate(means):
            others = [columns[each][index] for each in systems if each not in (OURS, CANDIDATE)]
            note = _describe_rank(others) if system == OURS else str(columns[system][index])
            row.append(mean if mean == NOTHING else f"{mean} ({note})")
        rows.append(row)
    return [head, *rows]


def _format_means(scores: PoolScores, system: str, counts: Sequence[int]) -> Iterator[str]:
    """Yield the mean of each pool, with the number of tables if some are left out, and of all."""
    means = [scores.compute_mean(system, pool) for pool in POOLS]
    for pool, mean, count in zip(POOLS, means, counts, strict=True):
        n = len(scores.find_values(system, pool))
        yield NOTHING if not n else f"{mean:.3f}" if n == count else f"{mean:.3f} on {n}"
    yield NOTHING if math.isnan(math.fsum(means)) else f"{statistics.fmean(means):.3f}"


def _describe_rank(others: Sequence[Difference]) -> str:
    """Return the rank that paired differences of the other systems leave to `OURS`."""
    known = [other for other in others if not math.isnan(other.mean)]
    if not known:
        return "alone"
    best = max(known, key=lambda other: other.mean)
    if best.mean <= 0:
        return "first"
    return "within 1 SE" if best.mean <= best.error else "not first"


def apply_rule(scores: PoolScores) -> str:
    """Return whether the candidate may replace `OURS` by the protocol's rule for one metric.

    It must raise the mean over pools by more than two standard errors of the paired difference, and
    lower the mean of no pool by more than `MAX_LOSS`.
    """
    by_pool = {pool: scores.compute_difference(CANDIDATE, pool) for pool in POOLS}
    mean = Difference.mean_of(list(by_pool.values()))
    lowest = min(by_pool, key=lambda pool: by_pool[pool].mean)
    is_better = mean.mean > 2 * mean.error and by_pool[lowest].mean >= -MAX_LOSS
    verdict = "passes" if is_better else "does not pass"
    return f"{verdict}: mean over pools {mean}, lowest pool {lowest} {by_pool[lowest]}"


def slow_rows(both: Sequence[PoolScores]) -> list[list[str]]:
    """Return a grid of the slow systems and `OURS` on the tables that each slow system has.

    `both` are AUC and average precision. All tables count the same, of whatever pool.
    """
    head = ["", "tables"]
    for label in ("AUC", "average precision"):
        head += [label, f"{OURS} there", "difference"]
    return [head, *([system, *_compare_slow(both, system)] for system in SLOW)]


def _compare_slow(both: Sequence[PoolScores], system: str) -> Iterator[str]:
    for number, scores in enumerate(both):
        own, ours = scores.values.get(system, {}), scores.values.get(OURS, {})
        tables = [table for table in own if table in ours]
        if number == 0:
            yield str(len(tables))
        for values in (own, ours):
            found = [values[table] for table in tables]
            yield f"{statistics.fmean(found):.3f}" if found else NOTHING
        yield str(Difference.of([own[table] - ours[table] for table in tables]))


def left_out_rows(scores: PoolScores) -> list[list[str]]:
    """Return a grid of the systems that do not have a value on all tables.

    A system "failed" on a table if any seed did; tables without a record are "not run". Slow
    systems are run on tables selected by hash only, so only their failures count.
    """
    head = ["", "tables", "failed", "not run", "failures"]
    rows = []
    for system in POOL_SYSTEMS:
        failures = scores.failures[system]
        n_values = len(scores.values.get(system, {}))
        missing = 0 if system in SLOW else len(scores.tables) - n_values - len(failures)
        if failures or missing:
            named = "; ".join(f"{name}: {reason}" for (_, name), reason in failures.items())
            rows.append([system, str(n_values), str(len(failures)), str(missing), named])
    return [head, *rows]
