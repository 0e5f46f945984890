"""The check of a table for equal rows, nearly equal rows, and repeated identifiers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from altbi._formatting import format_number
from altbi.duplicates._chance import Chances, estimate_chances
from altbi.duplicates._groups import RowGroups, Rows, find_groups
from altbi.duplicates._hashes import MISSING, Hashes
from altbi.duplicates._scan import HashedTable, hash_table
from altbi.duplicates._values import CandidateRows, read_candidates
from altbi.encoding import Column
from altbi.errors import list_names, quote
from altbi.io import ColumnParser, ProgressCallback, SelectedColumns, Source, no_progress
from altbi.model._score_source import name_errors
from altbi.report import DuplicateGroup, Duplicates

# Rows that are checked by default, and hashes that are held in memory: 160 MB.
MAX_ROWS = 1_000_000
MAX_VALUES = 20_000_000
# Equal rows are listed if chance would give fewer pairs than this, and than this share of them.
MAX_CHANCE_PAIRS, MAX_CHANCE_SHARE = 1.0, 0.1
# Nearly equal rows and identifiers are listed if at most this share of the rows is concerned.
MAX_SHARE = 0.1
# Rows of each kind that are listed.
# Columns of a table in which rows that differ in one of them are searched. The time grows with the
# square of their number.
MAX_NEAR_COLUMNS = 500
MAX_LISTED = 20_000
N_LEADING = 3  # values that are shown of equal rows

Kind = Literal["same row", "same row but one column", "identifier repeats"]


@final
@dataclass(frozen=True, slots=True)
class _Found:
    """Groups of rows with equal hashes."""

    kind: Kind
    column: str  # the column that differs, or the identifier
    groups: RowGroups


def find_duplicates(
    source: Source,
    parser: ColumnParser,
    selected: SelectedColumns,
    columns: tuple[Column, ...],
    n_rows: int,
    *,
    limit: int = MAX_ROWS,
    on_progress: ProgressCallback = no_progress,
) -> Duplicates:
    """Return equal rows, rows that are equal but for one column, and repeated identifiers.

    Identifiers are the id columns, and the features that `columns`, those of the model, state to
    be identifiers. All other features are compared. A table has `n_rows` rows, of which the first
    `limit` are checked, and at most so many that 20 million values are compared. Reads the table
    once, and once more to compare the values of rows with equal hashes.

    Equal rows are listed only if chance would give less than one pair of them, and less than a
    tenth of the pairs found. The sentences of the result state what was checked, and what was not
    listed.
    """
    n_values = len(selected.features) + len(selected.ids)
    n_checked = min(n_rows, limit, max(MAX_VALUES // n_values, 1))
    if not n_checked:
        return Duplicates(sentences=("Duplicates were not searched.",))
    with name_errors(source):
        hashed = hash_table(source, parser, selected, columns, n_checked, on_progress)
        sentences = _describe_scope(hashed, n_rows)
        found: list[_Found] = []
        for search in (_search_equal_rows, _search_nearly_equal_rows, _search_identifiers):
            for each in search(hashed):
                if isinstance(each, str):
                    sentences.append(each)
                else:
                    found.append(each)
        listed = list(_cut(found, sentences))
        if not listed:
            return Duplicates(sentences=tuple(sentences))
        rows = np.unique(np.concatenate([each.groups.rows for each in listed]))
        candidates = read_candidates(source, parser, selected, rows)
    groups = tuple(_compare(listed, candidates, hashed))
    return Duplicates(groups=groups, sentences=tuple(sentences))


def _describe_scope(hashed: HashedTable, n_rows: int) -> list[str]:
    """Return sentences about the rows and columns that are checked."""
    sentences = []
    if hashed.n_rows < n_rows:
        sentences.append(f"The first {hashed.n_rows:,} of {n_rows:,} rows were checked.")
    if not hashed.columns:
        sentences.append("Rows were not compared, because all columns are identifiers.")
    elif hashed.identifiers:
        sentences.append(
            f"Identifiers were left out when rows were compared: "
            f"{list_names(hashed.identifiers, 5)}."
        )
    return sentences


def _search_equal_rows(hashed: HashedTable) -> Iterator[_Found | str]:
    """Yield the groups of rows that are equal in all columns, or why they are not listed."""
    if not hashed.columns:
        return
    keys = hashed.row_hashes
    groups = find_groups(keys)
    if not len(groups):
        return
    distinct = _find_distinct(groups, hashed.n_rows)
    expected = estimate_chances(hashed.hashes, distinct).expect_pairs(distinct)
    if _is_surprising(groups, expected):
        yield _Found("same row", "", groups)
        return
    yield (
        f"{len(groups.rows):,} rows are equal to another row in all compared columns. They are not "
        f"listed, because about {format_number(expected, 2)} pairs of equal rows are expected by "
        "chance."
    )


def _search_nearly_equal_rows(hashed: HashedTable) -> Iterator[_Found | str]:
    """Yield the groups of rows that are equal in all columns but one, or why they are not listed.

    Such rows agree in all columns of the first half of the table, or in all of the second half.
    """
    n_columns = len(hashed.columns)
    if n_columns < 3:
        return
    if n_columns > MAX_NEAR_COLUMNS:
        yield (
            "Rows that differ in one column were not searched, because the table has more than "
            f"{MAX_NEAR_COLUMNS:,} columns."
        )
        return
    rows = _find_half_equal(hashed)
    if not len(rows):
        return
    distinct = _find_distinct(find_groups(hashed.row_hashes), hashed.n_rows)
    chances = estimate_chances(hashed.hashes, distinct)
    keys = hashed.row_hashes[rows]
    skipped = []
    for index, name in enumerate(hashed.columns):
        column = hashed.hashes[index]
        groups = _keep_differing(find_groups(keys - column[rows], rows), column)
        if not len(groups):
            continue
        if _is_listed(groups, chances, index, hashed.n_rows):
            yield _Found("same row but one column", name, groups)
        else:
            skipped.append(name)
    if skipped:
        yield (
            "Rows that differ only in one of these columns are not listed, because many rows do, "
            f"or because such pairs are expected by chance: {list_names(skipped, 10)}."
        )


def _is_listed(groups: RowGroups, chances: Chances, index: int, n_rows: int) -> bool:
    """Return whether rows that differ in the column at `index` only are rare, and not by chance."""
    if len(groups.rows) > MAX_SHARE * n_rows:
        return False
    distinct = _find_distinct(groups, n_rows)
    return _is_surprising(groups, chances.expect_pairs(distinct, without=index))


def _is_surprising(groups: RowGroups, expected: float) -> bool:
    """Return whether chance explains less than one pair, and less than a tenth of the pairs."""
    sizes = np.bincount(groups.labels)
    n_pairs = float((sizes * (sizes - 1.0)).sum() / 2)
    return expected < min(MAX_CHANCE_PAIRS, MAX_CHANCE_SHARE * n_pairs)


def _find_half_equal(hashed: HashedTable) -> Rows:
    """Return the ascending numbers of rows that agree with another in one half of the columns."""
    middle = len(hashed.columns) // 2
    halves = (hashed.hashes[:middle], hashed.hashes[middle:])
    sums = (half.sum(axis=0, dtype=np.uint64) for half in halves)
    return np.unique(np.concatenate([find_groups(each).rows for each in sums]))


def _keep_differing(groups: RowGroups, column: Hashes) -> RowGroups:
    """Return the groups whose rows do not all agree in a column."""
    if not len(groups):
        return groups
    differs = column[groups.rows] != column[groups.firsts][groups.labels]
    is_kept = np.zeros(len(groups), dtype=np.bool_)
    is_kept[groups.labels[differs]] = True
    rows = is_kept[groups.labels]
    labels = (np.cumsum(is_kept) - 1)[groups.labels]
    return RowGroups(groups.rows[rows], labels[rows])


def _find_distinct(groups: RowGroups, n_rows: int) -> Rows:
    """Return the numbers of all rows but those that are not the first of their group."""
    is_distinct = np.ones(n_rows, dtype=np.bool_)
    is_distinct[groups.rows] = False
    is_distinct[groups.firsts] = True
    return np.flatnonzero(is_distinct)


def _search_identifiers(hashed: HashedTable) -> Iterator[_Found | str]:
    """Yield the groups of rows with the same identifier, or why they are not listed."""
    for name, column in zip(hashed.identifiers, hashed.identifier_hashes, strict=True):
        present = np.flatnonzero(column != MISSING)
        if not len(present):
            yield f"{quote(name)} has no values that could repeat."
        groups = find_groups(column[present], present)
        share = len(groups.rows) / hashed.n_rows
        if share > MAX_SHARE:
            yield (
                f"Repeated values of {quote(name)} are not listed, because {share:.0%} of the rows "
                "have one."
            )
        elif len(groups):
            yield _Found("identifier repeats", name, groups)


def _cut(found: list[_Found], sentences: list[str]) -> Iterator[_Found]:
    """Yield the groups to list, at most 20,000 rows of each kind; add sentences on the others."""
    n_listed: dict[str, int] = {}
    for each in found:
        n_left = MAX_LISTED - n_listed.get(each.kind, 0)
        n_rows = len(each.groups.rows)
        cut = each.groups.cut(n_left) if n_left > 0 else each.groups.cut(0)
        n_listed[each.kind] = n_listed.get(each.kind, 0) + len(cut.rows)
        if len(cut.rows) < n_rows:
            what = f"{each.kind} {quote(each.column)}" if each.column else each.kind
            sentences.append(f"{what}: {len(cut.rows):,} of {n_rows:,} rows are listed.")
        if len(cut):
            yield _Found(each.kind, each.column, cut)


def _compare(
    found: list[_Found], candidates: CandidateRows, hashed: HashedTable
) -> Iterator[DuplicateGroup]:
    """Yield the groups whose values are equal, too.

    Identifiers that all rows of a group of equal rows share are named with it, and are not yielded
    as a group of their own.
    """
    equal_rows: set[bytes] = set()
    for each in found:
        if each.kind == "same row":
            groups = candidates.split(each.groups, list(hashed.columns))
            equal_rows = {rows.tobytes() for rows in groups}
            yield from _build_equal_rows(groups, candidates, hashed)
        elif each.kind == "identifier repeats":
            for rows in candidates.split(each.groups, [each.column]):
                if rows.tobytes() not in equal_rows:
                    yield _build_group(each, rows, candidates)
        else:
            others = [name for name in hashed.columns if name != each.column]
            groups = candidates.split(each.groups, others)
            codes = candidates.encode(each.column)
            for rows in groups:
                if len(set(codes[candidates.find(rows)].tolist())) > 1:
                    yield _build_group(each, rows, candidates)


def _build_group(found: _Found, rows: Rows, candidates: CandidateRows) -> DuplicateGroup:
    """Return a group of rows with the values of the column that was found."""
    return DuplicateGroup(
        kind=found.kind,
        column=found.column,
        rows=tuple(rows.tolist()),
        ids=candidates.format_ids(rows),
        values=candidates.format_column(found.column, rows),
    )


def _build_equal_rows(
    groups: RowGroups, candidates: CandidateRows, hashed: HashedTable
) -> Iterator[DuplicateGroup]:
    """Yield the groups of equal rows, with values of the three columns with the most values."""
    n_distinct = [len(set(candidates.encode(name).tolist())) for name in hashed.columns]
    leading = sorted(np.argsort(-np.array(n_distinct), kind="stable")[:N_LEADING].tolist())
    names = [hashed.columns[index] for index in leading]
    codes = {name: candidates.encode(name) for name in hashed.identifiers}
    for rows in groups:
        texts = [candidates.format_column(name, rows[:1])[0] for name in names]
        value = ", ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))
        indices = candidates.find(rows)
        shared = [name for name, each in codes.items() if len(set(each[indices].tolist())) == 1]
        yield DuplicateGroup(
            kind="same row",
            column=", ".join(shared),
            rows=tuple(rows.tolist()),
            ids=candidates.format_ids(rows),
            values=(value,) * len(rows),
        )
