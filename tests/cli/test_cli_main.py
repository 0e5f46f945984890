import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import altbi._demo
from altbi.cli import main
from altbi.errors import MAX_MESSAGE, TableError, TrainingError
from altbi.model._file import encode_model, read_model
from small_tables import fast_altbi, fast_detector, write_csv

FULL = Path("/dev/full")
PROGRAM = "import sys; from altbi.cli import main; sys.exit(main())"


def run_process(*arguments, **options):
    return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=False, **options)


@pytest.fixture(scope="module")
def detector():
    rows = {"size": [1.0, 2.0, None] * 20, "größe\x1b[2J": ["red", "blue", "red"] * 20}
    return fast_detector().fit(pa.table(rows))


@pytest.fixture
def model(detector, tmp_path):
    detector.save(tmp_path / "fitted.altbi")
    return str(tmp_path / "fitted.altbi")


def test_inspect_shows_the_fitted_model(capsys, detector, model):
    assert main(["inspect", model, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["threshold"] == detector.model_.threshold
    assert facts["last_loss"] == detector.history_[-1].loss
    assert (facts["rows"], facts["sample"], facts["detector"]) == (60, 60, "OutlierDetector")
    assert facts["parameters"]["backbone"]["hidden"] == [8]
    assert [column["kind"] for column in facts["columns"]] == ["number", "category"]

    assert main(["inspect", model]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(f"{model}: OutlierDetector")
    assert "1 to 2" in text
    assert "'red', 'blue'" in text


@pytest.mark.parametrize("create", [fast_detector, fast_altbi])
def test_inspect_counts_the_stored_rows(capsys, tmp_path, create):
    detector = create().fit(np.random.default_rng(0).normal(size=(60, 2)))
    detector.save(tmp_path / "m")

    assert main(["inspect", str(tmp_path / "m"), "--json"]) == 0

    scorer = detector.model_.scorer
    expected = 0 if create is fast_altbi else len(scorer.distance.rows)
    assert json.loads(capsys.readouterr().out)["reference_rows"] == expected
    assert (expected > 0) == (create is fast_detector)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_inspect_escapes_control_characters(capsys, model, options):
    assert main(["inspect", model, *options]) == 0

    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.split("\n"))
    assert "1b[2J" in out


def test_damaged_models_are_one_sentence(capsys, tmp_path, model):
    (tmp_path / "notes.txt").write_text("not a model\n" * 100)
    tensors, header = read_model(model)
    for name in ("threshold", "encoder", "table"):
        changed = header | {name: "\x1b[2J"}
        (tmp_path / name).write_bytes(encode_model(tensors, changed))

    for name in ("absent", "", "notes.txt", "threshold", "encoder", "table"):
        assert main(["inspect", str(tmp_path / name)]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"altbi: {tmp_path / name}: ")
        assert err.count("\n") == 1
        assert err[:-1].isprintable()


def test_error_messages_are_escaped(capsys, monkeypatch):
    def fail(*_):
        raise TrainingError("stopped\nat \x1b[2J")

    monkeypatch.setattr(altbi._demo, "run_demo", fail)

    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "altbi: stopped at \\x1b[2J\n"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt, 130, "altbi: interrupted. No incomplete file is left.\n"),
        (MemoryError, 1, "altbi: not enough memory for this table."),
        (OSError(28, "No space left", "scores.csv"), 1, "altbi: scores.csv: No space left\n"),
    ],
)
def test_errors_have_exit_codes_and_messages(capsys, monkeypatch, error, code, message):
    def fail(*_):
        raise error

    monkeypatch.setattr(altbi._demo, "run_demo", fail)

    assert main(["demo"]) == code
    assert capsys.readouterr().err.startswith(message)


# Prints a line when it starts a query.
ANNOUNCING = """
import sys
from altbi.cli import main
from altbi.io._duckdb import Database

read = Database.batches

def batches(self, query, row_bytes=0):
    print("started", flush=True)
    return read(self, query, row_bytes)

Database.batches = batches
sys.exit(main())
"""
ENDLESS = "select count(*) from range(10000000000) a(i), range(10) b(j) where i % 7 = j"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_during_a_query_leave_nothing(tmp_path, number, code):
    (tmp_path / "temporary").mkdir()
    (tmp_path / "out").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", ANNOUNCING, "detect", "--sql", ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path / "out",
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
    ) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        _, message = process.communicate(timeout=60)

    assert process.returncode == code
    assert message in (
        "altbi: interrupted. No incomplete file is left.\n",
        "altbi: terminated. No incomplete file is left.\n",
    )
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "out", tmp_path / "temporary"]


def raise_from(error, cause):
    try:
        raise cause
    except type(cause):
        raise error from None


MEMORY_ERRORS = {
    "numpy": lambda: np.empty(10**15),
    "arrow": lambda: pa.allocate_buffer(2**62),
    "duckdb": lambda: run_duckdb("select list(range) from range(10_000_000)"),
    "system": lambda: raise_error(OSError(errno.ENOMEM, "Cannot allocate memory")),
    "converted": lambda: raise_from(TableError("t.csv: damaged"), pa.ArrowMemoryError("malloc")),
}


def raise_error(error):
    raise error


def run_duckdb(query):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(config={"memory_limit": "10MB", "threads": 1}) as connection:
        connection.execute("set temp_directory = ''")
        connection.execute(query).fetchall()


@pytest.mark.parametrize("run_out", MEMORY_ERRORS.values(), ids=MEMORY_ERRORS)
def test_too_little_memory_is_one_sentence(capsys, monkeypatch, run_out):
    monkeypatch.setattr(altbi._demo, "run_demo", lambda *_: run_out())

    assert main(["demo"]) == 1
    assert capsys.readouterr().err == (
        "altbi: not enough memory for this table. Select fewer columns with --columns.\n"
    )


def test_memory_errors_do_not_import_duckdb(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr(altbi._demo, "run_demo", lambda *_: raise_error(MemoryError()))

    assert main(["demo"]) == 1
    assert capsys.readouterr().err.startswith("altbi: not enough memory")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily"),
    ],
)
def test_missing_threads_are_one_sentence(capsys, monkeypatch, error):
    monkeypatch.setattr(altbi._demo, "run_demo", lambda *_: raise_error(error))

    assert main(["demo"]) == 1
    assert capsys.readouterr().err == (
        "altbi: no thread can be started. Free memory, or raise the limit of processes "
        "(ulimit -u).\n"
    )


# Runs a command that may not allocate more memory than its imports have.
LIMITED = """
import resource, sys
import altbi.cli._commands, altbi.pipeline
from altbi.cli import main

with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_limit_ends_in_one_sentence(tmp_path):
    columns = {f"x{number}": np.arange(200_000.0) + number for number in range(20)}
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")

    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "fit", str(tmp_path / "t.parquet"), "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "altbi: not enough memory for this table. Select fewer columns with --columns.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


LONG, DIGITS = "x" * 100_000, "9" * 100_000
HOSTILE = {
    "command": [LONG],
    "option": ["inspect", "m", f"--{LONG}"],
    "table": ["detect", LONG],
    "long path": ["detect", f"/{'x' * 200}" * 19],
    "column": ["fit", "t.csv", "--columns", LONG],
    "excluded": ["fit", "t.csv", "--exclude", LONG],
    "id": ["fit", "t.csv", "--id", LONG],
    "label": ["fit", "t.csv", "--label", f"size={LONG}"],
    "delimiter": ["fit", "t.csv", "--delimiter", LONG],
    "encoding": ["fit", "t.csv", "--encoding", LONG],
    "format": ["fit", "t.csv", "--input-format", LONG],
    "method": ["fit", "t.csv", "--method", LONG],
    "bounds": ["fit", "t.csv", "--epsilon", "1", "--bounds", LONG, LONG],
    "share": ["fit", "t.csv", "--contamination", DIGITS],
    "seed": ["fit", "t.csv", "--seed", DIGITS],
    "rows": ["explain", "t.csv", "-m", "m", "--rows", f"1,{LONG}"],
    "model": ["score", "t.csv", "-m", LONG],
    "output": ["score", "t.csv", "-m", "m", "-o", f"{LONG}.csv"],
    "ending": ["score", "t.csv", "-m", "m", "-o", f"out.{LONG}"],
    "folder": ["detect", "t.csv", "-o", f"{LONG}/{LONG}"],
    "scheduler": ["detect", "t.csv", "--engine", "dask", "--scheduler", LONG],
    "unprintable": ["fit", "t.csv", "--columns", "\x1b" * 100_000],
}


@pytest.mark.parametrize("arguments", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arguments_have_short_messages(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("size\n1\n2\n3\n")

    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code

    *_, message = capsys.readouterr().err.splitlines()
    assert code in (1, 2)
    assert message.startswith("altbi")
    assert len(message) <= MAX_MESSAGE + 30
    assert message.isprintable()


def test_programming_errors_are_not_hidden(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(altbi._demo, "run_demo", fail)

    with pytest.raises(ZeroDivisionError):
        main(["demo"])


@pytest.mark.slow
def test_closed_pipe_prints_nothing(model):
    reader, writer = os.pipe()
    os.close(reader)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(writer, "wb") as closed:
        result = run_process("inspect", model, stdout=closed, stderr=subprocess.PIPE, env=buffered)

    assert (result.returncode, result.stderr) == (1, b"")


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["csv", "jsonl", "parquet"])
def test_reader_may_stop_after_some_scores(model, tmp_path, format_):
    rows = {"size": np.arange(200_000.0), "größe\x1b[2J": ["red", "blue"] * 100_000}
    write_csv(pa.table(rows), tmp_path / "t.csv")
    options = ["score", str(tmp_path / "t.csv"), "-m", model, "-o", "-", "--format", format_]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    with subprocess.Popen([sys.executable, "-c", PROGRAM, *options], **pipes) as process:
        assert process.stdout.read(4)
        process.stdout.close()
        assert process.stderr.read() == b""

    assert process.returncode == 1


@pytest.mark.slow
def test_characters_outside_the_encoding_are_escaped(model):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}

    result = run_process("inspect", model, capture_output=True, env=environment)

    assert result.returncode == 0
    assert rb"gr\xf6\xdfe" in result.stdout


def test_closed_standard_output_is_an_error():
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" demo >&-', sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "altbi: standard output is closed, but the command has to print its result"
    ]


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("is_unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["inspect", "score", "report"])
def test_full_disk_names_standard_output(model, tmp_path, command, is_unbuffered):
    write_csv(pa.table({"size": [1.0, 2.0], "größe\x1b[2J": ["red", "blue"]}), tmp_path / "t.csv")
    arguments = [command, model]
    if command != "inspect":
        arguments = [command, str(tmp_path / "t.csv"), "--model", model, "-o", "-"]

    with FULL.open("w") as full:
        done = run_process(
            *arguments,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": is_unbuffered},
        )

    assert done.returncode == 1
    assert done.stderr == "altbi: standard output: No space left on device\n"
