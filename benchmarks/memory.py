"""Peak memory of scoring by the number of rows.

    python benchmarks/memory.py --millions 0.25,1,4

Ten float32 columns are read from a temporary file through a memory map. Each size is scored in a
process of its own, with a model fitted there on the first 2,000 rows. The size of the input and
output arrays is subtracted; the growth that remains is the cost of a row.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from measuring import peak_memory

COLUMNS = 10
FIT_ROWS = 2_000
BLOCK = 100_000


def write_rows(path: Path, n_rows: int) -> None:
    """Write normal numbers block by block.

    The parent stays small, because a child's peak starts from its parent's size.
    """
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, n_rows, BLOCK):
            size = (min(BLOCK, n_rows - start), COLUMNS)
            file.write(rng.standard_normal(size, dtype=np.float32).tobytes())


def score_file(path: Path) -> dict[str, int]:
    """Fit on the first rows, score all, and return the memory used; runs in the child process."""
    from altbi import ALTBI

    rows = np.memmap(path, dtype=np.float32, mode="r").reshape(-1, COLUMNS)
    detector = ALTBI(random_state=0).fit(np.array(rows[:FIT_ROWS]))
    before = peak_memory()
    scores = detector.outlier_score(rows)
    return {
        "rows": len(rows),
        "before": before,
        "peak": peak_memory(),
        "arrays": rows.nbytes + scores.nbytes,
    }


def measure(n_rows: int) -> dict[str, int]:
    """Score a number of rows in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.f32"
        write_rows(path, n_rows)
        child = subprocess.run(
            [sys.executable, __file__, "--child", str(path)],
            stdout=subprocess.PIPE,
            check=True,
        )
    return json.loads(child.stdout)


def main() -> None:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millions", default="0.25,1,4", help="rows (default: %(default)s)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        sys.stdout.write(json.dumps(score_file(args.child)))
        return

    head = "| rows | peak MiB | before scoring MiB | arrays MiB | beyond arrays MiB | bytes a row |"
    sys.stdout.write(f"{head}\n| ---: | ---: | ---: | ---: | ---: | ---: |\n")
    last = None
    for millions in args.millions.split(","):
        found = measure(int(float(millions) * 1e6))
        beyond = found["peak"] - found["arrays"]
        growth = "" if last is None else f"{(beyond - last[1]) / (found['rows'] - last[0]):.1f}"
        sizes = (found["peak"], found["before"], found["arrays"], beyond)
        cells = [f"{found['rows']:,}", *(f"{size / 2**20:.0f}" for size in sizes), growth]
        sys.stdout.write("| " + " | ".join(cells) + " |\n")
        sys.stdout.flush()
        last = (found["rows"], beyond)


if __name__ == "__main__":
    main()
