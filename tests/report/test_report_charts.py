from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from example_summary import THRESHOLD, create_summary
from msgspec import structs

from altbi.report._axes import build_score_axis, locate_count
from altbi.report._charts import HISTOGRAM_HEIGHT, draw_histogram, draw_training

HOSTILE = "</text><script>alert(1)</script>\"'&"


def draw(bins=None, threshold=THRESHOLD, label="3.000"):
    bins = create_summary().bins if bins is None else bins
    return draw_histogram(bins, threshold, label, "description")


def find(chart, path):
    return ET.fromstring(chart.svg).findall(path)


def read_percents(elements, name):
    return [float(element.get(name).removesuffix("%")) for element in elements]


def test_bars_have_the_heights_of_the_counts():
    bins = create_summary().bins
    bars = find(draw(), "g[@class='bars']/rect")
    counts = [count for _, _, count in bins if count]

    heights = [float(bar.get("height")) for bar in bars]

    expected = [HISTOGRAM_HEIGHT * locate_count(count, max(counts)) for count in counts]
    assert heights == pytest.approx(expected, abs=0.01)
    bottoms = [float(bar.get("y")) + height for bar, height in zip(bars, heights, strict=True)]
    assert bottoms == pytest.approx([HISTOGRAM_HEIGHT] * len(bars), abs=0.02)


def test_labels_of_counts_are_at_their_heights():
    chart = draw(((0.0, 1.0, 100), (1.0, 2.0, 10)), 1.0)
    bars = find(chart, "g[@class='bars']/rect")
    labels = {text.text: float(text.get("y")) for text in find(chart, "text[@class='end']")}

    assert [float(bar.get("y")) + 4 for bar in bars] == pytest.approx(
        [labels["100"], labels["10"]], abs=0.02
    )


def test_bars_have_the_positions_of_the_scores():
    bars = find(draw(((0.0, 2.0, 3), (2.0, 4.0, 0), (4.0, 8.0, 1))), "g[@class='bars']/rect")

    assert read_percents(bars, "x") == [0.0, 50.0]
    assert read_percents(bars, "width") == [25.0, 50.0]


@pytest.mark.parametrize("bins", [((2.0, 2.0, 7),), ((2.0, 2.1, 7), (2.1, 2.2, 1))])
def test_bars_of_narrow_intervals_are_visible(bins):
    bars = find(draw(bins, 1e9), "g[@class='bars']/rect")

    assert len(bars) == len(bins)
    assert min(read_percents(bars, "width")) >= 0.1


@pytest.mark.parametrize("threshold", [0.5, 3.0, 9.0])
def test_threshold_is_drawn_at_its_score(threshold):
    at = 100 * build_score_axis(create_summary().bins, threshold).locate(threshold)
    chart = draw(threshold=threshold, label="a label")

    lines = find(chart, "line[@class='threshold']") + find(chart, "line[@class='own-threshold']")
    (label,) = find(chart, "text[@class='threshold']")
    area = find(chart, "clipPath[@id='flagged-area']/rect")

    assert read_percents(lines, "x1") == read_percents(lines, "x2")
    assert read_percents([*lines], "x1") == pytest.approx([at] * 2, abs=0.001)
    assert read_percents([label, *area], "x") == pytest.approx([at] * 2, abs=0.001)
    assert label.text == "threshold a label"
    assert label.get("text-anchor") == ("end" if threshold == 9.0 else "start")


def test_flagged_bars_are_clipped_at_the_threshold():
    (group,) = find(draw(), "g[@class='bars flagged']")

    assert group.get("clip-path") == "url(#flagged-area)"
    assert len(group) == len(find(draw(), "g[@class='bars']/rect"))


def test_ticks_of_scores_are_at_their_positions():
    ticks = find(draw(((0.0, 4.0, 1), (4.0, 8.0, 1))), "text[@class='middle']")

    assert {tick.text: tick.get("x") for tick in ticks} == {
        "0": "0%", "2": "25%", "4": "50%", "6": "75%", "8": "100%",
    }  # fmt: skip


def test_compressed_axis_has_a_label_only_at_its_end():
    bins = (*((float(i), i + 1.0, 9) for i in range(40)), (40.0, 5000.0, 1))

    labels = find(draw(bins), "text")

    texts = [label.text for label in labels]
    assert "//" in texts
    assert "5,000" in texts
    ticks = [label for label in labels if label.get("class") == "middle" and label.text != "//"]
    assert [tick.text for tick in ticks] == ["0", "10", "20", "30"]
    assert max(read_percents(ticks, "x")) < 90


def test_labels_of_many_rows_keep_their_distance():
    labels = find(draw(((0.0, 1.0, 10**7), (1.0, 2.0, 1))), "text[@class='end']")
    heights = [float(label.get("y")) for label in labels]

    assert min(low - high for low, high in pairwise(heights)) > 12


def test_texts_and_descriptions_are_escaped():
    chart = draw_histogram(create_summary().bins, THRESHOLD, HOSTILE, HOSTILE)

    assert "<script" not in chart.svg
    assert find(chart, "text[@class='threshold']")[0].text == f"threshold {HOSTILE}"
    assert find(chart, "desc")[0].text == HOSTILE


def test_charts_have_a_title_and_a_description():
    charts = [draw(), *draw_training(create_summary().history).values()]
    for chart in charts:
        svg = ET.fromstring(chart.svg)
        assert svg.get("role") == "img"
        for tag, name in (("title", "aria-labelledby"), ("desc", "aria-describedby")):
            (element,) = svg.findall(tag)
            assert element.get("id") == svg.get(name)
            assert element.text
    assert len({svg.get("aria-labelledby") for svg in (ET.fromstring(c.svg) for c in charts)}) == 4


def test_charts_have_no_styles_and_no_handlers():
    for chart in (draw(), *draw_training(create_summary().history).values()):
        names = {name for element in ET.fromstring(chart.svg).iter() for name in element.keys()}  # noqa: SIM118
        assert "style" not in names
        assert not {name for name in names if name.startswith("on")}


def test_every_bin_has_a_tip():
    bins = ((0.0, 2.0, 3), (2.0, 4.0, 0), (4.0, 8.0, 1))

    assert draw(bins).tips == (
        (0.0, 0.25, "3 rows with scores from 0 to 2", None),
        (0.25, 0.5, "0 rows with scores from 2 to 4", None),
        (0.5, 1.0, "1 row with scores from 4 to 8", None),
    )


def read_points(chart):
    """Return the points of each piece of a line: horizontal from 0 to 1000, vertical in pixels."""
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in find(chart, "svg/polyline")
    ]


def test_lines_have_the_values_of_the_steps():
    history = create_summary().history
    charts = draw_training(history)

    ((first, *_, last),) = read_points(charts["kept"])
    assert first == (0.0, 0.0)
    assert last == (1000.0, pytest.approx(120 * 0.08, abs=0.1))
    (points,) = read_points(charts["batch"])
    heights = [120 - y for _, y in points]
    sizes = [step.batch_size for step in history]
    assert heights == pytest.approx([120 * size / 300 for size in sizes], abs=0.1)
    assert charts["batch"].tips[10][2] == "step 10: 104 rows"


def test_loss_that_is_not_finite_leaves_a_gap():
    history = create_summary().history
    broken = (*history[:5], structs.replace(history[5], loss=float("nan")), *history[6:])

    chart = draw_training(broken)["loss"]

    assert [len(points) for points in read_points(chart)] == [5, 54]
    assert len(chart.tips) == 59
    assert "nan" not in chart.svg


@pytest.mark.parametrize("loss", [float("nan"), float("-inf"), 0.0, 1e300])
def test_training_of_one_step_is_drawn(loss):
    step = structs.replace(create_summary().history[0], loss=loss)

    charts = draw_training((step,))

    assert list(charts) == ["loss", "batch", "kept"]
    assert len(find(charts["batch"], "circle[@class='dot']")) == 1


def test_missing_losses_have_no_chart():
    history = [structs.replace(step, loss=None) for step in create_summary().history]

    assert list(draw_training(history)) == ["batch", "kept"]


def test_long_trainings_are_thinned():
    step = create_summary().history[0]
    history = [structs.replace(step, step=index) for index in range(5000)]

    ((*points, last),) = read_points(draw_training(history)["batch"])

    assert 300 < len(points) < 400
    assert last[0] == 1000
