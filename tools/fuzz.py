"""Read thousands of mutated model files and tables, and count what happens.

    python tools/fuzz.py                                # 2,600 models and 6,000 tables
    python tools/fuzz.py --models 60 --tables 120 --seed 7 --keep found

A model file is inspected, loaded and saved, and scores and explains a table. A table goes through
`altbi.detect` with a small training. Files are run in child processes, many in each, with a limit
of time for each file and a limit of memory. The results are

- read and scored, or refused: an `AltbiError`, `OSError` or `MemoryError`;
- crash: the process ended; hang: the file took longer than the limit, by the clock and in time of
  the processor, or ten times as long by the clock, and did so again when it was read alone;
- foreign exception: an error of another type, also in a thread or when an object is deleted;
- code run: the file made the interpreter run other code, start a process or open a connection;
- score not finite: a model or a table gave scores that are no numbers.

The exit code is 1 unless the last five counts are 0. Mutations depend only on the seed and on the
number of the file, so that a single file is repeated by `--only tables:123`. It needs Linux.
"""

import argparse
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_child import GOOD, KINDS
from fuzz_models import fit_base_models

CHILD = Path(__file__).with_name("fuzz_child.py")
BATCH = 200
START_SECONDS = 180  # for imports, the warm-up, and the mutation of a file
POLL_SECONDS = 0.5
PATIENCE = 10  # a file that waits for something hangs after so many times the limit
BAD = ("crash", "hang", "foreign exception", "code run", "score not finite")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened with one file."""

    kind: str
    index: int
    mutations: str
    result: str
    reason: str
    seconds: float = 0.0

    def describe(self) -> str:
        """Return one line that names the file, its mutations and the reason."""
        return f"{self.result}: {self.kind}:{self.index} ({self.mutations}) {self.reason}"

    def file_name(self, path: Path) -> str:
        """Return the name for a copy of the file, which had this path."""
        return f"{self.kind}-{self.index}-{self.result.replace(' ', '-')}{''.join(path.suffixes)}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the child processes, and where they work."""

    seed: int
    seconds: float  # for each file
    gibibytes: float
    folder: Path  # for temporary files
    keep: Path | None  # for files with a bad result


class Child:
    """A child process that runs the files of one kind from `first` up to, not including, `last`.

    Its folder has the file that it reads in `work`, and files with a bad result in `bad`.
    """

    def __init__(self, kind: str, first: int, last: int, limits: Limits) -> None:
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp(dir=limits.folder, prefix=f"{kind}-"))
        for name in ("work", "bad", "temporary"):
            self.folder.joinpath(name).mkdir()
        settings = {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.folder / "temporary")}
        arguments = (kind, limits.seed, first, last, limits.folder / "bases", limits.gibibytes)
        with self.folder.joinpath("stderr").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), *map(str, arguments)],
                cwd=self.folder / "work",
                env={**os.environ, **settings},
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._buffer = b""

    def read_report(self, seconds: float) -> dict[str, Any] | None:
        """Return the next report; None if the process ends before.

        A report that does not come in time raises a `TimeoutError`.
        """
        stream = self.process.stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(seconds):
                    raise TimeoutError
                data = os.read(stream.fileno(), 1 << 16)
                if not data:
                    return None
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def count_cpu_seconds(self) -> float:
        """Return the seconds of the processor that the process has used, in all threads."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text("ascii", "replace")
        except FileNotFoundError:  # it has ended
            return 0.0
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def describe_end(self) -> str:
        """Return the exit code and the last line that the process wrote to standard error."""
        code = self.process.wait()
        lines = self.folder.joinpath("stderr").read_text("utf-8", "replace").strip().splitlines()
        return f"exit code {code}; {lines[-1] if lines else ''}"

    def list_files(self, name: str) -> list[Path]:
        """Return the path of a file that is being read, or that had a bad result."""
        paths = [self.folder / "work" / name, self.folder / "bad" / name]
        return [path for path in paths if path.exists()]

    def close(self) -> None:
        """End the process, and remove its folder."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.folder)


def run_files(kind: str, first: int, last: int, limits: Limits) -> Iterator[Outcome]:
    """Yield the outcome of each file; after a crash or a hang, a new process continues.

    A hang counts if the file also hangs alone, in a process of its own.
    """
    while first < last:
        child = Child(kind, first, last, limits)
        try:
            for outcome in read_outcomes(child, limits):
                first = outcome.index + 1
                yield outcome
        finally:
            child.close()


def read_outcomes(child: Child, limits: Limits) -> Iterator[Outcome]:
    """Yield the outcomes of the files of one process, until it ends or hangs.

    A process that fails outside of a file raises a `SystemExit`.
    """
    if child.read_report(START_SECONDS) is None:
        raise SystemExit(f"The process for {child.kind} cannot start: {child.describe_end()}")
    while begun := child.read_report(START_SECONDS):
        ended = wait_for_end(child, limits.seconds)
        outcome = Outcome(child.kind, begun["index"], begun["mutations"], **ended)
        if limits.keep and outcome.result in BAD:
            for path in child.list_files(begun["name"]):
                shutil.copy(path, limits.keep / outcome.file_name(path))
        yield outcome
        if outcome.result in ("crash", "hang"):
            return
    if child.process.wait():
        raise SystemExit(f"The process for {child.kind} failed: {child.describe_end()}")


def wait_for_end(child: Child, seconds: float) -> dict[str, Any]:
    """Return the result of a file and its reason; a process that hangs is ended.

    On a busy machine a file may take longer than `seconds`, as long as it does not use so much time
    of the processor.
    """
    start, used_before = time.monotonic(), child.count_cpu_seconds()
    while True:
        try:
            ended = child.read_report(POLL_SECONDS)
        except TimeoutError:
            elapsed, used = time.monotonic() - start, child.count_cpu_seconds() - used_before
            if elapsed > seconds and max(used, elapsed / PATIENCE) > seconds:
                child.process.kill()
                return {"result": "hang", "reason": f"{elapsed:.1f} s, {used:.1f} s of CPU time"}
        else:
            return ended or {"result": "crash", "reason": child.describe_end()}


def confirm_hang(outcome: Outcome, limits: Limits) -> Outcome:
    """Return the outcome of a second run of the file alone if it hung; else the same outcome."""
    if outcome.result != "hang":
        return outcome
    (again,) = run_files(outcome.kind, outcome.index, outcome.index + 1, limits)
    return again


def run_batches(counts: dict[str, range], limits: Limits, jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes of all files; several processes run at the same time."""
    batches = [
        (kind, numbers[start : start + BATCH])
        for kind, numbers in counts.items()
        for start in range(0, len(numbers), BATCH)
    ]

    def run(batch: tuple[str, range]) -> list[Outcome]:
        """Return the outcomes of one batch."""
        kind, numbers = batch
        outcomes = run_files(kind, numbers.start, numbers.stop, limits)
        return [confirm_hang(outcome, limits) for outcome in outcomes]

    with ThreadPoolExecutor(jobs) as pool:
        for outcomes in pool.map(run, batches):
            yield from outcomes


def format_table(outcomes: list[Outcome]) -> str:
    """Format the number of files of each kind by their result, as Markdown."""
    counts = Counter((each.kind, each.result) for each in outcomes)
    kinds = list(dict.fromkeys(each.kind for each in outcomes))
    lines = [f"| | {' | '.join(kinds)} |", f"| --- |{' ---: |' * len(kinds)}"]
    for result in (*GOOD, *BAD):
        cells = " | ".join(str(counts[kind, result]) for kind in kinds)
        lines.append(f"| {result} | {cells} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=2600, help="default: %(default)s")
    parser.add_argument("--tables", type=int, default=6000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=5, help="for a file (%(default)s)")
    parser.add_argument("--gibibytes", type=float, default=8, help="of address space (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="folder for copies of files with a bad result")
    parser.add_argument("--only", metavar="KIND:NUMBER", help="run a single file")
    return parser.parse_args()


def main() -> int:
    """Run the files, print one table, and return 1 if a file has a bad result."""
    args = parse_arguments()
    ranges = {kind: range(getattr(args, kind)) for kind in KINDS}
    if args.only:
        kind, _, number = args.only.partition(":")
        ranges = {kind: range(int(number), int(number) + 1)}
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="altbi-fuzz-") as folder:
        limits = Limits(args.seed, args.seconds, args.gibibytes, Path(folder), args.keep)
        bases = limits.folder / "bases"
        bases.mkdir()
        if len(ranges.get("models", ())):
            fit_base_models(bases)
        outcomes = []
        for outcome in run_batches(ranges, limits, args.jobs):
            outcomes.append(outcome)
            if outcome.result in BAD or args.only:
                sys.stderr.write(f"{outcome.describe()}\n")
    sys.stdout.write(f"{format_table(outcomes)}\n")
    return int(any(each.result in BAD for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
