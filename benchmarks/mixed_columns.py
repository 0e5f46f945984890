"""Generated tables of numbers, and of mixed columns, block by block."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from measuring import BLOCK, generate_rows

Rng = np.random.Generator
WORDS = ("order", "late", "bolt", "nut", "screw", "arrived", "broken", "box", "two", "store")
MISSING_SHARE = 0.05
SECONDS_PER_YEAR = 365 * 86_400


def generate_number_blocks(n_rows: int, n_columns: int) -> Iterator[pa.Table]:
    """Yield blocks of the ten columns of `measuring.generate_rows`, with six decimals."""
    names = [f"x{index}" for index in range(n_columns)]
    for rows in generate_rows(n_rows):
        yield pa.table(list(rows.round(6).T), names=names)


def generate_mixed_blocks(n_rows: int, n_columns: int) -> Iterator[pa.Table]:
    """Yield blocks with the ten kinds of `COLUMNS`, each as often as any other."""
    rng = np.random.default_rng(0)
    kinds = list(COLUMNS)
    for start in range(0, n_rows, BLOCK):
        size = min(BLOCK, n_rows - start)
        columns = {
            f"{kinds[index % len(kinds)]}_{index}": COLUMNS[kinds[index % len(kinds)]](rng, size)
            for index in range(n_columns)
        }
        yield pa.table(columns)


def _with_missing(rng: Rng, values: object, size: int) -> pa.Array:
    """Return the values with some missing ones."""
    return pa.array(values, mask=rng.random(size) < MISSING_SHARE)


def _dates(rng: Rng, size: int, unit: str) -> pa.Array:
    """Return dates or times of four years."""
    seconds = 1_577_836_800 + rng.integers(0, 4 * SECONDS_PER_YEAR, size)
    return pa.array(seconds.astype("datetime64[s]").astype(f"datetime64[{unit}]"))


def _texts(rng: Rng, size: int) -> pa.Array:
    """Return texts of six words; many occur once."""
    words = rng.choice(WORDS, (6, size))
    texts = words[0]
    for word in words[1:]:
        texts = np.char.add(np.char.add(texts, " "), word)
    return pa.array(texts)


# Each function returns a column of some rows.
COLUMNS: dict[str, Callable[[Rng, int], pa.Array]] = {
    "number": lambda rng, n: pa.array(rng.normal(size=n).round(4)),
    "amount": lambda rng, n: pa.array(rng.lognormal(4, 1, n).round(2)),
    "count": lambda rng, n: pa.array(rng.poisson(20, n)),
    "holed": lambda rng, n: _with_missing(rng, rng.normal(size=n).round(3), n),
    "country": lambda rng, n: _with_missing(rng, rng.choice(["DE", "FR", "PL", "IT", "US"], n), n),
    "product": lambda rng, n: pa.array(
        np.char.add("P", (rng.pareto(1, n) * 50 % 999).astype("U3"))
    ),
    "paid": lambda rng, n: pa.array(rng.random(n) < 0.8),
    "date": lambda rng, n: _dates(rng, n, "D"),
    "date_time": lambda rng, n: _dates(rng, n, "s"),
    "note": _texts,
}
