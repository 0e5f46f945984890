"""JSON lines: one object per line; nested objects become columns such as ``address.city``."""

import codecs
import contextlib
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from altbi.errors import TableError, describe_cause, quote
from altbi.io._converted import ConvertedSource, Origin, convert
from altbi.io._csv_header import check_number_of_columns
from altbi.io._duckdb import Database, DuckDBError, format_list, open_duckdb, quote_sql
from altbi.io._files import LINE_BYTES, replace_invalid_utf8
from altbi.io._number_formats import LIKE_THOUSANDS
from altbi.io._source import check_names
from altbi.io._text_file import TextFile

Path = tuple[str, ...]

# What DuckDB writes for a value: the name of a type, a list, or an object of structures.
Structure = str | list[Any] | dict[str, Any]

_INTEGERS = frozenset({"BIGINT", "UBIGINT", "HUGEINT"})
_NUMBERS = _INTEGERS | {"DOUBLE"}
_SQL_TYPES = {"BOOLEAN": "BOOLEAN", "DOUBLE": "DOUBLE"} | dict.fromkeys(_INTEGERS, "BIGINT")
_TEXT = "VARCHAR"
# Whether a value is an integer that its column would not keep exactly.
_IS_LARGE = {
    "BIGINT": "{value} IS NULL AND {text} IS NOT NULL",
    "DOUBLE": f"CASE WHEN abs({{value}}) >= {1 << 53} "
    "THEN regexp_full_match({text}, '-?[0-9]+') ELSE false END",
}
# What a column holds that becomes text although its values are not texts, and how it is read.
_NOTES = {
    "LIST": "lists; they are read as text",
    # The types of texts are inferred, so that the column may become numbers in the end.
    "MIXED": "values of several types; they are read like the cells of a CSV file",
    "LARGE": "integers that numbers would round; they are read like the cells of a CSV file",
}
_MAY_HOLD_NUMBERS = ("MIXED", "LARGE")  # although they are text
_LONG_LINE_BYTES = 1 << 20
_ORDERED_ROWS = 1000
_OBJECT_MIB = 16  # DuckDB always reads objects up to this size, and none of twice the size
# A string, or what DuckDB accepts although it is no JSON. A string without an end is one, too: else
# the search would begin again at each of its quotes.
_NOT_STRICT = re.compile(
    rb'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|(?<=[\w"}\]])\s*,(?=\s*[}\]])'
    rb"|-?\b(?:nan|inf(?:inity)?)\b",
    re.I,
)
_INVALID_UTF8 = "invalid UTF-8"
_TOO_DEEP = "maximum recursion depth"


def open_json_lines(file: TextFile, notes: list[str]) -> ConvertedSource:
    """Open a JSON lines file, or a file with one JSON array of objects.

    The file is read twice: for its columns and their types, and to convert it to a temporary
    Parquet file. Columns with lists, mixed types or integers that numbers would round are text,
    with a note: lists and objects as JSON, and fractions as Python writes them, 1e2 as 100.0. For
    such integers the file is read again. Of duplicate keys, the first counts. NaN, Infinity and
    commas before a closing bracket are accepted, though they are no JSON. A file without rows,
    invalid lines, lines that are not objects and duplicate column names raise a `TableError`.
    """
    if not file.is_copied and _read_head(file).startswith(codecs.BOM_UTF8):
        file = file.with_encoding("utf-8-sig")  # a copy without the mark, which DuckDB refuses
    try:
        return _open_utf8(file, notes)
    except DuckDBError as error:
        if _INVALID_UTF8 in str(error):
            encoding, more = replace_invalid_utf8(
                file.packed, file.encoding, is_stated=file.is_stated
            )
            if encoding != file.encoding:
                return open_json_lines(file.with_encoding(encoding), [*notes, *more])
        _raise_invalid(file, str(error))


def _open_utf8(file: TextFile, notes: list[str]) -> ConvertedSource:
    """Open a file that is UTF-8, or has a copy that is; errors in the lines are DuckDB's."""
    where = file.packed.where
    with open_duckdb() as database:
        objects = _describe_objects(database, file)
        types = _infer_types(database, objects, file)
        names = [".".join(path) for path in types]
        check_names(names, where)
        origin = Origin(
            file.packed.name, (file.packed.path,), "jsonl", True, (open_json_lines, (file, notes))
        )
        large: set[Path] = set()
        source = convert(origin, _read_rows(database, objects, types, large), names)
        if large:
            types |= dict.fromkeys(large, "LARGE")
            source = convert(origin, _read_rows(database, objects, types, large), names)
    source.notes = [*notes, *_describe_texts(types)]
    return source


def _describe_objects(database: Database, file: TextFile) -> str:
    """Lock a database to the file, and return DuckDB's table function that reads its objects."""
    path = database.quote_path(file.path)
    database.lock([path])
    layout = "array" if _starts_with_bracket(file) else "newline_delimited"
    return (
        f"read_json_objects({path}, format = '{layout}', compression = 'none', "
        "hive_partitioning = false)"
    )


def _starts_with_bracket(file: TextFile) -> bool:
    """Return whether the first letter of a file that is not white space is ``[``."""
    return _read_head(file).lstrip()[:1] == b"["


def _read_head(file: TextFile) -> bytes:
    """Return the first bytes of a file or its copy."""
    with pathlib.Path(file.path).open("rb") as text:
        return text.read(1 << 16)


def _check_long_line(file: TextFile) -> None:
    """Raise a `TableError` if the first line has too many keys; DuckDB needs long to find out."""
    with pathlib.Path(file.path).open("rb") as text:
        line = text.readline(LINE_BYTES)
    n_keys = 0
    if len(line) > _LONG_LINE_BYTES:
        with contextlib.suppress(ValueError, RecursionError):  # DuckDB finds out
            n_keys = len(json.loads(line))
    check_number_of_columns(n_keys, file.packed.where)


def _infer_types(database: Database, objects: str, file: TextFile) -> dict[Path, str]:
    """Return the SQL type at each path of keys that holds values, or "LIST" or "MIXED".

    Paths are in the order of first appearance in the first 1,000 objects; others follow, sorted.
    Lines that are not objects, no rows and too many columns raise a `TableError`.
    """
    where = file.packed.where
    _check_long_line(file)
    found: Any = {}
    n_structures = 0
    # DuckDB can join the structures itself, but only with all of them in memory.
    query = f"SELECT DISTINCT json_structure(json)::VARCHAR FROM {objects}"
    for batch in database.batches(query):
        for text in batch.column(0).to_pylist():
            n_structures += 1
            each = json.loads(text)
            if not isinstance(each, dict) and each != "JSON":
                _raise_invalid(file, "a line holds no object")
            found = _join_structures(found, each)
            check_number_of_columns(len(found), where)
    if not n_structures:
        raise TableError(f"{where}: it holds no rows. Expected one JSON object per line.")
    types = dict(_walk_structure(found))
    check_number_of_columns(len(types), where)
    first = _list_first_keys(database, objects)
    return dict(sorted(types.items(), key=lambda each: _rank_path(each[0], first)))


def _join_structures(one: Structure, other: Structure) -> Structure:
    """Return the structure of values of which some have one structure, and some another.

    Integers and other numbers are numbers, and "NULL" joins all others. Different structures are
    "MIXED". The first argument may be changed.
    """
    # DuckDB describes an object without keys as "JSON".
    one, other = ({} if each == "JSON" else each for each in (one, other))
    if one == other or other == "NULL":
        return one
    if one == "NULL":
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        for key, below in other.items():
            one[key] = _join_structures(one.get(key, "NULL"), below)
        return one
    if isinstance(one, list) and isinstance(other, list):
        return one
    types = {each if isinstance(each, str) else "MIXED" for each in (one, other)}
    if types <= _INTEGERS:
        return "BIGINT"
    return "DOUBLE" if types <= _NUMBERS else "MIXED"


def _list_first_keys(database: Database, objects: str) -> dict[Path, int]:
    """Return the rank of each path of keys in the first objects, by first appearance."""
    ranks: dict[Path, int] = {}

    def walk(value: Any, path: Path) -> None:  # noqa: ANN401 - parsed JSON
        """Rank a path and the paths below it."""
        ranks.setdefault(path, len(ranks))
        for key, below in value.items() if isinstance(value, dict) else ():
            walk(below, (*path, key))

    # The structure is strict JSON, other than what DuckDB accepts in a file.
    query = f"SELECT json_structure(json)::VARCHAR FROM {objects} LIMIT {_ORDERED_ROWS}"
    for batch in database.batches(query):
        for text in batch.column(0).to_pylist():
            walk(json.loads(text), ())
    return ranks


def _rank_path(path: Path, ranks: Mapping[Path, int]) -> list[tuple[int, str]]:
    """Return the sort key of a path: the rank, or else the name, of each of its steps."""
    steps = (path[:depth] for depth in range(1, len(path) + 1))
    return [(ranks.get(step, len(ranks)), step[-1]) for step in steps]


def _walk_structure(
    structure: Mapping[str, Structure], above: Path = ()
) -> Iterator[tuple[Path, str]]:
    """Yield the path and SQL type of each value in a structure that DuckDB has inferred.

    A list is "LIST", and values of several types are "MIXED". Objects without keys are texts.
    """
    for key, below in structure.items():
        path = (*above, key)
        if isinstance(below, dict) and below:
            yield from _walk_structure(below, path)
        elif isinstance(below, list):
            yield path, "LIST"
        else:
            yield path, _SQL_TYPES.get(str(below), "MIXED" if below == "MIXED" else _TEXT)


def _read_rows(
    database: Database, objects: str, types: Mapping[Path, str], large: set[Path]
) -> Iterator[pa.RecordBatch]:
    """Yield record batches with one typed column for each path; errors are DuckDB's.

    The paths of numbers of which some are integers that are not kept exactly are added to `large`.
    """
    mixed = [path for path, type_ in types.items() if type_ in _MAY_HOLD_NUMBERS]
    positions = {path: index for index, path in enumerate(mixed, start=1)}
    casts, flags = [], {}
    for index, (path, type_) in enumerate(types.items(), start=1):
        value = f"v[{index}]"
        if path in positions:
            value = _format_clearly(value, f"t[{positions[path]}]")
        cast = "TRY_CAST" if type_ == "BIGINT" else "CAST"
        casts.append(f"{cast}({value} AS {_TEXT if type_ in _NOTES else type_}) AS c{index}")
        if type_ in _IS_LARGE:
            flags[f"f{index}"] = path
            is_large = _IS_LARGE[type_].format(value=f"c{index}", text=value)
            casts.append(f"{is_large} AS f{index}")
    values = f"SELECT {_extract('json_extract_string', types)} AS v"
    if mixed:
        values += f", {_extract('json_type', mixed)} AS t"
    for batch in database.batches(f"SELECT {', '.join(casts)} FROM ({values} FROM {objects})"):
        large.update(path for name, path in flags.items() if pc.any(batch[name]).as_py())
        yield batch.select([name for name in batch.schema.names if name not in flags])


def _format_clearly(text: str, type_: str) -> str:
    """Return the SQL of a text, given the SQL of it and its type in JSON.

    The number 1.234 becomes 1.2340, so that its point is not taken for a thousands separator. The
    text "1.234" is not changed.
    """
    is_like_thousands = f"regexp_full_match({text}, {quote_sql(LIKE_THOUSANDS)})"
    is_ambiguous = f"{type_} = 'DOUBLE' AND {is_like_thousands}"
    return f"CASE WHEN {is_ambiguous} THEN {text} || '0' ELSE {text} END"


def _extract(function: str, paths: Iterable[Path]) -> str:
    """Return the call of a function of DuckDB that returns a list with a value for each path."""
    pointers = format_list(["".join(map(_escape_key, path)) for path in paths])
    return f"{function}(json, {pointers})"


def _escape_key(key: str) -> str:
    """Return a key as a step of a JSON pointer."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def _describe_texts(types: Mapping[Path, str]) -> Iterator[str]:
    """Yield a note for each column that becomes text although its values are not texts."""
    for path, type_ in types.items():
        if type_ in _NOTES:
            yield f"Column {quote('.'.join(path))} holds {_NOTES[type_]}."


def _raise_invalid(file: TextFile, reason: str) -> NoReturn:
    """Raise the `TableError` for a file that DuckDB cannot read, with the first invalid line.

    `reason` is DuckDB's; it is used if Python finds no invalid line.
    """
    where = file.packed.where
    if _TOO_DEEP in reason:
        raise TableError(
            f"{where}: values are nested too deep, more than 128 deep. Write flatter lines."
        )
    if "maximum_object_size" in reason:
        raise TableError(
            f"{where}: an object is longer than {_OBJECT_MIB} MiB. Write one object per line."
        )
    line, problem = _find_invalid_line(file)
    problem = problem or f"is no JSON ({describe_cause(reason)})"
    raise TableError(
        f"{where}: {f'line {line} ' if line else ''}{problem}. Expected one object on each line; "
        "jq -c '.[]' FILE or jq -c . FILE writes them so."
    )


def _find_invalid_line(file: TextFile) -> tuple[int, str]:
    """Return the number of the first line that is no JSON object, and what it is; (0, "") if none.

    A file with an array of objects has no lines.
    """
    if _starts_with_bracket(file):
        return 0, ""
    with pathlib.Path(file.path).open("rb") as text:
        for number, line in enumerate(text, start=1):
            problem = _describe_problem(line) if line.strip() else ""
            if problem:
                return number, problem
    return 0, ""


def _make_strict(found: re.Match[bytes]) -> bytes:
    """Return a string unchanged, nothing for a comma, and another number for NaN and Infinity."""
    return found[1] or (b"" if found[0].endswith(b",") else b"0")


def _describe_problem(line: bytes) -> str:
    """Return why a line is not a JSON object in UTF-8; the empty text if it is one."""
    try:
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            value = json.loads(_NOT_STRICT.sub(_make_strict, line))
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as cause:
        return f"holds half a letter ({cause.object[cause.start]!a})"
    except (ValueError, RecursionError) as cause:
        return f"is no JSON ({describe_cause(cause)})"
    return "" if isinstance(value, dict) else "holds no object"
