"""ALTBI-G, ODIM and ALTBI-I on the tables of up to 8,000 rows, beside the paper's columns.

    python benchmarks/systems.py             run what results/systems.jsonl lacks, print the tables
    python benchmarks/systems.py --no-runs   print the tables of the lines that are there

The reference GLOW takes minutes for a table and runs once, all others with three seeds. Two of
these commands may run side by side, on other data sets or systems.
"""

import argparse
import statistics
import sys
from pathlib import Path

from altbi.bench.datasets import select
from altbi.bench.run import Run, plan, quick, read
from altbi.bench.tables import Cell, compare, gaps, paper_table

LINES = Path(__file__).parent / "results" / "systems.jsonl"
MOST_ROWS = 8_000
# Seeds, and the paper's column.
SYSTEMS = {
    "ALTBI-I (reference)": (3, "ALTBI-I"),
    "ALTBI-G (light)": (3, "ALTBI-G"),
    "ALTBI-G (reference)": (1, "ALTBI-G"),
    "ODIM": (3, "ODIM"),
}


def small_tables() -> list[str]:
    """Names of the tables of up to 8,000 rows."""
    return [dataset.name for dataset in select() if dataset.n_rows <= MOST_ROWS]


def cells(runs: list[Run], system: str, metric: str, datasets: list[str]) -> dict[str, Cell | None]:
    """One system's cell for each data set."""
    jobs = plan(datasets, [system], SYSTEMS[system][0])
    return {
        line.dataset.name: line.ours[system]
        for line in compare(jobs, runs, metric).lines
        if line.dataset.comparable  # the paper's mnist is another table
    }


def table(runs: list[Run], metric: str, systems: list[str], datasets: list[str]) -> str:
    """All cells beside the paper's, their means over tables, and the spread over seeds."""
    paper = paper_table(metric)
    columns = {system: cells(runs, system, metric, datasets) for system in systems}
    names = list(next(iter(columns.values())))
    lines = [["data set", *(f"{system} | paper" for system in systems)]]
    for name in names:
        lines.append(
            [name, *(_pair(columns[s][name], paper[name][SYSTEMS[s][1]]) for s in systems)]
        )
    lines.append(["mean of the tables run", *(_means(columns[s], s, metric) for s in systems)])
    lines.append(["mean std over seeds", *(_mean_spread(columns[s]) for s in systems)])
    rule = "|---|" + "---:|---:|" * len(systems)
    return "\n".join(["| " + " | ".join(lines[0]) + " |", rule, *map(_row, lines[1:])])


def _row(line: list[str]) -> str:
    return "| " + " | ".join(line) + " |"


def _pair(cell: Cell | None, paper: float) -> str:
    if cell is None:
        return f"missing | {paper:.3f}"
    spread = "" if cell.std is None else f" ± {cell.std:.3f}"
    return f"{cell.mean:.3f}{spread} | {paper:.3f}"


def _means(column: dict[str, Cell | None], system: str, metric: str) -> str:
    """Average over the tables that were run, the paper's over the same ones."""
    there = {name: cell.mean for name, cell in column.items() if cell is not None}
    if not there:
        return "missing | missing"
    paper = [paper_table(metric)[name][SYSTEMS[system][1]] for name in there]
    ours = statistics.fmean(there.values())
    return f"{ours:.4f} ({len(there)}) | {statistics.fmean(paper):.4f}"


def _mean_spread(column: dict[str, Cell | None]) -> str:
    spreads = [cell.std for cell in column.values() if cell is not None and cell.std is not None]
    return (f"{statistics.fmean(spreads):.4f}" if spreads else "one seed") + " | "


def main() -> None:
    """Run, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print tables")
    parser.add_argument(
        "--datasets", default=",".join(small_tables()), help="names as in the paper"
    )
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="names as above")
    parser.add_argument("--lines", type=Path, default=LINES)
    parser.add_argument(
        "--most-seeds", type=int, default=3, help="to run first: no more than these"
    )
    args = parser.parse_args()
    datasets, systems = args.datasets.split(","), args.systems.split(",")
    if not args.no_runs:
        for system in systems:
            seeds = min(SYSTEMS[system][0], args.most_seeds)
            quick(args.lines, datasets, seeds, _say, [system])
    runs = read(args.lines)
    for metric, title in (("auc", "AUC"), ("average_precision", "Average precision")):
        sys.stdout.write(f"\n### {title}\n\n{table(runs, metric, systems, datasets)}\n")
    jobs = [job for system in systems for job in plan(datasets, [system], SYSTEMS[system][0])]
    for gap in gaps(jobs, runs):
        sys.stdout.write(f"\n- missing: {gap}")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
