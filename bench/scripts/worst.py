"""The tables of each pool on which OutlierDetector is worst, and why.

    python bench/scripts/worst.py    print ten tables of each pool, from bench/results/pools.jsonl

For each table, labels show where its outliers are: how well the best single column separates them,
how far they are from the other rows, and how near they are to each other. The sentence is chosen by
these figures.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from altbi_bench.catalogue.pools import POOLS, PoolTable, list_tables, load_pool_table
from altbi_bench.runs.json_records import read_json_records
from altbi_bench.tables.grids import markdown_grid

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "pools.jsonl"
ODDBENCH = ROOT.parent / "shared" / "oddbench"
SYSTEM = "OutlierDetector"
N_TABLES = 10
# From here on, a single column separates outliers from other rows.
CLEAR_AUC = 0.75
# Below this ratio of distances to the fifth neighbour, outliers are dense.
DENSE_RATIO = 0.8
# Below this AUC of the distance from the middle, outliers are in the middle.
CENTRAL_AUC = 0.45


@dataclass(frozen=True, slots=True)
class Position:
    """Where the outliers of a table are."""

    n_columns: int
    column_auc: float  # of the column that separates them best, from either side
    is_high: bool  # whether they have large values there
    radius_auc: float  # of the distance from the median
    density_ratio: float  # distance to the fifth neighbour, outliers / other rows


def locate_outliers(X: NDArray[np.float64], y: NDArray[np.int64]) -> Position:
    """Return where the outliers are, in columns with mean 0 and standard deviation 1."""
    X = np.nan_to_num(X)
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    aucs = np.array([roc_auc_score(y, column) for column in Z.T])
    best = int(np.abs(aucs - 0.5).argmax())
    radius = np.linalg.norm(Z - np.median(Z, axis=0), axis=1)
    neighbours = NearestNeighbors(n_neighbors=min(6, len(Z))).fit(Z)
    distances = neighbours.kneighbors(Z)[0][:, -1]
    usual = float(np.median(distances[y == 0])) or 1.0
    return Position(
        n_columns=X.shape[1],
        column_auc=float(max(aucs[best], 1 - aucs[best])),
        is_high=bool(aucs[best] > 0.5),
        radius_auc=float(roc_auc_score(y, radius)),
        density_ratio=float(np.median(distances[y == 1])) / usual,
    )


def explain(position: Position) -> str:
    """Return a sentence on what the outliers are and why they are missed."""
    side = "largest" if position.is_high else "smallest"
    is_dense = position.density_ratio < DENSE_RATIO
    if position.radius_auc < CENTRAL_AUC and is_dense:
        return "They are a dense group near the middle, which looks more normal than other rows."
    if is_dense and position.column_auc > CLEAR_AUC:
        return f"They are a dense group at the {side} values of one column, like a normal group."
    if is_dense:
        return "They are nearer to each other than other rows, so they look like a normal group."
    if position.column_auc > CLEAR_AUC:
        others = position.n_columns - 1
        return f"They have the {side} values of one column, which {others} others hide."
    if position.radius_auc < CENTRAL_AUC:
        return "They are nearer to the middle than other rows, and no column separates them."
    return "They are among the other rows, and no column separates them."


def find_worst(pool: str, tables: list[PoolTable]) -> list[tuple[float, PoolTable]]:
    """Return the mean AUC over seeds and the table of the worst ones of a pool, worst first."""
    found: dict[str, list[float]] = {}
    for record in read_json_records(RECORDS):
        if record["pool"] == pool and record["system"] == SYSTEM and "auc" in record:
            found.setdefault(str(record["table"]), []).append(float(str(record["auc"])))
    by_name = {table.name: table for table in tables if table.pool == pool}
    ranked = sorted((float(np.mean(aucs)), name) for name, aucs in found.items())
    return [(auc, by_name[name]) for auc, name in ranked[:N_TABLES]]


def format_rows(worst: list[tuple[float, PoolTable]]) -> Iterator[list[str]]:
    """Yield the cells of a row of the printed table for each table."""
    for auc, table in worst:
        X, y = load_pool_table(table)
        position = locate_outliers(X, y)
        yield [
            table.name,
            f"{len(X):,} x {X.shape[1]}",
            f"{y.mean():.3f}",
            f"{auc:.2f}",
            f"{position.column_auc:.2f}",
            f"{position.radius_auc:.2f}",
            f"{position.density_ratio:.2f}",
            explain(position),
        ]


def main() -> None:
    """Print a table for each pool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oddbench", type=Path, default=ODDBENCH)
    tables = list_tables(parser.parse_args().oddbench)
    columns = ["table", "size", "outliers", "AUC", "best column", "radius", "density", "why"]
    for pool in POOLS:
        rows = [columns, *format_rows(find_worst(pool, tables))]
        sys.stdout.write(f"### {pool}\n\n{markdown_grid(rows, numbers=False)}\n\n")


if __name__ == "__main__":
    main()
