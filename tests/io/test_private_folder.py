"""Private folders are removed with their objects, and after their process was killed."""

import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from altbi.io import _private_folder as private_folder
from altbi.io._private_folder import PrivateFolder

HOLD = """
import sys
from altbi.io._private_folder import PrivateFolder
folder = PrivateFolder()
(folder.path / "table").write_text("rows")
print(folder.path, flush=True)
sys.stdin.read()
"""


# Ends itself by SIGKILL in the first call of the function named by the argument.
KILLED = """
import os, signal, sys
import altbi.io._private_folder as module
from altbi.io._private_folder import PrivateFolder
owner, name = {"mkdir": (module.os, "mkdir"), "lock": (module, "_lock"),
               "rmtree": (module.shutil, "rmtree")}[sys.argv[1]]
real = getattr(owner, name)
def run_and_die(*arguments, **options):
    real(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, run_and_die if name == "mkdir" else die)
folder = PrivateFolder()
(folder.path / "table").write_text("rows")
folder.close()
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return a folder that is the system's temporary folder, also of child processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


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


@pytest.mark.parametrize("moment", ["mkdir", "lock", "rmtree"])
def test_folders_killed_at_any_moment_are_removed(temporary, moment):
    done = subprocess.run([sys.executable, "-c", KILLED, moment], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(temporary.iterdir())) == 1

    PrivateFolder().close()

    assert list(temporary.iterdir()) == []


def test_lock_is_removed_last(temporary, monkeypatch):
    removed = []
    real = os.unlink

    def unlink(path, **options):
        removed.append(Path(path).name)
        real(path, **options)

    folder = PrivateFolder()
    (folder.path / "folder").mkdir()
    for number in range(20):
        (folder.path / f"table{number}").touch()
    monkeypatch.setattr(os, "unlink", unlink)
    folder.close()

    assert removed.index("lock") == 20
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("moment", ["before the lock", "before it is locked"])
def test_folder_removed_before_its_lock_is_recreated(temporary, monkeypatch, moment):
    name = "mkdir" if moment == "before the lock" else "open"
    real, removed = getattr(os, name), []

    def create_and_lose(*arguments, **options):
        created = real(*arguments, **options)
        if not removed:
            removed.append(path_of_folder())
            shutil.rmtree(removed[0])  # as another run does that takes the folder for abandoned
        return created

    def path_of_folder():
        (path,) = temporary.iterdir()
        return path

    monkeypatch.setattr(os, name, create_and_lose)
    folder = PrivateFolder()

    assert list(temporary.iterdir()) == [folder.path]
    assert folder.path not in removed
    PrivateFolder()  # finds the folder locked
    assert folder.path.exists()
    folder.close()


def test_folder_locked_by_another_process_is_left_to_it(temporary, monkeypatch):
    real, locks = os.open, []

    def open_and_lock(path, *arguments, **options):
        descriptor = real(path, *arguments, **options)
        if not locks:  # as another run does that takes the folder for abandoned
            locks.append((path, real(path, os.O_RDWR)))
            fcntl.flock(locks[0][1], fcntl.LOCK_EX)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lock)
    folder = PrivateFolder()

    assert locks[0][0].parent != folder.path
    os.close(locks[0][1])
    folder.close()


def test_links_and_folders_without_locks_stay(temporary, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "lock").touch()
    (other / "precious").touch()
    (temporary / "altbi-private-link").symlink_to(other)
    (temporary / "altbi-private-without-lock").mkdir()
    (temporary / "altbi-private-without-lock" / "file").touch()

    PrivateFolder().close()

    names = sorted(path.name for path in temporary.iterdir())
    assert names == ["altbi-private-link", "altbi-private-without-lock"]
    assert sorted(path.name for path in other.iterdir()) == ["lock", "precious"]


def test_locks_that_are_links_are_not_followed(temporary, tmp_path_factory):
    lock = tmp_path_factory.mktemp("other") / "lock"
    lock.touch()
    (temporary / "altbi-private-a").mkdir()
    (temporary / "altbi-private-a" / "lock").symlink_to(lock)

    PrivateFolder().close()

    assert [path.name for path in temporary.iterdir()] == ["altbi-private-a"]


@pytest.mark.parametrize("names", [["lock", "table"], []], ids=["with a lock", "empty"])
def test_folders_of_other_users_stay(temporary, monkeypatch, names):
    (temporary / "altbi-private-a").mkdir()
    for name in names:
        (temporary / "altbi-private-a" / name).touch()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)

    PrivateFolder().close()

    assert [path.name for path in temporary.iterdir()] == ["altbi-private-a"]


def test_folders_without_file_locks_are_kept(temporary, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", fail)
    first = PrivateFolder()

    PrivateFolder().close()

    assert list(temporary.iterdir()) == [first.path]
    first.close()
    assert list(temporary.iterdir()) == []


def test_forked_processes_leave_the_folder(temporary):
    folder = PrivateFolder()
    child = os.fork()
    if child == 0:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.exists()
    folder.close()


class SignalError(BaseException):
    """Raised like the exception of a signal handler."""


def run_interrupted(function, moment, interruptible):
    """Call a function, and raise an error before this instruction of the interruptible ones.

    `interruptible` has the names of functions of the module under test. Return whether they have
    that many instructions.
    """
    count = 0

    def trace(frame, event, _):
        nonlocal count
        code = frame.f_code
        if code.co_filename != private_folder.__file__ or code.co_name not in interruptible:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == moment:
                raise SignalError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except SignalError:
        return True
    finally:
        sys.settrace(before)
    return False


def test_signals_while_a_folder_is_created_leave_nothing(temporary):
    moment = 1
    while run_interrupted(PrivateFolder, moment, {"__init__", "_create_locked", "_lock"}):
        assert list(temporary.iterdir()) == [], moment
        moment += 1
    assert moment > 100


def test_signals_while_a_folder_is_removed_leave_nothing(temporary):
    moment, is_interrupted = 1, True
    while is_interrupted:
        folder = PrivateFolder()
        (folder.path / "table").write_text("rows")
        (folder.path / "spilled").mkdir()
        is_interrupted = run_interrupted(folder.close, moment, {"_remove_lock_last"})
        del folder
        assert list(temporary.iterdir()) == [], moment
        moment += 1
    assert moment > 50


def test_taken_names_are_not_touched(temporary, monkeypatch):
    (temporary / "altbi-private-taken").mkdir()
    (temporary / "altbi-private-taken" / "file").touch()
    names = iter(["taken", "free"])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(names))

    folder = PrivateFolder()

    assert folder.path.name == "altbi-private-free"
    folder.close()
    assert [path.name for path in temporary.rglob("*")] == ["altbi-private-taken", "file"]
