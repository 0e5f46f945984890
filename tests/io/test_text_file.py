"""Copies of text files in UTF-8."""

import contextlib
import gzip
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from altbi.errors import TableError
from altbi.io import _text_file
from altbi.io._files import CompressedFile, read_utf8
from altbi.io._text_file import TextFile, open_text_file


def write(folder, data, compression=None, **options):
    path = folder / "a.txt"
    path.write_bytes(data)
    return TextFile(CompressedFile(str(path), "a.txt", compression), **options)


def test_plain_utf8_is_read_in_place(tmp_path):
    file = write(tmp_path, b"a\n", encoding="utf-8")
    assert (file.is_copied, file.path) == (False, str(tmp_path / "a.txt"))


def test_other_encodings_are_copied_once(tmp_path):
    file = write(tmp_path, "é\r\n".encode("utf-16"), encoding="utf-16")

    path = file.path

    assert Path(path).read_bytes() == "é\r\n".encode()
    assert file.path == path
    del file
    assert not Path(path).exists()


def test_threads_share_one_copy(tmp_path, monkeypatch):
    n_threads = 4
    file = write(tmp_path, b"\xe9\n", encoding="cp1252")
    barrier, n_copies = threading.Barrier(n_threads), []

    def read_slowly(*arguments):
        n_copies.append(1)
        # Other threads would begin a second copy meanwhile.
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(timeout=0.2)
        return read_utf8(*arguments)

    monkeypatch.setattr(_text_file, "read_utf8", read_slowly)
    with ThreadPoolExecutor(n_threads) as pool:
        paths = set(pool.map(lambda _: file.path, range(n_threads)))

    assert len(n_copies) == len(paths) == 1
    assert Path(*paths).read_bytes() == "é\n".encode()


def test_damaged_gzip_is_never_read_in_part(tmp_path):
    packed = bytearray(gzip.compress(b"a\n" * 1000))
    packed[-6] ^= 0xFF  # the checksum
    file = write(tmp_path, bytes(packed), "gzip", encoding="utf-8")
    with pytest.raises(TableError, match="damaged or incomplete"):
        _ = file.path


def test_pickled_files_make_their_own_copy(tmp_path):
    file = write(tmp_path, b"\xe9\n", encoding="cp1252")
    other = pickle.loads(pickle.dumps(file))

    assert Path(other.path).read_bytes() == "é\n".encode()
    assert other.path != file.path


def test_stated_encodings_are_kept(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xe9")
    packed = CompressedFile(str(path), "a.txt")

    file, notes = open_text_file(packed, None)
    assert (file.encoding, file.is_stated, len(notes)) == ("cp1252", False, 1)
    file, notes = open_text_file(packed, "cp850")
    assert (file.encoding, file.is_stated, notes) == ("cp850", True, [])
    with pytest.raises(TableError, match="byte 0xe9 in line 1 cannot be read as utf-8"):
        open_text_file(packed, "utf-8")
