"""What the benchmarks of speed and memory share: rows, children, and what they ran on."""

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

Line = dict[str, Any]


def clusters(n_rows: int, seed: int = 0) -> Iterator[NDArray[np.float64]]:
    """Give rows, all different, block by block: three clusters and one row in fifty anywhere."""
    centres = np.random.default_rng(0).normal(size=(3, COLUMNS))
    draw = np.random.default_rng(seed)
    for start in range(0, n_rows, BLOCK):
        size = min(BLOCK, n_rows - start)
        rows = centres[draw.integers(0, 3, size)] + 0.3 * draw.normal(size=(size, COLUMNS))
        odd = draw.random(size) < 0.02
        rows[odd] = draw.uniform(-4, 4, size=(int(odd.sum()), COLUMNS))
        yield rows


def run(*command: str) -> tuple[float, int, str]:
    """Run a command; gives its seconds, its peak memory in bytes, and what it wrote.

    The peak of a child starts from its parent's size: callers import nothing heavy.
    """
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as stream:
        written = stream.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"{' '.join(command)} failed with exit code {child.returncode}")
    return seconds, usage.ru_maxrss * UNIT, written


def altbi_command() -> str:
    """Find the command that was installed beside this Python."""
    return str(Path(sys.executable).with_name("altbi"))


def peak() -> int:
    """Largest size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def machine(*packages: str) -> str:
    """Say what the seconds were measured on."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.machine()}, {python}, {versions}"
