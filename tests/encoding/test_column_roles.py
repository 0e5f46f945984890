import msgspec
import pytest

from altbi.encoding._column_roles import ColumnRole


@pytest.mark.parametrize(
    "state",
    [
        {"role": "unknown", "reason": ""},
        {"role": "duplicate", "reason": ""},
        {"role": "number", "reason": "", "duplicate_of": 3},
        {"role": "duplicate", "reason": "", "duplicate_of": -1},
        {"role": "number", "reason": "", "repeated_share": 0.5},
        {"role": "identifier", "reason": "", "repeated_share": 1.5},
        {"role": "number", "reason": "x" * 1000},
        {"role": "number", "reason": "", "remarks": [""] * 99},
        {"role": "number", "reason": "", "extra": 1},
    ],
)
def test_contradictory_state_is_rejected(state):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(state, ColumnRole)
