"""Rules between columns and the rarity of the rows that break them."""

import json
import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from altbi.rarities import _pair_rules
from altbi.rarities._pair_rules import PairRules, fit_pair_rules

N_ROWS = 600


def array(values):
    return pa.array([None if v is None else str(v) for v in values], pa.large_string())


def table(**columns):
    return {name: array(values) for name, values in columns.items()}


def fit(texts, **options):
    return fit_pair_rules(list(texts), list(texts.values()), **options)


def pairs_of(rules):
    if rules is None:
        return set()
    return {(rules.names[r.determinant], rules.names[r.dependent]) for r in rules.rules}


def places(n_rows=N_ROWS):
    """Return 30 codes, 15 towns with two codes each, and 5 regions with three towns each."""
    codes = np.arange(n_rows) % 30
    towns = np.array([f"town {code // 2}" for code in codes], dtype=object)
    regions = np.array([f"region {code // 6}" for code in codes], dtype=object)
    return {"code": codes.astype(str).astype(object), "town": towns, "region": regions}


@pytest.fixture(scope="module")
def broken():
    """Return a table of places in which row 0 has the town of another region."""
    columns = places()
    columns["town"][0] = "town 9"
    return table(**columns)


@pytest.fixture(scope="module")
def rules(broken):
    return fit(broken)


def score_of(rules, **row):
    scores = rules.score(table(**{name: [value] for name, value in row.items()}))
    return dict(zip(rules.names, scores[0], strict=True))


def test_finds_the_columns_that_determine_others(rules):
    assert pairs_of(rules) == {("code", "town"), ("code", "region"), ("town", "region")}


def test_only_rows_that_break_a_rule_score(broken, rules):
    scores = rules.score(broken)
    assert scores[0].max() > 1
    assert (scores[1:] == 0).all()


def test_rarity_is_that_of_breaking_the_rule():
    columns = table(a=["x", "y"] * 100 + ["x"], b=["p", "q"] * 100 + ["new"])
    rules = fit(columns)
    weight = math.log(201 / 2) / math.log(100)
    assert weight > 1  # counts as 1
    a, b = rules.score(columns)[-1]
    assert a == 0  # 'new' occurs nowhere else, so that only b is wrong
    assert np.isclose(b, math.log(202 / 2))  # 1 of 201 rows breaks the rule


def test_new_pair_is_as_rare_as_one_that_occurs_once():
    columns = table(a=["x", "y"] * 100 + ["x"], b=["p", "q"] * 100 + ["s"])
    found = fit(columns).score(table(a=["x", "x"], b=["s", "new"])).sum(axis=1)
    assert np.isclose(found, math.log(202 / 2)).all()


def test_rare_determinant_breaks_a_reliable_rule():
    columns = table(a=["x", "y"] * 100 + ["z"] * 3, b=["p", "q"] * 100 + ["r", "r", "s"])
    scores = fit(columns).score(columns)
    assert np.isclose(scores[-1].sum(), math.log(204 / 2))
    assert scores[:-1].max() == 0


def test_frequent_partner_is_rare_by_its_counts_only():
    columns = table(a=["x", "y"] * 300 + ["z"] * 5, b=["p", "q"] * 300 + ["r"] * 3 + ["s"] * 2)
    assert np.isclose(fit(columns).score(columns)[-1].sum(), math.log(4 / 3))


def test_equally_rare_values_share_the_rarity():
    columns = table(a=["x", "y"] * 100 + ["x"], b=["p", "q"] * 100 + ["q"])
    # b -> a breaks in the same row, with the same counts.
    shares = fit(columns).score(columns)[-1]
    np.testing.assert_allclose(shares, math.log(202 / 2) / 2, rtol=0.01)
    assert shares[0] == pytest.approx(shares[1], rel=0.01)


def test_wrong_value_gets_more_than_its_partners(rules):
    wrong_town = score_of(rules, code="0", town="town 9", region="region 0")
    assert wrong_town["town"] > 2 * max(wrong_town["code"], wrong_town["region"])
    wrong_code = score_of(rules, code="20", town="town 0", region="region 0")
    assert wrong_code["code"] > 2 * max(wrong_code["town"], wrong_code["region"])


def test_copies_of_a_column_do_not_multiply_scores():
    columns = places()
    columns["code"][0] = "21"
    columns.pop("region")
    once = table(**columns)
    total = fit(once).score(once)[0].sum()
    copies = once | {f"town {n}": once["town"] for n in range(10)}
    scores = fit(copies).score(copies)
    assert total > 2
    assert np.isclose(scores[0].max(), total, rtol=0.1)
    assert scores[0].sum() < 1.3 * total
    assert (scores[1:] == 0).all()


def test_unseen_dependent_is_still_a_break(rules):
    scores = score_of(rules, code="0", town="Ünïcode", region="region 0")
    assert scores["town"] > 2
    assert scores["code"] == scores["region"] == 0


@pytest.mark.parametrize(
    "row",
    [
        {"code": None, "town": None, "region": None},
        {"code": "0", "town": None, "region": "region 0"},
        {"code": None, "town": "town 0", "region": "region 0"},
        {"code": "unknown", "town": "town 0", "region": "region 0"},
        {"code": "unknown", "town": "", "region": "region 4"},
        {"code": "0", "town": "t" * 401, "region": "region 0"},
    ],
)
def test_missing_values_and_unknown_determinants_score_zero(rules, row):
    assert set(score_of(rules, **row).values()) == {0.0}
    assert rules.explain(row) == ()


def test_explanation_names_the_usual_partner(rules):
    reasons = rules.explain({"code": "0", "town": "town 9", "region": "region 0"})
    assert reasons[0] == ("town", "usually 'town 0' where code is '0' (19 rows)")
    assert len({name for name, _ in reasons}) == len(reasons)
    assert rules.explain({"code": "0", "town": "town 0", "region": "region 0"}) == ()


def test_explanation_of_a_determinant_names_the_other_column(rules):
    reasons = dict(rules.explain({"code": "20", "town": "town 0", "region": "region 0"}))
    assert reasons["code"] == "region is usually 'region 3' where code is '20' (20 rows)"


def test_explanation_escapes_and_shortens_texts():
    long = "\x1b" + "x" * 300
    columns = table(**{long: [long, "y"] * 60, "b": ["p", "q"] * 60})
    ((_, reason),) = fit(columns).explain({long: long, "b": "new"})
    assert reason.isprintable()
    assert len(reason) < 150


def shuffled_partner(kind, rng, n_rows):
    if kind == "uniform":
        return rng.integers(0, 40, n_rows)
    if kind == "skewed":
        return (rng.random(n_rows) < 0.02) * rng.integers(1, 4, n_rows)
    if kind == "binary":
        return rng.random(n_rows) < 0.01
    return rng.permutation(np.arange(n_rows) // 2)  # "twice"


@pytest.mark.parametrize("kind", ["uniform", "skewed", "binary", "twice"])
@pytest.mark.parametrize("n_rows", [200, 3000])
def test_shuffled_partner_yields_no_rule(kind, n_rows):
    rng = np.random.default_rng(0)
    twice, few = np.arange(n_rows) // 2, np.arange(n_rows) % 7
    for _ in range(100 if n_rows == 200 else 10):
        columns = table(twice=twice, few=few, partner=shuffled_partner(kind, rng, n_rows))
        found = pairs_of(fit(columns)) - {("twice", "few"), ("few", "twice")}
        assert found == set()


@pytest.mark.parametrize("n_rare", [2, 6, 14])
def test_rare_pairs_that_agree_make_no_rule(n_rare):
    # Every rare value of b belongs to one a, but that may be chance.
    rows = np.arange(400)
    assert fit(table(a=rows // 2, b=rows < n_rare)) is None


def test_agreement_by_chance_is_unbiased():
    values = np.array([0, 0, 0, 1, 1, 2])
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    expected = np.mean([values[i] == values[j] for i, j in pairs])
    assert np.isclose(_pair_rules._compute_agreement(np.bincount(values)), expected)
    assert _pair_rules._compute_agreement(np.array([1])) == 0


def test_rule_against_a_dominating_value_is_found():
    rows = np.arange(1000)
    assert pairs_of(fit(table(a=rows // 10, b=rows < 60))) == {("a", "b")}


def with_breaks(n_breaks, n_rows=N_ROWS):
    columns = places(n_rows)
    columns.pop("region")
    for row in range(n_breaks):
        columns["town"][row] = f"typo {row}"
    return table(**columns)


def test_rule_must_hold_in_99_percent():
    assert pairs_of(fit(with_breaks(6))) == {("code", "town")}
    assert fit(with_breaks(7)) is None


def test_weaker_rules_are_kept_on_request():
    weak, strong = with_breaks(20), with_breaks(6)
    rules = fit(weak, min_share=0.95)
    assert pairs_of(rules) == {("code", "town")}
    assert 0 < rules.score(weak)[0].max() < fit(strong).score(strong)[0].max()


@pytest.mark.parametrize(("n_breaks", "is_kept"), [(6, True), (18, False)])
def test_rule_must_explain_most_of_the_rare_rows(n_breaks, is_kept):
    # The rule holds in more than 99 %, but 18 of 98 rare rows are left.
    rows = np.arange(2000)
    is_rare = (rows < 80) | ((rows % 100 == 99) & (rows > 2000 - 100 * n_breaks))
    assert is_rare.sum() == 80 + n_breaks
    assert (("a", "b") in pairs_of(fit(table(a=rows // 10, b=is_rare)))) == is_kept


def test_rule_needs_fifty_supporting_rows():
    rows = np.arange(80)
    assert fit(table(a=rows[:45] % 9, b=rows[:45] % 9)) is None
    rules = fit(table(a=rows[:54] % 9, b=rows[:54] % 9))
    assert pairs_of(rules) == {("a", "b"), ("b", "a")}
    # The determinants of the other rows are unique.
    unique = table(a=[*[0, 1] * 20, *range(2, 38)], b=["p", "q"] * 38)
    assert ("a", "b") not in pairs_of(fit(unique))


def test_rows_with_missing_values_do_not_count():
    columns = {name: list(values) for name, values in places().items()}
    for row in range(0, N_ROWS, 3):
        columns["town"][row] = None
        columns["code"][row + 1] = None
    rules = fit(table(**columns))
    assert ("code", "town") in pairs_of(rules)
    assert (rules.score(table(**columns)) == 0).all()


def test_rule_about_a_mostly_missing_column_is_found():
    columns = {name: list(values) for name, values in places(2000).items()}
    columns["town"] = [town if row % 7 < 2 else None for row, town in enumerate(columns["town"])]
    assert ("code", "town") in pairs_of(fit(table(**columns)))


def test_determinant_without_repeated_partner_stays_unknown():
    columns = places()
    columns["code"][[0, 20, 21]] = ["once", "two towns", "two towns"]
    columns["town"][21] = "town 0"
    columns.pop("region")
    rules = fit(table(**columns))
    assert {"once", "two towns"}.isdisjoint(rules.columns[0].values)
    assert ("code", "town") in pairs_of(rules)


def test_long_texts_count_as_missing():
    columns = places()
    columns["town"] = np.where(columns["town"] == "town 3", "t" * 401, columns["town"])
    rules = fit(table(**columns))
    assert ("code", "town") in pairs_of(rules)
    assert max(len(value) for column in rules.columns for value in column.values) < 10


def test_tie_of_partners_goes_to_the_first_text():
    columns = places()
    columns["code"][:4] = "tie"
    columns["town"][:4] = ["b", "a", "b", "a"]
    texts = table(code=columns["code"], town=columns["town"])
    rules = fit(texts)
    town = rules.columns[1].values
    (rule,) = rules.rules
    known = rules.columns[0].values.index("tie")
    assert town[rule.usual[rule.known.index(known)]] == "a"
    assert (rules.score(texts)[:4] == 0).all()  # equally frequent partners are not rare


def test_unsuitable_columns_are_ignored():
    rows = np.arange(12_000)
    numbers = {
        "code": rows % 30,
        "town": rows % 30 // 2,
        "constant": rows * 0,
        "missing": [None] * len(rows),
        "many": rows % 5001,
        "unique": rows,
    }
    assert pairs_of(fit(table(**numbers))) == {("code", "town")}
    nearly_unique = np.where(np.arange(N_ROWS) < 200, np.arange(N_ROWS) // 2, np.arange(N_ROWS))
    assert fit(table(a=nearly_unique, b=nearly_unique)) is None


def test_columns_of_low_entropy_are_left_out():
    rng = np.random.default_rng(0)
    texts = table(**{f"c{n}": rng.integers(0, 3 + n % 2, 200) for n in range(140)}, **places(200))
    rules = fit(texts)
    assert pairs_of(rules) == {("code", "town"), ("code", "region"), ("town", "region")}
    assert len(rules.not_searched) == 43
    assert {int(name[1:]) % 2 for name in rules.not_searched} == {0}
    assert list(rules.not_searched) == [name for name in texts if name in rules.not_searched]
    without = fit({name: texts[name] for name in texts if name not in rules.names})
    assert without.names == ()
    assert len(without.not_searched) == 40
    assert without.score({}).shape == (0, 0)


def test_number_of_rules_is_bounded():
    texts = table(**{f"c{n}": np.arange(200) % 4 for n in range(20)})
    assert len(fit(texts).rules) == _pair_rules.MAX_RULES


def test_number_of_entries_is_bounded(monkeypatch):
    monkeypatch.setattr(_pair_rules, "MAX_ENTRIES", 50)
    rules = fit(table(**places()))
    # The rule of 30 codes with the most evidence, and one of 15 towns.
    assert pairs_of(rules) == {("code", "town"), ("town", "region")}
    assert sum(rule.n_entries for rule in rules.rules) == 45


def test_large_tables_are_sampled_from_all_rows(monkeypatch):
    monkeypatch.setattr(_pair_rules, "MAX_SAMPLE_ROWS", 300)
    rows = _pair_rules._choose_rows(3000)
    assert len(np.unique(rows)) == len(rows) == 300
    assert rows.max() < 3000
    assert set(rows % 10) == set(range(10))  # a period of 10 hides nothing
    rules = fit(table(**places(3000)))
    assert {sum(rule.n_usual) for rule in rules.rules} == {300}


def test_result_does_not_depend_on_the_row_order(broken, rules):
    order = np.random.default_rng(1).permutation(N_ROWS)
    shuffled = {name: values.take(pa.array(order)) for name, values in broken.items()}
    assert fit(shuffled) == rules
    assert np.array_equal(rules.score(shuffled), rules.score(broken)[order])


def test_row_alone_scores_like_in_its_table(rules, monkeypatch):
    rng = np.random.default_rng(2)
    columns = {name: rng.permutation(values) for name, values in places().items()}
    texts = table(**columns)
    scores = rules.score(texts)
    assert (scores > 0).mean() > 0.3
    assert np.isfinite(scores).all()
    assert scores.max() < math.log(_pair_rules.MAX_SAMPLE_ROWS + 1)
    for row in range(0, N_ROWS, 7):
        alone = {name: values.slice(row, 1) for name, values in texts.items()}
        assert np.array_equal(rules.score(alone)[0], scores[row])
    monkeypatch.setattr(_pair_rules, "_N_BLOCK", 64)
    assert np.array_equal(rules.score(texts), scores)


def test_no_rows_and_no_columns():
    assert fit_pair_rules([], []) is None
    assert fit(table(a=[], b=[])) is None
    assert fit(table(a=["x"], b=["y"])) is None
    assert fit(table(a=[None] * 90, b=[None] * 90)) is None


def test_empty_and_unicode_texts_are_values():
    columns = table(a=["", "ß", "東京"] * 50, b=["e\u0301", "", "🙂"] * 50)
    rules = fit(columns)
    assert rules.explain({"a": "", "b": "🙂"})[0][1].endswith("(50 rows)")
    assert (rules.score(columns) == 0).all()
    assert score_of(rules, a="", b="é")["b"] > 3  # the composed letter is another text


def test_other_columns_of_the_table_are_ignored(broken, rules):
    extra = {"extra": array(range(N_ROWS)), **dict(reversed(broken.items()))}
    assert np.array_equal(rules.score(extra), rules.score(broken))


def test_state_survives_json(broken, rules):
    loaded = msgspec.json.decode(msgspec.json.encode(rules), type=PairRules)
    assert loaded == rules
    assert np.array_equal(loaded.score(broken), rules.score(broken))


def change(state, path, value):
    *path, last = path
    for key in path:
        state = state[key]
    state[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["columns", 0, "name"], "town"),
        (["columns", 0, "values", 0], "1"),
        (["columns", 0, "values", 0], "x" * 401),
        (["columns", 0, "values"], ["0"]),
        (["columns", 0, "counts", 0], 0),
        (["columns", 0, "counts", 0], 20_001),
        (["columns", 0, "other"], 1),
        (["columns"], []),
        (["rules", 0, "determinant"], 3),
        (["rules", 0, "determinant"], -1),
        (["rules", 0, "determinant"], 1),
        (["rules", 0, "dependent"], 99),
        (["rules", 0, "known", 0], 30),
        (["rules", 0, "known", 0], 1),
        (["rules", 0, "known", 0], -1),
        (["rules", 0, "known"], []),
        (["rules", 0, "usual", 0], 15),
        (["rules", 0, "n_usual", 0], 0),
        (["rules", 0, "n_usual", 0], 10**30),
        (["rules", 0, "n_usual", 0], 1.5),
        (["rules", 0, "others"], [0]),
        (["rules", 0, "n_others"], [1]),
    ],
)
def test_contradictory_states_are_refused(path, value):
    state = json.loads(
        msgspec.json.encode(fit(table(code=places()["code"], town=places()["town"])))
    )
    assert state["rules"][0]["dependent"] == 1
    change(state, path, value)
    with pytest.raises((ValueError, msgspec.ValidationError)):
        msgspec.convert(state, PairRules)


def test_contradictory_counts_keep_scores_bounded():
    state = json.loads(
        msgspec.json.encode(fit(table(code=places()["code"], town=places()["town"])))
    )
    state["rules"][0].update(other_known=[0], others=[1], n_others=[10])
    state["columns"][1]["counts"] = [1] * 15
    scores = msgspec.convert(state, PairRules).score(table(code=["0"], town=["town 1"]))
    assert (scores >= 0).all()
    n_rows = sum(state["rules"][0]["n_usual"]) + 10
    assert 0 < scores.sum() <= math.log((n_rows + 1) / 11)


@pytest.mark.parametrize(
    ("known", "other", "count"),
    [(0, 15, 1), (31, 1, 1), (0, 0, 1), (0, 1, 21)],
    ids=["unknown value", "unknown determinant", "the usual partner", "more than usual"],
)
def test_contradictory_pairs_are_refused(known, other, count):
    state = json.loads(
        msgspec.json.encode(fit(table(code=places()["code"], town=places()["town"])))
    )
    rule = state["rules"][0]
    rule.update(other_known=[0], others=[1], n_others=[20])
    assert rule["usual"][0] == 0
    scores = msgspec.convert(state, PairRules).score(table(code=["0"], town=["town 1"]))
    assert (scores == 0).all()  # as frequent as the usual partner
    rule.update(other_known=[known], others=[other], n_others=[count])
    with pytest.raises((ValueError, msgspec.ValidationError)):
        msgspec.convert(state, PairRules)


def test_too_many_entries_are_refused(monkeypatch):
    state = msgspec.json.encode(fit(table(**places())))
    monkeypatch.setattr(_pair_rules, "MAX_ENTRIES", 50)
    with pytest.raises(msgspec.ValidationError, match="entries"):
        msgspec.json.decode(state, type=PairRules)


def test_lone_surrogates_are_refused():
    with pytest.raises(ValueError, match="surrogates"):
        _pair_rules.RuleColumn(name="a", values=("\ud800",), counts=(1,))
