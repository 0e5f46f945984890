import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_tasks import wait_for
from partition_tables import N_ROWS, create_pipeline, score_with

from altbi.distributed import Local
from altbi.distributed._partition_folder import PartitionFolder, ScoringPlan
from altbi.errors import ParameterError, TableError
from altbi.io import UNFINISHED_MARKER, ColumnSelection, open_table
from small_tables import fast_settings


@pytest.mark.slow
def test_killed_run_continues_with_missing_partitions(paths, model, scores, tmp_path):
    model.save(tmp_path / "model.altbi")
    path, folder, marker = paths["parquet folder"], tmp_path / "scores", tmp_path / "marker"
    program = "import sys, engine_tasks; sys.exit(engine_tasks.run_stopping_command(*sys.argv[1:]))"
    options = ["-m", str(tmp_path / "model.altbi"), "-o", str(folder), "--engine", "local"]
    command = ["score", str(path), *options, "--id", "invoice", "--label", "bad", "--quiet"]
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    python_path = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", program, marker, *command],
        env=os.environ | {"PYTHONPATH": python_path},
    ) as process:
        wait_for(lambda: marker.exists() or process.poll() is not None)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    for unfinished in (folder, tmp_path):
        with pytest.raises(TableError, match="not finished"):
            open_table(unfinished)
    done = {
        record.stem: (folder / f"{record.stem}.parquet").stat()
        for record in (folder / "_altbi").glob("part-*.json")
    }
    (folder / ".part-00004.parquet.x.part").touch()  # a temporary file of a lost worker

    pipeline = create_pipeline(Local(), path, top=10)
    scored = pipeline.score_into(pipeline.prepare(model), folder)

    assert len(done) == 2
    for name, before in done.items():
        after = (folder / f"{name}.parquet").stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert scored.n_rows == N_ROWS
    assert (pq.read_table(folder)["score"].to_numpy() == scores).all()
    assert not (folder / UNFINISHED_MARKER).exists()
    assert not list(folder.glob(".part-*"))


def test_partition_is_written_again_with_equal_bytes(paths, model, tmp_path):
    path, folder = paths["csv folder"], tmp_path / "scores"
    score_with(Local(), path, model, folder)
    before = (folder / "part-00002.parquet").read_bytes()
    (folder / "_altbi" / "part-00002.json").unlink()

    score_with(Local(), path, model, folder)

    assert (folder / "part-00002.parquet").read_bytes() == before


def test_truncated_partition_is_written_again(paths, model, tmp_path):
    path, folder = paths["csv folder"], tmp_path / "scores"
    score_with(Local(), path, model, folder)
    truncated = folder / "part-00002.parquet"
    before = truncated.read_bytes()
    truncated.write_bytes(before[:-1])

    score_with(Local(), path, model, folder)

    assert truncated.read_bytes() == before


def test_folders_of_other_runs_are_errors(paths, model, tmp_path):
    path, folder = tmp_path / "csv", tmp_path / "scores"
    shutil.copytree(paths["csv folder"], path)
    score_with(Local(), path, model, folder)
    os.utime(path / "1.csv", (1, 1))

    with pytest.raises(ParameterError, match=r"another run.*Remove the folder"):
        score_with(Local(), path, model, folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with pytest.raises(ParameterError, match="another run"):
        score_with(Local(), path, model, tmp_path / "other")
    assert (tmp_path / "other" / "letter.txt").read_text() == "mine"
    with pytest.raises(ParameterError, match="it is a file"):
        score_with(Local(), path, model, tmp_path / "other" / "letter.txt")


def test_run_stopped_before_its_plan_is_repeated(paths, model, scores, tmp_path):
    folder = tmp_path / "scores"
    (folder / "_altbi").mkdir(parents=True)
    (folder / UNFINISHED_MARKER).touch()

    *_, output = score_with(Local(), paths["csv folder"], model, folder)

    assert (output["score"].to_numpy() == scores).all()


def test_growing_table_is_an_error(paths, model, tmp_path):
    path = tmp_path / "csv"
    shutil.copytree(paths["csv folder"], path)
    pipeline = create_pipeline(Local(), path)
    prepared = pipeline.prepare(model)
    with (path / "1.csv").open("a") as file:
        file.write(",,,,,x,\n")

    with pytest.raises(TableError, match="changed while it was read"):
        pipeline.score_into(prepared, tmp_path / "scores")
    assert not (tmp_path / "scores" / "part-00001.parquet").exists()


def test_partitions_of_other_fingerprints_are_not_done(tmp_path):
    table = pa.table({"a": np.random.default_rng(0).normal(size=50)})
    pq.write_table(table, tmp_path / "a")
    pipeline = create_pipeline(Local(), tmp_path / "a", ColumnSelection())
    prepared = pipeline.fit(fast_settings())
    pipeline.score_into(prepared, tmp_path / "out")
    plan = ScoringPlan(parser=prepared.parser, selected=prepared.selected, top=200)

    assert not PartitionFolder(tmp_path / "out", plan, "other").is_done(0)
    restored = ScoringPlan.from_json(plan.to_json())
    assert (restored.selected, restored.top) == (plan.selected, 200)
