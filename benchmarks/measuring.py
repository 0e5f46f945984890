"""Shared functions of the benchmarks of speed and memory."""

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = 10
BLOCK = 250_000
# Linux counts in KiB, macOS in bytes.
UNIT = 1 if sys.platform == "darwin" else 1024

Record = dict[str, Any]


def generate_rows(n_rows: int, seed: int = 0) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of rows that all differ: three clusters, and 2 % of rows anywhere."""
    centres = np.random.default_rng(0).normal(size=(3, COLUMNS))
    rng = np.random.default_rng(seed)
    for start in range(0, n_rows, BLOCK):
        size = min(BLOCK, n_rows - start)
        rows = centres[rng.integers(0, 3, size)] + 0.3 * rng.normal(size=(size, COLUMNS))
        is_outlier = rng.random(size) < 0.02
        rows[is_outlier] = rng.uniform(-4, 4, size=(int(is_outlier.sum()), COLUMNS))
        yield rows


def run_command(*command: str) -> tuple[float, int, str]:
    """Run a command; return its seconds, its peak memory in bytes, and its output.

    The peak of a child starts from its parent's size, so callers import nothing large.
    """
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as stream:
        output = stream.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"{' '.join(command)} failed with exit code {child.returncode}")
    return seconds, usage.ru_maxrss * UNIT, output


def altbi_command() -> str:
    """Return the path of the command that is installed with this Python."""
    return str(Path(sys.executable).with_name("altbi"))


def peak_memory() -> int:
    """Return the largest size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def describe_machine(*packages: str) -> str:
    """Return a description of the machine and the versions of packages."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.machine()}, {python}, {versions}"
