import math
import re
import subprocess
import sys
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
import scikit_posthocs
import scipy.stats

from altbi.errors import ParameterError
from altbi_bench.results_page.diagrams import critical_difference_svg, scatter_svg
from altbi_bench.statistics import (
    critical_difference,
    find_cliques,
    friedman,
    mean_ranks,
    paired_effect,
    select_shared,
    wilcoxon_holm,
)

pytestmark = pytest.mark.slow

# Demšar (2006), table 6: AUC on 14 data sets. On the 13th the last two systems tie in print but
# are ranked 2 and 3, so one value has a digit more here.
DEMSAR = {
    "C4.5": "763 599 954 628 882 936 661 583 775 1000 940 619 972 957",
    "C4.5+m": "768 591 971 661 888 931 668 583 838 1000 962 666 981 978",
    "C4.5+cf": "771 590 968 654 886 916 609 563 866 1000 965 614 975.1 946",
    "C4.5+m+cf": "798 569 967 657 898 931 685 625 875 1000 962 669 975 970",
}


def build_scores(**columns):
    return {name: {f"d{i}": v for i, v in enumerate(column)} for name, column in columns.items()}


@pytest.fixture
def demsar():
    return build_scores(
        **{name: [float(v) / 1000 for v in text.split()] for name, text in DEMSAR.items()}
    )


def test_shared_keeps_data_sets_of_all_systems():
    scores = {
        "a": {"w": 0.1, "x": 0.2, "y": 0.3, "z": 0.4},
        "b": {"z": 0.8, "y": math.nan, "x": 0.6, "other": 0.5},
    }
    datasets, values = select_shared(scores)
    assert datasets == ["x", "z"]
    np.testing.assert_array_equal(values, [[0.2, 0.6], [0.4, 0.8]])


def test_data_sets_with_missing_scores_are_excluded():
    scores = build_scores(a=[0.9, 0.9, 0.1], b=[0.5, 0.5, 0.5])
    assert mean_ranks(scores) == {"a": pytest.approx(4 / 3), "b": pytest.approx(5 / 3)}
    del scores["b"]["d2"]
    assert mean_ranks(scores) == {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({}, "scores of 0 systems"),
        (build_scores(a=[0.1, 0.2]), "scores of 1 systems"),
        ({"a": {"x": 0.1, "y": 0.2}, "b": {"x": 0.1}}, "share 1 data sets"),
    ],
)
@pytest.mark.parametrize("function", [select_shared, mean_ranks, friedman, wilcoxon_holm])
def test_too_few_scores_raise(function, scores, message):
    with pytest.raises(ParameterError, match=message):
        function(scores)


def test_ranks_share_ties_and_start_with_the_best():
    ranks = mean_ranks(build_scores(a=[0.9, 0.5], b=[0.8, 0.5], c=[0.8, 0.5]))
    assert ranks == {"a": 1.5, "b": 2.25, "c": 2.25}


def test_floating_point_noise_is_a_tie():
    assert mean_ranks(build_scores(a=[0.1 + 0.2] * 2, b=[0.3] * 2)) == {"a": 1.5, "b": 1.5}


def test_ranks_agree_with_demsar(demsar):
    ranks = mean_ranks(demsar)
    assert [round(rank, 3) for rank in ranks.values()] == [3.143, 2.0, 2.893, 1.964]


def test_friedman_agrees_with_demsar(demsar):
    found = friedman(demsar)
    assert (found.n_datasets, found.n_systems) == (14, 4)
    assert found.statistic == pytest.approx(9.28, abs=0.005)
    assert found.f_statistic == pytest.approx(3.69, abs=0.005)
    # The critical values of the paper: 2.85 for F(3, 39), and chi-square(3) has 7.81.
    assert 0.01 < found.f_p_value < found.p_value < 0.05
    assert found.f_p_value == pytest.approx(scipy.stats.f.sf(found.f_statistic, 3, 39))


def test_friedman_agrees_with_scipy_without_ties():
    values = np.random.default_rng(0).normal(size=(4, 9))
    found = friedman(build_scores(**dict(zip("abcd", values.tolist(), strict=True))))
    expected = scipy.stats.friedmanchisquare(*values)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("n_systems", [3, 6, 7])
@pytest.mark.parametrize("n_datasets", [2, 3, 7, 49])
def test_friedman_of_equal_rankings_is_maximal(n_systems, n_datasets):
    found = friedman(build_scores(**{f"s{i}": [i / 10] * n_datasets for i in range(n_systems)}))
    assert found.statistic == pytest.approx(n_datasets * (n_systems - 1))
    assert (found.f_statistic, found.f_p_value) == (math.inf, 0)


def test_friedman_of_equal_scores_is_zero():
    found = friedman(build_scores(a=[0.5] * 4, b=[0.5] * 4, c=[0.5] * 4))
    assert (found.statistic, found.p_value) == (0, 1)
    assert (found.f_statistic, found.f_p_value) == (0, 1)


def test_friedman_of_two_systems_raises():
    with pytest.raises(ParameterError, match="2 systems"):
        friedman(build_scores(a=[0.1, 0.2], b=[0.3, 0.4]))


# Demšar (2006), table 5.
@pytest.mark.parametrize(
    ("n_systems", "alpha", "q"),
    [
        (2, 0.05, 1.960),
        (3, 0.05, 2.343),
        (4, 0.05, 2.569),
        (5, 0.05, 2.728),
        (10, 0.05, 3.164),
        (2, 0.1, 1.645),
        (4, 0.1, 2.291),
    ],
)
def test_critical_values_agree_with_demsar(n_systems, alpha, q):
    n_datasets = n_systems * (n_systems + 1)
    found = critical_difference(n_systems, n_datasets, alpha) * math.sqrt(6)
    assert found == pytest.approx(q, abs=0.001)


def test_critical_difference_agrees_with_demsar():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


@pytest.mark.parametrize(
    "arguments", [(1, 10), (3, 1), (3, 10.5), (3, 10, 0), (3, 10, 1), (3, 10, math.nan)]
)
def test_critical_difference_of_invalid_arguments_raises(arguments):
    with pytest.raises(ParameterError, match="expected"):
        critical_difference(*arguments)


def test_cliques_agree_with_demsar(demsar):
    """Figure 1a: at 0.10 C4.5 differs from the two best, C4.5+cf from none."""
    groups = find_cliques(mean_ranks(demsar), critical_difference(4, 14, alpha=0.1))
    assert groups == [("C4.5+m+cf", "C4.5+m", "C4.5+cf"), ("C4.5+cf", "C4.5")]


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ({"a": 1, "b": 3, "c": 5}, []),
        ({"c": 2.5, "b": 2, "a": 1}, [("a", "b"), ("b", "c")]),
        ({"a": 1, "b": 1.5, "c": 2, "d": 2.25, "e": 9}, [("a", "b", "c", "d")]),
        ({"a": 1, "b": 1}, [("a", "b")]),
        ({"a": 1, "b": 2.5}, []),
    ],
)
def test_cliques_are_maximal_groups(ranks, expected):
    assert find_cliques(ranks, difference=1.5) == expected


def test_wilcoxon_agrees_with_demsar(demsar):
    """R+ = 93 and R- = 12 of 14 data sets: z = (12 - 52.5) / sqrt(14 * 15 * 29 / 24) = -2.54."""
    pair = wilcoxon_holm(demsar)[0]
    assert (pair.first, pair.second) == ("C4.5", "C4.5+m")
    assert (pair.wins, pair.ties, pair.losses) == (2, 2, 10)
    assert pair.mean_difference == pytest.approx(-0.0155)
    assert pair.median_difference == pytest.approx(-0.008)
    assert pair.p_value == pytest.approx(0.011, abs=0.0005)


def test_holm_agrees_with_hand_calculation():
    """Exact p of 6 data sets: 2/64 if all differ one way, 4/64 if all but the smallest do.

    Adjusted: 3 * 0.03125 = 0.09375, 2 * 0.0625 = 0.125, and 1 * 0.0625 is raised to 0.125.
    """
    first = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    scores = build_scores(
        low=[0] * 6, all=first, most=[-0.1, *first[1:]], other=[-0.05, *(v / 2 for v in first[1:])]
    )
    pairs = wilcoxon_holm(scores, alpha=0.1, against="low")
    assert [(pair.first, pair.second) for pair in pairs] == [
        ("low", "all"),
        ("low", "most"),
        ("low", "other"),
    ]
    assert [pair.p_value for pair in pairs] == pytest.approx([0.03125, 0.0625, 0.0625])
    assert [pair.adjusted_p_value for pair in pairs] == pytest.approx([0.09375, 0.125, 0.125])
    assert [pair.significant for pair in pairs] == [True, False, False]
    assert [(pair.wins, pair.losses) for pair in pairs] == [(0, 6), (1, 5), (1, 5)]


def test_holm_does_not_depend_on_order():
    values = np.random.default_rng(1).normal(size=(5, 12)) + np.arange(5)[:, None] / 3
    scores = build_scores(**dict(zip("abcde", values.tolist(), strict=True)))
    there, back = wilcoxon_holm(scores), wilcoxon_holm(dict(reversed(scores.items())))
    assert len(there) == 10
    assert {frozenset((p.first, p.second)): p.adjusted_p_value for p in there} == {
        frozenset((p.first, p.second)): pytest.approx(p.adjusted_p_value) for p in back
    }
    p, adjusted = np.array(sorted((p.p_value, p.adjusted_p_value) for p in there)).T
    assert adjusted[0] == pytest.approx(10 * p[0])
    assert (np.diff(adjusted) >= 0).all()
    assert adjusted.max() <= 1


@pytest.mark.parametrize("count", [2, 60])
def test_equal_systems_are_not_significant(count):
    pairs = wilcoxon_holm(build_scores(a=[0.5] * count, b=[0.5] * count, c=[0.5] * count))
    assert len(pairs) == 3
    for pair in pairs:
        assert (pair.p_value, pair.adjusted_p_value, pair.significant) == (1, 1, False)
        assert (pair.wins, pair.ties, pair.losses) == (0, count, 0)


def test_ties_count_against_a_difference():
    """Six wins and nothing else are significant; six wins among thirty ties are not."""
    wins = [0.51, 0.62, 0.73, 0.84, 0.95, 0.99]
    few = wilcoxon_holm(build_scores(a=wins, b=[0.5] * 6))
    many = wilcoxon_holm(build_scores(a=[*wins, *[0.5] * 30], b=[0.5] * 36))
    assert few[0].significant
    assert not many[0].significant


def test_equal_differences_tie_despite_floating_point():
    """The steps 2 and -2 tie as whole numbers; 0.2 - 0.0 and 0.5 - 0.7 would not."""
    a, b = [6, 8, 9, 2, 5], [1, 1, 6, 0, 7]
    (exact,) = wilcoxon_holm(build_scores(a=a, b=b))
    (rough,) = wilcoxon_holm(build_scores(a=[v / 10 for v in a], b=[v / 10 for v in b]))
    assert rough.p_value == exact.p_value


def test_pairs_use_all_their_shared_data_sets():
    scores = build_scores(a=[0.9, 0.8, 0.7, 0.6], b=[0.5] * 4, c=[0.1, 0.2])
    by_pair = {(pair.first, pair.second): pair for pair in wilcoxon_holm(scores)}
    assert {pair: found.n_datasets for pair, found in by_pair.items()} == {
        ("a", "b"): 4,
        ("a", "c"): 2,
        ("b", "c"): 2,
    }
    assert by_pair["a", "b"].wins == 4
    assert by_pair["a", "b"].p_value == pytest.approx(2 / 2**4)


def test_large_wins_outweigh_more_small_losses():
    differences = [-0.001 * index for index in range(1, 22)] + [
        0.01 * index for index in range(30, 49)
    ]
    (pair,) = wilcoxon_holm(build_scores(a=differences, b=[0.0] * 40))
    assert (pair.wins, pair.losses, pair.significant) == (19, 21, True)
    assert pair.favours_first
    (back,) = wilcoxon_holm(build_scores(b=[0.0] * 40, a=differences))
    assert not back.favours_first


def test_one_large_win_does_not_outweigh_many_losses():
    differences = [-0.001 * index for index in range(1, 31)] + [0.9]
    (pair,) = wilcoxon_holm(build_scores(a=differences, b=[0.0] * 31))
    assert pair.mean_difference > 0
    assert pair.significant
    assert not pair.favours_first


def test_wilcoxon_of_invalid_arguments_raises():
    scores = build_scores(a=[0.1, 0.2], b=[0.3, 0.4])
    with pytest.raises(ParameterError, match="against='c', but expected one of a, b"):
        wilcoxon_holm(scores, against="c")
    with pytest.raises(ParameterError, match="alpha=5"):
        wilcoxon_holm(scores, alpha=5)


@pytest.mark.parametrize("seed", range(5))
def test_library_statistics_equal_their_definitions(seed):
    """Holm by statsmodels, bootstrap by scipy, Nemenyi by scikit-posthocs; no ties."""
    values = np.random.default_rng(seed).normal(size=(6, 15)) + np.arange(6)[:, None] / 2
    scores = build_scores(**dict(zip("abcdef", values.tolist(), strict=True)))
    pairs = wilcoxon_holm(scores)

    p = np.array([pair.p_value for pair in pairs])
    order = np.argsort(p, kind="stable")
    holm = np.empty_like(p)
    holm[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1)
    assert [pair.adjusted_p_value for pair in pairs] == pytest.approx(holm, abs=1e-12)

    differences = values[1] - values[0]
    samples = np.random.default_rng(0).integers(15, size=(4000, 15))
    interval = np.percentile(differences[samples].mean(axis=1), [2.5, 97.5])
    effect = paired_effect(differences)
    assert (effect.low, effect.high) == pytest.approx(tuple(interval), abs=1e-12)

    nemenyi = scikit_posthocs.posthoc_nemenyi_friedman(values.T)
    ranks, difference = list(mean_ranks(scores).values()), critical_difference(6, 15)
    for first, second in combinations(range(6), 2):
        differ = abs(ranks[first] - ranks[second]) > difference
        assert (nemenyi.loc[first, second] < 0.05) == differ


def test_friedman_omits_the_tie_correction_of_scipy(demsar):
    """scipy divides Demšar's statistic by 1 - sum(t^3 - t) / (n k (k^2 - 1)), t systems tied."""
    values = np.array([list(column.values()) for column in demsar.values()])
    counts = [np.unique(row, return_counts=True)[1] for row in values.T]
    ties = sum((count**3 - count).sum() for count in counts)
    correction = 1 - ties / (14 * 4 * (4**2 - 1))

    assert ties > 0
    expected = scipy.stats.friedmanchisquare(*values).statistic
    assert friedman(demsar).statistic == pytest.approx(expected * correction)


def test_effect_of_one_data_set_is_a_point():
    effect = paired_effect([0.25])
    assert (effect.mean, effect.low, effect.high) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize("module", ["statistics", "results_page.diagrams"])
def test_module_does_not_import_scipy(module):
    code = f"import sys, altbi_bench.{module}; print('scipy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# Diagrams

HOSTILE = """<script>alert("1")</script> & 'x' ]]> \x00"""
READ_BACK = HOSTILE.replace("\x00", "\ufffd")


def find_elements(svg, tag):
    root = ElementTree.fromstring(svg)
    return list(root.iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def find_texts(svg):
    return {t.text: (float(t.get("x")), float(t.get("y"))) for t in find_elements(svg, "text")}


def find_lines(svg):
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in find_elements(svg, "polyline")
    ]


def find_thick_lines(svg):
    wide = [line.get("stroke-width") == "4" for line in find_elements(svg, "polyline")]
    return [line for line, is_wide in zip(find_lines(svg), wide, strict=True) if is_wide]


def find_boxes(svg, names):
    """Yield the bounding boxes of texts, with letters of 6.5 pixels."""
    for text in find_elements(svg, "text"):
        if text.text in names:
            x, y, width = float(text.get("x")), float(text.get("y")), 6.5 * len(text.text)
            left = x - width if text.get("text-anchor") == "end" else x
            yield left, y - 10, left + width, y + 2


def find_overlaps(found):
    return [
        (a, b)
        for a, b in combinations(found, 2)
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]


def read_size(svg):
    root = ElementTree.fromstring(svg)
    return float(root.get("width")), float(root.get("height"))


def find_axis_position(svg, rank):
    """Return the position of a rank, computed from the ticks 1 and 2."""
    found = find_texts(svg)
    one, two = found["1"][0], found["2"][0]
    return pytest.approx(one + (rank - 1) * (two - one), abs=0.2)


def test_diagram_positions_ranks_bars_and_critical_difference():
    ranks = {"worst": 3.5, "best": 1.25, "middle": 1.75}
    svg = critical_difference_svg(ranks, 0.8, [("best", "middle")])
    leaders = [line for line in find_lines(svg) if len(line) == 3]
    assert [leader[0][0] for leader in leaders] == [
        find_axis_position(svg, rank) for rank in (1.25, 1.75, 3.5)
    ]
    ((start, stop),) = find_thick_lines(svg)
    assert (start[0] + 4, stop[0] - 4) == (
        find_axis_position(svg, 1.25),
        find_axis_position(svg, 1.75),
    )
    (difference,) = (line for line in find_lines(svg) if len(line) == 6)
    assert (difference[0][0], difference[-1][0]) == (
        find_axis_position(svg, 1),
        find_axis_position(svg, 1.8),
    )
    labels = ["CD = 0.80", "best 1.25", "middle 1.75", "3.50 worst"]
    assert set(labels) <= set(find_texts(svg))
    (_, _, best, _), (worst, *_) = find_boxes(svg, {labels[1], labels[3]})
    assert best < find_texts(svg)["1"][0] < find_texts(svg)["4"][0] < worst


@pytest.mark.parametrize("count", [1, 2, 3, 18, 25])
def test_diagram_labels_do_not_overlap_and_stay_inside(count):
    names = [f"A long name (reference) {i}" for i in range(count)]
    # All ranks are close to the middle.
    ranks = {name: 1 + (count - 1) / 2 + 0.01 * i for i, name in enumerate(names)}
    svg = critical_difference_svg(ranks, 0.1, find_cliques(ranks, 0.1))
    labels = [text for text in find_texts(svg) if "long name" in text]
    found = list(find_boxes(svg, labels))
    assert len(found) == count
    assert find_overlaps(found) == []
    width, height = read_size(svg)
    assert all(x0 >= 0 and x1 <= width and y1 <= height for x0, _, x1, y1 in found)
    bars = [bar[0][1] for bar in find_thick_lines(svg)]
    assert max(bars, default=0) < min(y for _, y, *_ in found)
    assert all(below - above >= 8 for above, below in pairwise(bars))


def test_leader_lines_do_not_cross():
    ranks = {f"s{i}": 1 + i * 0.7 for i in range(9)}
    leaders = [line for line in find_lines(critical_difference_svg(ranks, 1, [])) if len(line) == 3]
    assert len(leaders) == 9
    for (_, (x, y), (side, _)), (top, corner, _) in combinations(leaders, 2):
        crosses = min(x, side) < top[0] < max(x, side) and corner[1] > y
        assert not crosses


def test_large_critical_difference_fits_on_the_axis():
    svg = critical_difference_svg({"a": 1.5, "b": 1.5}, 7.5, [("a", "b")])
    assert max(x for line in find_lines(svg) for x, _ in line) < read_size(svg)[0]
    assert "9" in find_texts(svg)


def test_diagram_of_one_system_has_an_axis():
    svg = critical_difference_svg({"a": 1}, 0, [])
    assert {"1", "2", "a 1.00"} <= set(find_texts(svg))


def draw_pictures(name):
    return {
        "critical difference": critical_difference_svg({name: 1, "b": 2}, 0.5, [(name, "b")]),
        "scatter": scatter_svg({name: (1, 0.5), "b": (2, 0.6)}, x_title=name, y_title=name),
    }


@pytest.mark.parametrize("picture", ["critical difference", "scatter"])
def test_names_are_escaped(picture):
    svg = draw_pictures(HOSTILE)[picture]
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
    assert tags <= {"svg", "title", "rect", "text", "polyline", "circle"}
    assert any(READ_BACK in text for text in find_texts(svg))


@pytest.mark.parametrize("picture", ["critical difference", "scatter"])
def test_svg_has_background_and_no_external_references(picture):
    svg = draw_pictures("a")[picture]
    (ground,) = find_elements(svg, "rect")
    assert ground.get("fill") == "#ffffff"
    assert (float(ground.get("width")), float(ground.get("height"))) == read_size(svg)
    assert re.findall(r"https?://[^\"]+|href|url\(", svg) == ["http://www.w3.org/2000/svg"]


def find_dots(svg):
    return [(float(c.get("cx")), float(c.get("cy"))) for c in find_elements(svg, "circle")]


def test_scatter_is_logarithmic_and_accuracy_grows_upwards():
    points = {"a": (0.1, 0.5), "b": (1, 0.7), "c": (100, 0.9)}
    svg = scatter_svg(points, x_title="seconds", y_title="AUC")
    (ax, ay), (bx, by), (cx, cy) = find_dots(svg)
    assert cx - bx == pytest.approx(2 * (bx - ax), abs=0.3)
    assert ay - by == pytest.approx(by - cy, abs=0.3)
    assert ay > by > cy
    found = find_texts(svg)
    # Ticks have the positions of points of the same value.
    assert (found["0.1"][0], found["1"][0], found["100"][0]) == pytest.approx((ax, bx, cx), abs=0.2)
    assert found["0.7"][1] - 4 == pytest.approx(by, abs=0.2)
    assert {"seconds", "AUC", "a", "b", "c"} <= set(found)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([3], {"2", "5"}),
        ([1], {"0.5", "1", "2"}),
        ([11, 18], {"10", "20"}),
        ([0.03, 400], {"0.1", "1", "10", "100"}),
        ([1, 1000], {"1", "10", "100", "1000"}),
    ],
)
def test_scatter_ticks_enclose_the_seconds(seconds, expected):
    points = {f"s{i}": (value, 0.75) for i, value in enumerate(seconds)}
    svg = scatter_svg(points, x_title="seconds", y_title="AUC")
    found = find_texts(svg)
    assert {text for text, (_, y) in found.items() if y == found[min(expected)][1]} == expected


def test_accuracy_ticks_have_the_same_decimals():
    svg = scatter_svg({"a": (10, 0.52), "b": (20, 0.68)}, x_title="", y_title="")
    ticks = [text for text in find_texts(svg) if text and re.fullmatch(r"0\.\d+", text)]
    assert ticks == ["0.50", "0.55", "0.60", "0.65", "0.70"]


def test_labels_of_equal_points_do_not_overlap():
    svg = scatter_svg({"one": (5, 0.7), "two": (5, 0.7)}, x_title="s", y_title="AUC")
    assert find_overlaps(list(find_boxes(svg, {"one", "two"}))) == []


def test_labels_do_not_cover_the_axis():
    """Labels of two equal points at the left edge are both to the right of the axis."""
    points = {"first": (10.01, 0.7), "second": (10.01, 0.7), "far": (400, 0.6)}
    svg = scatter_svg(points, x_title="s", y_title="AUC")
    assert all(find_texts(svg)[name][0] > find_dots(svg)[0][0] for name in ("first", "second"))


def test_scatter_labels_do_not_overlap():
    random = np.random.default_rng(3)
    points = {
        f"ALTBI-{i} (reference)": (10 ** random.uniform(-1, 3), random.uniform(0.5, 0.9))
        for i in range(18)
    }
    svg = scatter_svg(points, x_title="seconds", y_title="AUC")
    found = list(find_boxes(svg, set(points)))
    assert len(found) == 18
    assert find_overlaps(found) == []
    assert all(x0 >= 0 and x1 <= read_size(svg)[0] for x0, _, x1, _ in found)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({}, "nothing to draw"),
        ({"a": (0, 0.5)}, "'a' has 0"),
        ({"a": (math.inf, 0.5)}, "'a' has inf"),
        ({"a": (1, math.nan)}, "'a' has nan, but expected a finite number."),
    ],
)
def test_scatter_of_invalid_points_raises(points, message):
    with pytest.raises(ParameterError, match=message):
        scatter_svg(points, x_title="seconds", y_title="AUC")


@pytest.mark.parametrize(
    ("ranks", "difference", "message"),
    [
        ({}, 1, "nothing to draw"),
        ({"a": math.nan}, 1, "'a' has nan"),
        ({"a": 1}, math.inf, "'critical difference' has inf"),
    ],
)
def test_diagram_of_invalid_ranks_raises(ranks, difference, message):
    with pytest.raises(ParameterError, match=message):
        critical_difference_svg(ranks, difference, [])
