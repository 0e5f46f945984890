"""CPU time and memory of short commands, compared with another version in the same run.

    git worktree add ../altbi-0.1 0bbe92d
    python benchmarks/start.py --source ../altbi-0.1/src

Each command runs in its own process: imports, then detect (with its page), score and inspect on a
table of 1,000 x 10. Both versions run in turn with the same Python, and the median counts. The
recommended detector of version 0.1 was called ALTBI.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from measuring import UNIT, describe_machine, generate_rows

ROWS = 1_000
RUN = "from altbi.cli import main; raise SystemExit(main())"
IMPORTS = (
    "import sklearn.base",
    "import sklearn.ensemble",
    "import altbi",
    "import altbi; getattr(altbi, 'OutlierDetector', None) or altbi.ALTBI",
)
OURS = "this version"


def measure_process(source: Path, *arguments: str) -> tuple[float, float]:
    """Run Python with the sources of a version; return CPU seconds and peak memory in MiB."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    child = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with exit code {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * UNIT / 2**20


def build_commands(folder: Path) -> dict[str, list[str]]:
    """Return the arguments of Python for each measurement; `folder` belongs to one version."""
    table, output = str(folder / "small.csv"), folder / "found"
    names = ",".join(f"x{index}" for index in range(10))
    np.savetxt(table, next(generate_rows(ROWS)), delimiter=",", header=names, comments="")
    model, scores = str(output / "model.altbi"), str(folder / "scores.csv")
    commands = {code: ["-c", code] for code in IMPORTS}
    commands |= {
        "altbi --version": ["-c", RUN, "--version"],
        "altbi detect": ["-c", RUN, "detect", table, "-o", str(output), "--quiet"],
        "altbi score": ["-c", RUN, "score", table, "--model", model, "-o", scores, "--quiet"],
        "altbi inspect": ["-c", RUN, "inspect", model],
    }
    return commands


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, help="sources of the version to compare with")
    parser.add_argument("--repeats", type=int, default=5, help="default: %(default)s")
    args = parser.parse_args()
    sources = {OURS: Path(__file__).parents[1] / "src"}
    if args.source:
        sources["other version"] = args.source.resolve()
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for version, source in sources.items():
            Path(folder, version).mkdir()
            measure_process(source, "-c", RUN, "--version")  # compiles modules
        commands = {version: build_commands(Path(folder, version)) for version in sources}
        for _ in range(args.repeats):
            for name in commands[OURS]:
                for version, source in sources.items():
                    result = measure_process(source, *commands[version][name])
                    found.setdefault((name, version), []).append(result)
    sys.stdout.write(f"{describe_machine('numpy', 'pyarrow', 'scikit-learn')}\n\n")
    sys.stdout.write(format_table(found, list(commands[OURS]), list(sources)))


def format_table(
    found: dict[tuple[str, str], list[tuple[float, float]]], names: list[str], versions: list[str]
) -> str:
    """Format the medians of CPU seconds and memory by command, and the ratio to the other."""
    lines = ["| command | CPU seconds | MiB | CPU, other version | MiB | ratio of CPU |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for name in names:
        medians = [
            [statistics.median(column) for column in zip(*found[name, version], strict=True)]
            for version in versions
        ]
        cells = [cell for cpu, memory in medians for cell in (f"{cpu:.2f}", f"{memory:.0f}")]
        cells += ["", ""] * (2 - len(medians))
        ratio = f"{medians[0][0] / medians[1][0]:.2f}" if len(medians) == 2 else ""
        lines.append(f"| {' | '.join([name, *cells, ratio])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
