import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import altbi._demo
from altbi.cli import main
from altbi.errors import TrainingError
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
    expected = 0 if create is fast_altbi else len(scorer.rows)
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
