"""The command `altbi-bench`: help, usage, exit codes, imports and completion."""

import json
import shlex
import subprocess
import sys

import pytest

import altbi_bench.cli.commands
from altbi_bench import __version__
from altbi_bench.cli import main
from altbi_bench.cli.parser import build_parser

COMMANDS = ["datasets", "systems", "run", "tables", "records", "quick", "ablation", "figures"]
PROGRAM = "import sys; from altbi_bench.cli import main; sys.exit(main(sys.argv[1:]))"
HEAVY = {"numpy", "torch", "sklearn", "scipy", "pyarrow", "pandas", "polars", "pyod"} | {
    "safetensors", "altair", "vl_convert", "jinja2", "shtab", "dask", "distributed", "statsmodels",
    "scikit_posthocs", "matplotlib",
}  # fmt: skip


def heavy_imports(*arguments):
    """Run the command, and return the heavy packages that it imported."""
    listing = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: sys.stderr.write('\\n' + json.dumps(sorted(sys.modules))))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", listing + PROGRAM, *arguments], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return HEAVY & set(json.loads(result.stderr.splitlines()[-1]))


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out == f"altbi-bench {__version__}\n"


@pytest.mark.parametrize("name", ["", *COMMANDS, "completion"])
def test_help_has_description_and_parsable_example(capsys, name):
    with pytest.raises(SystemExit) as end:
        main([*name.split(), "--help"])
    usage, description, *_, example = capsys.readouterr().out.strip().split("\n\n")

    assert end.value.code == 0
    assert usage.startswith("usage: altbi-bench")
    assert description.endswith(".")
    head, line = example.splitlines()
    assert head == "example:"
    program, *words = shlex.split(line.partition(">")[0])
    assert program == "altbi-bench"
    assert build_parser().parse_args(words).run


@pytest.mark.parametrize("arguments", ["", "nothing", "bench run", "run --js"])
def test_wrong_usage_exits_with_2(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments.split())

    assert end.value.code == 2
    assert "usage: altbi-bench" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_get_arguments_and_return_exit_code(monkeypatch, name):
    given = []
    monkeypatch.setattr(
        altbi_bench.cli.commands, name, lambda args: given.append(args.arguments) or 1
    )

    assert main([name]) == 1
    assert given == [[name]]


@pytest.mark.parametrize("name", ["", "run", "tables"])
def test_help_imports_nothing_heavy(name):
    assert heavy_imports(*name.split(), "--help") == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["datasets", "systems"])
def test_catalogues_import_numpy_only(name):
    assert heavy_imports(name) == {"numpy"}


def test_errors_name_the_program(tmp_path, capsys):
    assert main(["tables", "--records", str(tmp_path / "none.jsonl")]) == 1
    assert capsys.readouterr().err.startswith("altbi-bench: ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_every_shell_gets_its_script(capsys, shell):
    assert main(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert all(name in script for name in ("datasets", "figures", "protocol"))


def test_bash_completes_commands_and_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.jsonl").touch()
    main(["completion", "bash"])
    (tmp_path / "complete.bash").write_text(capsys.readouterr().out)
    program = (
        "source ./complete.bash\n"
        'try() { COMP_WORDS=(altbi-bench "$@"); COMP_CWORD=$#; '
        '_shtab_altbi_bench altbi-bench "${!#}" "${COMP_WORDS[-2]}"; echo "${COMPREPLY[@]}"; }\n'
        "try data; try run --records som\n"
    )

    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["datasets", "some.jsonl"]
