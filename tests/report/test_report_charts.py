import json
import re

import pytest
from example_summary import THRESHOLD, create_summary
from msgspec import structs

from altbi.report import _charts as charts
from altbi.report import render


def test_fields_of_charts_have_fixed_names():
    specs = charts.training(create_summary().history) | {
        "h": charts.histogram(create_summary().bins, 3.0)
    }
    fields = set(re.findall(r'"field": "([^"]*)"', json.dumps(specs)))

    assert fields == {"left", "right", "begin", "rows", "span", "step", "height"}


def test_loss_that_is_not_finite_is_left_out():
    history = create_summary().history
    broken = (*history[:5], structs.replace(history[5], loss=float("nan")), *history[6:])

    points = charts.training(broken)["loss"]["data"]["values"]

    assert [point["step"] for point in points if point["height"] is None] == [5]


@pytest.mark.slow
def test_wide_last_bin_is_drawn_narrow():
    bins = (*create_summary().bins, (10.0, 5000.0, 1))

    start, shrink = charts.squeeze(bins)

    drawn = charts.histogram(bins, THRESHOLD)["layer"][0]["data"]["values"]
    assert start == 10.0
    assert 10 + (5000 - 10) * shrink == drawn[-1]["right"] < 13
    assert "up to 5,000.000" in render(create_summary(bins=bins))
