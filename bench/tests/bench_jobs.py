"""Jobs for tests of the benchmark's processes, which import this module by its name."""

import dataclasses
import os
import signal
import time
from pathlib import Path

from altbi_bench.catalogue.protocols import PROTOCOLS
from altbi_bench.catalogue.systems import Recipe
from altbi_bench.catalogue.variants import ALL_SYSTEMS
from altbi_bench.runs import measurement
from altbi_bench.runs.records import Job, Run

SECONDS = {"fit_seconds": 1.0, "score_seconds": 0.5}
ON_WINE = Job(file="Classical/45_wine.npz", system="HBOS", seed=0)


def jobs(*files):
    """Make jobs on files that are not there; some of the names mean something to `work`."""
    return [dataclasses.replace(ON_WINE, file=name, seed=seed) for seed, name in enumerate(files)]


def result(job, auc=0.5, error=None, **more):
    """A line as a run would write it."""
    measures = {} if error else {"auc": auc, "average_precision": auc / 2, **SECONDS}
    source, parameters = "", {}
    if job.system in ALL_SYSTEMS:
        source, parameters = ALL_SYSTEMS[job.system].told(
            PROTOCOLS[job.protocol].setting, smoke=job.smoke
        )
    built = {"source": source, "parameters": parameters}
    return Run(**dataclasses.asdict(job), **measures, **{**built, **more}, error=error)


def work(job, threads):
    """Do what the name of the file says; tell which process did it, and with how many threads."""
    if job.file == "raise":
        raise RuntimeError("bad day")
    if job.file == "leave":
        os._exit(3)
    if job.file == "be killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.file.endswith("hang"):
        Path(job.file).touch()
        time.sleep(600)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    told = {"process": os.getpid(), "deaf": signal.SIGINT in blocked}
    return result(job, auc=job.seed / 100, threads=threads, parameters=told)


def broken(job, threads):
    """Measure a system that fails whatever the rows are."""
    recipe = Recipe(ALL_SYSTEMS[job.system].recipe.source, {"no_such": "argument"})
    ALL_SYSTEMS[job.system] = dataclasses.replace(ALL_SYSTEMS[job.system], recipe=recipe)
    return measurement.measure(job, threads)


def leave_at_once():
    """Stand in for a process that dies while it still imports."""
    os._exit(5)


class LeavesAtOnce:
    """A piece of work whose mere arrival in another process ends that process."""

    def __reduce__(self):
        return leave_at_once, ()

    def __call__(self, job, threads):
        return work(job, threads)
