"""Private folders for temporary files, which are removed also after a process was killed."""

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import final

from altbi.io._atomic_files import is_named

_PREFIX = "altbi-private-"
_LOCK_NAME = "lock"


@final
class PrivateFolder:
    """A new folder that only this user can read; it is removed with the object.

    While the object exists, a file in the folder is locked. The folder of a process that was killed
    has no lock: the next private folder of the same user removes it. On a file system without
    locks, nobody removes it.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        lock = None
        while lock is None:
            # The name is known before the folder exists, so that no signal leaves a folder behind.
            self.path = Path(tempfile.gettempdir(), f"{_PREFIX}{secrets.token_hex(8)}")
            try:
                lock = _create_locked(self.path)
                if lock is not None:
                    self._finalizer = weakref.finalize(self, _remove, self.path, lock, os.getpid())
            except BaseException:
                shutil.rmtree(self.path, ignore_errors=True)
                raise

    def close(self) -> None:
        """Remove the folder now; a second call does nothing."""
        self._finalizer()


def _create_locked(folder: Path) -> int | None:
    """Create a folder, lock it, and return the descriptor that holds the lock.

    Return None if the name is taken, or if another process has removed the folder meanwhile,
    because it looked abandoned.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return None
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with contextlib.suppress(BlockingIOError):
            _lock(lock)
            if is_named(lock, folder / _LOCK_NAME):
                return lock
        os.close(lock)
    return None


def _remove(folder: Path, lock: int, owner: int) -> None:
    """Remove a folder and release its lock, if this is the process `owner` that created it.

    A forked process has a copy of the object, but must not remove the folder.
    """
    if os.getpid() == owner:
        try:
            with contextlib.suppress(OSError):  # what cannot be removed is left for the next run
                _remove_lock_last(folder)
        except BaseException:  # a signal
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(lock)


def _remove_lock_last(folder: Path) -> None:
    """Remove a folder, and its lock last: if this process is killed, another one can go on.

    Files that DuckDB removes at the same time are no error.
    """
    for path in list(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK_NAME:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder)


def _remove_abandoned() -> None:
    """Remove the private folders of this user in the temporary folder that no process has locked.

    Folders that cannot be opened or removed are left there.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    """Remove a private folder if its lock is free; a folder in use raises an `OSError`.

    A folder without a lock is removed if it is empty. Links, and folders of another user, are never
    removed.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return
    try:
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:  # its process was killed before it created the lock, or is about to
        folder.rmdir()
        return
    try:
        if _lock(lock):
            _remove_lock_last(folder)
    finally:
        os.close(lock)


def _lock(lock: int) -> bool:
    """Lock an open file until it is closed, and return whether the file system has locks.

    A file that is locked already raises a `BlockingIOError`.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
