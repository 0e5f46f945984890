import shlex
import subprocess

import pytest

from altbi import __version__
from altbi.cli import main
from altbi.cli._parser import build_parser

COMMANDS = ["detect", "fit", "score", "explain", "cells", "report", "inspect", "demo", "completion"]


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])

    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"altbi {__version__}\n"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_description_and_valid_example(capsys, name):
    with pytest.raises(SystemExit) as stopped:
        main([*name.split(), "--help"])
    usage, description, *_, example = capsys.readouterr().out.strip().split("\n\n")

    assert stopped.value.code == 0
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
        "detect data.csv --contamination 0",
        "detect data.csv --top 0",
        "detect data.csv --workers 10001",
        "explain data.csv --model m.altbi --rows 1,x",
        "explain data.csv --model m.altbi --rows 99999999999999999999",
        "fit data.csv --method paper",
        "fit data.csv --threshold nan",
    ],
)
def test_invalid_arguments_exit_with_2(capsys, arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())

    assert stopped.value.code == 2
    assert "altbi" in capsys.readouterr().err


def test_numbers_of_any_length_are_refused_alike(capsys):
    for digits in ("9" * 12, "9" * 100_000):
        with pytest.raises(SystemExit):
            build_parser().parse_args(["demo", "--seed", digits])

        error = capsys.readouterr().err
        assert error.endswith("', but expected an integer from 0 to 4294967295\n")
        assert "argument --seed: '999" in error


@pytest.mark.parametrize("text", ["auto", "0.5", "1e-9"])
def test_contamination_may_be_auto_or_a_share(text):
    parsed = build_parser().parse_args(["fit", "t.csv", "--contamination", text]).contamination

    assert parsed == (text if text == "auto" else float(text))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_supports_every_shell(capsys, shell):
    assert main(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert all(name in script for name in ("detect", "inspect", "contamination"))


def test_bash_completes_commands_options_and_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("sizes.csv", "sizes.altbi"):
        (tmp_path / name).touch()
    main(["completion", "bash"])
    (tmp_path / "altbi.bash").write_text(capsys.readouterr().out)
    program = (
        "source ./altbi.bash\n"
        'try() { COMP_WORDS=(altbi "$@"); COMP_CWORD=$#; '
        '_shtab_altbi altbi "${!#}" "${COMP_WORDS[-2]}"; echo "${COMPREPLY[@]}"; }\n'
        "try det; try detect --contam; try detect size; try inspect size\n"
    )

    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[:2] == ["detect", "--contamination"]
    for files in done.stdout.splitlines()[2:]:
        assert set(files.split()) == {"sizes.altbi", "sizes.csv"}
