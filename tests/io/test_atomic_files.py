"""Atomic files, and temporary files that killed processes leave."""

import errno
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from altbi.io import atomic_file, atomic_files

# Writes half of the files named in the arguments, states that it is ready, and waits for a line.
WRITER = """
import sys
from altbi.io import atomic_files

with atomic_files(sys.argv[1]) as temporary:
    files = [temporary(name) for name in sys.argv[2:]]
    for file in files:
        file.write_text("half")
    print("ready", flush=True)
    sys.stdin.readline()
    for file in files:
        file.write_text("complete")
"""


@contextmanager
def writing_process(folder, *names):
    """Yield a process that has written half of its files, and waits for a line."""
    command = [sys.executable, "-c", WRITER, str(folder), *names]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def leave_half_files(folder, *names):
    with writing_process(folder, *names) as process:
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def fail(error):
    def raise_error(*_, **__):
        raise error

    return raise_error


def write(path, text):
    with atomic_file(path) as temporary:
        temporary.write_text(text)


def test_file_has_default_permissions(tmp_path):
    (tmp_path / "other").touch()
    write(tmp_path / "file", "new")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("pathlib.Path.replace", KeyboardInterrupt()),
        ("os.fsync", OSError(errno.ENOSPC, "No space left on device")),
    ],
    ids=["interrupted", "disk full"],
)
def test_failed_write_leaves_old_file_only(tmp_path, monkeypatch, function, error):
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(function, fail(error))

    with pytest.raises(type(error)):
        write(path, "new")

    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_folder_or_missing_folder_raises_error(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write(tmp_path, "new")
    with pytest.raises(FileNotFoundError, match=r"does not exist: '.*no'"):
        write(tmp_path / "no" / "file", "new")


def test_created_folders_are_removed_after_error(tmp_path):
    (tmp_path / "old").mkdir()

    def write_half():
        with atomic_files(tmp_path / "old" / "new" / "er") as temporary:
            temporary("a.txt").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()

    assert [path.name for path in tmp_path.rglob("*")] == ["old"]


@pytest.mark.parametrize("function", ["os.open", "os.fsync", "pathlib.Path.replace"])
def test_error_has_final_name(tmp_path, monkeypatch, function):
    denied = PermissionError(errno.EPERM, "Operation not permitted", ".name.x.part")
    monkeypatch.setattr(function, fail(denied))

    with pytest.raises(PermissionError) as caught, atomic_files(tmp_path) as temporary:
        temporary("name").write_text("all")

    assert caught.value.filename == str(tmp_path / "name")
    assert list(tmp_path.iterdir()) == []


def test_files_appear_together(tmp_path):
    (tmp_path / "a").write_text("old")

    with atomic_files(tmp_path) as temporary:
        temporary("a").write_text("new a")
        temporary("b").write_text("new b")
        assert (tmp_path / "a").read_text() == "old"
        assert not (tmp_path / "b").exists()

    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"a": "new a", "b": "new b"}


def test_pipe_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)

    for name in ("pipe", "link"):
        with pytest.raises(FileExistsError, match="a device, a pipe or a socket"):
            write(tmp_path / name, "new")

    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_target_of_link_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "latest"
    target.write_text("old")
    link.symlink_to(target)

    write(link, "new")

    assert link.is_symlink()
    assert target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_files_of_killed_process_are_removed(tmp_path):
    leave_half_files(tmp_path, "a", "b", "other")
    assert names_in(tmp_path) == [".a.0.part", ".b.0.part", ".other.0.part"]

    with atomic_files(tmp_path) as temporary:
        temporary("a").write_text("new")
        temporary("b").write_text("new")

    assert names_in(tmp_path) == [".other.0.part", "a", "b"]


def test_failed_run_removes_files_of_killed_process(tmp_path):
    leave_half_files(tmp_path, "a")

    with suppress(ZeroDivisionError), atomic_files(tmp_path) as temporary:
        temporary("a")
        raise ZeroDivisionError

    assert names_in(tmp_path) == []


def test_running_process_keeps_its_temporary_file(tmp_path):
    with writing_process(tmp_path, "a") as process:
        write(tmp_path / "a", "from here")
        assert names_in(tmp_path) == [".a.0.part", "a"]
        assert (tmp_path / "a").read_text() == "from here"

        process.communicate("go on\n")

    assert process.returncode == 0
    assert names_in(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "complete"


def test_leftovers_of_concurrent_processes_are_removed(tmp_path):
    with writing_process(tmp_path, "a"):
        leave_half_files(tmp_path, "a")
        assert names_in(tmp_path) == [".a.0.part", ".a.1.part"]
        write(tmp_path / "a", "new")
        assert names_in(tmp_path) == [".a.0.part", "a"]

    write(tmp_path / "a", "newer")

    assert names_in(tmp_path) == ["a"]


def test_threads_do_not_share_temporary_files(tmp_path):
    with atomic_file(tmp_path / "a") as first:
        first.write_text("first")
        write(tmp_path / "a", "second")
        assert first.read_text() == "first"

    assert (tmp_path / "a").read_text() == "first"


def test_error_keeps_temporary_file_of_others(tmp_path, monkeypatch):
    others = []

    def replace_one(path, target, real=Path.replace):
        if target.name == "b":
            # The name of the first temporary file is free by now, and another run takes it.
            other = atomic_file(tmp_path / "a")
            others.append((other, other.__enter__()))
            raise OSError(errno.EIO, "Input/output error")
        return real(path, target)

    def write_both():
        with atomic_files(tmp_path) as temporary:
            temporary("a").write_text("new")
            temporary("b").write_text("new")

    monkeypatch.setattr(Path, "replace", replace_one)
    with pytest.raises(OSError, match="Input/output"):
        write_both()
    monkeypatch.undo()

    [(other, path)] = others
    assert names_in(tmp_path) == [".a.0.part", "a"]
    path.write_text("other")
    other.__exit__(None, None, None)
    assert (tmp_path / "a").read_text() == "other"


@pytest.mark.parametrize("name", [".a.0.part", ".a.1.part"])
def test_links_folders_and_pipes_are_kept(tmp_path, name):
    (tmp_path / "precious").write_text("precious")
    write(tmp_path / "x", "x")
    for create in (
        lambda path: path.symlink_to(tmp_path / "precious"),
        lambda path: path.symlink_to(tmp_path / "absent"),
        lambda path: path.mkdir(),
        os.mkfifo,
    ):
        path = tmp_path / name
        create(path)
        write(tmp_path / "a", "new")
        assert name in names_in(tmp_path)
        assert (tmp_path / "precious").read_text() == "precious"
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    "name", [".a.00.part", ".a.part", ".a.0.part~", ".aa.0.part", "a.0.part", ".a.b.0"]
)
def test_files_with_other_names_are_kept(tmp_path, name):
    (tmp_path / name).touch()

    write(tmp_path / "a", "new")

    assert names_in(tmp_path) == sorted([name, "a"])


def test_files_without_locks_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.fcntl", fail(OSError(errno.EINVAL, "Invalid argument")))
    monkeypatch.setattr("fcntl.flock", fail(OSError(errno.ENOLCK, "No locks available")))
    (tmp_path / ".a.0.part").touch()

    write(tmp_path / "a", "new")

    assert names_in(tmp_path) == [".a.0.part", "a"]


def test_file_locks_replace_missing_byte_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.fcntl", fail(OSError(errno.EINVAL, "Invalid argument")))
    (tmp_path / ".a.0.part").touch()

    with atomic_file(tmp_path / "a") as first:
        first.write_text("first")
        write(tmp_path / "a", "second")

    assert names_in(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "first"


def test_file_removed_before_its_lock_is_recreated(tmp_path, monkeypatch):
    real, removed = os.open, []

    def open_and_lose(path, flags, *arguments):
        descriptor = real(path, flags, *arguments)
        if flags & os.O_CREAT and not removed:
            removed.append(path)
            path.unlink()  # as another run does that takes the file for a leftover
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)

    with atomic_file(tmp_path / "a") as first:
        first.write_text("first")
        write(tmp_path / "a", "second")

    assert len(removed) == 1
    assert names_in(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "first"


def test_file_replaced_while_its_leftover_is_opened_stays(tmp_path, monkeypatch):
    leftover, real, replaced = tmp_path / ".a.0.part", os.open, []
    leftover.write_text("half")

    def open_and_replace(path, flags, *arguments):
        descriptor = real(path, flags, *arguments)
        if path == leftover and not replaced:
            replaced.append(path)
            path.unlink()  # another run removes the leftover, and begins to write the same name
            path.write_text("of another run")
        return descriptor

    monkeypatch.setattr(os, "open", open_and_replace)
    write(tmp_path / "a", "new")

    assert len(replaced) == 1
    assert leftover.read_text() == "of another run"


def test_link_in_place_of_leftover_is_not_opened(tmp_path, monkeypatch):
    leftover, real, opened = tmp_path / ".a.0.part", os.open, []
    leftover.write_text("half")
    (tmp_path / "precious").write_text("precious")

    def link_and_open(path, flags, *arguments):
        if path == leftover and not path.is_symlink():
            path.unlink()
            path.symlink_to(tmp_path / "precious")
        descriptor = real(path, flags, *arguments)
        opened.append(path)
        return descriptor

    monkeypatch.setattr(os, "open", link_and_open)
    write(tmp_path / "a", "new")

    assert leftover.is_symlink()
    assert leftover not in opened
