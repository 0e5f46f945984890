"""Files that are either whole or not there: written under another name, renamed when done."""

import errno
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_file", "atomic_files", "report_errors_as"]

_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def atomic_files(folder: str | os.PathLike[str]) -> Iterator[Callable[[str], Path]]:
    """Give a function that turns the name of a file in the folder into the path to write it to.

    When the block ends well, all files get their names; otherwise none does, and no trace is left:
    not even of the folder, if it was made here. Old files of these names stay until then.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_files(folder) as draft:
    ...         draft("notes.txt").write_text("all of it")
    ...     [path.name for path in Path(folder).iterdir()]
    9
    ['notes.txt']
    """
    folder = Path(folder)
    made = _make(folder)
    drafts: dict[Path, Path] = {}

    def draft(name: str) -> Path:
        path = _replaceable(folder / name)
        with report_errors_as(path):
            descriptor, part = tempfile.mkstemp(
                dir=path.parent, prefix=f".{path.name}.", suffix=".part"
            )
        os.close(descriptor)
        drafts[path] = Path(part)
        return Path(part)

    try:
        yield draft
        for path, part in drafts.items():
            with report_errors_as(path):
                _settle(part)
        for path, part in drafts.items():
            with report_errors_as(path):
                part.replace(path)
    except BaseException:
        for part in drafts.values():
            part.unlink(missing_ok=True)
        for empty in made:
            _remove_if_empty(empty)
        raise


@contextmanager
def report_errors_as(path: str | os.PathLike[str]) -> Iterator[None]:
    """Tell errors of the disk with the name that a file will have, for a block that writes it."""
    try:
        yield
    except OSError as error:
        if not error.errno:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the path to write one file to; its folder must exist."""
    path = Path(path)
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, "The folder does not exist", str(path.parent))
    with atomic_files(path.parent) as draft:
        yield draft(path.name)


def _replaceable(path: Path) -> Path:
    """Give the file that a name stands for, also through links; one that can be renamed over.

    A device or a pipe is no such file: the rename would put an ordinary file in its place.
    """
    path = path.resolve()
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "The path is a folder, not a file", str(path))
    if path.exists() and not path.is_file():
        problem = "The path is a device, a pipe or a socket. Give a file, or - for standard output"
        raise FileExistsError(errno.EEXIST, problem, str(path))
    return path


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it; give the new ones, innermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _settle(part: Path) -> None:
    """Bring the content to the disk before the name, with the permissions of an ordinary file."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.chmod(0o666 & ~_umask())


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _umask() -> int:
    with _ONE_AT_A_TIME:  # two threads would take each other's for the real one
        mask = os.umask(0)
        os.umask(mask)
    return mask
