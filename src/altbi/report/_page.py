"""From facts to a page: one HTML document that needs neither network nor other files."""

import base64
import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from altbi.errors import import_extra
from altbi.report import _charts as charts
from altbi.report._facts import Summary
from altbi.report._view import LADDER, Limits, filters, view

__all__ = ["MOST_BYTES", "can_report", "render", "require_report"]

MOST_BYTES = 3_000_000

_HERE = Path(__file__).parent
_NEEDED = ("altair", "vl_convert", "jinja2")
_IN_SCRIPT = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


def can_report() -> bool:
    """Tell whether what the page needs is installed."""
    return all(find_spec(module) for module in _NEEDED)


def require_report() -> None:
    """Refuse early if what the page needs is not installed."""
    for module in _NEEDED:
        import_extra(module, extra="report")


def render(summary: Summary) -> str:
    """Show the facts of a run on one page that a browser opens without any network.

    Names and values of the table are shown, never run: they are escaped, and the page's own policy
    lets the browser run its two scripts only. Where a table is so wide or its texts so long that
    the page would grow beyond 3 MB, it shows less of them, and says so.

    Parameters
    ----------
    summary : Summary
        The facts.

    Returns
    -------
    str
        A whole HTML document, to be written as UTF-8.

    Raises
    ------
    MissingExtraError
        If Altair, vl-convert or Jinja2 is not installed.
    """
    scripts = [charts.bundle(), (_HERE / "page.js").read_text(encoding="utf-8")]
    specs = charts.training(summary.history) if summary.history else {}
    specs["histogram"] = charts.histogram(summary.bins, summary.threshold)
    for limits in LADDER:
        page = _page(summary, limits, scripts, specs)
        if len(page.encode()) <= MOST_BYTES:
            break
    return page


def _page(
    summary: Summary, limits: Limits, scripts: list[str], specs: dict[str, charts.Spec]
) -> str:
    jinja2 = import_extra("jinja2", extra="report")
    as_is = import_extra("markupsafe", extra="report").Markup
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(filters(summary, limits))
    shown = view(summary, limits)
    start, shrink = charts.squeeze(summary.bins)
    template = environment.from_string((_HERE / "page.html").read_text(encoding="utf-8"))
    return str(
        template.render(
            shown,
            policy=_policy(scripts),
            style=as_is((_HERE / "page.css").read_text(encoding="utf-8")),
            squeezed=shrink < 1,
            data=as_is(_json(shown["data"] | {"charts": specs, "squeeze": [start, shrink]})),
            scripts=[as_is(script) for script in scripts],
        )
    )


def _policy(scripts: list[str]) -> str:
    """Let the browser run these scripts and nothing else, and ask no address for anything."""
    hashes = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:  # noqa: ANN401 - anything that JSON can hold
    """Write JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_IN_SCRIPT)
