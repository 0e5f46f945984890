"""Kill `altbi detect` at random moments, run it again, and check that nothing is wrong or left.

    python tools/kill_runs.py                                  # 20 kills of each job
    python tools/kill_runs.py --jobs file --kills 3 --rows 2000

There are two jobs: a CSV file, and a folder of Parquet files on two Dask workers. Each is first run
undisturbed. Then it is started again in a new folder, and all its processes get SIGKILL after a
share of the time that the undisturbed run took. The same command is run once more. It must

- exit with 0,
- write the same files as the undisturbed run, with the same scores to the bit, and
- leave no other file: not in its output, beside it, beside the table, or in its temporary folder.

The exit code is 1 if one run does not. It needs Linux.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

RUN = "from altbi.cli import main; raise SystemExit(main())"
N_FILES = 6  # of the folder
SET_CHILD_SUBREAPER = 36  # of prctl: orphans of killed processes become children of this one
ORPHAN_SECONDS = 10
# Files of a finished run that name their own path or the time, and cannot be equal.
NOT_COMPARED = ("report.html", "plan.json")


@dataclass(frozen=True, slots=True)
class Job:
    """A command to kill: the name of its table, how the table is written, and its options."""

    table: str
    write: Callable[[Path, pa.Table], None]
    options: tuple[str, ...] = ()

    def prepare(self, root: Path, table: pa.Table) -> None:
        """Create the folders of a run, and write its table."""
        for name in ("data", "tmp"):
            root.joinpath(name).mkdir(parents=True)
        self.write(root / "data" / self.table, table)

    def start(self, root: Path) -> subprocess.Popen[bytes]:
        """Start the command in a session of its own; files in `root` only."""
        command = [
            sys.executable,
            "-c",
            RUN,
            "detect",
            f"data/{self.table}",
            "-o",
            "out",
            "--quiet",
        ]
        return subprocess.Popen(
            [*command, *self.options],
            cwd=root,
            env={**os.environ, "TMPDIR": str(root / "tmp")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


def write_csv(path: Path, table: pa.Table) -> None:
    """Write a table as a CSV file."""
    pyarrow.csv.write_csv(table, path)


def write_folder(path: Path, table: pa.Table) -> None:
    """Write a table as a folder of Parquet files."""
    path.mkdir()
    size = -(-len(table) // N_FILES)
    for number in range(N_FILES):
        rows = table.slice(number * size, size)
        pyarrow.parquet.write_table(rows, path / f"{number}.parquet")


JOBS = {
    "file": Job("rows.csv", write_csv),
    "dask": Job("rows", write_folder, ("--engine", "dask", "--workers", "2")),
}


@dataclass(frozen=True, slots=True)
class Kill:
    """A killed run, and what the run after it did."""

    job: str
    seconds: float  # from start to kill
    left_by_kill: int  # files that an undisturbed run does not leave
    code: int  # exit code of the run after it
    left: tuple[str, ...]  # files that should not be there after that run
    missing: tuple[str, ...]
    different: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the second run did all that it must."""
        return not (self.code or self.left or self.missing or self.different)


def measure_run(job: Job, root: Path) -> float:
    """Run a job to its end, and return its seconds; another exit code than 0 raises SystemExit."""
    start = time.monotonic()
    code, errors = finish(job.start(root))
    if code:
        raise SystemExit(f"The undisturbed run ended with exit code {code}: {errors}")
    return time.monotonic() - start


def kill_run(name: str, root: Path, undisturbed: Path, seconds: float) -> Kill:
    """Start a job, kill it after some seconds, run it again, and compare the results."""
    process = JOBS[name].start(root)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    kill_orphans()
    expected = list_files(undisturbed)
    left_by_kill = len(list_files(root) - expected)
    code, _ = finish(JOBS[name].start(root))
    orphans = kill_orphans()
    found = list_files(root)
    different = [
        path for path in sorted(found & expected) if not is_same(root / path, undisturbed / path)
    ]
    left = [*sorted(found - expected), *(f"process {pid}" for pid in orphans)]
    missing = sorted(expected - found)
    return Kill(name, seconds, left_by_kill, code, tuple(left), tuple(missing), tuple(different))


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait for a process, and return its exit code and what it wrote to standard error."""
    _, errors = process.communicate()
    return process.returncode, errors.decode(errors="replace").strip()


def kill_orphans() -> list[int]:
    """Kill the processes that a run has left, and return the numbers of those.

    They are children of this process, because it adopts orphans. Processes that end by themselves
    within some seconds are not counted.
    """
    deadline = time.monotonic() + ORPHAN_SECONDS
    while (orphans := list_children()) and time.monotonic() < deadline:
        reaped, _ = os.waitpid(-1, os.WNOHANG)
        if not reaped:
            time.sleep(0.05)
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return orphans


def list_children() -> list[int]:
    """Return the numbers of the children of this process."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text("ascii").split()]


def list_files(root: Path) -> set[str]:
    """Return the relative paths of all files and folders, also of hidden ones."""
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def is_same(path: Path, other: Path) -> bool:
    """Return whether two files have the same content; Parquet files, the same table.

    Folders, and files in `NOT_COMPARED`, are the same. In JSON files, the fingerprint of the run is
    ignored, because it depends on the path of the table.
    """
    if path.is_dir() or path.name in NOT_COMPARED:
        return True
    if path.suffix == ".json":
        records = [json.loads(each.read_bytes()) | {"fingerprint": ""} for each in (path, other)]
        return bool(records[0] == records[1])
    if path.suffix == ".parquet":
        tables = [pyarrow.parquet.read_table(each) for each in (path, other)]
        return bool(tables[0].equals(tables[1]))
    return path.read_bytes() == other.read_bytes()


def run_job(name: str, folder: Path, args: argparse.Namespace) -> list[Kill]:
    """Run a job undisturbed, then kill it several times."""
    rng = np.random.default_rng(args.seed)
    columns = rng.normal(size=(10, args.rows)).round(6)
    table = pa.table(list(columns), names=[f"x{index}" for index in range(10)])
    undisturbed = folder / f"{name}-undisturbed"
    JOBS[name].prepare(undisturbed, table)
    seconds = measure_run(JOBS[name], undisturbed)
    kills = []
    for number, share in enumerate(sorted(rng.uniform(args.first, 1, args.kills))):
        root = folder / f"{name}-{number}"
        JOBS[name].prepare(root, table)
        kills.append(kill_run(name, root, undisturbed, share * seconds))
        sys.stderr.write(f"{name}: killed after {share * seconds:.1f} of {seconds:.1f} s\n")
        shutil.rmtree(root)
    return kills


def format_table(kills: list[Kill]) -> str:
    """Format one row for each kill, as Markdown."""
    heads = "job | killed after | files left | second run: exit code | other content | files left"
    lines = [f"| {heads} |", "| --- | ---: | ---: | ---: | --- | --- |"]
    for kill in kills:
        wrong = ", ".join((*kill.left, *(f"{path} is missing" for path in kill.missing)))
        cells = [
            kill.job,
            f"{kill.seconds:.1f} s",
            str(kill.left_by_kill),
            str(kill.code),
            ", ".join(kill.different) or "none",
            wrong or "none",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    n_right = sum(kill.is_right for kill in kills)
    return "\n".join([*lines, "", f"{n_right} of {len(kills)} right"])


def main() -> int:
    """Run the jobs, print one table, and return 1 if a second run was wrong or left something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=",".join(JOBS), help="default: %(default)s")
    parser.add_argument("--kills", type=int, default=20, help="of each job (%(default)s)")
    parser.add_argument("--rows", type=int, default=300_000, help="default: %(default)s")
    parser.add_argument("--first", type=float, default=0.1, help="smallest share of the time")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="altbi-kill-") as folder:
        kills = [
            kill for name in args.jobs.split(",") for kill in run_job(name, Path(folder), args)
        ]
    sys.stdout.write(f"{format_table(kills)}\n")
    return int(not all(kill.is_right for kill in kills))


if __name__ == "__main__":
    sys.exit(main())
