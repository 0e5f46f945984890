import pytest

from altbi._formatting import format_number


@pytest.mark.parametrize(
    ("number", "text"), [(1e16, "1e+16"), (-1e-5, "-1e-05"), (float("inf"), "inf"), (0.0, "0")]
)
def test_extreme_numbers_have_exponents(number, text):
    assert format_number(number) == text
