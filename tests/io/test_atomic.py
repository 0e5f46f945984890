import errno
import os

import pytest

from altbi.io import atomic_file, atomic_files


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


@pytest.mark.parametrize("function", ["tempfile.mkstemp", "os.fsync", "pathlib.Path.replace"])
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
