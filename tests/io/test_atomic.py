"""Atomic writes: all files appear together, or none does."""

import errno
import os

import pytest

from altbi.io import atomic_file, atomic_files


def test_files_appear_together_at_the_end(tmp_path):
    (tmp_path / "a").write_text("old")

    with atomic_files(tmp_path) as temporary_path:
        temporary_path("a").write_text("new a")
        temporary_path("b").write_text("new b")
        assert (tmp_path / "a").read_text() == "old"
        assert not (tmp_path / "b").exists()

    contents = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert contents == {"a": "new a", "b": "new b"}


def write_and_fail(folder):
    with atomic_files(folder) as temporary_path:
        temporary_path("a.txt").write_text("half")
        raise ZeroDivisionError


def test_errors_remove_files_and_new_folders(tmp_path):
    (tmp_path / "old").mkdir()

    with pytest.raises(ZeroDivisionError):
        write_and_fail(tmp_path / "old" / "new" / "er")

    assert [path.name for path in tmp_path.rglob("*")] == ["old"]


@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.fsync", "pathlib.Path.replace"])
def test_disk_errors_name_the_final_file(tmp_path, monkeypatch, step):
    def fail(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted", ".name.x.part")

    monkeypatch.setattr(step, fail)

    with pytest.raises(PermissionError) as caught, atomic_files(tmp_path) as temporary_path:
        temporary_path("name").write_text("all")

    assert caught.value.filename == str(tmp_path / "name")
    assert list(tmp_path.iterdir()) == []


def test_new_files_have_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_text("")
    with atomic_file(tmp_path / "atomic") as path:
        path.write_text("")

    modes = {file.stat().st_mode for file in tmp_path.iterdir()}
    assert len(modes) == 1


def test_links_are_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "target"
    target.write_text("old")
    (tmp_path / "link").symlink_to(target)

    with atomic_file(tmp_path / "link") as path:
        path.write_text("new")

    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "new"
    assert [file.name for file in target.parent.iterdir()] == ["target"]


def write(path):
    with atomic_file(path) as temporary:
        temporary.write_text("text")


def test_only_regular_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")

    for name in ("pipe", "link"):
        with pytest.raises(FileExistsError, match="a device, a pipe or a socket"):
            write(tmp_path / name)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"does not exist: '.*no'"):
        write(tmp_path / "no" / "file")

    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
