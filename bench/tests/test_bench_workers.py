"""Tests of jobs of the benchmark on a Dask cluster."""

import dataclasses

import pytest

from altbi.distributed import Dask
from altbi_bench.runs.workers import run_jobs, run_jobs_on_engine
from bench_jobs import build_jobs, run_command_in_name

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")


@pytest.fixture
def dask_engine():
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit="1500MiB",
    )
    with cluster, Dask(cluster.scheduler_address) as engine:
        yield engine


def test_jobs_run_on_the_cluster(dask_engine, tmp_path):
    asked = build_jobs("A", "leave", "B")
    share = {"seconds": 60, "threads": 3, "work": run_command_in_name}

    def remove_parameters(runs):
        plain = (dataclasses.replace(run, parameters={}) for run in runs)
        return sorted(plain, key=lambda run: run.seed)

    runs = remove_parameters(run_jobs_on_engine(dask_engine, asked, **share))

    assert runs == remove_parameters(run_jobs(asked, processes=1, **share))
    assert [run.error for run in runs] == [None, "its process ended with exit code 3", None]
    late = build_jobs(f"{tmp_path}/hang")
    (run,) = run_jobs_on_engine(dask_engine, late, seconds=1, threads=1, work=run_command_in_name)
    assert run.error == "over the limit of 1 seconds"
