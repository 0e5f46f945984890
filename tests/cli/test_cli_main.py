import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import altbi._demo
from altbi import ALTBI, __version__
from altbi.cli import main
from altbi.cli._parser import build_parser
from altbi.errors import ModelFileError, TrainingError
from altbi.model._container import FORMAT_VERSION, read_model, write_model

NUMBER = {"kind": "number", "present": 9, "missing": 1, "low": -0.5, "high": 4.0, "fill": 0.5}
SCALES = {"centre": 1.0, "scales": [1.5, 0.5]}
COLUMN = {"name": "size", **NUMBER, **SCALES, "levels": [], "distinct": 0, "declared": False}
COLOUR = {
    **COLUMN,
    "name": "colour",
    "kind": "category",
    **{"low": 0.0, "high": 0.0, "fill": 0.0, "levels": ["red", "blue"], "distinct": 5},
    **{"centre": 0.0, "scales": [0.5, 0.5, 0.5, 0.5]},
}
HEADER = {
    "altbi_version": "0.1.0",
    "detector": "ALTBI",
    "parameters": {"rho": 0.92, "hidden": [8, 4]},
    "table": {"rows": 1000, "sample": 10, "remembered": 8, "columns": 2, "named": True},
    "offset": -0.25,
    "encoder": {"max_categories": 32, "min_count": 2, "columns": [COLUMN, COLOUR]},
    "history": [{"step": 0, "batch_size": 10, "kept": 1.0, "loss": 3.5}],
    "privacy": None,
}
COMMANDS = ["detect", "fit", "score", "explain", "report", "inspect", "demo", "completion"]


@pytest.fixture
def model(tmp_path):
    """Write a model file with some of its header changed."""

    def write(**changes):
        path = tmp_path / "some.model"
        write_model(path, {"low": np.zeros(1)}, HEADER | changes)
        return str(path)

    return write


def command(*arguments, **options):
    code = "import sys; from altbi.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *arguments], **options)


def encoder(**changes):
    return HEADER["encoder"] | {"columns": [COLUMN | changes]}


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out == f"altbi {__version__}\n"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_a_description_and_an_example_that_parses(capsys, name):
    with pytest.raises(SystemExit) as end:
        main([*name.split(), "--help"])
    usage, description, *_, example = capsys.readouterr().out.strip().split("\n\n")

    assert end.value.code == 0
    assert usage.startswith("usage: altbi")
    assert description.endswith(".")
    head, line = example.splitlines()
    assert head == "example:"
    assert build_parser().parse_args(shlex.split(line.partition(">")[0])[1:]).run


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "nothing",
        "inspect",
        "inspect a b",
        "bench",
        "demo --seed -1",
        "demo --seed x",
        "demo --js",
        "detect",
        "score data.csv",
        "detect data.csv --contamination 0.6",
        "detect data.csv --top 0",
        "explain data.csv --model m.altbi --rows 1,x",
        "detect -",
        "fit data.csv --output -",
        "score data.csv --model m.altbi --output - --json",
        "fit data.csv --score-by luck",
    ],
)
def test_wrong_usage_exits_with_2(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments.split())

    assert end.value.code == 2
    assert "altbi" in capsys.readouterr().err


def test_inspect_tells_what_was_fitted_and_saved(capsys, tmp_path):
    table = pa.table({"size": [1.0, 2.0, None] * 20, "colour": ["red", "blue", "red"] * 20})
    detector = ALTBI(n0=16, T0=1, T1=2, T2=3, hidden=(4,), latent=2).fit(table)
    detector.save(tmp_path / "fitted.model")

    assert main(["inspect", str(tmp_path / "fitted.model"), "--json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert facts["threshold"] == -detector.offset_
    assert facts["last_loss"] == detector.history_[-1].loss
    assert (facts["rows"], facts["sample"], facts["detector"]) == (60, 60, "ALTBI")
    assert facts["parameters"]["hidden"] == [4]
    size, colour = facts["columns"]
    assert (size["kind"], size["low"], size["high"], size["missing"]) == ("number", 1.0, 2.0, 20)
    assert (colour["kind"], colour["levels"]) == ("category", ["red", "blue"])


def test_inspect_shows_the_header_as_text(capsys, model):
    path = model()

    assert main(["inspect", path]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: ALTBI, written by altbi 0.1.0, model format {FORMAT_VERSION}"
    facts = [" ".join(line.split()) for line in lines]
    assert "training table 1000 rows, 2 columns; trained on 10 of the rows" in facts
    held = "8 of the training table, in deviations: treat the file as you treat the table"
    assert f"rows held {held}" in facts
    assert "threshold rows with an anomaly score above 0.25 are outliers" in facts
    assert "last loss 3.5" in facts
    assert "rho=0.92, hidden=[8, 4]" in facts or "hidden=[8, 4], rho=0.92" in facts
    assert "size number 1 -0.5 to 4" in facts
    assert "colour category 1 'red', 'blue', 3 more" in facts


def test_inspect_tells_how_texts_are_read(capsys, model):
    conventions = {
        "readings": {"size": "numbers with a decimal comma", "count": "numbers"},
        "missing": ["?\x1b"],
    }
    path = model(table=HEADER["table"] | {"writing": conventions})

    assert main(["inspect", path]) == 0

    last = capsys.readouterr().out.splitlines()[-1]
    said = "'size' as numbers with a decimal comma, '?\\x1b' as missing"
    assert last == f"in text files   {said}"


@pytest.mark.parametrize(
    ("score_by", "words"), [("distance", "48 of the training table, in"), ("loss", "none of the")]
)
def test_inspect_says_how_many_rows_of_the_table_a_file_holds(capsys, tmp_path, score_by, words):
    table = np.random.default_rng(0).normal(size=(60, 2))
    detector = ALTBI(n0=16, T0=1, T1=2, T2=3, hidden=(4,), latent=2, score_by=score_by).fit(table)
    detector.save(tmp_path / "fitted.model")

    assert main(["inspect", str(tmp_path / "fitted.model")]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("rows held")]
    assert words in line

    assert main(["inspect", str(tmp_path / "fitted.model"), "--json"]) == 0
    held = 0 if score_by == "loss" else len(detector.scorer_.rows)
    assert json.loads(capsys.readouterr().out)["remembered"] == held


@pytest.mark.parametrize("score_by", ["distance", "loss"])
@pytest.mark.parametrize("count", [7, 0.0, False, "48", None])
def test_a_file_that_miscounts_the_rows_it_holds_is_refused(tmp_path, score_by, count):
    table = np.random.default_rng(0).normal(size=(60, 2))
    detector = ALTBI(n0=16, T0=1, T1=2, T2=3, hidden=(4,), latent=2, score_by=score_by).fit(table)
    detector.save(tmp_path / "m")
    tensors, header = read_model(tmp_path / "m")
    write_model(
        tmp_path / "m", tensors, header | {"table": header["table"] | {"remembered": count}}
    )

    with pytest.raises(ModelFileError, match="does not count the rows it holds"):
        ALTBI.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"kind": "date", "low": 0.0, "high": 86400.0}, "1970-01-02 00:00:00+00:00"),
        ({"kind": "date", "low": 0.0, "high": 1e300}, "1e+300 seconds since 1970"),
        ({"kind": "boolean", "low": 0.0, "high": 1.0}, "False and True"),
        ({"kind": "boolean", "low": 1.0, "high": 1.0}, "True"),
        ({"name": "n" * 200}, "nnn… "),
    ],
)
def test_inspect_shows_each_kind_of_column_in_its_own_terms(capsys, model, changes, shown):
    assert main(["inspect", model(encoder=encoder(**changes))]) == 0

    assert shown in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_inspect_lets_no_file_speak_to_the_terminal(capsys, model, flags):
    evil = "\x1b[2J\r\n\x7f\x9b\u202e"
    level = COLOUR | {"name": evil, "levels": [evil, "red"]}
    path = model(
        altbi_version=evil,
        detector=evil,
        parameters={evil: evil},
        encoder=HEADER["encoder"] | {"columns": [COLUMN | {"name": evil * 2}, level]},
    )

    assert main(["inspect", path, *flags]) == 0

    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.split("\n"))
    assert out.count("1b[2J") >= 6


@pytest.mark.parametrize(
    "changes",
    [
        {"table": None},
        {"table": {}},
        {"table": HEADER["table"] | {"rows": "many"}},
        {"table": {"rows": 1000, "sample": 10}},
        {"table": HEADER["table"] | {"remembered": "\x1b[2J"}},
        {"table": HEADER["table"] | {"remembered": True}},
        {"table": HEADER["table"] | {"remembered": 8.0}},
        {"table": HEADER["table"] | {"remembered": -1}},
        {"table": HEADER["table"] | {"remembered": 11}},
        {"history": []},
        {"history": [{"loss": "low"}]},
        {"offset": "0"},
        {"offset": 10**400},
        {"detector": 7},
        {"parameters": [1]},
        {"parameters": {"rho": {"deep": []}}},
        {"encoder": {}},
        {"encoder": encoder(low="\x1b[2J")},
        {"encoder": encoder(kind="\x1b[2J")},
    ],
)
def test_a_header_that_makes_no_sense_is_one_sentence_and_exit_1(capsys, model, changes):
    path = model(**changes)

    assert main(["inspect", path]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"altbi: {path}: ")
    assert err[:-1].isprintable()
    assert err.endswith("Save the model again.\n")


def test_a_file_that_is_no_model_is_one_sentence_and_exit_1(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("no model\n" * 100)

    for name in ("missing", "", "notes.txt"):
        assert main(["inspect", str(tmp_path / name)]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"altbi: {tmp_path / name}: ")
        assert err.count("\n") == 1


def test_a_message_cannot_speak_to_the_terminal(capsys, monkeypatch):
    def fail(*given):
        raise TrainingError("stopped\nat \x1b[2J")

    monkeypatch.setattr(altbi._demo, "run", fail)

    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "altbi: stopped at \\x1b[2J\n"


def test_an_interrupt_is_one_line_and_exit_130(capsys, monkeypatch):
    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(altbi._demo, "run", stop)

    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "altbi: interrupted. Nothing half-written is left.\n"


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    def fail(*given):
        raise ZeroDivisionError

    monkeypatch.setattr(altbi._demo, "run", fail)

    with pytest.raises(ZeroDivisionError):
        main(["demo"])


def test_a_closed_pipe_is_no_reason_for_words(model):
    reader, writer = os.pipe()
    os.close(reader)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(writer, "wb") as closed:
        result = command("inspect", model(), stdout=closed, stderr=subprocess.PIPE, env=buffered)

    assert (result.returncode, result.stderr) == (1, b"")


def test_letters_that_the_terminal_lacks_are_escaped(model):
    path = model(encoder=encoder(name="größe"))
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    result = command("inspect", path, capture_output=True, env=environment)

    assert result.returncode == 0
    assert rb"gr\xf6\xdfe" in result.stdout


def test_a_closed_standard_output_is_said_in_a_sentence():
    code = "import sys; from altbi.cli import main; sys.exit(main(['demo']))"

    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "altbi: standard output is closed, but the result has to go somewhere"
    ]
