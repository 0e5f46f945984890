import json
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from altbi.errors import MissingExtraError
from altbi.report import charts, render
from altbi.report._page import MOST_BYTES
from reporting import THRESHOLD, by_loss, clue, column, example, top_row

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
    """One browser for all tests of a worker."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        pytest.fail(f"{CHROMIUM} is missing: the page is tested in a real browser. Install it.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a summary's page; complaints and requests are collected, and must be none."""

    @contextmanager
    def shown(summary, *, width=1280, height=900, **options):
        path = tmp_path / "report.html"
        path.write_text(render(summary), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        page = context.new_page()
        complaints, requests = [], []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_function("document.querySelectorAll('.chart:empty').length === 0")
        yield page
        assert complaints == []
        assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
        context.close()

    return shown


def count_of(page):
    return int(page.inner_text("#state strong").replace(",", ""))


def listed_as_flagged(page):
    return page.locator("tbody.case.flagged:visible").count()


def test_the_page_is_not_imported_with_its_dependencies():
    code = "import sys, json, altbi.report; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert {"altair", "jinja2", "vl_convert"}.isdisjoint(json.loads(result.stdout))


@pytest.mark.parametrize("module", ["altair", "jinja2", "vl_convert"])
def test_a_missing_dependency_says_what_to_install(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtraError, match=r"altbi\[report\]"):
        render(example())


def test_the_same_facts_give_the_same_page():
    assert render(example()) == render(example())


def test_fields_of_charts_are_never_named_by_the_table():
    specs = charts.training(example().history) | {"h": charts.histogram(example().bins, 3.0)}
    fields = set(re.findall(r'"field": "([^"]*)"', json.dumps(specs)))

    assert fields == {"left", "right", "begin", "rows", "span", "step", "height"}


def test_a_loss_that_is_no_number_leaves_a_gap():
    history = example().history
    broken = (*history[:5], replace(history[5], loss=float("nan")), *history[6:])

    points = charts.training(broken)["loss"]["data"]["values"]

    assert [point["step"] for point in points if point["height"] is None] == [5]


def test_a_wide_last_bin_is_drawn_narrow_and_in_order():
    bins = (*example().bins, (10.0, 5000.0, 1))

    start, shrink = charts.squeeze(bins)

    drawn = charts.histogram(bins, THRESHOLD)["layer"][0]["data"]["values"]
    assert start == 10.0
    assert 10 + (5000 - 10) * shrink == drawn[-1]["right"] < 13
    assert "up to 5,000.000" in render(example(bins=bins))


def test_all_charts_are_drawn(show):
    with show(example()) as page:
        bars = page.locator("#histogram .mark-rect path")
        assert bars.count() >= 20
        for chart in ("loss", "batch", "kept"):
            line = page.locator(f"#{chart} .mark-line path").first.get_attribute("d")
            assert line.count("L") == 59


def test_the_facts_are_told(show):
    with show(example()) as page:
        text = page.inner_text("body")

    for fact in (
        "3 of 400 rows stand out",
        "The scores fall steeply and level off here.",
        "0.971",
        "Column 'code' is constant",
        "altbi detect people.csv --id name",
        "torch 2.13.0",
        "2026-01-02T03:04:05Z",
        "person 0",
        "row 1000",
        "0.5, expected 1.25",
        "In 60 steps",
    ):
        assert fact in text


def test_the_keyboard_moves_threshold_count_chart_and_list(show):
    with show(example()) as page:
        rule = page.locator("#histogram .mark-rule line").last
        assert (count_of(page), listed_as_flagged(page)) == (3, 3)
        at_first = rule.get_attribute("transform")

        page.focus("#threshold")
        page.keyboard.press("ArrowRight")
        assert (count_of(page), listed_as_flagged(page)) == (2, 2)
        page.wait_for_function(
            "was => [...document.querySelectorAll('#histogram .mark-rule line')].at(-1)"
            ".getAttribute('transform') !== was",
            arg=at_first,
        )
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
        assert page.inner_text("h1") == "3 of 400 rows stand out"


def test_the_count_says_how_many_known_outliers_are_flagged(show):
    with show(example()) as page:
        assert "2 of them known outliers" in page.inner_text("#state")
        page.fill("#wanted", "1")
        assert "1 of them known outliers" in page.inner_text("#state")
        page.fill("#wanted", "300")
        assert "known" not in page.inner_text("#state")


def test_a_number_of_rows_can_be_asked_for(show):
    with show(example()) as page:
        for count in (7, 37, 0, 1):
            page.fill("#wanted", str(count))
            assert (count_of(page), listed_as_flagged(page)) == (count, count)
        page.fill("#wanted", "100000")
        assert count_of(page) == 399
        page.focus("#threshold")
        assert page.input_value("#wanted") == "399"


def test_the_histogram_can_be_clicked(show):
    with show(example()) as page:
        box = page.locator("#histogram svg").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 0.36, box["y"] + 100)
        assert count_of(page) == 2


def test_the_list_can_be_filtered_by_column(show):
    with show(example()) as page:
        page.select_option("#suspect", label="city (26)")
        visible = page.locator("tbody.case:visible .rank").all_inner_texts()
        assert visible[:2] == ["2", "3"]
        assert page.inner_text("#listed").startswith("2 rows of 3")


def test_near_misses_are_listed_and_all_rows_on_demand(show):
    with show(example()) as page:
        assert page.locator("tbody.case:visible").count() == 3 + 5
        page.check("#everything")
        assert page.locator("tbody.case:visible").count() == 40
        assert page.locator("tbody.divider + tbody .rank").inner_text() == "4"


def test_a_row_opens_by_keyboard_to_its_clues_and_cells(show):
    with show(example()) as page:
        button = page.locator("tbody.case button").nth(1)
        assert not page.locator("#d1").is_visible()
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        text = page.inner_text("#d1")
        for expected in ("income", "1.5", "1.25", "6.0", "cell 1.0"):
            assert expected in text
        page.keyboard.press("Enter")
        assert not page.locator("#d1").is_visible()


def beside(page, place=1):
    """Open a row, and read the table that sets it beside normal ones."""
    page.locator("tbody.case button").nth(place).click()
    lines = page.locator(f"#d{place} .beside tr").all()
    return [line.locator("th, td").all_inner_texts() for line in lines]


def test_a_row_opens_beside_the_nearest_normal_rows_clues_first(show):
    with show(example()) as page:
        assert beside(page) == [
            ["Column", "This row", "Nearest", "2nd nearest", "3rd nearest"],
            ["income", "1.5", "1.75", "2.75", "3.75"],
            ["city", "1.5", "1.75", "2.75", "3.75"],
            ["name", "person 1", "", "", ""],
            ["age", "cell 1.0", "normal 1.0", "normal 2.0", "normal 3.0"],
        ]
        assert page.inner_text("#d1 .beside caption") == "The normal rows nearest to row 1001"
        assert page.locator("#d1 .beside .suspicious").count() == 2
        assert page.locator("#d1 .cells").count() == 0
        page.locator("tbody.case button").nth(1).dblclick()
        assert page.locator("#d1 .beside").count() == 1


def test_a_clue_outside_the_shown_columns_is_compared_too(show):
    summary = example()
    row = top_row(0, 10.0, ("salary",), cells=("a", "b", ""), nearest=(("d", "", "f"),))
    row = replace(row, reasons=tuple(replace(clue, nearest=("",)) for clue in row.reasons))
    with show(replace(summary, top=(row,))) as page:
        assert beside(page, 0) == [
            ["Column", "This row", "Nearest"],
            ["salary", "0.5", "missing"],
            ["name", "person 0", ""],
            ["age", "a", "d"],
            ["income", "b", "missing"],
            ["city", "missing", "f"],
        ]


def test_the_words_fit_how_rows_are_scored(show):
    ours = ("furthest from those of the nearest normal rows", "in deviations of its column")
    theirs = ("surprised the model most", "own uncertainty about that cell")
    with show(example()) as page:
        text = page.inner_text("body")
        assert all(words in text for words in ours)
        assert not any(words in text for words in theirs)
        assert "how far it is from the nearest rows that the model remembers as normal" in text

    with show(by_loss(example())) as page:
        assert beside(page) == []
        assert "cell 1.2" in page.inner_text("#d1 .cells")
        text = page.inner_text("body")
        assert all(words in text for words in theirs)
        assert not any(words in text for words in (*ours, "normal rows", "remembered"))


def test_on_a_phone_every_compared_cell_says_whose_it_is(show):
    with show(example(), width=390) as page:
        beside(page)
        labels = page.eval_on_selector_all(
            "#d1 .beside tbody tr:first-child td",
            "all => all.map(e => getComputedStyle(e, '::before').content)",
        )
        assert [label.split('"')[1].strip() for label in labels] == [
            "this row", "nearest", "2nd nearest", "3rd nearest",
        ]  # fmt: skip
        assert page.locator("#d1 .beside thead").bounding_box()["width"] <= 1
        assert page.locator("#d1 .beside tbody tr:nth-child(3) td:visible").count() == 1


def test_tab_reaches_every_control(show):
    with show(example()) as page:
        name = "e => e.id || e.innerText || e.href"
        wanted = page.eval_on_selector_all(
            FOCUSABLE, f"all => all.filter(e => e.checkVisibility()).map({name})"
        )
        reached = []
        for _ in wanted:
            page.keyboard.press("Tab")
            reached.append(page.evaluate(f"({name})(document.activeElement)"))
        assert reached == wanted
        assert {"threshold", "wanted", "suspect", "everything"} <= set(reached)


def test_focus_can_be_seen(show):
    with show(example()) as page:
        page.keyboard.press("Tab")
        assert page.locator(".skip").bounding_box()["y"] >= 0
        page.keyboard.press("Tab")
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) == "solid"


def hostile_summary():
    cells = tuple(HOSTILE)
    rows = tuple(
        top_row(
            place,
            10 / (place + 1),
            cells,
            ids=(name,),
            reasons=(clue(name, place, value=name, expected=name, nearest=(name,) * 3),),
            cells=cells,
            nearest=(cells[::-1],) * 3,
        )
        for place, name in enumerate(HOSTILE)
    )
    columns = tuple(
        column(name, place, holds=name, kind=name) for place, name in enumerate(HOSTILE)
    )
    summary = example(columns=cells, top=len(HOSTILE))
    return replace(
        summary,
        table=HOSTILE[1],
        describe_threshold=HOSTILE[1],
        columns=columns,
        id_columns=(HOSTILE[1],),
        top=rows,
        notes=HOSTILE,
        command=HOSTILE[1],
        versions={HOSTILE[1]: HOSTILE[0]},
        made=HOSTILE[1],
        metrics=replace(summary.metrics, label=HOSTILE[1]),
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_names_and_values_are_shown_and_never_run(show, width):
    with show(hostile_summary(), width=width) as page:
        page.check("#everything")
        for button in page.locator("tbody.case button").all():
            button.click()
        page.click("summary")
        page.locator("#histogram .mark-rect path").nth(2).hover(force=True)
        text = page.inner_text("body")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img, main svg [onload]").count() == 0
        for name in HOSTILE[:8]:
            assert page.inner_text("#d0").count(name) >= 5
            assert name in page.inner_text(".notes")
        assert "right\\u202eto left" in text
        assert "two\\nlines\\u2028and a bell\\x07" in text
        assert "half \\ud800 letter" in text
        assert "x" * 299 + "…" in text
        assert "x" * 700 not in text
        assert fits(page)


def test_the_policy_stops_what_the_page_did_not_bring(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render(example()), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())

    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
        "document.body.append(s); document.body.insertAdjacentHTML('beforeend',"
        '\'<img src="https://example.org/x" onerror="window.hacked = 2">\'); }'
    )
    page.wait_for_timeout(50)

    assert page.evaluate("window.hacked") is None
    page.close()


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("scored_by", [replace, by_loss])
@pytest.mark.parametrize("width", [1280, 800, 390, 320])
def test_nothing_scrolls_sideways(show, width, scored_by):
    wide = example(columns=tuple(f"measurement_of_something_{place}" for place in range(60)))
    with show(scored_by(wide), width=width) as page:
        page.locator("tbody.case button").first.click()
        page.click("summary")
        assert fits(page)


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
    ".case.flagged .score",
    ".case:not(.flagged) .why",
    ".rank",
    "pre code",
    "#histogram .role-axis-label text",
    ".beside caption",
    ".beside thead th",
    ".beside .suspicious td",
    ".beside td:nth-child(3)",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(show, scheme):
    with show(example(), color_scheme=scheme) as page:
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
        beside(page, 0)
        contrasts = {selector: page.evaluate(LUMINANCE, selector) for selector in READ}
        assert {key: value for key, value in contrasts.items() if value < 4.5} == {}


def test_charts_follow_a_change_of_the_scheme(show):
    with show(example(), color_scheme="light") as page:
        fill = "getComputedStyle(document.querySelector('#histogram .role-axis-label text')).fill"
        light = page.evaluate(fill)
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(fill) != light


def test_print_is_light_complete_and_without_controls(show):
    with show(example(), color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        ground = page.evaluate(
            "getComputedStyle(document.documentElement).getPropertyValue('--paper')"
        )
        assert ground.strip() == "#fff"
        for control in ("#threshold", "#wanted", "#reset", "#suspect", "#everything", "nav"):
            assert not page.locator(control).is_visible()
        assert page.locator("tbody.case.flagged .clues:visible").count() == 3
        assert page.locator("tbody.case:not(.flagged) .clues:visible").count() == 0
        assert page.locator("#histogram svg").is_visible()
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_javascript_the_facts_are_there(show):
    with show(example(), java_script_enabled=False) as page:
        assert "without JavaScript" in page.inner_text("noscript")
        assert page.inner_text("h1") == "3 of 400 rows stand out"
        assert page.locator("tbody.case:visible").count() == 40
        assert page.locator("#d39 .clues").is_visible()
        assert not page.locator("#threshold").is_visible()


def one_row():
    return example(rows=1, flagged=0, threshold=10.0, levels=((10.0, 0),), columns=("only",))


def no_rows_listed():
    return example(top=0, columns=(), history=(), notes=(), metrics=None, id_columns=())


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        (example(flagged=0, threshold=10.0, metrics=None), "No row is above the threshold"),
        (one_row(), "0 of 1 row stand out"),
        (no_rows_listed(), "There is no record of the training"),
        (example(notes=()), "Nothing that needs a word"),
        (example(bins=((1.0, 1.0, 400),), threshold=1.0, flagged=0, levels=()), "0 of 400 rows"),
        (example(columns=tuple(f"c{n}" for n in range(10_000))), "200 of 10,000 columns"),
        (example(top=2, flagged=30), "The first 2 of 30 flagged rows are listed"),
    ],
    ids=["none flagged", "one row", "nothing", "no notes", "all alike", "wide", "more flagged"],
)
def test_unusual_facts_have_their_page(show, summary, sentence):
    with show(summary, width=390) as page:
        assert sentence in page.inner_text("body")
        assert fits(page)


def test_many_levels_are_thinned_out_but_never_the_models_own(show):
    summary = example(rows=20_000, top=5)
    with show(summary) as page:
        assert int(page.get_attribute("#threshold", "max")) < 300
        assert count_of(page) == summary.flagged
        page.focus("#threshold")
        page.keyboard.press("Home")
        assert count_of(page) == 19_999


@pytest.mark.parametrize("letter", ["x", "<", "\U0001f600"])
def test_no_table_makes_the_page_larger_than_3_mb(letter):
    long = letter * 400
    columns = tuple(f"{long}{place}" for place in range(60))
    rows = tuple(
        top_row(
            place,
            10 / (place + 1),
            columns,
            ids=(long,) * 5,
            reasons=tuple(
                clue(name, place, value=long, expected=long, nearest=(long,) * 3)
                for name in columns[:20]
            ),
            cells=(long,) * 60,
            nearest=((long,) * 60,) * 3,
        )
        for place in range(300)
    )
    summary = example(columns=columns, top=300)
    summary = replace(summary, top=rows, id_columns=columns[:5], notes=(long * 5,) * 500)

    page = render(summary)

    assert len(page.encode()) < MOST_BYTES == 3_000_000
    assert "To stay small" in page


def test_three_hundred_rows_of_sixty_usual_columns_are_shown_whole():
    page = render(example(top=300, columns=tuple(f"measurement {place}" for place in range(60))))

    assert len(page.encode()) < MOST_BYTES
    assert "cell 297.59" in page
    assert "cell 299.58" in page
    assert "normal 3.59" in page
    assert page.count("cell 299.58") == 1
    assert "To stay small" not in page
