"""Mutations of bytes and of text for `fuzz.py`."""

import json
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Rng = np.random.Generator
Mutation = Callable[[bytes, Rng], bytes]

INTEGERS = (0, 1, -1, 127, 2**15, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
CELLS = (
    "inf", "-inf", "nan", "1e999", "-1e-999", "9" * 400, "0x7f", "1_000", "٣", "=1+1", "@SUM(A1)",
    "\x00", "\x1b[2J", "\ufeff", "\u202e", "'", '"', '""', "\\", "\\N", "#", "--", ";;", "{}", "[]",
    "9999-12-31", "0000-00-00", "2024-02-30", "1677-01-01T00:00:00", "24:00:00", "1,2,3", "1.2.3",
    "$", "%", "€", "( )", "Total", "true", "null", "{'a': 1}", '{"a": {"a": 1}}', "a" * 70_000,
)  # fmt: skip
ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "utf-7", "cp1252", "latin-1", "shift-jis", "cp037")
BYTE_ORDERS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\x00\x00")
JSON_VALUES = (
    None, True, 0, -1, 2**63, 10**400, 1e308, 5e-324, float("inf"), float("nan"), "", "x", "1.5",
    "\ud800", "\x00", "2024-01-31", [], [1, "a", None], [[[]]], {}, {"a": 1}, {"a": {"b": [1]}},
    {"": {}}, {"a.b": 1}, "y" * 70_000,
)  # fmt: skip


def choose(items: Sequence[Item], rng: Rng) -> Item:
    """Return a random item of a sequence."""
    return items[int(rng.integers(len(items)))]


def flip_bytes(content: bytes, rng: Rng) -> bytes:
    """Return the content with one to ten random bytes."""
    changed = bytearray(content)
    for position in rng.integers(0, max(len(changed), 1), choose((1, 1, 2, 10), rng)):
        changed[position : position + 1] = rng.bytes(1)
    return bytes(changed)


def flip_letters(content: bytes, rng: Rng) -> bytes:
    """Return the content with one to ten random letters, digits or signs of ASCII."""
    changed = bytearray(content)
    for position in rng.integers(0, max(len(changed), 1), choose((1, 2, 10), rng)):
        changed[position : position + 1] = bytes([int(rng.integers(32, 127))])
    return bytes(changed)


def flip_late_bytes(content: bytes, rng: Rng) -> bytes:
    """Return the content with some random bytes near the end, where footers are."""
    start = max(len(content) - 600, 0)
    return content[:start] + flip_bytes(content[start:], rng)


def cut(content: bytes, rng: Rng) -> bytes:
    """Return the start of the content."""
    return content[: rng.integers(0, len(content) + 1)]


def cut_out(content: bytes, rng: Rng) -> bytes:
    """Return the content without a slice."""
    start, stop = _choose_slice(content, rng)
    return content[:start] + content[stop:]


def repeat(content: bytes, rng: Rng) -> bytes:
    """Return the content with a slice repeated several times."""
    start, stop = _choose_slice(content, rng)
    times = min(int(rng.integers(2, 50)), 1 + (1 << 20) // (stop - start + 1))
    return content[:start] + content[start:stop] * times + content[stop:]


def insert_zeros(content: bytes, rng: Rng) -> bytes:
    """Return the content with zero bytes inserted."""
    return _insert(content, bytes(int(rng.integers(1, 100))), rng)


def insert_noise(content: bytes, rng: Rng) -> bytes:
    """Return the content with random bytes inserted."""
    return _insert(content, rng.bytes(int(rng.integers(1, 100))), rng)


def overwrite_integer(content: bytes, rng: Rng) -> bytes:
    """Return the content with an extreme integer of four or eight bytes in it."""
    value, size = choose(INTEGERS, rng), int(choose((4, 8), rng))
    position = int(rng.integers(0, len(content) + 1)) & -4
    number = (value % 2 ** (8 * size)).to_bytes(size, "little")
    return content[:position] + number + content[position + size :]


def insert_quotes(content: bytes, rng: Rng) -> bytes:
    """Return the content with a quote inserted at one to five positions."""
    for _ in range(rng.integers(1, 6)):
        content = _insert(content, choose((b'"', b"'", b'""', b'\\"'), rng), rng)
    return content


def insert_delimiters(content: bytes, rng: Rng) -> bytes:
    """Return the content with a delimiter or newline inserted at one to five positions."""
    for _ in range(rng.integers(1, 6)):
        delimiter = choose((b",", b";", b"\t", b"|", b"\n", b"\r", b"\r\n", b"{", b"}"), rng)
        content = _insert(content, delimiter * int(rng.integers(1, 4)), rng)
    return content


def replace_cells(content: bytes, rng: Rng) -> bytes:
    """Return the content with an unusual text in place of some numbers or words."""
    cells = list(re.finditer(rb"[\w.]+", content))
    for index in sorted(rng.integers(0, len(cells), 5), reverse=True) if cells else ():
        text = choose(CELLS, rng).encode("utf-8", "surrogatepass")
        content = content[: cells[index].start()] + text + content[cells[index].end() :]
    return content


def change_encoding(content: bytes, rng: Rng) -> bytes:
    """Return the content in another encoding, or with the byte order mark of another one."""
    if rng.random() < 0.3:
        return choose(BYTE_ORDERS, rng) + content
    return content.decode("utf-8", "replace").encode(choose(ENCODINGS, rng), "replace")


def change_newlines(content: bytes, rng: Rng) -> bytes:
    """Return the content with other newlines, everywhere or in a slice."""
    start, stop = (0, len(content)) if rng.random() < 0.5 else _choose_slice(content, rng)
    newline = choose((b"\r", b"\r\n", b"\n\n", b"\x0b", b"\xe2\x80\xa8", b" "), rng)
    return content[:start] + content[start:stop].replace(b"\n", newline) + content[stop:]


def insert_long_line(content: bytes, rng: Rng) -> bytes:
    """Return the content with up to 20 MB without a newline in it."""
    size = int(10 ** rng.uniform(4, 7.3))
    text = choose((b"x", b"1", b'"', b",", b"{", b"\\", b"\xff"), rng)
    return _insert(content, text * size, rng)


def insert_nesting(content: bytes, rng: Rng) -> bytes:
    """Return the content with up to 10^6 brackets, as a line or inside one."""
    depth = int(10 ** rng.uniform(1, 6))
    opening, closing = choose(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")")), rng)
    text = opening * depth + b"1" + closing * (depth if rng.random() < 0.7 else 0)
    if rng.random() < 0.5:
        return content + b'\n{"deep": ' + text + b"}\n"
    return _insert(content, text, rng)


def change_json_values(content: bytes, rng: Rng) -> bytes:
    """Return JSON lines with other values, keys and nested objects in some lines."""
    lines = content.split(b"\n")
    for _ in range(rng.integers(1, 6)):
        index = int(rng.integers(len(lines)))
        try:
            row = json.loads(lines[index])
            row[choose([*row, "", "new", "a.b"], rng)] = choose(JSON_VALUES, rng)
        except (ValueError, TypeError, RecursionError):
            continue  # an earlier mutation has damaged the line
        lines[index] = json.dumps(row).encode()
    return b"\n".join(lines)


def _choose_slice(content: bytes, rng: Rng) -> tuple[int, int]:
    """Return the start and the end of a random slice, at most a fourth of the content."""
    start = int(rng.integers(0, len(content) + 1))
    return start, min(start + int(rng.integers(0, len(content) // 4 + 1)), len(content))


def _insert(content: bytes, inserted: bytes, rng: Rng) -> bytes:
    """Return the content with bytes inserted at a random position."""
    position = int(rng.integers(0, len(content) + 1))
    return content[:position] + inserted + content[position:]


BINARY_MUTATIONS: list[Mutation] = [
    flip_bytes, flip_bytes, flip_bytes, flip_late_bytes, flip_late_bytes, overwrite_integer,
    overwrite_integer, cut, cut_out, repeat, insert_zeros, insert_noise,
]  # fmt: skip
TEXT_MUTATIONS: list[Mutation] = [
    flip_bytes, flip_letters, flip_letters, cut, cut_out, repeat, insert_zeros, insert_noise,
    insert_quotes, insert_delimiters, replace_cells, replace_cells, replace_cells, change_encoding,
    change_newlines, insert_long_line, insert_nesting,
]  # fmt: skip
JSON_MUTATIONS: list[Mutation] = [*TEXT_MUTATIONS, *[change_json_values] * 6]
