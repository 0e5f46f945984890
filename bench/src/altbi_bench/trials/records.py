"""Records of trials: accuracies of named scores on tables, and the tables printed of them."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from altbi_bench.catalogue.datasets import Labels, Rows
from altbi_bench.catalogue.pools import SELECT, PoolTable, list_tables, load_pool_table
from altbi_bench.runs.json_records import append_json_records, read_json_records
from altbi_bench.runs.measurement import check_classes
from altbi_bench.tables.pools import Difference

__all__ = [
    "METRICS",
    "Trials",
    "format_difference",
    "list_select_tables",
    "measure_accuracy",
    "run_missing",
]

METRICS = ("auc", "ap")
# Digits of a record.
DIGITS = 5

Record = dict[str, Any]
Measure = Callable[[Rows, Labels, Sequence[str]], Iterable[tuple[str, Mapping[str, float]]]]


def list_select_tables(oddbench: Path) -> list[PoolTable]:
    """Return the tables on which settings may be chosen; no other labels are read."""
    return [table for table in list_tables(oddbench) if table.half == SELECT]


def measure_accuracy(y: Labels, scores: Rows) -> dict[str, float]:
    """Return "auc" and "ap" (average precision); a score that is not finite raises ValueError."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    auc, ap = roc_auc_score(y, scores), average_precision_score(y, scores)
    return {"auc": round(float(auc), DIGITS), "ap": round(float(ap), DIGITS)}


def run_missing(
    path: Path, tables: Iterable[PoolTable], names: Sequence[str], measure: Measure
) -> Iterator[PoolTable]:
    """Measure what has no record in a file, append its records, and yield each finished table.

    `measure` gets the rows, the labels and the missing names of a table. It returns pairs of a name
    and the fields of its record. Labels of one class raise a `TableError`.
    """
    done = {(r["pool"], r["table"], r["name"]) for r in read_json_records(path)}
    for table in tables:
        missing = [name for name in names if (table.pool, table.name, name) not in done]
        if missing:
            X, y = load_pool_table(table)
            check_classes(y)
            key = {"pool": table.pool, "table": table.name}
            found = [key | {"name": name, **own} for name, own in measure(X, y, missing)]
            append_json_records(path, found)
            yield table


@final
class Trials:
    """Accuracies by name, pool and table.

    Parameters
    ----------
    records : iterable of dict
        Records with "pool", "table", "name", "auc" and "ap".
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._found: dict[str, dict[str, dict[str, Record]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        for record in records:
            self._found[record["name"]][record["pool"]][record["table"]] = record

    def has(self, name: str) -> bool:
        """Return whether there are records of a name."""
        return name in self._found

    def list_pools(self, name: str) -> list[str]:
        """Return the pools with records of a name, in the order of the records."""
        return list(self._found[name]) if self.has(name) else []

    def count(self, name: str, pool: str) -> int:
        """Return the number of tables of a pool with a record of a name."""
        return len(self._found[name][pool])

    def compute_mean(self, name: str, pool: str, metric: str) -> float:
        """Return the mean over the tables of a pool; NaN if there are none."""
        values = [record[metric] for record in self._found[name][pool].values()]
        return sum(values) / len(values) if values else math.nan

    def compute_difference(
        self, name: str, base: str, pools: Sequence[str], metric: str
    ) -> Difference:
        """Return the mean over pools of the paired differences to another name."""
        return Difference.mean_of([self._compare(name, base, pool, metric) for pool in pools])

    def _compare(self, name: str, base: str, pool: str, metric: str) -> Difference:
        own, other = self._found[name][pool], self._found[base][pool]
        return Difference.of([own[t][metric] - other[t][metric] for t in own if t in other])

    def format_accuracy(self, name: str, pools: Sequence[str]) -> Iterator[str]:
        """Yield AUC / average precision of each pool, and their means over pools."""
        means = [[self.compute_mean(name, pool, metric) for pool in pools] for metric in METRICS]
        for values in [*zip(*means, strict=True), [sum(each) / len(pools) for each in means]]:
            yield " / ".join("-" if math.isnan(value) else f"{value:.3f}" for value in values)

    def format_differences(self, name: str, base: str, pools: Sequence[str]) -> Iterator[str]:
        """Yield the paired differences in AUC and average precision, averaged over pools."""
        for metric in METRICS:
            yield format_difference(self.compute_difference(name, base, pools, metric))

    def format_rows(
        self, names: Iterable[str], base: str, pools: Sequence[str]
    ) -> Iterator[list[str]]:
        """Yield a header, and a row for each name with its differences to one of them."""
        head = ["", *(f"{pool} ({self.count(base, pool)})" for pool in pools), "mean"]
        yield [*head, f"AUC - {base}", f"precision - {base}"]
        for name in filter(self.has, names):
            differences = self.format_differences(name, base, pools)
            yield [name, *self.format_accuracy(name, pools), *differences]


def format_difference(difference: Difference) -> str:
    """Return a difference with its standard error, in four digits; "-" if it is not known."""
    if math.isnan(difference.mean) or math.isnan(difference.error):
        return "-"
    return f"{difference.mean:+.4f} ± {difference.error:.4f}"
