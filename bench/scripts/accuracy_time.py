"""Draw accuracy against time: mean over pools against the median time of a table.

    python bench/scripts/accuracy_time.py    write docs/benchmark/pools.svg, print the numbers

Both are from bench/results/pools.jsonl. Only tables count that all drawn systems have, on ADBench,
embeddings and the confirm halves. Seconds are those of fit and score on one core.
"""

import statistics
import sys
from pathlib import Path

from altbi_bench.catalogue.pools import CONFIRM, is_in_half
from altbi_bench.figures.charts import Dot, draw_named_points
from altbi_bench.runs.json_records import read_json_records
from altbi_bench.tables.grids import markdown_grid

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "pools.jsonl"
FIGURE = ROOT / "docs" / "benchmark" / "pools.svg"
# Systems with records of fewer tables of the halves than this share are not drawn.
LEAST_SHARE = 0.99
OURS = ("OutlierDetector", "ALTBI", "ALTBI() of 0.1")


def collect() -> dict[str, dict[tuple[str, str], tuple[float, float]]]:
    """Return AUC and seconds of the first seed by system, pool and table."""
    found: dict[str, dict[tuple[str, str], tuple[float, float]]] = {}
    for record in read_json_records(RECORDS):
        pool, half = str(record["pool"]), str(record["half"])
        if "auc" in record and record["seed"] == 0 and is_in_half(pool, half, CONFIRM):
            values = float(str(record["auc"])), float(str(record["seconds"]))
            found.setdefault(str(record["system"]), {})[pool, str(record["table"])] = values
    most = max(map(len, found.values()))
    return {name: tables for name, tables in found.items() if len(tables) >= LEAST_SHARE * most}


def summarize(found: dict[str, dict[tuple[str, str], tuple[float, float]]]) -> dict[str, Dot]:
    """Return the median seconds and the mean AUC over pools of each system, on shared tables."""
    shared = set.intersection(*(set(tables) for tables in found.values()))
    pools = sorted({pool for pool, _ in shared})
    dots = {}
    for name, tables in found.items():
        means = [
            statistics.fmean(tables[key][0] for key in shared if key[0] == pool) for pool in pools
        ]
        seconds = statistics.median(tables[key][1] for key in shared)
        dots[name] = Dot(seconds, statistics.fmean(means))
    return dots


def main() -> None:
    """Write the figure, and print the numbers."""
    dots = summarize(collect())
    FIGURE.write_text(
        draw_named_points(
            dots,
            x_title="median seconds of fit and score",
            y_title="mean AUC over four pools",
            ours=OURS,
        )
    )
    rows = [[name, f"{dot.x:.3f}", f"{dot.y:.3f}"] for name, dot in dots.items()]
    sys.stdout.write(markdown_grid([["system", "seconds", "mean AUC"], *rows]) + "\n")


if __name__ == "__main__":
    main()
