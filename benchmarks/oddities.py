"""Tables as they come in practice: what version 0.1, pandas and this version make of them.

    git worktree add ../altbi-0.1 0bbe92d
    python benchmarks/oddities.py --old ../altbi-0.1/src

Each file is read with default options by version 0.1, by `pandas.read_csv` (JSON lines by
`read_json`, workbooks by `read_excel`), and by this version. A reader's result is

- right: names, kinds, rows and values are as stated, or the error names the problem;
- reported: a note says what was assumed, and what differs if something does;
- refused: one error, and no table;
- wrong silently: something differs, and no note or warning says so.

A column of numbers or dates that is left as text is different, because a detector would treat its
values as categories. The exit code is 1 if this version is wrong silently in a file, or raises
another error than `AltbiError` or `OSError`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from altbi_bench.tables.grids import markdown_grid
from measuring import describe_machine
from table_case_list import list_cases
from table_cases import Case, Found, Judgement, judge

Reader = Callable[[Path, list[int]], Found]
# The source of a file, the names of its columns, its scan, and the function that parses a batch.
Scanned = tuple[Any, list[str], Any, Callable[[Any, int], Any]]
OURS, PANDAS, OLD = "this version", "pandas", "version 0.1"
SHOWN_LETTERS = 90


def read_by_altbi(path: Path, rows: list[int]) -> Found:
    """Open and scan a file with this version, and parse the given rows."""
    from altbi import AltbiError, open_table
    from altbi.io import scan_table

    def scan() -> Scanned:
        source = open_table(path)
        names = [name for name in source.schema.names if name not in source.extra_columns]
        scan = scan_table(source, names, source.batches(names), limit=1000, seed=0)
        return source, names, scan, scan.parser.parse

    return _read_scanned(scan, AltbiError, path, rows)


def read_by_version_0_1(path: Path, rows: list[int]) -> Found:
    """Open and scan a file with version 0.1, which must be the imported `altbi`."""
    from altbi.files import open_source, survey

    from altbi.errors import AltbiError

    def scan() -> Scanned:
        source = open_source(path)
        names = [name for name in source.schema.names if name not in source.sides]
        scan = survey(source, names, source.batches(names), limit=1000, seed=0)
        return source, names, scan, scan.columns.table

    return _read_scanned(scan, AltbiError, path, rows)


def _read_scanned(
    scan: Callable[[], Scanned], expected: type[Exception], path: Path, rows: list[int]
) -> Found:
    """Return what is found in a file by `scan`, which opens it, scans it, and names its columns.

    `expected` is the type of the errors that a reader may raise, besides `OSError`.
    """
    try:
        source, names, scanned, parse = scan()
        kinds, values = _collect_values(_parse(source.batches(names), parse), rows)
        notes = [_hide_folder(note, path) for note in (*source.notes, *scanned.notes)]
    except (expected, OSError) as error:
        return Found(error=_hide_folder(str(error), path))
    except Exception as error:  # noqa: BLE001 - to find such errors is the purpose
        return Found(error=_describe_type(error, path), is_foreign=True)
    return Found(names, kinds, scanned.n_rows, values, notes)


def read_by_pandas(path: Path, rows: list[int]) -> Found:
    """Read a file with pandas; its warnings are the notes, and every error is a refusal."""
    import pandas as pd

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if path.suffix == ".jsonl":
                frame = pd.read_json(path, lines=True)
            else:
                frame = pd.read_excel(path) if path.suffix == ".xlsx" else pd.read_csv(path)
        except Exception as error:  # noqa: BLE001
            return Found(error=_describe_type(error, path))
    columns = [frame.iloc[:, index] for index in range(frame.shape[1])]
    kinds = [_name_kind(column.dtype) for column in columns]
    values = [
        [_to_plain(column.iloc[row], kind) if row < len(frame) else None for row in rows]
        for column, kind in zip(columns, kinds, strict=True)
    ]
    notes = [str(each.message) for each in caught]
    return Found(list(map(str, frame.columns)), kinds, len(frame), values, notes)


READERS: dict[str, Reader] = {
    OLD: read_by_version_0_1,
    PANDAS: read_by_pandas,
    OURS: read_by_altbi,
}


def _describe_type(error: Exception, path: Path) -> str:
    """Return the type and the message of an error."""
    return f"{type(error).__name__}: {_hide_folder(str(error), path)}"


def _hide_folder(message: str, path: Path) -> str:
    """Return a message in one line, with the file's name in place of its path."""
    return " ".join(message.replace(str(path), path.name).split())


def _parse(batches: Iterator[Any], parse: Callable[[Any, int], Any]) -> Iterator[Any]:
    """Yield the parsed table of each batch."""
    first_row = 0
    for batch in batches:
        yield parse(batch, first_row)
        first_row += len(batch)


def _collect_values(tables: Iterator[Any], rows: list[int]) -> tuple[list[str], list[list[Any]]]:
    """Return the kinds of the columns, and their values in the given rows, None if missing."""
    kinds: list[str] = []
    values: list[dict[int, Any]] = []
    start = 0
    for table in tables:
        kinds = list(table.kinds)
        values = values or [{} for _ in kinds]
        wanted = [row for row in rows if start <= row < start + len(table)]
        for index, kind in enumerate(kinds) if wanted else ():
            categories = getattr(table, "categories", None) or table.levels  # as 0.1 calls them
            cells = categories(index) if kind == "category" else table.numbers([index])[:, 0]
            for row in wanted:
                values[index][row] = _to_plain(cells[row - start], kind)
        start += len(table)
    return kinds, [[column.get(row) for row in rows] for column in values]


def _name_kind(dtype: Any) -> str:  # noqa: ANN401 - pandas is imported late
    """Return the kind of a pandas column."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(dtype):
        return "boolean"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "date"
    return "number" if pd.api.types.is_numeric_dtype(dtype) else "category"


def _to_plain(value: Any, kind: str) -> str | float | None:  # noqa: ANN401
    """Return a value of pandas, NumPy or Arrow as text or as a number; None if it is missing."""
    value = value.as_py() if hasattr(value, "as_py") else value
    if value is None or value != value:  # NaN differs from itself
        return None
    if kind == "category":
        return str(value)
    return value.timestamp() if hasattr(value, "timestamp") else float(value)


def read_in_process(source: Path, paths: Mapping[Path, list[int]]) -> list[Found]:
    """Read files with version 0.1, whose sources are in a folder, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    request = json.dumps([(str(path), rows) for path, rows in paths.items()])
    child = subprocess.run(
        [sys.executable, __file__, "--child"],
        input=request,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [Found(**each) for each in json.loads(child.stdout)]


def answer_child() -> None:
    """Read the files that standard input names with version 0.1, and print what was found."""
    requests = json.load(sys.stdin)
    found = [asdict(read_by_version_0_1(Path(path), rows)) for path, rows in requests]
    sys.stdout.write(json.dumps(found))


def judge_cases(cases: list[Case], folder: Path, old: Path | None) -> dict[str, list[Judgement]]:
    """Write the files into a folder, and return the judgements of each reader, case by case.

    Without the sources of version 0.1, this reader is left out.
    """
    paths = {case.write(folder / f"{n:02}"): case.list_rows() for n, case in enumerate(cases)}
    found: dict[str, list[Found]] = {OLD: read_in_process(old, paths)} if old else {}
    for name in (PANDAS, OURS):
        found[name] = [READERS[name](path, rows) for path, rows in paths.items()]
    return {
        name: [judge(case, each) for case, each in zip(cases, results, strict=True)]
        for name, results in found.items()
    }


def format_tables(cases: list[Case], judgements: dict[str, list[Judgement]]) -> str:
    """Format the table of all cases, and the table of counts, as Markdown."""
    rows = [["file", "right answer", *judgements]]
    for number, case in enumerate(cases):
        cells = [_format_judgement(judgements[reader][number]) for reader in judgements]
        rows.append([case.title, case.describe_answer(), *cells])
    counts = {reader: Counter(each.result for each in all_) for reader, all_ in judgements.items()}
    results = dict.fromkeys(each.result for all_ in judgements.values() for each in all_)
    summary = [["result", *judgements]]
    summary += [[result, *(str(counts[each][result]) for each in judgements)] for result in results]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return f"{markdown_grid(escaped, numbers=False)}\n\n{markdown_grid(summary)}"


def _format_judgement(judgement: Judgement) -> str:
    """Return the result and what happened, with at most `SHOWN_LETTERS` letters."""
    happened = judgement.happened
    if len(happened) > SHOWN_LETTERS:
        happened = f"{happened[: SHOWN_LETTERS - 1]}…"
    return f"**{judgement.result}**: {happened}" if happened else f"**{judgement.result}**"


def main() -> int:
    """Print two Markdown tables; return 1 if this version is wrong silently, or fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="sources of version 0.1 (default: left out)")
    parser.add_argument("--small", action="store_true", help="only files of less than 4 MB")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        answer_child()
        return 0
    cases = [case for case in list_cases() if not (args.small and case.is_large)]
    with tempfile.TemporaryDirectory() as folder:
        judgements = judge_cases(cases, Path(folder), args.old and args.old.resolve())
    sys.stdout.write(f"{describe_machine('numpy', 'pandas', 'pyarrow')}\n\n")
    sys.stdout.write(f"{format_tables(cases, judgements)}\n")
    bad = {"wrong silently", "foreign error"}
    return int(any(each.result in bad for each in judgements[OURS]))


if __name__ == "__main__":
    sys.exit(main())
