import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_tasks import (
    FailingEngine,
    double,
    find_processes,
    kill_worker,
    raise_error,
    wait_for,
)
from partition_tables import N_ROWS, read_folder, score_with

from altbi.cli import main
from altbi.distributed import Dask, Local, _engines
from altbi.errors import EngineError, MissingExtraError, TableError
from altbi.io import open_table

distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")


@pytest.fixture(params=["local", "dask_engine"])
def engine(request):
    return Local() if request.param == "local" else request.getfixturevalue(request.param)


@pytest.mark.parametrize(("number", "error"), [(1, TableError), (2, FileNotFoundError)])
def test_errors_in_the_data_are_not_retried(engine, number, error, tmp_path):
    with pytest.raises(error, match=r"row 7 is bad|gone\.parquet"):
        list(engine.run(raise_error, [(str(tmp_path), number)]))

    assert len(list(tmp_path.iterdir())) == 1
    assert sorted(engine.run(double, [1, 2, 3])) == [(0, 2), (1, 4), (2, 6)]


def test_failed_run_cancels_its_other_calls(cluster, dask_engine, tmp_path):
    items = [(str(tmp_path), number) for number in (1, *range(3, 30))]
    with pytest.raises(TableError) as raised:
        list(dask_engine.run(raise_error, items))

    # The traceback still refers to the calls, so they do not end by garbage collection.
    wait_for(lambda: all(task.state == "erred" for task in cluster.scheduler.tasks.values()))
    assert raised.value.__traceback__ is not None


def test_no_items_need_no_cluster():
    with Dask("tcp://127.0.0.1:9") as engine:
        assert list(engine.run(double, [])) == []


@pytest.mark.slow
def test_lost_workers_are_replaced(cluster, dask_engine, paths, model, scores, tmp_path):
    """One worker is killed while it writes, and one before the last partition."""
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    failures = {1: "while writing", 4: "before the last"}
    engine = FailingEngine(dask_engine, attempts, failures)

    *_, output = score_with(engine, paths["parquet folder"], model, tmp_path / "scores")

    for index in failures:
        assert len(list(attempts.glob(f"try-{index}-*"))) >= 2
    assert output["row"].to_pylist() == list(range(N_ROWS))
    assert (output["score"].to_numpy() == scores).all()
    names = sorted(path.name for path in (tmp_path / "scores").iterdir())
    assert names == ["_altbi", *(f"part-0000{index}.parquet" for index in range(5))]


def test_call_that_kills_every_worker_is_an_error(cluster, dask_engine, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)

    with pytest.raises(EngineError, match="its worker was lost each time"):
        list(dask_engine.run(kill_worker, [0]))


@pytest.mark.parametrize(
    "address",
    [
        "foo",
        "127.0.0.1:87x",
        "tcp://10.0.0.1",
        "http://a b:1",
        "tls://10.0..1:8786",
        "tcp://.a:1",
        "tls://127.0.0.1:65536",
        f"tls://{'x' * 64}:1",
    ],
)
def test_invalid_addresses_are_errors(address):
    with Dask(address) as engine, pytest.raises(EngineError, match=r"not the address.*tcp://"):
        list(engine.run(double, [1]))


def test_cluster_without_workers_is_an_error(monkeypatch):
    monkeypatch.setattr(_engines, "RESULT_SECONDS", 0.5)
    with (
        distributed.LocalCluster(
            n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as empty,
        Dask(empty.scheduler_address) as engine,
        pytest.raises(EngineError, match="has no workers"),
    ):
        list(engine.run(double, [1]))


def test_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(MissingExtraError, match=r"altbi\[cluster\]"):
        list(Dask("tcp://127.0.0.1:9").run(double, [1]))


def test_absent_scheduler_is_one_sentence(monkeypatch, capsys, paths, model, tmp_path):
    monkeypatch.setattr(_engines, "CONNECT_SECONDS", 0.5)
    model.save(tmp_path / "model.altbi")
    options = ["-m", str(tmp_path / "model.altbi"), "-o", str(tmp_path / "out")]
    options += ["--engine", "dask", "--scheduler", "tcp://127.0.0.1:9"]

    assert main(["score", str(paths["csv folder"]), *options]) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("altbi: tcp://127.0.0.1:9: no Dask scheduler answers.")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_interrupted_command_stops_its_cluster_and_resumes(paths, model, scores, tmp_path):
    """Ctrl-C reaches all processes of the terminal: only the command prints, and all end."""
    model.save(tmp_path / "model.altbi")
    path, out = paths["parquet folder"], tmp_path / "out"
    command = ["score", str(path), "-m", str(tmp_path / "model.altbi"), "-o", str(out)]
    program = "import sys, engine_tasks; sys.exit(engine_tasks.run_stopping_command(*sys.argv[1:]))"
    marker = tmp_path / "marker"
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    python_path = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", program, marker, *command, "--engine", "dask", "--workers", "1"],
        env=os.environ | {"PYTHONPATH": python_path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wait_for(lambda: marker.exists() or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert err.startswith("altbi: interrupted. Complete partitions are kept")
    assert len(err.splitlines()) == 1
    wait_for(lambda: not find_processes(process.pid))
    with pytest.raises(TableError):
        open_table(out)
    done = sorted((out / "_altbi").glob("part-*.json"))
    before = [path.stat().st_mtime_ns for path in done]
    assert len(done) >= 2

    assert main([*command, "--engine", "local", "--quiet"]) == 0

    assert [path.stat().st_mtime_ns for path in done] == before
    assert (read_folder(out)["score"].to_numpy() == scores).all()
