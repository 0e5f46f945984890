"""The fuzz script notices everything that a hostile file may do, and this version does nothing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fuzz
import fuzz_child
import fuzz_models
import fuzz_tables

TOOLS = Path(fuzz.__file__).parent
SOURCES = "tools", "src", "bench/src"
# Runs functions in place of the steps for a file, and prints how each is classified.
CLASSIFY = """
import json, os, pickle, socket, subprocess, sys, threading
from pathlib import Path
import numpy as np
import fuzz_child, fuzz_tables
from altbi import AltbiError

Path("hostile_payload.py").touch()
sys.path.insert(0, "")

class Broken:
    def __del__(self):
        raise KeyError

def as_scores(found):
    return found if isinstance(found, np.ndarray) else np.zeros(1)

def fail(error):
    raise error

def fail_in_thread(_):
    thread = threading.Thread(target=fail, args=[KeyError()])
    thread.start()
    thread.join()

def load_payload(_):
    pickle.loads(pickle.dumps(fuzz_tables._Payload()))

STEPS = {
    "scores": lambda _: np.zeros(1),
    "import": lambda _: __import__("sched"),
    "nan": lambda _: np.array([0.0, np.nan]),
    "altbi": lambda _: fail(AltbiError("x")),
    "memory": lambda _: fail(MemoryError()),
    "key": lambda _: fail(KeyError()),
    "exit": lambda _: sys.exit(0),
    "thread": fail_in_thread,
    "deleted": lambda _: Broken() and None,
    "exec": lambda _: exec("1"),
    "eval": lambda _: eval("1"),
    "system": lambda _: os.system("true"),
    "process": lambda _: subprocess.run(["true"]),
    "address": lambda _: socket.getaddrinfo("localhost", 1),
    "pickle": load_payload,
    "canary": lambda _: Path(fuzz_tables.CANARY).touch(),
    "module": lambda _: __import__("hostile_payload"),
}
runner = fuzz_child.Runner("tables", Path())
found = {}
for name, step in STEPS.items():
    runner.run = lambda path: as_scores(step(path))
    found[name] = runner.classify(Path("x"))[0]
print(json.dumps(found))
"""
# A child that crashes at file 1, and never ends with file 3.
FAKE_CHILD = """
import json, os, signal, sys
from pathlib import Path

def report(**values):
    print(json.dumps(values), flush=True)

report(ready=True)
for index in range(int(sys.argv[3]), int(sys.argv[4])):
    Path("x.csv").write_text(str(index))
    report(index=index, mutations="none", name="x.csv")
    if index == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    while index == 3:
        signal.pause()
    result = "code run" if index == 4 else "refused"
    if index == 4:
        Path("x.csv").replace("../bad/x.csv")
    report(result=result, reason="", seconds=0.0)
"""


def run_script(*arguments):
    return subprocess.run(
        [sys.executable, str(TOOLS / "fuzz.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_event_is_classified(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CLASSIFY],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(str(TOOLS.parent / each) for each in SOURCES)},
        stdout=subprocess.PIPE,
        check=True,
    )

    found = json.loads(done.stdout.splitlines()[-1])
    expected = dict.fromkeys(found, "code run")
    expected |= dict.fromkeys(("scores", "import"), "read and scored")
    expected |= dict.fromkeys(("altbi", "memory"), "refused")
    expected |= dict.fromkeys(("key", "exit", "thread", "deleted"), "foreign exception")
    assert found == expected | {"nan": "score not finite"}
    assert not (tmp_path / fuzz_tables.CANARY).exists()


@pytest.fixture
def limits(tmp_path, monkeypatch):
    """Return limits of child processes that run `FAKE_CHILD`."""
    script = tmp_path / "fake_child.py"
    script.write_text(FAKE_CHILD)
    monkeypatch.setattr(fuzz, "CHILD", script)
    monkeypatch.setattr(fuzz, "PATIENCE", 1)
    keep = tmp_path / "keep"
    keep.mkdir()
    return fuzz.Limits(seed=0, seconds=0.1, gibibytes=1, folder=tmp_path, keep=keep)


def test_crash_and_hang_are_attributed_to_their_files(limits):
    outcomes = list(fuzz.run_batches({"tables": range(6)}, limits, jobs=1))

    results = {each.index: each.result for each in outcomes}
    assert results == {
        0: "refused", 1: "crash", 2: "refused", 3: "hang", 4: "code run", 5: "refused"
    }  # fmt: skip
    assert "exit code -11" in outcomes[1].reason
    kept = {path.name: path.read_text() for path in limits.keep.iterdir()}
    assert kept == {
        "tables-1-crash.csv": "1", "tables-3-hang.csv": "3", "tables-4-code-run.csv": "4"
    }  # fmt: skip
    assert not list(limits.folder.glob("tables-*"))


def test_child_that_cannot_start_ends_the_run(limits):
    fuzz.CHILD.write_text("raise SystemExit('no disk')")

    with pytest.raises(SystemExit, match="cannot start: exit code 1; no disk"):
        list(fuzz.run_batches({"tables": range(2)}, limits, jobs=1))


def test_table_counts_results_by_kind():
    def outcomes(kind, **counts):
        return [fuzz.Outcome(kind, 0, "", name.replace("_", " "), "") for name in counts
                for _ in range(counts[name])]  # fmt: skip

    found = [*outcomes("models", refused=2, hang=1), *outcomes("tables", read_and_scored=3)]

    rows = fuzz.format_table(found).splitlines()
    assert rows[0] == "| | models | tables |"
    assert "| refused | 2 | 0 |" in rows
    assert "| hang | 1 | 0 |" in rows
    assert "| read and scored | 0 | 3 |" in rows


def test_tables_depend_on_the_seed_alone():
    bases = fuzz_tables.build_base_tables()

    def build(seed):
        rng = np.random.default_rng(seed)
        return [fuzz_tables.mutate_table(bases, rng) for _ in range(40)]

    assert build(1) == build(1) != build(2)


def test_edited_models_have_a_valid_digest(tmp_path):
    fuzz_models.fit_base_models(tmp_path, ("distance",))
    bases = fuzz_models.read_base_models(tmp_path)
    path, errors = tmp_path / "model.altbi", []
    for seed in range(60):
        path.write_bytes(fuzz_models.mutate_model(bases, np.random.default_rng(seed))[2])
        try:
            fuzz_child.score_with_model(path)
        except Exception as error:  # noqa: BLE001 - only the message counts here
            errors.append(str(error))

    assert len(errors) < 60
    assert sum("does not match its checksum" in each for each in errors) < 15
    assert any("its tensors do not fit" in each for each in errors)


@pytest.mark.slow
def test_hostile_models_are_refused_or_scored():
    done = run_script("--models", 60, "--tables", 0)

    assert done.returncode == 0, done.stderr
    assert "| refused |" in done.stdout


@pytest.mark.slow
def test_hostile_tables_are_refused_or_scored():
    done = run_script("--models", 0, "--tables", 120)

    assert done.returncode == 0, done.stderr
