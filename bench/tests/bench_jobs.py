"""Jobs for tests of the benchmark. Worker processes import this module by name."""

import dataclasses
import os
import signal
import time
from pathlib import Path
from unittest.mock import patch

from altbi_bench.catalogue.protocols import PROTOCOLS
from altbi_bench.catalogue.systems import Recipe
from altbi_bench.catalogue.variants import ALL_SYSTEMS
from altbi_bench.runs import measurement
from altbi_bench.runs.records import Job, Run

SECONDS = {"fit_seconds": 1.0, "score_seconds": 0.5}
ON_WINE = Job(file="Classical/45_wine.npz", system="HBOS", seed=0)


def build_jobs(*files):
    """Return jobs on missing files; some of the names are commands for `run_command_in_name`."""
    return [dataclasses.replace(ON_WINE, file=name, seed=seed) for seed, name in enumerate(files)]


def build_run(job, auc=0.5, error=None, **more):
    """Return the run of a job."""
    measures = {} if error else {"auc": auc, "average_precision": auc / 2, **SECONDS}
    source, parameters = "", {}
    if job.system in ALL_SYSTEMS:
        source, parameters = ALL_SYSTEMS[job.system].describe(
            PROTOCOLS[job.protocol].setting, smoke=job.smoke
        )
    built = {"source": source, "parameters": parameters}
    return Run(**dataclasses.asdict(job), **measures, **{**built, **more}, error=error)


def run_command_in_name(job, threads):
    """Run the command in the file name, and return a run with the process and its threads."""
    if job.file == "raise":
        raise RuntimeError("bad day")
    if job.file == "leave":
        os._exit(3)
    if job.file == "be killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.file.endswith("hang"):
        Path(job.file).touch()
        time.sleep(600)
    ignores = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    found = {"process": os.getpid(), "ignores_interrupts": ignores}
    return build_run(job, auc=job.seed / 100, threads=threads, parameters=found)


def measure_broken_system(job, threads):
    """Measure a system that cannot be built."""
    recipe = Recipe(ALL_SYSTEMS[job.system].recipe.source, {"no_such": "argument"})
    system = dataclasses.replace(ALL_SYSTEMS[job.system], recipe=recipe)
    with patch.dict(ALL_SYSTEMS, {job.system: system}):
        return measurement.measure(job, threads)


def exit_process():
    """End this process, as if an import had failed."""
    os._exit(5)


class ExitsWhenUnpickled:
    """A function that ends a process when it is unpickled there."""

    def __reduce__(self):
        return exit_process, ()

    def __call__(self, job, threads):
        return run_command_in_name(job, threads)
