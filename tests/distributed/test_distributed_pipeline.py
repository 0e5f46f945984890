import json

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from partition_tables import FEATURES, N_ROWS, SELECTION, create_pipeline, read_folder, summarize

from altbi.cli import _commands, main
from altbi.distributed import Local
from altbi.io import ColumnSelection, open_table
from altbi.pipeline import Pipeline
from small_tables import CollectingWriter, fast_detector, fast_settings

LAYOUTS = ("parquet folder", "csv folder", "one parquet file")


@pytest.fixture(scope="module", params=LAYOUTS)
def plain(request, paths):
    """Return the result of one process that reads the table from the start to the end."""
    path, writer = paths[request.param], CollectingWriter()
    pipeline = Pipeline(open_table(path), SELECTION)
    prepared = pipeline.fit(fast_settings(max_rows=4000))
    scored = pipeline.score(prepared, writer)
    return path, writer.table, summarize(pipeline, prepared, scored)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "dask_engine"])
def test_engines_and_one_process_agree(plain, name, request, tmp_path):
    path, output, summary = plain
    engine = Local() if name == "local" else request.getfixturevalue(name)
    pipeline = create_pipeline(engine, path)

    prepared = pipeline.fit(fast_settings(max_rows=4000))
    scored = pipeline.score_into(prepared, tmp_path / "scores")

    n_files = len(list((tmp_path / "scores").glob("part-*.parquet")))
    assert n_files == len(prepared.partitions) == 5
    assert read_folder(tmp_path / "scores").equals(output)
    assert summarize(pipeline, prepared, scored) == summary


@pytest.mark.parametrize("format_", ["arrow", "jsonl", "npz"])
def test_other_formats_are_one_partition(table, tmp_path, format_):
    path, numbers = tmp_path / "some", table.select(["size", "count"]).slice(0, 300)
    if format_ == "npz":
        path = tmp_path / "some.npz"
        np.savez(path, X=np.random.default_rng(0).normal(size=(300, 2)))
    elif format_ == "arrow":
        pyarrow.feather.write_feather(numbers, str(path))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in numbers.to_pylist()))
    plain, writer = Pipeline(open_table(path)), CollectingWriter()
    plain.score(plain.fit(fast_settings()), writer)

    pipeline = create_pipeline(Local(), path, ColumnSelection())
    prepared = pipeline.fit(fast_settings())
    pipeline.score_into(prepared, tmp_path / "scores")

    assert len(prepared.partitions) == 1
    assert read_folder(tmp_path / "scores").equals(writer.table)


@pytest.mark.parametrize("label", [None, "bad"])
def test_files_without_rows_change_nothing(tmp_path, label):
    (tmp_path / "t").mkdir()
    for name, rows in (("a", 60), ("b", 0), ("c", 70)):
        lines = [f"{row % 7},{row % 5},{row % 2}\n" for row in range(rows)]
        (tmp_path / "t" / f"{name}.csv").write_text("x,y,bad\n" + "".join(lines))
    selection = ColumnSelection(label=label, exclude=("bad",))
    settings = fast_settings()

    one = Pipeline(open_table(tmp_path / "t"), selection)
    one = one.run(settings, tmp_path / "one", report=False)
    many = create_pipeline(Local(), tmp_path / "t", selection)
    many = many.run(settings, tmp_path / "many", report=False)

    assert many.top == one.top
    assert many.metrics == one.metrics
    assert pq.read_table(tmp_path / "many" / "scores").num_rows == 130


@pytest.mark.slow
def test_drift_is_found_in_partitions(paths, table, tmp_path):
    known = pa.compute.is_in(table["colour"], pa.array(["red", "green"]))
    model = fast_detector().fit(table.filter(known).select(FEATURES)).model_
    plain = Pipeline(open_table(paths["csv folder"]), SELECTION)
    prepared = plain.prepare(model)
    summary = summarize(plain, prepared, plain.score(prepared))
    assert any("'colour'" in note for note in summary.notes)

    pipeline = create_pipeline(Local(), paths["csv folder"])
    prepared = pipeline.prepare(model)
    for _ in range(2):  # the second time, most partitions are read from the folder
        scored = pipeline.score_into(prepared, tmp_path / "scores")
        assert summarize(pipeline, prepared, scored) == summary
        (tmp_path / "scores" / "part-00003.parquet").unlink()


def run_command(capsys, *arguments):
    assert main([*map(str, arguments), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    for name in ("command", "created", "files"):
        facts.pop(name)
    return facts


@pytest.mark.slow
def test_detect_command_agrees_with_one_process(capsys, monkeypatch, paths, tmp_path):
    monkeypatch.setattr(_commands, "read_settings", lambda *_: fast_settings())
    options = ["--id", "invoice", "--label", "bad", "--no-report", "--output"]
    start = ["detect", paths["csv folder"], *options]
    plain = run_command(capsys, *start, tmp_path / "plain")

    local = run_command(capsys, *start, tmp_path / "out", "--engine", "local")

    assert local == plain
    for name in ("reasons.csv", "model.altbi"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert read_folder(tmp_path / "out" / "scores").num_rows == N_ROWS


def test_stated_roles_agree_with_one_process(paths):
    settings = fast_settings(column_roles={"count": "category", "colour": "text"})
    plain = Pipeline(open_table(paths["csv folder"]), SELECTION).fit(settings).model
    found = create_pipeline(Local(), paths["csv folder"]).fit(settings).model
    assert found.to_bytes() == plain.to_bytes()
    uses = {column.name: column.use for column in found.encoder.columns}
    assert (uses["count"], uses["colour"]) == ("category", "free text")


@pytest.mark.slow
def test_score_command_starts_a_local_cluster(capsys, paths, model, scores, tmp_path):
    model.save(tmp_path / "model.altbi")
    start = ["score", paths["one parquet file"], "-m", tmp_path / "model.altbi"]
    plain = run_command(capsys, *start, "-o", tmp_path / "plain.csv")

    options = ["-o", tmp_path / "out", "--engine", "dask", "--workers", "1"]
    on_cluster = run_command(capsys, *start, *options)

    assert on_cluster == plain
    assert (read_folder(tmp_path / "out")["score"].to_numpy() == scores).all()


@pytest.mark.slow
def test_command_reports_table_errors_like_one_process(cluster, capsys, tmp_path):
    (tmp_path / "table").mkdir()
    for number, values in enumerate(["1\n2\n", "3\ninf\n"]):
        (tmp_path / "table" / f"{number}.csv").write_text(f"a\n{values}")
    command = ["detect", str(tmp_path / "table"), "--output", str(tmp_path / "out")]

    def read_error(*options):
        assert main([*command, *options]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line

    line = read_error("--engine", "dask", "--scheduler", cluster.scheduler_address)

    assert line == read_error()
    assert "infinity, first in row 3" in line
    assert not (tmp_path / "out").exists()
