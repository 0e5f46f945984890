"""Write files atomically: under a temporary name, and renamed when they are complete.

The temporary file of NAME is ``.NAME.0.part`` in the same folder, or the next number that is free.
The process that writes it holds a lock on it. The kernel releases the lock when the process ends,
also by SIGKILL. So a temporary file without a lock was left by a dead process, and the next run
that writes NAME removes it. A process id in the name would be less safe: ids are used again, and a
process on another machine or in another container would look dead.
"""

import errno
import fcntl
import itertools
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

_UMASK_LOCK = threading.Lock()
# Numbers of temporary names that are searched for leftovers. A fixed number of names is faster than
# listing a folder that has a file for each of many partitions.
_SEARCHED_NAMES = 8
# A lock on one byte that no file has (struct flock): some network drives refuse to write to locked
# bytes.
_LOCK = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 2**62, 1, 0)


@final
@dataclass(frozen=True, slots=True)
class _TemporaryFile:
    """A temporary file of this process."""

    path: Path
    descriptor: int  # holds the lock until it is closed

    def remove(self) -> None:
        """Remove the file, unless it was renamed; its name may belong to another process then."""
        if is_named(self.descriptor, self.path):
            self.path.unlink()


@contextmanager
def atomic_files(folder: str | os.PathLike[str]) -> Iterator[Callable[[str], Path]]:
    """Yield a function that returns the temporary path for the name of a file in the folder.

    Files are flushed to disk and renamed when the block ends without an error. Existing files are
    replaced only then, one by one: if a rename fails, earlier files stay replaced. After an error
    all temporary files are removed, and the folder if it was created here. Temporary files for the
    same names that dead processes have left are always removed.
    """
    folder = Path(folder)
    created = _create_folder(folder)
    temporary: dict[Path, _TemporaryFile] = {}

    def temporary_path(name: str) -> Path:
        """Create an empty file next to `name`, and return its path; a folder raises `OSError`."""
        path = _resolve_replaceable(folder / name)
        with report_errors_as(path):
            temporary[path] = _create_temporary(path)
        return temporary[path].path

    try:
        yield temporary_path
        _replace_files(temporary)
    except BaseException:
        for file in temporary.values():
            file.remove()
        for empty in created:
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
        raise
    finally:
        for file in temporary.values():
            os.close(file.descriptor)


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


def _replace_files(temporary: Mapping[Path, _TemporaryFile]) -> None:
    """Flush all temporary files to disk, then rename them to the paths they belong to."""
    for path, file in temporary.items():
        with report_errors_as(path):
            _finish_file(file.path)
    for path, file in temporary.items():
        with report_errors_as(path):
            file.path.replace(path)


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

    A path that is a file, or is inside of one, raises a `NotADirectoryError`.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    present = next(path for path in (folder, *folder.parents) if path.exists())
    if not present.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "The path is a file, not a folder", str(present))
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _finish_file(path: Path) -> None:
    """Flush a file to disk, and replace its private permissions by those of a normal file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    with _UMASK_LOCK:  # the umask can only be read by setting it
        mask = os.umask(0)
        os.umask(mask)
    path.chmod(0o666 & ~mask)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files for a path that dead processes have left.

    Names with the numbers 0 to 7 are searched. Files that a process has locked are kept, and so are
    links, folders, and files that this process may not open or remove.
    """
    for number in range(_SEARCHED_NAMES):
        with suppress(OSError):  # what cannot be removed does not keep this run from writing
            _remove_unlocked(_name_temporary(path, number))


def _name_temporary(path: Path, number: int) -> Path:
    """Return the name of the temporary file for a path with this number."""
    return path.with_name(f".{path.name}.{number}.part")


def _create_temporary(path: Path) -> _TemporaryFile:
    """Create an empty temporary file for a path, lock it, and return it.

    Temporary files that dead processes have left are removed first.
    """
    remove_leftovers(path)
    numbers, created = itertools.count(), None
    while created is None:
        created = _create_locked(_name_temporary(path, next(numbers)))
    return created


def _create_locked(file: Path) -> _TemporaryFile | None:
    """Create a file, lock it, and return it; return None if it belongs to another process.

    On a file system without locks, the file is not locked, and nobody will remove it.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    # Another process may have locked or removed the file, because it looked like a leftover.
    with suppress(BlockingIOError):
        _lock(descriptor)
        if is_named(descriptor, file):
            return _TemporaryFile(file, descriptor)
    os.close(descriptor)
    return None


def _remove_unlocked(file: Path) -> None:
    """Remove a file if it is a regular file that no process has locked; else do nothing.

    A file that cannot be opened or removed raises an `OSError`.
    """
    if not stat.S_ISREG(file.lstat().st_mode):
        return
    descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        # The name may belong to another file by now, which its process has created since.
        if _lock(descriptor) and is_named(descriptor, file):
            file.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file until it is closed, and return whether the file system has locks.

    A file that is locked already raises a `BlockingIOError`.
    """
    for lock in (_lock_byte, _lock_file):
        try:
            lock(descriptor)
        except BlockingIOError:
            raise
        except (AttributeError, OSError):  # the system has no locks of this kind
            continue
        return True
    return False


def _lock_byte(descriptor: int) -> None:
    """Lock the byte of `_LOCK`.

    Raise an `OSError` if that is impossible, or an `AttributeError` on systems other than Linux.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK)


def _lock_file(descriptor: int) -> None:
    """Lock a whole file; raise an `OSError` if that is impossible."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_named(descriptor: int, file: Path) -> bool:
    """Return whether the name of a file still belongs to the file that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.lstat())
    except FileNotFoundError:
        return False
