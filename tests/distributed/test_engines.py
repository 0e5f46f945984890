import dataclasses
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from altbi import ALTBI
from altbi.cli import main
from altbi.distributed import Dask, Local, Processes, dask, score_batches
from altbi.distributed._processes import _serve
from altbi.errors import EngineError, MissingExtraError, ParameterError, TableError
from altbi.io import UNFINISHED_MARKER, open_table
from altbi.jobs import ColumnSelection, Job, apart
from engine_tasks import (
    TroubledEngine,
    double,
    end_worker,
    refuse,
    wait_for,
)
from test_jobs import SMALL, Collected, mixed, small

distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")

ROWS, PART = 12_000, 2_500
CHOICE = ColumnSelection(ids=("invoice",), label="odd")
LAYOUTS = ("parquet folder", "csv folder", "one parquet file")


def local_cluster():
    return distributed.LocalCluster(
        n_workers=3,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit="1500MiB",
    )


@pytest.fixture(scope="module")
def cluster():
    with local_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def dask_engine(cluster):
    with Dask(cluster.scheduler_address) as engine:
        yield engine


@pytest.fixture
def troubled_cluster():
    """A cluster for one test: what its lost workers still do concerns no other."""
    with local_cluster() as cluster:
        yield cluster


@pytest.fixture
def troubled_engine(troubled_cluster):
    with Dask(troubled_cluster.scheduler_address) as engine:
        yield engine


@pytest.fixture(scope="module")
def processes():
    with Processes(2) as engine:
        yield engine


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(7)
    return mixed(ROWS).append_column("odd", pa.array(rng.random(ROWS) < 0.02))


@pytest.fixture(scope="module")
def tables(table, tmp_path_factory):
    """The same table in three layouts, each of several parts."""
    home = tmp_path_factory.mktemp("tables")
    for folder, write in (("parquet", pq.write_table), ("csv", pyarrow.csv.write_csv)):
        (home / folder).mkdir()
        for number, first in enumerate(range(0, ROWS, 2400)):
            write(table.slice(first, 2400), home / folder / f"part-{number}.{folder}")
    pq.write_table(table, home / "one", row_group_size=1200)
    return dict(zip(LAYOUTS, (home / "parquet", home / "csv", home / "one"), strict=True))


@pytest.fixture(scope="module")
def fitted(table):
    return small().fit(table.drop_columns(["invoice", "odd"]))


@pytest.fixture(scope="module")
def scores(fitted, table):
    return fitted.outlier_score(table.drop_columns(["invoice", "odd"]))


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(apart, "MAX_PARTITION_ROWS", PART)


def written(folder):
    source = open_table(folder)
    return pa.Table.from_batches(list(source.batches(source.schema.names)))


def scored_by(engine, path, detector, folder):
    """Score a table with a fitted detector, and give what was written."""
    job = Job(open_table(path), detector, CHOICE, engine=engine)
    ready = job.prepare()
    found = job.score_into(ready, folder)
    return job, ready, found, written(folder)


def without_time(summary):
    return dataclasses.replace(summary, made="")


@pytest.fixture(scope="module", params=LAYOUTS)
def plain(request, tables):
    """What one process gives that reads the table from front to back."""
    path = tables[request.param]
    job, collected = Job(open_table(path), small(max_rows=4000), CHOICE), Collected()
    ready = job.fit()
    found = job.score(ready, collected)
    return path, collected.table, job.summary(ready, found, job.explain_top(ready, found))


class TestSame:
    @pytest.mark.parametrize("name", ["local", "processes", "dask_engine"])
    def test_every_engine_gives_what_one_process_gives(self, plain, name, request, tmp_path):
        path, output, summary = plain
        engine = Local() if name == "local" else request.getfixturevalue(name)
        job = Job(open_table(path), small(max_rows=4000), CHOICE, engine=engine)

        ready = job.fit()
        found = job.score_into(ready, tmp_path / "scores")

        assert len(list((tmp_path / "scores").glob("part-*.parquet"))) == 5 == len(ready.partitions)
        assert written(tmp_path / "scores").equals(output)
        explained = job.explain_top(ready, found)
        assert without_time(job.summary(ready, found, explained)) == without_time(summary)

    def test_scores_are_those_of_the_detector(self, tables, fitted, scores, tmp_path):
        for layout in LAYOUTS:
            *_, output = scored_by(Local(), tables[layout], fitted, tmp_path / layout)
            assert (output["score"].to_numpy() == scores).all()
            assert output["row"].to_pylist() == list(range(ROWS))

    def test_no_row_group_is_split_and_no_part_is_too_large(self, tables):
        parts = open_table(tables["one parquet file"]).parts(PART)

        assert [part.n_rows for part in parts] == [2400] * 5
        assert [part.n_rows for part in open_table(tables["one parquet file"]).parts(1)] == (
            [1200] * 10
        )

    @pytest.mark.parametrize("format_", ["arrow", "jsonl", "npz"])
    def test_other_formats_are_one_part(self, processes, table, tmp_path, format_):
        path, numbers = tmp_path / "some", table.select(["size", "count"]).slice(0, 300)
        if format_ == "npz":
            np.savez(tmp_path / "some.npz", X=np.random.default_rng(0).normal(size=(300, 2)))
            path = tmp_path / "some.npz"
        elif format_ == "arrow":
            pyarrow.feather.write_feather(numbers, str(path))
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in numbers.to_pylist()))
        plain, collected = Job(open_table(path), small()), Collected()
        plain.score(plain.fit(), collected)

        job = Job(open_table(path), small(), engine=processes)
        job.score_into(job.fit(), tmp_path / "scores")

        assert written(tmp_path / "scores").equals(collected.table)


class TestFailure:
    def test_lost_workers_are_made_up_for(
        self, troubled_cluster, troubled_engine, tables, fitted, scores, tmp_path
    ):
        """One is killed while it writes, one before the last part, one is retired."""
        marks = tmp_path / "marks"
        marks.mkdir()

        def retire():
            with distributed.Client(troubled_cluster, set_as_default=False) as client:
                before = client.nthreads()
                client.retire_workers([next(iter(before))])

        engine = TroubledEngine(
            troubled_engine, marks, {1: "while it writes", 4: "before the last"}, retire
        )
        *_, output = scored_by(engine, tables["parquet folder"], fitted, tmp_path / "scores")

        for place in (1, 4):
            assert len(list(marks.glob(f"try-{place}-*"))) >= 2
        assert output["row"].to_pylist() == list(range(ROWS))
        assert (output["score"].to_numpy() == scores).all()
        left = [path.name for path in (tmp_path / "scores").iterdir()]
        assert sorted(left) == ["_altbi", *(f"part-0000{place}.parquet" for place in range(5))]

    def test_a_worker_over_its_memory_is_made_up_for(
        self, troubled_engine, tables, fitted, scores, tmp_path
    ):
        marks = tmp_path / "marks"
        marks.mkdir()
        engine = TroubledEngine(troubled_engine, marks, {2: "memory"})

        *_, output = scored_by(engine, tables["csv folder"], fitted, tmp_path / "scores")

        assert len(list(marks.glob("try-2-*"))) >= 2
        assert output["row"].to_pylist() == list(range(ROWS))
        assert (output["score"].to_numpy() == scores).all()

    def test_a_part_that_ends_every_worker_is_an_error(
        self, troubled_cluster, troubled_engine, monkeypatch
    ):
        monkeypatch.setattr(troubled_cluster.scheduler, "allowed_failures", 1)

        with pytest.raises(EngineError, match="each time its worker was lost"):
            list(troubled_engine.run(end_worker, [0]))

    @pytest.mark.parametrize("name", ["local", "processes", "dask_engine"])
    @pytest.mark.parametrize(("place", "kind"), [(1, TableError), (2, FileNotFoundError)])
    def test_what_is_wrong_with_the_data_is_not_tried_again(
        self, name, place, kind, request, tmp_path
    ):
        engine = Local() if name == "local" else request.getfixturevalue(name)

        with pytest.raises(kind, match=r"row 7 is bad|gone\.parquet"):
            list(engine.run(refuse, [(str(tmp_path), place)]))

        assert len(list(tmp_path.iterdir())) == 1
        assert sorted(engine.run(double, [1, 2, 3])) == [(0, 2), (1, 4), (2, 6)]

    @pytest.mark.parametrize("end", [EOFError, ConnectionResetError])
    def test_a_worker_whose_caller_is_gone_ends_quietly(self, end):
        class Line:
            def __init__(self):
                self.items, self.sent = [1, 2], []

            def recv(self):
                if not self.items:
                    raise end
                return self.items.pop(0)

            def send(self, result):
                self.sent.append(result)

        line = Line()
        _serve(line, double)

        assert line.sent == [2, 4]

    def test_a_lost_process_is_an_error(self):
        with Processes(1) as engine, pytest.raises(EngineError, match="exit code -9"):
            list(engine.run(end_worker, [0]))

    def test_a_killed_driver_goes_on_from_what_is_finished(
        self, cluster, dask_engine, tables, fitted, scores, tmp_path
    ):
        fitted.save(tmp_path / "model.altbi")
        path, folder = tables["parquet folder"], tmp_path / "scores"
        code = (
            "import sys\n"
            "from pathlib import Path\n"
            "from engine_tasks import HoldingEngine\n"
            "from altbi.distributed import Dask\n"
            "from altbi.detectors import load\n"
            "from altbi.jobs import apart\n"
            "from test_engines import scored_by, PART\n"
            "apart.MOST_ROWS = PART\n"
            "address, table, home = sys.argv[1:]\n"
            "engine = HoldingEngine(Dask(address), home + '/mark', 3)\n"
            "scored_by(engine, table, load(home + '/model.altbi'), Path(home, 'scores'))\n"
        )
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        words = [cluster.scheduler_address, str(path), str(tmp_path)]
        with subprocess.Popen([sys.executable, "-c", code, *words], env=environment) as driver:
            wait_for((tmp_path / "mark").exists)
            driver.kill()
        assert driver.returncode == -signal.SIGKILL
        with pytest.raises(TableError, match="not finished"):
            open_table(folder)
        with pytest.raises(TableError, match="not finished"):
            open_table(tmp_path)

        done = {
            mark.stem: (folder / f"{mark.stem}.parquet").stat()
            for mark in (folder / "_altbi").glob("part-*.json")
        }
        *_, output = scored_by(dask_engine, path, fitted, folder)

        assert len(done) >= 3
        for name, before in done.items():
            after = (folder / f"{name}.parquet").stat()
            assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert output["row"].to_pylist() == list(range(ROWS))
        assert (output["score"].to_numpy() == scores).all()
        assert not (folder / UNFINISHED_MARKER).exists()

    def test_what_a_report_needs_is_read_back(self, tables, table, tmp_path):
        def facts(job, ready, found, *_):
            return without_time(job.summary(ready, found, job.explain_top(ready, found)))

        known = pa.compute.is_in(table["colour"], pa.array(["red", "green"]))
        detector = small().fit(table.filter(known).drop_columns(["invoice", "odd"]))
        job = Job(open_table(tables["csv folder"]), detector, CHOICE)
        ready = job.prepare()
        plain = facts(job, ready, job.score(ready))
        assert any("does not know stand in 'colour'" in note for note in plain.notes)

        path = tables["csv folder"]
        assert facts(*scored_by(Local(), path, detector, tmp_path / "scores")) == plain
        (tmp_path / "scores" / "part-00003.parquet").unlink()
        assert facts(*scored_by(Local(), path, detector, tmp_path / "scores")) == plain

    def test_a_finished_part_is_written_again_with_the_same_bytes(self, tables, fitted, tmp_path):
        path, folder = tables["csv folder"], tmp_path / "scores"
        scored_by(Local(), path, fitted, folder)
        before = (folder / "part-00002.parquet").read_bytes()
        (folder / "_altbi" / "part-00002.json").unlink()

        scored_by(Local(), path, fitted, folder)

        assert (folder / "part-00002.parquet").read_bytes() == before

    def test_the_folder_of_another_job_is_refused(self, tables, fitted, tmp_path):
        path, folder = tmp_path / "csv", tmp_path / "scores"
        shutil.copytree(tables["csv folder"], path)
        scored_by(Local(), path, fitted, folder)
        os.utime(path / "part-1.csv", (1, 1))

        with pytest.raises(ParameterError, match=r"another job.*Remove the folder"):
            scored_by(Local(), path, fitted, folder)
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "letter.txt").write_text("mine")
        with pytest.raises(ParameterError, match="another job"):
            scored_by(Local(), path, fitted, tmp_path / "other")
        assert (tmp_path / "other" / "letter.txt").read_text() == "mine"

    def test_a_table_that_grows_meanwhile_is_noticed(self, tables, fitted, tmp_path):
        path = tmp_path / "csv"
        shutil.copytree(tables["csv folder"], path)
        job = Job(open_table(path), fitted, CHOICE, engine=Local())
        ready = job.prepare()
        with (path / "part-1.csv").open("a") as file:
            file.write(",,,,,x,\n")

        with pytest.raises(TableError, match="changed while it was read"):
            job.score_into(ready, tmp_path / "scores")
        assert not (tmp_path / "scores" / "part-00001.parquet").exists()


class TestCluster:
    def test_no_scheduler_is_one_sentence(self, monkeypatch, capsys, tables, fitted, tmp_path):
        monkeypatch.setattr(dask, "_CONNECT_SECONDS", 0.5)
        fitted.save(tmp_path / "model.altbi")
        words = ["score", str(tables["csv folder"]), "-m", str(tmp_path / "model.altbi")]
        words += ["-o", str(tmp_path / "out"), "--engine", "dask"]

        assert main([*words, "--scheduler", "tcp://127.0.0.1:9"]) == 1

        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("altbi: No Dask scheduler answers at tcp://127.0.0.1:9.")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("address", ["foo", "127.0.0.1:87x", "tcp://10.0.0.1", "http://a b:1"])
    def test_what_is_no_address_is_refused_at_once(self, address):
        with Dask(address) as engine, pytest.raises(EngineError, match=r"not the address.*tcp://"):
            list(engine.run(double, [1]))

    def test_a_cluster_without_workers_is_not_waited_for(self, monkeypatch):
        monkeypatch.setattr(dask, "_PATIENCE_SECONDS", 0.5)
        with (
            distributed.LocalCluster(
                n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0"
            ) as nobody,
            Dask(nobody.scheduler_address) as engine,
            pytest.raises(EngineError, match="has no workers"),
        ):
            list(engine.run(double, [1]))

    def test_what_is_not_installed_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)

        with pytest.raises(MissingExtraError, match=r"altbi\[cluster\]"):
            list(Dask("tcp://127.0.0.1:9").run(double, [1]))


class TestCommands:
    def run(self, capsys, *words):
        assert main([*map(str, words), "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        for name in ("command", "made", "files"):
            facts.pop(name)
        return facts

    def test_detect_tells_the_same(self, capsys, monkeypatch, tables, tmp_path):
        monkeypatch.setattr("altbi.cli._commands._detector", lambda _: ALTBI(**SMALL))
        path, options = tables["csv folder"], ["--id", "invoice", "--label", "odd", "--output"]
        plain = self.run(capsys, "detect", path, *options, tmp_path / "plain", "--no-report")

        local = self.run(capsys, "detect", path, *options, tmp_path / "out", "--engine", "local")

        assert local == plain
        for name in ("reasons.csv", "model.altbi"):
            assert (tmp_path / "out" / name).read_bytes() == (
                tmp_path / "plain" / name
            ).read_bytes()
        assert (tmp_path / "out" / "report.html").exists()
        assert written(tmp_path / "out" / "scores").num_rows == ROWS

    def test_score_starts_a_cluster_of_its_own(self, capsys, tables, fitted, scores, tmp_path):
        fitted.save(tmp_path / "model.altbi")
        start = ["score", tables["one parquet file"], "-m", tmp_path / "model.altbi"]
        plain = self.run(capsys, *start, "-o", tmp_path / "plain.csv")

        words = ["-o", tmp_path / "out", "--engine", "dask", "--workers", "1"]
        there = self.run(capsys, *start, *words)

        assert there == plain
        assert (written(tmp_path / "out")["score"].to_numpy() == scores).all()

    def test_what_is_wrong_with_a_table_is_one_sentence(self, cluster, capsys, tmp_path):
        (tmp_path / "table").mkdir()
        for number, cells in enumerate(["1\n2\n", "3\ninf\n"]):
            (tmp_path / "table" / f"{number}.csv").write_text(f"a\n{cells}")
        words = ["detect", str(tmp_path / "table"), "--output", str(tmp_path / "out")]

        def told(*more):
            assert main([*words, *more]) == 1
            (line,) = capsys.readouterr().err.splitlines()
            return line

        line = told("--engine", "dask", "--scheduler", cluster.scheduler_address)

        assert line == told()
        assert "infinity, first in row 3" in line
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (["--scheduler", "tcp://a:1"], "is for --engine dask"),
            (["--engine", "local", "--workers", "2"], "--workers is for"),
            (["--engine", "dask", "--workers", "2", "--scheduler", "tcp://a:1"], "its own workers"),
            (["--engine", "local", "--format", "csv"], "writes Parquet"),
            (["--engine", "local", "--output", "-"], "cannot go to stdout"),
        ],
    )
    def test_options_that_do_not_go_together_are_wrong_usage(self, capsys, tables, words, why):
        with pytest.raises(SystemExit) as stopped:
            main(["detect", str(tables["csv folder"]), *words])

        assert stopped.value.code == 2
        assert why in capsys.readouterr().err


class TestBatches:
    @pytest.fixture
    def model(self, fitted, tmp_path):
        fitted.save(tmp_path / "model.altbi")
        return tmp_path / "model.altbi"

    @pytest.mark.parametrize("size", [700, 100_000])
    @pytest.mark.parametrize("sent", [str, Path, Path.read_bytes], ids=["str", "path", "bytes"])
    def test_batches_get_the_scores_of_the_detector(self, model, table, scores, size, sent):
        function = pickle.loads(pickle.dumps(score_batches(sent(model), keep=["invoice"])))

        output = pa.Table.from_batches(function(iter(table.to_batches(max_chunksize=size))))

        assert output.schema.names == ["invoice", "score", "outlier"]
        assert output["invoice"].equals(table["invoice"])
        assert (output["score"].to_numpy() == scores).all()
        assert 0 < pa.compute.sum(output["outlier"]).as_py() < ROWS

    def test_a_path_is_small_to_send(self, model):
        assert len(pickle.dumps(score_batches(model))) < 1000

    def test_tables_and_empty_batches_are_scored_as_well(self, model, table, scores):
        function = score_batches(model)
        table = table.drop_columns(["invoice", "odd"])

        assert (function.table(table)["score"].to_numpy() == scores).all()
        empty = table.slice(0, 0).to_batches() or [
            pa.RecordBatch.from_pylist([], schema=table.schema)
        ]
        (output,) = function(empty)
        assert (len(output), output.schema.names) == (0, ["score", "outlier"])

    def test_a_model_of_an_array_takes_columns_by_place(self, tmp_path):
        X = np.random.default_rng(0).normal(size=(200, 2))
        detector = small().fit(X)
        detector.save(tmp_path / "model.altbi")
        batch = pa.record_batch({"id": range(200), "a": X[:, 0], "b": X[:, 1]})

        (output,) = score_batches(tmp_path / "model.altbi", keep=["id"])([batch])

        assert (output["score"].to_numpy() == detector.outlier_score(X)).all()

    def test_other_columns_are_refused(self, model):
        with pytest.raises(TableError, match="Select the columns of the model"):
            list(score_batches(model)([pa.record_batch({"size": [1.0]})]))
        with pytest.raises(ParameterError, match="Rename the column"):
            score_batches(model, keep=["score"])

    def test_spark_maps_it(self, model, table, scores, monkeypatch):
        pytest.importorskip("pyspark", reason="pyspark is not installed")
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # the one that has altbi
        from pyspark.sql import SparkSession

        from altbi.distributed._batches import SCHEMA

        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
        try:
            frame = spark.createDataFrame(table.to_pandas()).repartition(3)
            function = score_batches(model, keep=["invoice"])
            rows = frame.mapInArrow(function, f"invoice string, {SCHEMA}").collect()
        finally:
            spark.stop()
        expected = dict(zip(table["invoice"].to_pylist(), scores.tolist(), strict=True))
        assert {row["invoice"]: row["score"] for row in rows} == expected

    def test_ray_maps_it(self, model, table, scores, tmp_path):
        ray = pytest.importorskip("ray", reason="ray is not installed")
        folder = tmp_path / "table"
        folder.mkdir()
        for place in range(0, ROWS, 5000):
            pq.write_table(table.slice(place, 5000), folder / f"{place:05}.parquet")
        ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
        try:
            function = score_batches(model, keep=["invoice"])
            source = ray.data.read_parquet(str(folder))
            rows = source.map_batches(function.table, batch_format="pyarrow").take_all()
        finally:
            ray.shutdown()
        expected = dict(zip(table["invoice"].to_pylist(), scores.tolist(), strict=True))
        assert {row["invoice"]: row["score"] for row in rows} == expected
