"""Private folders for temporary files, which are removed also after a process was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO, final

_PREFIX = "altbi-private-"
_LOCK_NAME = "lock"


@final
class PrivateFolder:
    """A new folder that only this user can read; it is removed with the object.

    While the object exists, a file in the folder is locked. The folder of a process that was killed
    has no lock: the next private folder of the same user removes it.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        created = Path(tempfile.mkdtemp(prefix="altbi-new-"))
        lock = (created / _LOCK_NAME).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Other processes look at the new name only, when the lock is held.
        self.path = created.with_name(_PREFIX + created.name.removeprefix("altbi-new-"))
        created.rename(self.path)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        """Remove the folder now; a second call does nothing."""
        self._finalizer()


def _remove(path: Path, lock: IO[bytes], owner: int) -> None:
    """Remove a folder and release its lock, if this is the process `owner` that created it.

    A forked process has a copy of the object, but must not remove the folder.
    """
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
        lock.close()


def _remove_abandoned() -> None:
    """Remove the private folders of this user in the temporary folder that no process has locked.

    Folders that cannot be opened or removed, such as those of other users, are left there.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    """Remove a private folder if its lock is free; a folder in use raises an `OSError`.

    Links, and folders of another user, are never removed.
    """
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    with (folder / _LOCK_NAME).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
