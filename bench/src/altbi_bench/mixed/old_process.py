"""Scores of another version of altbi, computed in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = ["OldProcess"]

# Runs with the sources of any version, so it imports nothing of the benchmark.
_WORKER = """
import json, sys, warnings
import numpy as np
import pyarrow.parquet as pq
import altbi
warnings.simplefilter("ignore")
def score(job):
    detector = altbi.ALTBI(random_state=job["seed"])
    frame = pq.read_table(job["frame"])
    np.save(job["scores"], -detector.fit(frame).score_samples(frame))
for line in sys.stdin:
    try:
        score(json.loads(line))
        print("{}", flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
"""


@final
class OldProcess:
    """A process that scores tables one by one with ``ALTBI()`` of another version.

    It is a context manager: at its end, the process ends.

    Parameters
    ----------
    source : Path
        Folder that has the package ``altbi`` of the version.
    """

    def __init__(self, source: Path) -> None:
        if not (source / "altbi").is_dir():
            raise FileNotFoundError(f"{source}: no package altbi. Pass --old FOLDER.")
        limits = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(source)}
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **limits},
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and delete its files."""
        self._process.communicate()
        self._folder.cleanup()

    def score(self, frame: pa.Table, seed: int) -> NDArray[np.float64]:
        """Fit and score a table without labels; high means outlier.

        Raises
        ------
        RuntimeError
            If the detector raised an error.
        ChildProcessError
            If the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        folder = Path(self._folder.name)
        job = {"frame": f"{folder / 'x.parquet'}", "scores": f"{folder / 'x.npy'}", "seed": seed}
        pq.write_table(frame, job["frame"])
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ChildProcessError("The process of the other version ended.")
        if "error" in (result := json.loads(answer)):
            raise RuntimeError(result["error"])
        return np.load(folder / "x.npy")
