"""How much the choice of reference rows by ALTBI's network is worth, on the select pools.

    python bench/scripts/filters.py               run what is missing, and print the table
    python bench/scripts/filters.py --no-runs     print the table of the records

OutlierDetector keeps the 80 % of rows with the smallest losses of its network, and then the 80 %
with the smallest distances. Here other scores replace the losses, and all else is equal. Records
are in bench/results/filters.jsonl. The table has AUC / average precision by pool, their means over
pools, and paired differences to the network with their standard errors.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from altbi_bench.catalogue.datasets import Labels, Rows
from altbi_bench.catalogue.pools import POOLS
from altbi_bench.runs.json_records import read_json_records
from altbi_bench.tables.grids import markdown_grid
from altbi_bench.trials.encoded_table import EncodedTable
from altbi_bench.trials.records import (
    Trials,
    list_select_tables,
    measure_accuracy,
    run_missing,
)
from altbi_bench.trials.scores import SCORES

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "filters.jsonl"
ODDBENCH = ROOT.parent / "shared" / "oddbench"
IWAE, NONE = "IWAE", "none"


def score_at_random(table: EncodedTable) -> NDArray[np.float64]:
    """Return equal scores, so that rows are kept at random."""
    return np.zeros(len(table.X))


FILTERS: dict[str, Callable[[EncodedTable], NDArray[np.float64]]] = {
    IWAE: lambda table: table.losses,
    "isolation forest": SCORES["isolation forest"],
    "32nd neighbour": SCORES["32nd neighbour"],
    "distance only": score_at_random,
    NONE: score_at_random,
}


def measure(X: Rows, y: Labels, names: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the accuracy of the detector's sum with each filter; `NONE` keeps all rows."""
    table = EncodedTable.encode(X)
    n_groups = table.reference_settings.n_groups
    for name in names:
        keep = 1.0 if name == NONE else None
        reference = table.select_reference(FILTERS[name](table), keep=keep, n_groups=n_groups)
        yield name, measure_accuracy(y, table.score_sum(reference))


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oddbench", type=Path, default=ODDBENCH)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    args = parser.parse_args()
    if not args.no_runs:
        os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        tables = sorted(list_select_tables(args.oddbench), key=lambda t: t.pool == "embeddings")
        for done in run_missing(args.records, tables, list(FILTERS), measure):
            sys.stderr.write(f"{done.pool} {done.name}\n")
    trials = Trials(read_json_records(args.records))
    pools = [pool for pool in POOLS if pool in trials.list_pools(IWAE)]
    sys.stdout.write(markdown_grid(list(trials.format_rows(FILTERS, IWAE, pools))) + "\n")


if __name__ == "__main__":
    main()
