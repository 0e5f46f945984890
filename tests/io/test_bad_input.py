"""Bad input to the command line: an exit code, one sentence, and no files left."""

import contextlib
import ctypes
import gzip
import io
import os
import pty
import random
import re
import resource
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import altbi
from altbi import ALTBI, IWAE, Schedule
from altbi.cli import main

pytestmark = pytest.mark.slow

COMMAND = str(Path(sys.executable).with_name("altbi"))
TIMEOUT = 600  # seconds
FAILED, USAGE, INTERRUPTED, TERMINATED = 1, 2, 130, 143
# Runs a command in a small process, so that the peak memory is that of the command.
MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
open(sys.argv[1], "w").write(str(peak))
sys.exit(code)
"""


class Result(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class Workspace:
    """A folder to work in, and one for temporary files; both are checked for leftovers."""

    def __init__(self, home):
        self.home = home
        self.folder = home / "work"
        self.temporary = home / "temporary"
        self.folder.mkdir()
        self.temporary.mkdir()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.environment["TMPDIR"] = str(self.temporary)
        # The command must import the package under test.
        self.environment["PYTHONPATH"] = str(Path(altbi.__file__).parents[1])
        # Python itself leaves incomplete compiled modules if it cannot write.
        self.environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def write(self, name, content):
        data = content if isinstance(content, bytes) else content.encode()
        (self.folder / name).write_bytes(data)
        return name

    def run(self, *arguments):
        """Run a command in this process, which is much faster than in a new one."""
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                code = main(arguments)
            except SystemExit as usage:
                code = usage.code
        return Result(code, out.getvalue(), err.getvalue())

    def run_process(self, *arguments, start=(COMMAND,), stdin=b"", **options):
        """Run the installed command."""
        done = subprocess.run(
            [*start, *arguments],
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env=self.environment,
            timeout=TIMEOUT,
            check=False,
            **options,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def files(self):
        """Return all files; a replaced or changed file differs."""
        found = {}
        for path in self.home.rglob("*"):
            stat = path.lstat()
            is_file = path.is_file()
            found[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns) if is_file else stat.st_ino
        return found

    def read(self, name):
        return (self.folder / name).read_text()


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(workspace.temporary))
    return workspace


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of two columns of numbers, `a` and `b`."""
    path = tmp_path_factory.mktemp("model") / "small.altbi"
    fit(numbers(60)).save(path)
    return str(path)


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A table that takes seconds to read and to score."""
    path = tmp_path_factory.mktemp("big") / "big.parquet"
    pq.write_table(numbers(2_000_000), path, row_group_size=100_000)
    return path


@pytest.fixture
def small_disk(workspace):
    """A folder on a disk of 64 KiB."""
    folder = workspace.home / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "small", str(folder)]
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            yield folder
            subprocess.run(["umount", str(folder)], check=True)
            return
    pytest.skip("only an administrator can mount a small disk")


def fit(table):
    """Train for a few steps only: these tests are not about scores."""
    schedule = Schedule(n0=16, T0=1, T1=2, T2=3)
    backbone = IWAE(hidden=(4,), latent=2)
    return ALTBI(schedule=schedule, backbone=backbone, random_state=0).fit(table)


def numbers(rows, names=("a", "b")):
    values = np.random.default_rng(0).normal(size=(len(names), rows)).astype(np.float32)
    return pa.table(dict(zip(names, values, strict=True)))


def csv(rows=30, names=("a", "b")):
    lines = zip(*numbers(rows, names).to_pydict().values(), strict=True)
    return "\n".join([",".join(names), *(",".join(f"{x:.4f}" for x in line) for line in lines), ""])


def check_error(result, *words, code=FAILED):
    """Check that there is one line with these words on standard error, and nothing else."""
    assert result.code == code, result
    assert result.out == ""
    assert result.err.endswith("\n")
    line = result.err.removesuffix("\n")
    assert "\n" not in line
    assert line.startswith("altbi: ")
    assert [word for word in words if word not in line] == [], line


def check_fails(workspace, *arguments, words, **options):
    """Check that a command prints one error and changes no file."""
    before = workspace.files()
    run = workspace.run_process if options else workspace.run
    check_error(run(*arguments, **options), *words)
    assert workspace.files() == before


def check_works(result):
    """Return the output of a successful command on one line."""
    assert (result.code, result.err) == (0, ""), result
    return " ".join(result.out.split())


def limit_file_size(size):
    """Return a function that limits the size of the files that a process can write."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "<xml/>")
    return file.getvalue()


def parquet():
    file = io.BytesIO()
    pq.write_table(numbers(1000), file)
    return file.getvalue()


PACKED = gzip.compress(csv(5000).encode())
NOISE = random.Random(0).randbytes(2000)

BROKEN = {
    "empty": ("x.csv", "", ["no rows", "Expected"]),
    "header only": ("x.csv", "a,b\n", ["no rows", "only the line with the names"]),
    "one row": ("x.csv", "a,b\n1,2\n", ["1 row", "at least 2", "more rows"]),
    "ragged": ("x.csv", "a,b\n1,2\n3,4,5\n6,7\n", ["line 3", "3 cells", "expected 2"]),
    "open quote": ("x.csv", 'a,b\n1,2\n3,"4\n5,6\n', ["quote", "line 3", "not closed"]),
    "damaged letter": (
        "x.csv",
        "a,b\n1,é\n".encode() + b"2,\xe9\n3,x\n",
        ["0xe9", "line 3", "not UTF-8", "--encoding"],
    ),
    "infinity": ("x.csv", "a,b\n1,2\n3,4\n5,inf\n6,7\n", ["'b'", "infinity", "row 2", "finite"]),
    "same name twice": ("x.csv", "a,b,a\n1,2,3\n4,5,6\n", ["'a'", "same name"]),
    "image": ("x.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 9, ["not text"]),
    "workbook": (
        "x.xlsx",
        zipped("[Content_Types].xml", "xl/workbook.xml"),
        ["workbook", "as CSV"],
    ),
    "zip of many": ("x.zip", zipped("a.csv", "b.csv"), ["2 files", "exactly one"]),
    "list of numbers": ("x.json", "[{}, 1, 2]", ["JSON", "Expected one object on each line"]),
    "line of JSON": ("x.jsonl", '{"a": 1}\n{"a": 2\n{"a": 3}\n', ["line 2", "JSON"]),
    "cut Parquet": ("x.parquet", parquet()[:3000], ["Parquet", "damaged or incomplete"]),
    "noise as Parquet": ("x.parquet", b"PAR1" + NOISE + b"PAR1", ["Parquet", "damaged"]),
    "cut gzip": ("x.csv.gz", PACKED[: len(PACKED) // 2], ["gzip", "damaged or incomplete"]),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_invalid_tables_are_one_sentence(workspace, kind):
    name, content, words = BROKEN[kind]

    check_fails(workspace, "detect", workspace.write(name, content), words=[f" {name}: ", *words])


def test_wrong_encoding_option_is_an_error(workspace):
    workspace.write("x.csv", ("a,b\n" + "1,2\n" * 20 + "3,café\n").encode("latin-1"))

    words = ["x.csv", "0xe9", "line 22", "utf-8", "--encoding"]
    check_fails(workspace, "fit", "x.csv", "--encoding", "utf-8", words=words)


def test_other_encodings_are_read_with_a_note(workspace):
    workspace.write("x.csv", ("town,b\n" + "Lyon,1\nNîmes,2\nParis,3\n" * 10).encode("latin-1"))

    said = check_works(workspace.run("fit", "x.csv"))

    assert "x.csv is not UTF-8 (byte 0xee in line 3), read as cp1252" in said
    assert "Nîmes" in workspace.run("inspect", "x.altbi").out


def test_one_column_is_enough(workspace):
    workspace.write("x.csv", csv(100, ["a"]) + "1000\n")

    check_works(workspace.run("detect", "x.csv"))

    files = ["duplicates.csv", "model.altbi", "reasons.csv", "report.html", "scores.csv"]
    assert sorted(path.name for path in (workspace.folder / "x-altbi").iterdir()) == files
    _, *rows = workspace.read("x-altbi/scores.csv").splitlines()
    assert max(rows, key=lambda row: float(row.split(",")[1])).startswith("100,")


def test_late_text_in_a_number_column_is_found(workspace, model):
    lines = [f"{row % 97},{row % 31}.5" for row in range(70_005)]
    lines[70_001] = "3,oops"
    workspace.write("x.csv", "\n".join(["a,b", *lines, ""]))

    check_fails(
        workspace,
        *("score", "x.csv", "--model", model),
        words=["x.csv", "'b'", "'oops'", "row 70001", "expects numbers such as 1234.5"],
    )
    said = check_works(workspace.run("detect", "x.csv", "--no-report", "--max-rows", "500"))

    assert "Column 'b' is read as text, because row 70001 (counted from 0) holds 'oops'" in said
    assert workspace.read("x-altbi/scores.csv").count("\n") == 70_006


def test_thousands_of_columns_fit_on_a_page(workspace):
    names = [f"c{number}" for number in range(4_000)]
    workspace.write("x.csv", csv(30, names))
    fit(numbers(30, names)).save(workspace.folder / "x.altbi")

    said = check_works(workspace.run("report", "x.csv", "--model", "x.altbi"))

    assert "30 rows, 4,000 columns" in said
    assert 100_000 < (workspace.folder / "x-report.html").stat().st_size < 3_000_000


def test_huge_value_is_an_error_in_bounded_memory(workspace):
    with (workspace.folder / "x.csv").open("wb") as file:
        file.write(b'a,b\n1,2\n3,4\n5,"')
        for _ in range(200):
            file.write(b"x" * 1_000_000)
        file.write(b'"\n6,7\n')
    peak = workspace.home / "peak"
    peak.touch()
    before = workspace.files()

    measured = (sys.executable, "-c", MEASURED, str(peak), COMMAND)
    result = workspace.run_process("detect", "x.csv", start=measured)

    check_error(result, "x.csv", "line 4", "longer than")
    assert 50_000 < int(peak.read_text()) < 1_200_000  # kilobytes
    assert workspace.files().keys() == before.keys()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("detect", "none.csv"), ["none.csv", "No such file"]),
        (("detect", "folder"), ["folder", "no file that ends with .parquet or .csv"]),
        (("detect", "folder", "--input-format", "arrow"), ["folder", "directory"]),
        (("score", "x.csv", "--model", "none.altbi"), ["none.altbi", "No such file"]),
        (("score", "x.csv", "--model", "noise.altbi"), ["noise.altbi", "not a complete model"]),
        (("inspect", "x.csv"), ["x.csv", "not a complete model"]),
        (("fit", "x.csv", "--columns", "ab,colou"), ["x.csv", "'colou'", "Did you mean 'colour'?"]),
        (("fit", "x.csv", "--exclude", "ab,colour"), ["x.csv", "left out", "at least one column"]),
        (("fit", "x.csv", "--id", "?"), ["x.csv", "--id", "'?'", "There are 'ab', 'colour'."]),
        (
            ("detect", "x.csv", "--label", "colour"),
            ["x.csv", "'colour'", "['red', 'blue']", "expected 0 and 1", "--label colour=VALUE"],
        ),
        (("explain", "x.csv", "--rows", "7"), ["x.csv", "row 7", "last of its 2 rows is 1"]),
        (("score", "x.csv", "--output", "x.doc"), ["x.doc", "ending like .csv"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_missing_files_columns_and_rows_are_named(workspace, arguments, words):
    workspace.write("x.csv", "ab,colour\n1,red\n2,blue\n")
    workspace.write("noise.altbi", NOISE)
    (workspace.folder / "folder").mkdir()
    if arguments[0] in ("score", "explain") and "--model" not in arguments:
        fit(pa.table({"ab": [1.0, 2.0] * 9})).save(workspace.folder / "x.altbi")
        arguments = (*arguments, "--model", "x.altbi")

    check_fails(workspace, *arguments, words=words)


def test_unreadable_table_is_named(workspace):
    path = workspace.folder / workspace.write("x.csv", csv())
    path.chmod(0)

    check_fails(workspace, "detect", "x.csv", words=["x.csv", "denied"], preexec_fn=drop_privileges)


def drop_privileges():
    """Remove the right of an administrator to read all files."""
    drop_from_bounding_set, override, search = 24, 1, 2
    if os.geteuid() == 0:
        for right in (override, search):
            assert ctypes.CDLL(None).prctl(drop_from_bounding_set, right, 0, 0, 0) == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "required: COMMAND"),
        (("detect",), "one of the arguments TABLE --sql is required"),
        (("score", "x.csv"), "required: --model"),
        (("detect", "x.csv", "--colums", "a"), "unrecognized arguments: --colums"),
        (("fit", "x.csv", "--contamination", "7"), "'7', but expected a share in (0, 0.5]"),
        (("fit", "x.csv", "--max-rows", "0"), "'0', but expected an integer of at least 1"),
        (("detect", "-"), "the table comes from stdin: pass a path with --output"),
        (("score", "-", "--model", "m", "--json"), "--json and the output both go to stdout"),
    ],
)
def test_wrong_usage_has_its_own_exit_code(workspace, arguments, why):
    before = workspace.files()

    result = workspace.run(*arguments)

    assert (result.code, result.out) == (USAGE, "")
    *usage, line = result.err.splitlines()
    assert usage[0].startswith("usage: altbi")
    assert line.startswith("altbi")
    assert why in line
    assert workspace.files() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a\n1\n2\n", ["'b' of the model", "the table has 'a'"]),
        ("a,b\n1,x\n2,y\n", ["'b'", "'x' in row 0", "expects numbers such as 1234.5"]),
        ("a,b\n1,2\n3,-inf\n", ["'b'", "infinity", "row 1"]),
    ],
    ids=["missing column", "other kind", "infinity"],
)
def test_table_of_another_schema_is_an_error(workspace, model, content, words):
    workspace.write("x.csv", content)

    check_fails(workspace, "score", "x.csv", "--model", model, words=["x.csv", *words])


def test_unused_columns_add_a_note(workspace, model):
    workspace.write("x.csv", "new,b,a\n5,1,2\n6,3,4\n")

    said = check_works(workspace.run("score", "x.csv", "--model", model))

    assert "The model does not use the columns 'new'." in said
    assert workspace.read("x-scores.csv").count("\n") == 3


def test_label_without_outliers_adds_a_note(workspace, model):
    workspace.write("x.csv", "a,b,kind\n1,2,good\n3,4,good\n")

    said = check_works(workspace.run("score", "x.csv", "--model", model, "--label", "kind=fraud"))

    assert "'kind'" in said
    assert "fraud" in said


@pytest.mark.parametrize("stdin", [b"", None], ids=["empty", "closed"])
def test_empty_standard_input_is_an_error(workspace, model, stdin):
    start = (COMMAND,) if stdin is not None else ("sh", "-c", 'exec "$0" "$@" <&-', COMMAND)
    words = ["standard input", "no rows" if stdin is not None else "closed", "xpected"]

    arguments = ("score", "-", "--model", model, "--output", "x.csv")
    check_fails(workspace, *arguments, start=start, words=words)


@pytest.mark.parametrize(
    "arguments",
    [
        ("detect", "one.csv", "--output", "taken/found"),
        ("fit", "one.csv", "--output", "taken/x.altbi"),
    ],
    ids=lambda value: " ".join(value),
)
def test_output_folder_that_is_a_file_fails_early(workspace, arguments):
    workspace.write("one.csv", "a,b\n1,2\n")  # too small to fit, but the folder is checked first
    workspace.write("taken", "by a file")

    check_fails(workspace, *arguments, words=["taken: The path is a file, not a folder"])


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_arrays_of_objects_are_never_unpickled(workspace):
    sprung = workspace.folder / "sprung"
    trap = np.array([[Trap(sprung)] * 2] * 5, dtype=object)
    np.savez(workspace.folder / "x.npz", X=trap)

    check_fails(workspace, "detect", "x.npz", words=["x.npz", "'X'", "Python objects", "expected"])
    # The trap works: loading with pickles springs it.
    np.load(workspace.folder / "x.npz", allow_pickle=True)["X"]
    assert sprung.exists()


def write_earlier_results(workspace):
    """Write the files of an earlier run."""
    (workspace.folder / "x-altbi").mkdir()
    for name in ("scores.csv", "reasons.csv", "model.altbi", "report.html"):
        workspace.write(f"x-altbi/{name}", "old")
    for name in ("x.altbi", "x-scores.csv", "x-report.html"):
        workspace.write(name, "old")


@pytest.mark.parametrize(
    ("arguments", "size", "names"),
    [
        (("score", "x.csv", "--model"), 100_000, "x-scores.csv"),
        (("score", "x.csv", "--format", "parquet", "--model"), 50_000, "x-scores.parquet"),
        (("score", "-", "--output", "s.csv", "--model"), 100_000, "standard input"),
        (("report", "x.csv", "--model"), 100_000, "x-report.html"),
        (("fit", "x.csv", "--max-rows", "500"), 5_000, "x.altbi"),
        (("detect", "x.csv", "--max-rows", "500"), 100_000, "scores.csv"),
        # The scores are smaller than the page.
        (
            ("detect", "x.csv", "--top", "500", "--format", "parquet", "--output", "found"),
            350_000,
            "report.html",
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else str(value),
)
def test_output_above_the_size_limit_is_named(workspace, model, arguments, size, names):
    workspace.write("x.csv", csv(20_000))
    write_earlier_results(workspace)
    arguments = (*arguments, model) if arguments[-1] == "--model" else arguments

    check_fails(
        workspace,
        *arguments,
        words=[names, "File too large"],
        stdin=(workspace.folder / "x.csv").read_bytes(),
        preexec_fn=limit_file_size(size),
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("score", "x.csv", "--output", "s.csv", "--model"), "s.csv"),
        (("detect", "x.csv", "--max-rows", "500", "--output", "found"), "model.altbi"),
    ],
    ids=["scores", "model"],
)
def test_full_disk_is_named(workspace, small_disk, model, arguments, names):
    rows, filled = (20_000, 0) if arguments[0] == "score" else (300, 20_000)
    workspace.write("x.csv", csv(rows))
    (small_disk / "filled").write_bytes(b"x" * filled)
    output = arguments.index("--output") + 1
    arguments = [*arguments, model] if arguments[-1] == "--model" else [*arguments]
    arguments[output] = str(small_disk / arguments[output])

    check_fails(workspace, *arguments, words=[str(small_disk), names, "No space left"])


def test_closed_output_pipe_ends_silently(workspace, model):
    workspace.write("x.csv", csv(50_000))
    before = workspace.files()
    with subprocess.Popen(
        [COMMAND, "score", "x.csv", "--model", model, "--output", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=workspace.folder,
        env=workspace.environment,
    ) as process:
        head = process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        code = process.wait(TIMEOUT)

    assert head == b'"row","score","outlier"\n'
    assert (code, said) == (FAILED, b"")
    assert workspace.files() == before


@pytest.mark.parametrize(
    ("phase", "sent", "arguments"),
    [
        ("reading", signal.SIGINT, ("detect", "x.parquet")),
        ("training", signal.SIGINT, ("fit", "x.parquet", "--max-rows", "20000")),
        ("scoring", signal.SIGINT, ("score", "x.parquet", "--model")),
        ("scoring", signal.SIGTERM, ("detect", "x.parquet", "--max-rows", "2000")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_interrupted_commands_change_no_file(workspace, big, model, phase, sent, arguments):
    (workspace.folder / "x.parquet").symlink_to(big)
    write_earlier_results(workspace)
    before = workspace.files()
    arguments = (*arguments, model) if arguments[-1] == "--model" else arguments

    code, out, screen = stop_during(workspace, phase, sent, arguments)

    expected = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}[sent]
    said = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[sent]
    assert (code, out) == (expected, b"")
    # The progress bar erases its own line: up one line, then clear it.
    visible = re.sub(r"[^\n]*\r\n(\x1b\[\?25h)?\r\x1b\[1A\x1b\[2K", "", screen)
    # A carriage return overwrites a line, so only the text after the last one is visible.
    lines = [line.rpartition("\r")[2].removeprefix("\x1b[K") for line in visible.split("\r\n")]
    (line,) = (line for line in lines if line.strip())
    assert line.startswith(f"altbi: {said}. ")
    assert workspace.files() == before


def stop_during(workspace, phase, sent, arguments):
    """Run a command on a terminal and send it a signal when the progress shows this phase."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=workspace.folder,
        env=workspace.environment,
    ) as process:
        os.close(theirs)
        screen = ""
        for text in read_terminal(ours):
            shown = phase in screen
            screen += text
            if phase in screen and not shown:
                process.send_signal(sent)
        out = process.stdout.read()
        return process.wait(TIMEOUT), out, screen


def read_terminal(descriptor):
    """Yield the output of a process until it closes the terminal, which is an error on Linux."""
    with os.fdopen(descriptor, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while text := terminal.read(4096):
            yield text.decode()


def test_interrupt_while_reading_stdin_is_one_line(workspace):
    workspace.write("x.csv", csv())
    before = workspace.files()
    # Standard input is copied first: as long as it is open, the command waits for more of it.
    with subprocess.Popen(
        [COMMAND, "detect", "-", "--output", "found"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=workspace.folder,
        env=workspace.environment,
    ) as process:
        process.stdin.write(b"a,b\n" + b"1,2\n" * 100_000)  # more than a pipe holds: it is read
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)

    check_error(Result(process.returncode, out.decode(), err.decode()), code=INTERRUPTED)
    assert workspace.files() == before
