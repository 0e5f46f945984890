"""Accuracy of the detectors of another version of altbi, measured in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, final

__all__ = ["VersionProcess"]

# Runs with the sources of any version, so it imports nothing of the benchmark.
_WORKER = """
import json, sys, time, warnings
import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from operator import attrgetter
import altbi
warnings.simplefilter("ignore")
def measure(job):
    with np.load(job["path"]) as arrays:
        X, y = arrays["X"], arrays["y"]
    detector = attrgetter(job["detector"])(altbi)(
        random_state=job["seed"], **job.get("parameters", {})
    )
    start = time.process_time()
    scores = -detector.fit(X).score_samples(X)
    seconds = time.process_time() - start
    auc, ap = roc_auc_score(y, scores), average_precision_score(y, scores)
    return {"auc": auc, "ap": ap, "seconds": seconds}
for line in sys.stdin:
    try:
        result = measure(json.loads(line))
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
"""


@final
class VersionProcess:
    """A process that measures jobs one by one with the sources of a version.

    It is a context manager: at its end, the process ends.

    Parameters
    ----------
    source : Path
        Folder that has the package ``altbi`` of the version.
    """

    def __init__(self, source: Path) -> None:
        limits = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(source)}
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
        """End the process."""
        self._process.communicate()

    def measure(self, job: Mapping[str, Any]) -> dict[str, float]:
        """Fit and score a table without labels, and compare the scores with its labels.

        Parameters
        ----------
        job : Mapping
            "path" of an npz file with ``X`` and ``y``, "detector" as the name of its class in
            ``altbi``, "seed", and optionally "parameters" of the detector.

        Returns
        -------
        dict
            "auc", "ap" (average precision), and "seconds" of processor time.

        Raises
        ------
        RuntimeError
            If the detector raised an error.
        ChildProcessError
            If the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(dict(job)) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._process.wait()
            raise ChildProcessError(f"The process of the other version ended: {dict(job)}.")
        result: dict[str, Any] = json.loads(answer)
        if "error" in result:
            raise RuntimeError(result["error"])
        return result
