import json

import msgspec
import pytest

from altbi.encoding._column_roles import ColumnRole, limit_sizes


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


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600", '"', "\\"])
def test_roles_of_very_many_columns_are_small(letter):
    role = ColumnRole(role="free text", reason=300 * letter, remarks=(300 * letter,), is_text=True)
    assert limit_sizes([role] * 10_000)[-1] == role
    found = limit_sizes([role] * 10_001)
    assert found[0].reason.startswith(letter)
    assert found[0].reason.endswith("…")
    state = json.dumps(json.dumps(msgspec.to_builtins(found[0])))
    assert len(state) < 150
