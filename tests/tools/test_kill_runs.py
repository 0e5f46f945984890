"""The script that kills runs notices what a second run gets wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kill_runs
from kill_runs import Kill

RIGHT = {"job": "file", "seconds": 1.0, "left_by_kill": 1, "code": 0}
NOTHING = {"left": (), "missing": (), "different": ()}


@pytest.mark.parametrize(
    "changes", [{"code": 1}, {"left": ("x",)}, {"missing": ("x",)}, {"different": ("x",)}]
)
def test_each_fault_of_second_run_counts(changes):
    right, wrong = Kill(**RIGHT | NOTHING), Kill(**RIGHT | NOTHING | changes)

    assert (right.is_right, wrong.is_right) == (True, False)
    assert kill_runs.format_table([right, wrong]).endswith("1 of 2 right")


def test_hidden_files_and_folders_are_listed(tmp_path):
    (tmp_path / ".a").mkdir()
    (tmp_path / ".a" / ".scores.csv.x.part").touch()

    assert kill_runs.list_files(tmp_path) == {".a", ".a/.scores.csv.x.part"}


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.json", "report.html"])
def test_content_is_compared(tmp_path, name):
    def write(folder, value):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        if name == "x.parquet":
            pq.write_table(pa.table({"score": [value]}), path)
        else:
            path.write_text(json.dumps({"fingerprint": folder, "score": value}) if name == "x.json"
                            else str(value))  # fmt: skip
        return path

    first, same, other = write("a", 1.0), write("b", 1.0), write("c", 1.0 + 2**-52)

    assert kill_runs.is_same(first, same)
    assert kill_runs.is_same(first, other) == (name == "report.html")


def test_orphans_are_found_and_killed(monkeypatch):
    monkeypatch.setattr(kill_runs, "ORPHAN_SECONDS", 0)
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

    assert child.pid in kill_runs.list_children()
    monkeypatch.setattr(kill_runs, "list_children", lambda: [child.pid])
    assert kill_runs.kill_orphans() == [child.pid]
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


@pytest.mark.slow
def test_killed_runs_are_repeated():
    script = Path(kill_runs.__file__)
    options = ("--jobs", "file", "--kills", "2", "--rows", "500", "--first", "0.3")

    done = subprocess.run(
        [sys.executable, str(script), *options], capture_output=True, text=True, check=False
    )

    *_, first, second, _, total = done.stdout.splitlines()
    assert first.startswith("| file |"), done.stderr
    assert " | 0 | none | " in first
    assert " | 0 | none | " in second
    assert total.endswith("of 2 right")
