import datetime as dt

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from example_tables import make_table

from altbi.encoding._column_roles import ColumnRole
from altbi.encoding._role_inference import infer_roles
from altbi.table import as_table

N = 1000
RANDOM = np.random.default_rng(0)


def infer(values):
    (role,) = infer_roles(make_table(a=values))
    return role


def name_texts(n, *, n_syllables=3):
    syllables = np.array(["ba", "ko", "ri", "tem", "lu", "san", "wi", "ge", "mo", "ha"])
    return ["".join(row) for row in syllables[RANDOM.integers(0, 10, (n, n_syllables))]]


# Numbers


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N),
        np.arange(N) * 10 + 500_000,
        RANDOM.permutation(N) + 1,
        RANDOM.permutation(10 * N)[:N],
        np.append(RANDOM.permutation(10 * N)[:N], [17, 17]).astype(float),
        # Each half of the table counts on its own, so that the numbers are not evenly spread.
        RANDOM.permutation(np.append(np.arange(N), RANDOM.permutation(5 * N)[:200] + N)),
        RANDOM.integers(100_000, 1_000_000, N),
        RANDOM.integers(0, 2**32, N),
        RANDOM.integers(-(2**63), 2**63 - 1, N),
    ],
    ids=["counter", "steps", "shuffled", "sampled", "repeat", "uneven", "digits", "bits", "int64"],
)
def test_integer_keys_are_identifiers(values):
    role = infer(values)
    assert role.role == "identifier"
    assert not role.is_used
    assert any(letter.isdigit() for letter in role.reason)


def make_seconds(n):
    return np.sort(RANDOM.permutation(10**6)[:n]) + 1_600_000_000


DAYS = [dt.date(2001, 1, 1) + dt.timedelta(days=i) for i in range(N)]


@pytest.mark.parametrize(
    "values",
    [
        RANDOM.permutation(N) + 0.5,
        np.round(RANDOM.lognormal(10, 2, N)),
        np.round(RANDOM.normal(5000, 800, N)),
        RANDOM.integers(0, 50_000, N),
        RANDOM.integers(100, 1000, N) * 1000,
        np.round(10 ** RANDOM.uniform(5, 6, N)),
        RANDOM.integers(100_000, 1_000_000, 60),
        RANDOM.permutation(make_seconds(N)),
        1000 * (1_600_000_000 + 60 * np.arange(N)),
        np.arange(1700, 2100),
        RANDOM.permutation([int(f"{day:%Y%m%d}") for day in DAYS[:365]]),
        np.cumsum(RANDOM.integers(1, 60, N)),
        -np.cumsum(RANDOM.integers(1, 60, N)),
        np.arange(12),
        np.append(RANDOM.permutation(N), np.arange(N // 11)),
        RANDOM.integers(10_000, 100_000, N) * 10,
        RANDOM.choice(RANDOM.integers(100_000, 1_000_000, 300), N),
        np.append(np.arange(N) * 1.0, [np.inf]),
        RANDOM.normal(size=N) * 1e300,
    ],
    ids=[
        "fractions", "amounts", "populations", "even", "salaries", "one decade", "few rows",
        "seconds", "milliseconds", "years", "calendar", "elapsed", "remaining", "12 rows",
        "many repeats", "tens", "reused", "infinity", "huge",
    ],
)  # fmt: skip
def test_quantities_stay_numbers(values):
    role = infer(values)
    assert (role.role, role.repeated_share, role.is_used) == ("number", 0, True)


def test_sample_of_a_sorted_counter_is_an_identifier():
    sample = make_table(a=np.sort(RANDOM.permutation(5 * N)[:N]))
    assert infer_roles(sample)[0].role == "number"
    sample.n_source_rows = 5 * N
    assert infer_roles(sample)[0].role == "identifier"


def test_share_of_repeated_integers_is_reported():
    values = RANDOM.permutation(np.append(np.arange(N), [3, 3, 5]))
    role = infer(values)
    assert role.role == "identifier"
    assert role.n_distinct == N
    assert role.repeated_share == pytest.approx(5 / (N + 3))


def test_missing_values_do_not_hide_a_counter():
    values = np.arange(N, dtype=float)
    values[::7] = np.nan
    assert infer(values).role == "identifier"


CODES = np.unique(RANDOM.integers(1000, 100_000, 130))


@pytest.mark.parametrize(
    ("values", "role"),
    [
        (RANDOM.choice(CODES, N), "code"),
        (RANDOM.choice(CODES, N).astype(float), "code"),
        (RANDOM.choice(np.unique(RANDOM.integers(200, 990, 90)), N), "code"),
        (RANDOM.choice(CODES // 10 * 10, N), "number"),
        (RANDOM.choice(np.arange(100, 990, 7), N), "number"),
        (RANDOM.choice(CODES // 1000 + 10_000, N), "number"),
        (RANDOM.choice(CODES[:20], N), "number"),
        (RANDOM.integers(1000, 1200, N), "number"),
        (RANDOM.choice([500, 1000, 2000], N), "number"),
        (np.round(RANDOM.normal(550, 120, 20 * N)), "number"),
        (RANDOM.integers(0, 10, N), "number"),
        (RANDOM.integers(100, 1000, 10 * N), "number"),
        (RANDOM.choice(np.unique(RANDOM.integers(1000, 4000, 90)), N), "number"),
        (RANDOM.choice(np.append(CODES[:60] // 100, np.arange(11, 99, 3)), N), "number"),
    ],
    ids=[
        "postcodes", "as floats", "area codes", "rounded", "step", "narrow", "few", "dense",
        "three", "smooth", "digits", "all", "low", "short",
    ],
)  # fmt: skip
def test_only_sparse_even_integers_are_codes(values, role):
    found = infer(values)
    assert found.role == role
    assert found.is_used


# Texts


@pytest.mark.parametrize(
    "texts",
    [
        [f"INV-{number:05}" for number in RANDOM.permutation(N)],
        [f"{number:032x}" for number in RANDOM.integers(0, 2**62, N)],
        [f"{name}@{name}.org" for name in name_texts(N, n_syllables=5)],
        ["".join(row) for row in RANDOM.choice(list("QWXZJKP"), (N, 12))],
        [f"C{number}" for number in RANDOM.integers(0, N, N)],
        [f"{n:011} {n % 97:02}" for n in range(N)],
        [f"{number:06}" for number in RANDOM.permutation(N)],
        [str(number) for number in range(N)],
        [str(number) for number in RANDOM.integers(2_050_000_000, 2_060_000_000, N)],
        [f"k{number}" for number in range(20)],
    ],
    ids=[
        "invoices",
        "hashes",
        "mail",
        "letters",
        "repeats",
        "spaces",
        "zeros",
        "counter",
        "phones",
        "short",
    ],
)
def test_text_keys_are_identifiers(texts):
    role = infer(texts)
    assert role.role == "identifier"
    assert role.reason.startswith(f"{len([t for t in texts if texts.count(t) == 1]):,} of ")


def test_share_of_repeated_texts_leaves_out_the_default():
    texts = ["(none)"] * 500 + [f"K-{number}" for number in range(N)] + ["K-1"]
    role = infer(texts)
    assert role.role == "identifier"
    assert "besides '(none)' in 500 rows" in role.reason
    assert role.repeated_share == pytest.approx(2 / (N + 1))


@pytest.mark.parametrize(
    "texts",
    [
        [" ".join(name_texts(6)) for _ in range(N)],
        [" ".join(name_texts(2)) for _ in range(N)],
        [" ".join(name_texts(5)) for _ in range(N // 2)] * 2,
        ["none"] * 300 + [" ".join(name_texts(6)) for _ in range(N)],
        [" ".join(name_texts(8)) for _ in range(20)],
        ["".join(name_texts(RANDOM.integers(8, 14))) for _ in range(N)],
    ],
    ids=["comments", "names", "twice", "default", "20 rows", "no spaces"],
)
def test_distinct_sentences_and_names_are_free_text(texts):
    role = infer(texts)
    assert (role.role, role.is_used, role.repeated_share) == ("free text", False, 0)


@pytest.mark.parametrize(
    ("texts", "meaning"),
    [
        ([f"{x:.2f} kg" for x in RANDOM.lognormal(3, 1, N)], "numbers"),
        ([f"$ {x:,.2f}" for x in RANDOM.lognormal(9, 1, N)], "numbers"),
        ([f"{x:.4f}" for x in RANDOM.normal(size=N)], "numbers"),
        ([str(x) for x in np.round(RANDOM.lognormal(9, 1, N)).astype(int)], "numbers"),
        ([f"{day.day}.{day.month}.{day.year}" for day in DAYS], "dates"),
        ([f"{day} 10:20:30" for day in DAYS], "dates"),
    ],
    ids=["units", "currency", "decimals", "integers", "dates", "times"],
)
def test_measurements_as_text_are_no_identifiers(texts, meaning):
    role = infer(texts)
    assert role.role == "free text"
    assert f"they are {meaning} in a text column" in role.reason


@pytest.mark.parametrize(
    "texts",
    [
        RANDOM.choice(name_texts(200), N),
        RANDOM.choice(["al", "ak", "az"], N),
        [" ".join(row) for row in RANDOM.choice(name_texts(9), (N, 2))],
        [f"{count} items" for count in RANDOM.integers(0, 300, N)],
        RANDOM.choice([" ".join(name_texts(9)) for _ in range(30)], N),
        name_texts(20),
        ["x", "y", "z"],
        [*map("k{}".format, range(400)), *np.repeat([f"x{n}" for n in range(20)], 30)],
        [*name_texts(N // 2), *np.repeat(name_texts(50), 10)],
        ["", "é€", "漢字", "\U0001f600"] * 20,
    ],
    ids=["names", "states", "pairs", "counts", "sentences", "few", "3", "keys", "tail", "unicode"],
)
def test_repeated_or_few_texts_stay_categories(texts):
    role = infer(pa.array(list(map(str, texts))))
    assert (role.role, role.is_used) == ("category", True)


# Constants and remarks


def test_columns_without_information_are_constants():
    table = make_table(
        a=[7] * N, b=["x"] * N, c=pa.nulls(N), d=pa.nulls(N, pa.string()), e=[True] * N
    )
    found = infer_roles(table)
    assert [role.role for role in found] == ["constant"] * 5
    assert found[0].reason == "All 1,000 rows have the value 7."
    assert found[2].reason == "No value in 1,000 rows."
    assert found[3].n_distinct == 0


def test_remarks_do_not_change_the_role():
    single, flag, usual = infer_roles(
        make_table(
            a=[7.0] * 9 + [None] * 991,
            b=["yes", "no"] * 250 + [None] * 500,
            c=[1.5] * 995 + [2.5, 3.5, 4.5, 5.5, 6.5],
        )
    )
    assert (single.role, flag.role, usual.role) == ("number", "category", "number")
    assert single.remarks == ("The only value is 7; the other rows have none.",)
    assert flag.remarks == ("Two values, like a boolean: 'yes' and 'no'.",)
    assert usual.remarks == ("1.5 has 995 of 1,000 values.",)


def test_hostile_texts_are_escaped_and_cut():
    role = infer(["\x1b[2J" + "x" * 10_000] * 9)
    assert role.role == "constant"
    assert len(role.reason) < 100
    assert role.reason.isprintable()


@pytest.mark.parametrize("n_rows", [1, 2, 9])
def test_few_rows_keep_their_kind(n_rows):
    table = make_table(
        a=np.arange(n_rows),
        b=[f"INV-{number}" for number in range(n_rows)],
        c=pa.array(DAYS[:n_rows]),
        d=[f"{number} words in a long text" for number in range(n_rows)],
    )
    expected = ["constant"] * 4 if n_rows == 1 else ["number", "category", "date", "category"]
    assert [role.role for role in infer_roles(table)] == expected


# Duplicates


def list_originals(**columns):
    return [role.duplicate_of for role in infer_roles(make_table(**columns))]


def test_linear_copies_of_numbers_are_duplicates():
    values = RANDOM.normal(20, 5, N)
    with_missing = np.where(np.arange(N) % 5 == 0, np.nan, values)
    assert list_originals(
        a=values,
        b=values * 1.8 + 32,
        c=-values,
        d=values.astype(np.float32),
        e=with_missing,
        f=with_missing / 3,
        g=np.exp(values),
        h=np.where(np.arange(N) == 7, 0, values),
    ) == [None, 0, 0, 0, None, 4, None, None]


def test_start_and_end_times_are_no_duplicates():
    start = 1_600_000_000 + RANDOM.permutation(10 * N)[:N] * 100
    end = start + RANDOM.integers(1, 90, N)  # unique, too
    dates = [pa.array(values * 10**6, pa.timestamp("us")) for values in (start, end)]
    assert list_originals(a=start, b=end, c=dates[0], d=dates[1]) == [None] * 4
    assert list_originals(a=start, b=start + 3600, c=start / 60) == [None, 0, 0]


def test_renamed_categories_are_duplicates():
    codes = RANDOM.integers(0, 9, N)
    texts = [f"name {code}" for code in codes]
    unique = [f"K{number}" for number in range(N)]
    assert list_originals(
        code=[f"c{code}" for code in codes],
        description=texts,
        number=codes,
        broken=["name 0", *texts[1:-1], "name x"],
        key=unique,
        other_key=[f"L{number}" for number in range(N)],
        same_key=unique,
    ) == [None, 0, None, None, None, None, 4]


def test_booleans_and_their_numbers_are_duplicates():
    flags = RANDOM.random(N) < 0.3
    days = pa.array(DAYS)
    later = pa.array([day + dt.timedelta(days=3) for day in DAYS])
    assert list_originals(a=flags, b=~flags, c=flags * 5.0, d=days, e=later) == [
        None, 0, 0, None, 3,
    ]  # fmt: skip


def test_rare_flags_that_agree_are_no_duplicates():
    once = np.arange(N) == 4
    often = np.arange(N) % 100 == 4
    assert list_originals(a=once, b=once, c=often, d=often) == [None, None, None, 2]


def test_many_columns_with_equal_groups_are_bounded():
    columns = {f"c{i}": RANDOM.normal(size=100) for i in range(300)}
    assert set(list_originals(**columns)) == {None}


# Arrays


def test_columns_of_arrays_keep_their_kind():
    values = np.stack([np.arange(N), RANDOM.normal(size=N), np.zeros(N)], axis=1)
    values = np.column_stack([values, values[:, 1] * 2])
    found = infer_roles(as_table(values))
    assert [role.role for role in found] == ["number"] * 4
    assert [len(role.remarks) for role in found] == [1, 0, 1, 1]
    assert "'identifier'" in found[0].remarks[0]
    assert found[3].duplicate_of is None


def test_roles_survive_json_and_are_deterministic():
    table = make_table(a=np.arange(N), b=name_texts(N), c=[1.5] * N, d=np.arange(N) * 2)
    found = infer_roles(table)
    copy = msgspec.json.decode(msgspec.json.encode(found), type=tuple[ColumnRole, ...])
    assert copy == found == infer_roles(table)


def test_nearly_unique_texts_are_no_copies_of_each_other():
    numbers = [*range(500), 7, 9]  # two copied rows
    members = [f"M{number:04}" for number in numbers]
    phones = [f"+49 30 {number * 7919 % 10**6:06}" for number in numbers]
    found = infer_roles(as_table(pa.table({"member": members, "phone": phones, "copy": members})))
    assert [each.role for each in found] == ["identifier", "identifier", "duplicate"]
