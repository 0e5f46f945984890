import pytest
from example_tables import make_table

from altbi.encoding._column_roles import ColumnRole
from altbi.encoding._role_inference import infer_roles
from altbi.encoding._stated_roles import check_stated_names, override_role, parse_roles
from altbi.errors import ParameterError


def test_entries_of_the_option_are_parsed():
    names = ["zip", "note", "a,b", "c:d", "ref"]
    entries = ["category:zip, text:note", "number:a,b", "identifier:c:d,text:ref"]
    assert parse_roles(entries, names) == {
        "zip": "category", "note": "text", "a,b": "number", "c:d": "identifier", "ref": "text",
    }  # fmt: skip
    assert parse_roles([], names) == {}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("categories:zip", "'categories:zip' does not begin with a role.*category, text"),
        ("zip", "'zip' does not begin with a role"),
        ("", "does not begin with a role"),
        ("category:zip,note", "'note' does not begin with a role.*an option of its own"),
        ("category:zap", "'zap', but no column has this name. Did you mean 'zip'"),
        ("category:", "but no column has this name. There are 'zip', 'note'"),
        ("category:zip,text:zip", "column 'zip' twice"),
    ],
)
def test_invalid_entries_of_the_option_are_explained(entry, message):
    with pytest.raises(ParameterError, match=message):
        parse_roles([entry], ["zip", "note"])


@pytest.mark.parametrize(
    ("stated", "kind", "role"),
    [
        ("category", "category", "category"),
        ("category", "number", "category"),
        ("category", "boolean", "category"),
        ("text", "category", "free text"),
        ("number", "number", "number"),
        ("identifier", "date", "identifier"),
    ],
)
def test_possible_roles_replace_the_inferred_one(stated, kind, role):
    inferred = ColumnRole(
        role="duplicate", reason="Same.", remarks=("'x' is frequent.",), n_distinct=5,
        duplicate_of=0,
    )  # fmt: skip
    found = override_role("a", stated, kind, inferred)
    assert (found.role, found.is_stated, found.duplicate_of) == (role, True, None)
    assert (found.n_distinct, found.is_text) == (5, kind == "category")
    assert found.reason == "Stated by the user. Inferred: duplicate. Same."
    assert not found.remarks


@pytest.mark.parametrize(
    ("stated", "kind", "message"),
    [
        ("number", "category", "'a' holds text.*Convert its values to numbers, or pass --missing"),
        ("number", "date", "holds dates"),
        ("number", "boolean", "holds booleans"),
        ("text", "number", "holds numbers.*Exclude"),
        ("category", "date", "holds dates.*Convert its values to text"),
        ("identifier", "boolean", "holds booleans.*Exclude"),
    ],
)
def test_impossible_roles_are_explained(stated, kind, message):
    with pytest.raises(ParameterError, match=message):
        override_role("a", stated, kind, ColumnRole(role="constant", reason="One value."))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("zap", "names 'zap', but no column has this name. Did you mean 'zip'?"),
        ("order", "'order' is not searched, so it has no role"),
    ],
)
def test_columns_that_are_not_searched_have_no_role(name, message):
    check_stated_names({"zip": "category"}, ["zip"], ["zip", "order"])
    with pytest.raises(ParameterError, match=message):
        check_stated_names({name: "category"}, ["zip"], ["zip", "order"])


def test_copies_of_a_column_with_a_stated_role_count():
    texts = [f"{'abcdefgh'[row % 8]}" for row in range(400)]
    table = make_table(first=texts, second=texts, third=texts)
    assert [role.role for role in infer_roles(table)] == ["category", "duplicate", "duplicate"]
    found = infer_roles(table, {"first": "text"})
    assert [role.role for role in found] == ["free text", "category", "duplicate"]
    assert found[2].duplicate_of == 1
    found = infer_roles(table, {"second": "category"})
    assert [role.role for role in found] == ["category", "category", "duplicate"]
