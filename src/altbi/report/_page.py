"""Render a summary as one HTML document that needs neither network nor other files."""

import base64
import bisect
import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from altbi.errors import escape_text, shorten
from altbi.report._axes import build_score_axis
from altbi.report._charts import Chart, draw_histogram, draw_training
from altbi.report._summary import ColumnFact, Summary, TopRow

MAX_PAGE_BYTES = 3_000_000
# Scores from this value on have four significant digits.
LARGE_SCORE = 1e7
# Positions of the threshold slider, and columns to filter by.
MAX_THRESHOLDS = 1_000
MAX_FILTERS = 50
MAX_USUAL = 50  # columns of a table whose usual roles are listed

FOLDER = Path(__file__).parent
# Characters that could end a script element, or that JavaScript reads as a line end.
SCRIPT_ESCAPES = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest numbers of rows, values and characters that a page shows."""

    rows: int  # in the list
    cells: int  # values of each row
    reasons: int  # of each row
    text: int  # characters of a text
    columns: int = 200  # in the overview
    leading: int = 12  # columns of the overview that are visible at first
    ids: int = 3  # id columns in the list
    notes: int = 60  # warnings
    note: int = 600  # characters of each warning


class ColumnUses(NamedTuple):
    """How columns are used."""

    listed: tuple[ColumnFact, ...]
    others: list[tuple[str, int]]  # roles of the other columns, and how many have them


# Decreasing limits: the first with which the page is small enough is used.
LIMITS = (
    Limits(rows=500, cells=100, reasons=8, text=300),
    Limits(rows=500, cells=100, reasons=8, text=100),
    Limits(rows=500, cells=60, reasons=6, text=40),
    Limits(rows=300, cells=30, reasons=5, text=32, columns=100),
    Limits(rows=100, cells=15, reasons=3, text=24, columns=50),
)


def render(summary: Summary) -> str:
    """Render a summary as an HTML page that works without a network.

    Names and values of the table are escaped, and the page's content security policy only allows
    its own script and style sheet. If the page would exceed 3 MB, it shows fewer rows and shorter
    texts, and states so. With the strictest limits it may still be larger.
    """
    charts = _draw_charts(summary)
    for limits in LIMITS:
        page = _render_with(summary, limits, charts)
        if len(page.encode()) <= MAX_PAGE_BYTES:
            break
    return page


def _draw_charts(summary: Summary) -> dict[str, Chart]:
    """Draw the charts of the page, by name: the histogram, and those of the training."""
    label = format_score(summary.threshold, summary.threshold)
    description = (
        f"{summary.rows:,} rows have scores from {summary.bins[0][0]:.4g} to "
        f"{summary.bins[-1][1]:.4g}. {summary.flagged:,} are above the model's threshold, {label}."
    )
    histogram = draw_histogram(summary.bins, summary.threshold, label, description)
    training = draw_training(summary.history) if summary.history else {}
    return {"histogram": histogram, **training}


def _render_with(summary: Summary, limits: Limits, charts: dict[str, Chart]) -> str:
    """Return the HTML page of a summary, shortened to these limits."""
    # Commands that write no page do without these imports.
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(_create_filters(summary, limits))
    template = environment.from_string((FOLDER / "page.html").read_text(encoding="utf-8"))
    style, script = (
        (FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    rows = summary.top[: limits.rows]
    reason_columns = _count_reason_columns(rows, limits)
    axis = build_score_axis(summary.bins, summary.threshold)
    data = _build_script_data(summary, limits) | {
        "tips": {name: chart.tips for name, chart in charts.items()},
        "axis": dataclasses.asdict(axis),
    }
    return template.render(
        summary=summary,
        limits=limits,
        rows=rows,
        reason_columns=reason_columns,
        filter_index={name: index for index, (name, _) in enumerate(reason_columns)},
        bar_limit=_choose_bar_limit(rows, limits),
        policy=_build_policy(script, style),
        style=Markup(style),
        compressed=axis.shrink < 1,
        uses=select_column_uses(summary.columns, limits.columns),
        charts={name: Markup(chart.svg) for name, chart in charts.items()},
        data=Markup(_to_script_json(data)),
        script=Markup(script),
    )


def _create_filters(summary: Summary, limits: Limits) -> dict[str, Callable[..., str]]:
    """Return the filters of the template by name: they format texts, scores, counts and shares.

    The filter `text` escapes a text and shortens it to the limit.
    """

    def text(value: str, width: int = limits.text) -> str:
        """Escape and shorten a text to `width` characters."""
        # Escaping is slow for values of millions of characters, so they are cut before.
        return shorten(escape_text(value[: width + 1]), width)

    return {
        "text": text,
        "score": lambda value: format_score(value, summary.threshold),
        "count": lambda value: f"{value:,}",
        "share": format_share,
        "z_score": lambda value: f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}",
    }


def _count_reason_columns(rows: tuple[TopRow, ...], limits: Limits) -> list[tuple[str, int]]:
    """Return the columns among the reasons, and in how many rows each is a reason.

    The most frequent come first. At most `MAX_FILTERS` columns are returned.
    """
    counts = Counter(
        name
        for row in rows
        for name in dict.fromkeys(reason.column for reason in row.reasons[: limits.reasons])
    )
    return counts.most_common(MAX_FILTERS)


def select_column_uses(columns: tuple[ColumnFact, ...], limit: int) -> ColumnUses:
    """Return the columns whose roles are listed, at most `limit`, and the counts of the others.

    Of tables with more than 50 columns, those that are used as others of their kind are counted. If
    roles are not inferred, nothing is listed or counted.
    """
    known = [column for column in columns if column.role]
    listed = [column for column in known if len(columns) <= MAX_USUAL or not column.is_usual]
    listed = listed[:limit]
    names = {column.name for column in listed}
    counts = Counter(column.role for column in known if column.name not in names)
    return ColumnUses(tuple(listed), counts.most_common())


def _choose_bar_limit(rows: tuple[TopRow, ...], limits: Limits) -> float:
    """Return the z-score of a full bar: the 90 % quantile of the z-scores, rounded up.

    The result is 1, 2 or 5 times a power of 10. It is 1 without reasons, and for a quantile that is
    infinite or at most 1.

    >>> from altbi.report import ReasonFact, TopRow
    >>> reason = ReasonFact(column="a", value="9", expected="1", z_score=14.2)
    >>> row = TopRow(number=0, ids=(), score=1.0, label=None, reasons=(reason,), values=())
    >>> _choose_bar_limit((row,), LIMITS[0])
    20.0
    """
    z_scores = sorted(reason.z_score for row in rows for reason in row.reasons[: limits.reasons])
    quantile = z_scores[int(0.9 * (len(z_scores) - 1))] if z_scores else 1.0
    if not 1 < quantile < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(quantile))
    return next(step * power for step in (1, 2, 5, 10) if quantile <= step * power)


def _build_script_data(summary: Summary, limits: Limits) -> dict[str, Any]:
    """Return the values that the page's script reads: thresholds, columns, contents of the rows.

    `nearest` has each of the similar reference rows once, because many top rows share them.
    """
    rows = summary.top[: limits.rows]
    text = _create_filters(summary, limits)["text"]
    thresholds, own = _thin_thresholds(summary)
    columns = (summary.id_columns + summary.shown_columns)[: limits.cells]
    nearest: dict[tuple[str, ...], int] = {}
    return {
        "rows": summary.rows,
        "own": own,
        "thresholds": [
            [
                threshold,
                format_score(threshold, summary.threshold),
                n_above,
                format_share(n_above / max(summary.rows, 1)),
            ]
            for threshold, n_above in thresholds
        ],
        "columns": [text(name) for name in columns],
        "ids": min(len(summary.id_columns), limits.cells),
        "values": [
            [text(value) for value in (row.ids + row.values)[: limits.cells]] for row in rows
        ],
        "reasons": [_find_reason_columns(row, columns, limits) for row in rows],
        "similar": [_build_comparison(row, columns, limits, text, nearest) for row in rows],
        "nearest": list(nearest),
    }


def _thin_thresholds(summary: Summary) -> tuple[list[tuple[float, int]], int]:
    """Return about `MAX_THRESHOLDS` thresholds with their counts, and the index of the model's own.

    Thresholds are sorted from high to low. The lowest and the model's own are always included.
    """
    own = (summary.threshold, summary.flagged)
    others = [each for each in summary.thresholds if each[0] != summary.threshold]
    stride = math.ceil(len(others) / MAX_THRESHOLDS) or 1
    # The last one is kept, because it is the end of the slider.
    thinned = others[::stride] + (others[-1:] if (len(others) - 1) % stride else [])
    index = bisect.bisect_left(thinned, -summary.threshold, key=lambda each: -each[0])
    return [*thinned[:index], own, *thinned[index:]], index


def _find_reason_columns(row: TopRow, columns: tuple[str, ...], limits: Limits) -> list[int]:
    """Return the indices, within `columns`, of the columns among a row's reasons."""
    reasons = {reason.column for reason in row.reasons[: limits.reasons]}
    return [index for index, name in enumerate(columns) if name in reasons]


def _build_comparison(
    row: TopRow,
    columns: tuple[str, ...],
    limits: Limits,
    text: Callable[[str], str],
    nearest: dict[tuple[str, ...], int],
) -> list[list[Any]]:
    """Return the comparison of a row with similar reference rows: reasons, and reference rows.

    A reason is the index of its column; if the values of that column are not those of the reason,
    it is a record with name, value, and values of the reference rows. Reference rows are given by
    their indices in `nearest`, to which new ones are added. They have no ids. For scores by loss,
    which have no reference rows, the result is empty.
    """
    if not row.nearest:
        return []
    n_features = max(limits.cells - len(row.ids), 0)
    no_ids = ("",) * len(row.ids)
    table = [row.ids + row.values, *(no_ids + values for values in row.nearest)]
    indices = {record: index for index, record in enumerate(zip(columns, *table, strict=False))}
    reasons: list[int | list[str]] = []
    for each in row.reasons[: limits.reasons]:
        record = (each.column, each.value, *each.nearest)
        reasons.append(indices.get(record, [text(value) for value in record]))
    texts = [tuple(map(text, values[:n_features])) for values in row.nearest]
    return [reasons, [nearest.setdefault(values, len(nearest)) for values in texts]]


def format_score(value: float, threshold: float) -> str:
    """Format a score with as many decimals as give the threshold four significant digits.

    There are at most 6 decimals, and commas between thousands. Infinite scores and scores from
    10**7 on have four significant digits.
    """
    if abs(value) >= LARGE_SCORE or not math.isfinite(value):
        return f"{value:.4g}"
    size = math.floor(math.log10(abs(threshold))) if threshold else 0
    return f"{value:,.{min(max(3 - size, 0), 6)}f}"


def format_share(value: float) -> str:
    """Format a share in per cent, with at most two decimals; only zero becomes 0%.

    >>> format_share(0.0), format_share(0.00001), format_share(0.0312), format_share(0.5)
    ('0%', 'under 0.01%', '3.1%', '50%')
    """
    if 0 < value < 0.0001:
        return "under 0.01%"
    decimals = 0 if value == 0 or abs(value) >= 0.1 else 1 if abs(value) >= 0.01 else 2
    return f"{100 * value:.{decimals}f}%"


def _build_policy(script: str, style: str) -> str:
    """Return a content security policy that allows only this script and this style sheet.

    Style attributes, event handlers in attributes, and all requests are forbidden.
    """
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _to_script_json(value: object) -> str:
    """Convert a value to JSON that cannot end the script element it is in.

    NaN and infinity raise a `ValueError`.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(SCRIPT_ESCAPES)
