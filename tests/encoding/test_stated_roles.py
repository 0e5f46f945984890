import pytest

from altbi.encoding._column_roles import ColumnRole
from altbi.encoding._stated_roles import parse_roles, role_from_override
from altbi.errors import ParameterError


def test_entries_of_the_option_are_parsed():
    names = ["zip", "note", "a,b", "c:d", "ref", "seen"]
    entries = ["category:zip, text:note", "number:a,b", "identifier:c:d,date:seen"]
    assert parse_roles(entries, names) == {
        "zip": "category", "note": "text", "a,b": "number", "c:d": "identifier", "seen": "date",
    }  # fmt: skip
    assert parse_roles([], names) == {}
    assert parse_roles("text:note", names) == {"note": "text"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("categories:zip", "'categories:zip' does not begin with a role.*category, text"),
        ("zip", "'zip' does not begin with a role"),
        ("", "does not begin with a role"),
        ("category:zip,note", "'note' does not begin with a role.*an option of its own"),
        ("category:zap", "'zap', but no column has it. Did you mean 'zip'"),
        ("category:", "but no column has it. There are 'zip', 'note'"),
        ("category:zip,text:zip", "column 'zip' twice"),
    ],
)
def test_invalid_entries_of_the_option_are_explained(entry, message):
    with pytest.raises(ParameterError, match=message):
        parse_roles([entry], ["zip", "note"])


@pytest.mark.parametrize(
    ("asked", "kind", "role"),
    [
        ("category", "category", "category"),
        ("category", "number", "code"),
        ("category", "boolean", "boolean"),
        ("text", "category", "free text"),
        ("number", "number", "number"),
        ("number", "boolean", "boolean"),
        ("identifier", "date", "identifier"),
        ("date", "date", "date"),
    ],
)
def test_possible_roles_replace_the_inferred_one(asked, kind, role):
    inferred = ColumnRole(role="duplicate", reason="Same.", n_distinct=5, duplicate_of=0)
    found = role_from_override("a", asked, kind, inferred)
    assert (found.role, found.is_asked, found.duplicate_of) == (role, True, None)
    assert found.n_distinct == 5
    assert found.reason == "Stated by the user; inferred: duplicate (Same.)"
    assert role_from_override("a", asked, kind).role == role


@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        ("number", "category", "holds text.*Convert its values to numbers, or pass --missing"),
        ("date", "category", "holds text.*one date format"),
        ("date", "number", "holds numbers.*Convert its values to dates"),
        ("number", "date", "holds dates"),
        ("text", "number", "holds numbers.*Use category or identifier"),
        ("category", "date", "holds dates.*Convert its values to text"),
        ("identifier", "boolean", "holds booleans.*Exclude"),
    ],
)
def test_impossible_roles_are_explained(asked, kind, message):
    with pytest.raises(ParameterError, match=message):
        role_from_override("a", asked, kind)
