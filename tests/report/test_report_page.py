import json
import math
import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from example_summary import (
    THRESHOLD,
    create_column,
    create_reason,
    create_row,
    create_summary,
    score_by_loss,
)

from altbi.report import render
from altbi.report._page import (
    LIMITS,
    MAX_PAGE_BYTES,
    _choose_bar_limit,
    _thin_thresholds,
    _to_script_json,
    format_score,
    format_share,
    select_column_uses,
)

pytestmark = pytest.mark.slow

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<img src=x onerror='window.hacked = 3'>",
    "\"'><svg onload=alert(4)>",
    "{{7*7}}{% raw %}",
    "a.b[0]",
    "constructor",
    "__proto__",
    "right\u202eto left",
    "two\nlines\u2028and a bell\x07",
    "<!--",
    "half \ud800 letter",
    "datum.rows; signal('x')",
    "x" * 5000,
)
FOCUSABLE = "a[href], button:not(:disabled), input, select, summary"


@pytest.fixture(scope="module")
def browser():
    """Yield one browser for all tests."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        pytest.fail(f"{CHROMIUM} is missing. Install it to test the page.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open the page of a summary; check that it causes no errors and no requests."""

    @contextmanager
    def shown(summary, *, width=1280, height=900, **options):
        path = tmp_path / "report.html"
        path.write_text(render(summary), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        page = context.new_page()
        problems, requests = [], []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        yield page
        assert problems == []
        assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
        context.close()

    return shown


def count_of(page):
    return int(page.inner_text("#state strong").replace(",", ""))


def listed_as_flagged(page):
    return page.locator("tbody.top-row.flagged:visible").count()


def test_equal_summaries_render_equal_pages():
    assert render(create_summary()) == render(create_summary())


@pytest.mark.parametrize("javascript", [True, False])
def test_all_charts_are_drawn(show, javascript):
    with show(create_summary(), java_script_enabled=javascript) as page:
        bars = page.locator("#histogram .flagged rect").all()
        heights = [bar.bounding_box()["height"] for bar in bars]
        assert len(heights) == sum(count > 0 for _, _, count in create_summary().bins)
        assert heights == sorted(heights, reverse=True)
        assert min(heights) > 10
        for chart in ("loss", "batch", "kept"):
            assert page.locator(f"#{chart} polyline").bounding_box()["width"] > 200


def test_labels_of_charts_do_not_overlap(show):
    for width in (1280, 400):
        with show(create_summary(), width=width) as page:
            for chart in ("histogram", "loss", "batch", "kept"):
                labels = page.locator(f"#{chart} text:not([aria-hidden])").all()
                boxes = [label.bounding_box() for label in labels]
                assert not [pair for pair in combinations(boxes, 2) if overlaps(*pair)]
                assert min(box["x"] for box in boxes) >= 0
                assert max(box["x"] + box["width"] for box in boxes) <= width


def overlaps(one, other):
    return (
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"]
        and other["y"] < one["y"] + one["height"]
    )


def test_pointer_shows_the_values_of_a_chart(show):
    with show(create_summary()) as page:
        page.locator("#histogram svg").scroll_into_view_if_needed()
        box = page.locator("#histogram svg").bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + 100)
        start, end, count = create_summary().bins[0]
        text = f"{count} rows with scores from {start:.4g} to {end:.4g}"
        assert page.inner_text(".tooltip") == text
        page.locator("#batch svg[role=img]").scroll_into_view_if_needed()
        box = page.locator("#batch svg[role=img]").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 10 / 59, box["y"] + 50)
        assert page.inner_text(".tooltip") == "step 10: 104 rows"
        dot = page.locator("#batch .hover").bounding_box()
        assert dot["x"] + dot["width"] / 2 == pytest.approx(
            box["x"] + box["width"] * 10 / 59, abs=1
        )
        page.mouse.move(0, 0)
        assert not page.locator(".tooltip").is_visible()


def test_page_shows_the_summary(show):
    with show(create_summary()) as page:
        text = page.inner_text("body")

    for fact in (
        "3 of 400 rows are flagged as outliers",
        "The scores fall steeply and level off here.",
        "0.971",
        "Column 'code' is constant",
        "altbi detect people.csv --id name",
        "torch 2.13.0",
        "2026-01-02T03:04:05Z",
        "person 0",
        "row 1000",
        "0.5, expected 1.25",
        "in 60 steps",
    ):
        assert fact in text


def test_keyboard_moves_threshold_chart_and_list(show):
    with show(create_summary()) as page:
        assert (count_of(page), listed_as_flagged(page)) == (3, 3)

        page.focus("#threshold")
        page.keyboard.press("ArrowRight")
        assert (count_of(page), listed_as_flagged(page)) == (2, 2)
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert (count_of(page), listed_as_flagged(page)) == (4, 4)
        assert page.get_attribute("#threshold", "aria-valuetext") == "2.000"
        page.keyboard.press("End")
        assert (count_of(page), listed_as_flagged(page)) == (0, 0)
        assert "No row is above" in page.inner_text("#listed")
        page.keyboard.press("Home")
        assert (count_of(page), listed_as_flagged(page)) == (399, 40)
        assert "first 40 of 399" in page.inner_text("#listed")
        page.click("#reset")
        assert (count_of(page), listed_as_flagged(page)) == (3, 3)
        assert page.inner_text("h1") == "3 of 400 rows are flagged as outliers"


def test_chart_follows_the_threshold(show):
    low, high = create_summary().bins[0][0], 10.0
    with show(create_summary()) as page:
        own = read_percent(page.locator("#histogram .own-threshold"))
        for count, threshold, label in ((2, 10 / 3, "3.333"), (3, 3.0, "3.000"), (0, 10, "10.000")):
            page.fill("#row-count", str(count))
            at = pytest.approx(100 * (threshold - low) / (high - low), abs=0.01)
            assert read_percent(page.locator("#histogram line.threshold")) == at
            assert read_percent(page.locator("#histogram text.threshold"), "x") == at
            assert read_percent(page.locator("#flagged-area rect"), "x") == at
            assert page.text_content("#histogram text.threshold") == f"threshold {label}"
            assert read_percent(page.locator("#histogram .own-threshold")) == own


def read_percent(element, name="x1"):
    return float(element.get_attribute(name).removesuffix("%"))


def test_count_includes_known_outliers(show):
    with show(create_summary()) as page:
        assert "2 of them known outliers" in page.inner_text("#state")
        page.fill("#row-count", "1")
        assert "1 of them known outliers" in page.inner_text("#state")
        page.fill("#row-count", "300")
        assert "known" not in page.inner_text("#state")


def test_number_of_rows_sets_the_threshold(show):
    with show(create_summary()) as page:
        for count in (7, 37, 0, 1):
            page.fill("#row-count", str(count))
            assert (count_of(page), listed_as_flagged(page)) == (count, count)
        page.fill("#row-count", "100000")
        assert count_of(page) == 399
        page.focus("#threshold")
        assert page.input_value("#row-count") == "399"


def test_click_on_histogram_sets_the_threshold(show):
    with show(create_summary()) as page:
        page.locator("#histogram svg").scroll_into_view_if_needed()
        box = page.locator("#histogram svg").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 0.36, box["y"] + 100)
        assert count_of(page) == 2


def test_list_is_filtered_by_column(show):
    with show(create_summary()) as page:
        page.select_option("#column-filter", label="city (26)")
        visible = page.locator("tbody.top-row:visible .rank").all_inner_texts()
        assert visible[:2] == ["2", "3"]
        assert page.inner_text("#listed").startswith("2 of the 3 flagged rows")


def test_rows_below_threshold_are_listed_on_demand(show):
    with show(create_summary()) as page:
        assert page.locator("tbody.top-row:visible").count() == 3 + 5
        page.check("#show-all")
        assert page.locator("tbody.top-row:visible").count() == 40
        assert page.locator("tbody.divider + tbody .rank").inner_text() == "4"


def test_row_opens_by_keyboard(show):
    with show(create_summary()) as page:
        button = page.locator("tbody.top-row button").nth(1)
        assert not page.locator("#d1").is_visible()
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        text = page.inner_text("#d1")
        for expected in ("income", "1.5", "1.25", "6.0", "value 1.0"):
            assert expected in text
        page.keyboard.press("Enter")
        assert not page.locator("#d1").is_visible()


def read_comparison(page, index=1):
    """Open a row, and return the table that compares it with similar normal rows."""
    page.locator("tbody.top-row button").nth(index).click()
    lines = page.locator(f"#d{index} .similar tr").all()
    return [line.locator("th, td").all_inner_texts() for line in lines]


def test_row_is_compared_with_similar_rows(show):
    with show(create_summary()) as page:
        assert read_comparison(page) == [
            ["Column", "This row", "Most similar", "2nd", "3rd"],
            ["income", "1.5", "1.75", "2.75", "3.75"],
            ["city", "1.5", "1.75", "2.75", "3.75"],
            ["name", "person 1", "", "", ""],
            ["age", "value 1.0", "normal 1.0", "normal 2.0", "normal 3.0"],
        ]
        assert page.inner_text("#d1 .similar caption") == "Normal rows similar to row 1001"
        assert page.locator("#d1 .similar .reason").count() == 2
        assert page.locator("#d1 .values").count() == 0
        page.locator("tbody.top-row button").nth(1).dblclick()
        assert page.locator("#d1 .similar").count() == 1


def test_reason_outside_shown_columns_is_compared(show):
    summary = create_summary()
    row = create_row(0, 10.0, ("salary",), values=("a", "b", ""), nearest=(("d", "", "f"),))
    row = replace(row, reasons=tuple(replace(reason, nearest=("",)) for reason in row.reasons))
    with show(replace(summary, top=(row,))) as page:
        assert read_comparison(page, 0) == [
            ["Column", "This row", "Most similar"],
            ["salary", "0.5", "missing"],
            ["name", "person 0", ""],
            ["age", "a", "d"],
            ["income", "b", "missing"],
            ["city", "missing", "f"],
        ]


def test_texts_depend_on_the_scorer(show):
    by_distance = ("median of the ten most similar normal rows", "divided by IQR / 1.349")
    by_loss = ("the value that the model predicts", "in standard deviations of the model")
    with show(create_summary()) as page:
        text = page.inner_text("body")
        assert all(words in text for words in by_distance)
        assert not any(words in text for words in by_loss)
        assert "adds up its distance to the nearest reference rows" in text

    with show(score_by_loss(create_summary())) as page:
        assert read_comparison(page) == []
        assert "value 1.2" in page.inner_text("#d1 .values")
        text = page.inner_text("body")
        assert all(words in text for words in by_loss)
        assert not any(words in text for words in (*by_distance, "reference rows"))


def test_narrow_comparison_labels_every_value(show):
    with show(create_summary(), width=390) as page:
        read_comparison(page)
        labels = page.eval_on_selector_all(
            "#d1 .similar tbody tr:first-child td",
            "all => all.map(e => getComputedStyle(e, '::before').content)",
        )
        assert [label.split('"')[1].strip() for label in labels] == [
            "this row", "most similar", "2nd", "3rd",
        ]  # fmt: skip
        assert page.locator("#d1 .similar thead").bounding_box()["width"] <= 1
        assert page.locator("#d1 .similar tbody tr:nth-child(3) td:visible").count() == 1


def test_tab_reaches_every_control(show):
    with show(create_summary()) as page:
        name = "e => e.id || e.innerText || e.href"
        wanted = page.eval_on_selector_all(
            FOCUSABLE, f"all => all.filter(e => e.checkVisibility()).map({name})"
        )
        reached = []
        for _ in wanted:
            page.keyboard.press("Tab")
            reached.append(page.evaluate(f"({name})(document.activeElement)"))
        assert reached == wanted
        assert {"threshold", "row-count", "column-filter", "show-all"} <= set(reached)


def test_focus_is_visible(show):
    with show(create_summary()) as page:
        page.keyboard.press("Tab")
        assert page.locator(".skip").bounding_box()["y"] >= 0
        page.keyboard.press("Tab")
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) == "solid"


def hostile_summary():
    cells = tuple(HOSTILE)
    rows = tuple(
        create_row(
            index,
            10 / (index + 1),
            cells,
            ids=(name,),
            reasons=(create_reason(name, index, value=name, expected=name, nearest=(name,) * 3),),
            values=cells,
            nearest=(cells[::-1],) * 3,
        )
        for index, name in enumerate(HOSTILE)
    )
    columns = tuple(
        create_column(name, index, content=name, kind=name) for index, name in enumerate(HOSTILE)
    )
    summary = create_summary(columns=cells, top=len(HOSTILE))
    return replace(
        summary,
        table=HOSTILE[1],
        threshold_reason=HOSTILE[1],
        columns=columns,
        id_columns=(HOSTILE[1],),
        top=rows,
        notes=HOSTILE,
        command=HOSTILE[1],
        versions={HOSTILE[1]: HOSTILE[0]},
        created=HOSTILE[1],
        metrics=replace(summary.metrics, label=HOSTILE[1]),
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_names_and_values_are_never_executed(show, width):
    with show(hostile_summary(), width=width) as page:
        page.check("#show-all")
        for button in page.locator("tbody.top-row button").all():
            button.click()
        page.click("summary")
        page.locator("#histogram svg").hover(force=True)
        text = page.inner_text("body")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img, main svg [onload]").count() == 0
        for name in HOSTILE[:8]:
            assert page.inner_text("#d0").count(name) >= 5
            assert name in page.inner_text(".sentences")
        assert "right\\u202eto left" in text
        assert "two\\nlines\\u2028and a bell\\x07" in text
        assert "half \\ud800 letter" in text
        assert "x" * 299 + "…" in text
        assert "x" * 700 not in text
        assert fits_width(page)


def test_policy_blocks_other_scripts_and_images(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render(create_summary()), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())

    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
        "document.body.append(s); document.body.insertAdjacentHTML('beforeend',"
        '\'<img src="https://example.org/x" onerror="window.hacked = 2">\'); }'
    )
    page.wait_for_timeout(50)

    assert page.evaluate("window.hacked") is None
    page.evaluate("document.body.setAttribute('style', 'color: rgb(1, 2, 3)')")
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
    page.close()


def read_script_data(page):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert not re.search(r"[<>&\u2028\u2029]", text.group(1))
    return json.loads(text.group(1))


def test_script_data_is_escaped_without_a_browser():
    page = render(hostile_summary())

    data = read_script_data(page)

    assert page.count("<script") == page.count("</script") == 2
    assert [name for name in HOSTILE if name in data["columns"]] == [
        name for name in HOSTILE if name.isascii() and name.isprintable() and len(name) < 300
    ]


def test_values_without_json_are_an_error():
    with pytest.raises(ValueError, match="Out of range float values"):
        _to_script_json({"threshold": math.inf})


def test_thinned_thresholds_keep_their_ends():
    summary = create_summary(rows=5_003)

    thresholds, own = _thin_thresholds(summary)

    assert 1_000 / 2 < len(thresholds) <= 1_002
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[own] == (THRESHOLD, summary.flagged)
    assert (thresholds[0], thresholds[-1]) == (summary.thresholds[0], summary.thresholds[-1])


@pytest.mark.parametrize(
    ("z_scores", "limit"),
    [([], 1), ([0.2], 1), ([1.5], 2), ([10.0], 10), ([14.2, 99.0], 20), ([math.inf], 1)],
)
def test_full_bar_is_a_round_z_score(z_scores, limit):
    reasons = tuple(replace(create_reason("age", 0), z_score=each) for each in z_scores)
    row = create_row(0, 9.0, ("age",), reasons=reasons)

    assert _choose_bar_limit((row,), LIMITS[0]) == limit


def test_page_has_no_inline_styles_or_handlers():
    for summary in (create_summary(), hostile_summary()):
        tags = re.findall(r"<[a-z][^>]*>", render(summary))
        assert len(tags) > 100
        assert not [tag for tag in tags if re.search(r'\s(style|on\w+)="', tag)]


def test_page_has_no_external_reference():
    page = render(create_summary())

    assert not re.search(r'(src|href)="(?!#|data:,)', page)
    assert "//" not in re.sub(r"//.*|/\*.*", "", page.split("<body>")[0])
    assert not re.search(r"https?:", page)
    assert set(re.findall(r"url\((.*?)\)", page)) == {"#flagged-area"}


def fits_width(page):
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("change", [replace, score_by_loss])
@pytest.mark.parametrize("width", [1280, 320])
def test_page_does_not_scroll_sideways(show, width, change):
    wide = create_summary(columns=tuple(f"measurement_of_something_{index}" for index in range(60)))
    with show(change(wide), width=width) as page:
        page.locator("tbody.top-row button").first.click()
        page.click("summary")
        assert fits_width(page)


LUMINANCE = """selector => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const light = text => {
    const [r, g, b] = parts(text).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    const colour = getComputedStyle(e).backgroundColor;
    return parts(colour)[3] === 0 && e.parentElement ? behind(e.parentElement) : colour;
  };
  const e = document.querySelector(selector);
  const style = getComputedStyle(e);
  const front = e instanceof SVGElement ? style.fill : style.color;
  const [a, b] = [light(front), light(behind(e.closest("div, p, td, h1, pre, nav, button") ?? e))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""
READ = [
    "h1 .figure",
    ".lead",
    ".caution",
    ".aside",
    "nav a",
    ".badge",
    "#state strong",
    "#reset",
    ".top-row.flagged .score",
    ".top-row:not(.flagged) .why",
    ".rank",
    "pre code",
    "#histogram .title",
    ".similar caption",
    ".similar thead th",
    ".similar .reason td",
    ".similar td:nth-child(3)",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(show, scheme):
    with show(create_summary(), color_scheme=scheme) as page:
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
        read_comparison(page, 0)
        contrasts = {selector: page.evaluate(LUMINANCE, selector) for selector in READ}
        assert {key: value for key, value in contrasts.items() if value < 4.5} == {}


def test_charts_follow_the_color_scheme(show):
    with show(create_summary(), color_scheme="light") as page:
        fill = "getComputedStyle(document.querySelector('#histogram .title')).fill"
        light = page.evaluate(fill)
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(fill) != light


def test_print_is_light_and_without_controls(show):
    with show(create_summary(), color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        ground = page.evaluate(
            "getComputedStyle(document.documentElement).getPropertyValue('--paper')"
        )
        assert ground.strip() == "#fff"
        for control in ("#threshold", "#row-count", "#reset", "#column-filter", "#show-all", "nav"):
            assert not page.locator(control).is_visible()
        assert page.locator("tbody.top-row.flagged .reasons:visible").count() == 3
        assert page.locator("tbody.top-row:not(.flagged) .reasons:visible").count() == 0
        assert page.locator("#histogram svg").is_visible()
        assert page.locator("#loss polyline").is_visible()
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_page_works_without_javascript(show):
    with show(create_summary(), java_script_enabled=False) as page:
        assert "need JavaScript" in page.inner_text("noscript")
        assert page.inner_text("h1") == "3 of 400 rows are flagged as outliers"
        assert page.locator("tbody.top-row:visible").count() == 40
        assert page.locator("#d39 .reasons").is_visible()
        assert not page.locator("#threshold").is_visible()
        assert page.text_content("#histogram text.threshold") == "threshold 3.000"
        assert page.get_by_role("img", name="Histogram of the scores").count() == 1


def one_row():
    return create_summary(
        rows=1, flagged=0, threshold=10.0, thresholds=((10.0, 0),), columns=("only",)
    )


def no_rows_listed():
    return create_summary(top=0, columns=(), history=(), notes=(), metrics=None, id_columns=())


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        (create_summary(flagged=0, threshold=10.0, metrics=None), "No row is above the threshold"),
        (one_row(), "0 of 1 row are flagged as outliers"),
        (no_rows_listed(), "There is no record of the training"),
        (create_summary(notes=()), "No warnings."),
        (
            create_summary(bins=((1.0, 1.0, 400),), threshold=1.0, flagged=0, thresholds=()),
            "0 of 400 rows",
        ),
        (create_summary(columns=tuple(f"c{n}" for n in range(10_000))), "200 of 10,000 columns"),
        (create_summary(top=2, flagged=30), "The first 2 of 30 flagged rows are listed"),
    ],
    ids=["none flagged", "one row", "nothing", "no notes", "all equal", "wide", "more flagged"],
)
def test_unusual_summaries_are_rendered(show, summary, sentence):
    with show(summary, width=390) as page:
        assert sentence in page.inner_text("body")
        assert fits_width(page)


def test_own_threshold_survives_thinning(show):
    summary = create_summary(rows=20_000, top=5)
    with show(summary) as page:
        assert int(page.get_attribute("#threshold", "max")) < 300
        assert count_of(page) == summary.flagged
        page.focus("#threshold")
        page.keyboard.press("Home")
        assert count_of(page) == 19_999


@pytest.mark.parametrize("letter", ["<", "\U0001f600"])
def test_page_stays_below_3_mb(letter):
    long = letter * 400
    columns = tuple(f"{long}{index}" for index in range(60))
    rows = tuple(
        create_row(
            index,
            10 / (index + 1),
            columns,
            ids=(long,) * 5,
            reasons=tuple(
                create_reason(name, index, value=long, expected=long, nearest=(long,) * 3)
                for name in columns[:20]
            ),
            values=(long,) * 60,
            nearest=((long,) * 60,) * 3,
        )
        for index in range(300)
    )
    summary = create_summary(columns=columns, top=300)
    summary = replace(summary, top=rows, id_columns=columns[:5], notes=(long * 5,) * 500)

    page = render(summary)

    assert len(page.encode()) < MAX_PAGE_BYTES == 3_000_000
    assert "To limit its size" in page


def test_large_ordinary_summary_is_shown_completely():
    page = render(
        create_summary(top=300, columns=tuple(f"measurement {index}" for index in range(60)))
    )

    assert len(page.encode()) < MAX_PAGE_BYTES
    assert "value 297.59" in page
    assert "value 299.58" in page
    assert "normal 3.59" in page
    assert page.count("value 299.58") == 1
    assert page.count("normal 3.59") == 1  # rows share their reference rows
    assert "To limit its size" not in page


@pytest.mark.parametrize(
    ("score", "threshold", "text"),
    [(1.23456, 3.0, "1.235"), (1234.5, 3000.0, "1,234"), (1e8, 3.0, "1e+08"), (0.5, 0.0, "0.500")],
)
def test_scores_have_the_decimals_of_the_threshold(score, threshold, text):
    assert format_score(score, threshold) == text


def test_small_shares_are_not_zero():
    assert [format_share(share) for share in (0.0, 1e-5, 0.002, 1.0)] == [
        "0%", "under 0.01%", "0.20%", "100%",
    ]  # fmt: skip


def create_wide_columns(n):
    names = [f"c{index}" for index in range(n)]
    usual = [create_column(name, 1, role="number", reason="9 numbers.") for name in names[2:]]
    special = create_column("c0", 0, role="code", reason="Codes.", is_usual=False)
    stated = create_column("c1", 0, role="category", is_stated=True, is_usual=False)
    return (special, *usual, stated)


def test_usual_roles_of_wide_tables_are_counted():
    columns = create_wide_columns(1000)
    uses = select_column_uses(columns, 200)
    assert [column.name for column in uses.listed] == ["c0", "c1"]
    assert uses.others == [("number", 998)]
    assert len(select_column_uses(columns[:50], 200).listed) == 50
    assert select_column_uses((create_column("a", 0),), 200) == ((), [])
    page = render(replace(create_summary(), columns=columns))
    assert "Of the other columns, 998 have the role number." in page


def test_names_and_reasons_of_roles_are_escaped():
    columns = tuple(
        create_column(text, 0, role="code", reason=text, is_usual=False) for text in HOSTILE
    )
    page = render(replace(create_summary(), columns=columns))
    table = page[page.index('aria-label="Roles of columns"') :].partition("</table>")[0]
    assert table.count("<tr>") == 1 + len(HOSTILE)
    assert "<script" not in table
    assert "<img" not in table
    assert "&lt;script&gt;" in table
