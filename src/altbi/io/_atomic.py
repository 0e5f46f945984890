"""Atomic writes: a file is written under a temporary name and renamed when it is complete."""

import errno
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_UMASK_LOCK = threading.Lock()


@contextmanager
def atomic_files(folder: str | os.PathLike[str]) -> Iterator[Callable[[str], Path]]:
    """Write several files of a folder atomically.

    Files are flushed to disk and renamed when the block ends without an error; existing files are
    replaced only then. After an error all temporary files are removed, and the folder if it was
    created here. The files are renamed one by one: if a rename fails, earlier files stay replaced.

    Parameters
    ----------
    folder : str or path
        The folder. It is created if it does not exist.

    Yields
    ------
    callable
        Returns the temporary path for the name of a file.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_files(folder) as temporary_path:
    ...         temporary_path("notes.txt").write_text("some text")
    ...     [path.name for path in Path(folder).iterdir()]
    9
    ['notes.txt']
    """
    folder = Path(folder)
    created = _create_folder(folder)
    temporary: dict[Path, Path] = {}

    def temporary_path(name: str) -> Path:
        """Create an empty temporary file next to the file `name`, and return its path."""
        path = _resolve_replaceable(folder / name)
        with report_errors_as(path):
            descriptor, created_path = tempfile.mkstemp(
                dir=path.parent, prefix=f".{path.name}.", suffix=".part"
            )
        os.close(descriptor)
        temporary[path] = Path(created_path)
        return temporary[path]

    try:
        yield temporary_path
        for path, file in temporary.items():
            with report_errors_as(path):
                _finish_file(file)
        for path, file in temporary.items():
            with report_errors_as(path):
                file.replace(path)
    except BaseException:
        for file in temporary.values():
            file.unlink(missing_ok=True)
        for empty in created:
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
        raise


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces the file when the block ends without an error.

    A folder that does not exist raises a `FileNotFoundError`.
    """
    path = Path(path)
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, "The folder does not exist", str(path.parent))
    with atomic_files(path.parent) as temporary_path:
        yield temporary_path(path.name)


@contextmanager
def report_errors_as(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise disk errors in the block with this path instead of the path of a temporary file.

    An `OSError` without an error number is raised unchanged.
    """
    try:
        yield
    except OSError as error:
        if not error.errno:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


def _resolve_replaceable(path: Path) -> Path:
    """Return the path with links resolved; the file need not exist.

    A folder, a device, a pipe or a socket raises an `OSError`, because a rename would replace it.
    """
    path = path.resolve()
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "The path is a folder, not a file", str(path))
    if path.exists() and not path.is_file():
        problem = "The path is a device, a pipe or a socket. Pass a file, or - for standard output"
        raise FileExistsError(errno.EEXIST, problem, str(path))
    return path


def _create_folder(folder: Path) -> list[Path]:
    """Create a folder and its parents; return the folders that are new, innermost first.

    A path that is a file raises a `NotADirectoryError`.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _finish_file(path: Path) -> None:
    """Flush a file to disk, and replace its private permissions by those of a normal file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.chmod(0o666 & ~_read_umask())


def _read_umask() -> int:
    """Return the umask of the process, which is set to 0 for a moment to read it."""
    with _UMASK_LOCK:  # the umask can only be read by setting it
        mask = os.umask(0)
        os.umask(mask)
    return mask
