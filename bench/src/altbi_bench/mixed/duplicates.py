"""How many injected copies of rows the list of duplicates has."""

import pyarrow as pa

import altbi
from altbi_bench.mixed.errors import Injected

__all__ = ["COPIES", "count_listed", "list_duplicates"]

COPIES = "duplicate row"  # the kind of error


def list_duplicates(frame: pa.Table, seed: int) -> pa.Table:
    """Return ``duplicates.csv`` of a table without labels: a record for each row of each group."""
    detector = altbi.OutlierDetector(random_state=seed)
    return altbi.detect(frame, detector=detector, report=False).duplicates()


def count_listed(injected: Injected, listed: pa.Table) -> dict[str, int]:
    """Return the numbers of copied rows, of those in the list, and of rows in the list.

    `not_injected` counts the rows of groups without an injected error. A copy is found if it is in
    a group of equal rows.
    """
    copies = set(injected.rows.get(COPIES, ()))
    errors = {row for rows in injected.rows.values() for row in rows}
    groups: dict[int, tuple[str, set[int]]] = {}
    for record in listed.select(["group", "kind", "row"]).to_pylist():
        groups.setdefault(record["group"], (record["kind"], set()))[1].add(record["row"])
    equal = {row for kind, rows in groups.values() if kind == "same row" for row in rows}
    others = [rows for _, rows in groups.values() if not rows & errors]
    return {
        "copies": len(copies),
        "found": len(copies & equal),
        "listed": len(set().union(*(rows for _, rows in groups.values()))),
        "not_injected": len(set().union(*others)),
    }
