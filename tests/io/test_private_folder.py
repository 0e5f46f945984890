"""Private folders are removed with their objects, and after their process was killed."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from altbi.io._private_folder import PrivateFolder

HOLD = """
import sys
from altbi.io._private_folder import PrivateFolder
folder = PrivateFolder()
(folder.path / "table").write_text("rows")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return a folder that is the system's temporary folder, also of child processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def start_holder():
    command = [sys.executable, "-c", HOLD]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_folder_is_private_and_removed(temporary):
    folder = PrivateFolder()
    (folder.path / "table").write_text("rows")

    assert folder.path.parent == temporary
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    folder.close()
    folder.close()
    assert list(temporary.iterdir()) == []


def test_folder_is_removed_with_its_object(temporary):
    folder = PrivateFolder()
    assert folder.path.exists()
    del folder
    assert list(temporary.iterdir()) == []


def test_folders_of_killed_processes_are_removed(temporary):
    with start_holder() as process:
        path = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    assert Path(path).exists()

    folder = PrivateFolder()

    assert [str(folder.path)] == [str(each) for each in temporary.iterdir()]


def test_folders_of_running_processes_stay(temporary):
    with start_holder() as process:
        path = process.stdout.readline().strip()
        PrivateFolder().close()
        assert Path(path, "table").exists()
        process.stdin.close()
    assert list(temporary.iterdir()) == []


def test_links_and_foreign_folders_stay(temporary, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "lock").touch()
    (temporary / "altbi-private-link").symlink_to(other)
    (temporary / "altbi-private-without-lock").mkdir()

    PrivateFolder().close()

    names = sorted(path.name for path in temporary.iterdir())
    assert names == ["altbi-private-link", "altbi-private-without-lock"]
    assert (other / "lock").exists()


def test_forked_processes_leave_the_folder(temporary):
    folder = PrivateFolder()
    child = os.fork()
    if child == 0:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.exists()
    folder.close()
