"""A generated table of card payments, whose columns are related as those of a real one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["build_payments"]

N_ROWS, N_CUSTOMERS, N_CITIES = 6_000, 1_500, 120
# Share of the payments that are made in the customer's home city.
AT_HOME = 0.85
# Standard deviation of coordinates around their city, in degrees.
CITY_RADIUS = 0.05
STATES = ("AD", "BR", "CO", "DL", "EF", "GA", "HN", "KR", "LS", "MO", "NV", "OP", "RT", "TS", "WE")
# Merchant categories with their relative frequency and the usual amount.
MERCHANTS = {
    "Groceries": (20, 45.0),
    "Restaurants": (14, 30.0),
    "Fuel": (12, 40.0),
    "Clothing": (8, 60.0),
    "Electronics": (5, 180.0),
    "Pharmacy": (7, 20.0),
    "Travel": (3, 350.0),
    "Hotels": (3, 220.0),
    "Entertainment": (6, 25.0),
    "Utilities": (5, 90.0),
    "Health Care": (4, 110.0),
    "Home Improvement": (5, 75.0),
    "Public Transport": (6, 6.0),
    "Books": (4, 18.0),
}
CARDS = {
    "Visa Debit": 9,
    "Visa Credit": 6,
    "Mastercard Debit": 5,
    "Mastercard Credit": 4,
    "Amex": 1,
}
CURRENCIES = {"USD": 94, "EUR": 3, "CAD": 2, "GBP": 1}
# Relative frequency of the hours of a day, from midnight.
HOURS = (2, 1, 1, 1, 1, 2, 5, 9, 12, 12, 13, 15, 18, 16, 13, 13, 15, 18, 20, 18, 13, 9, 6, 4)
ONSETS = ("b", "br", "d", "f", "gr", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "v", "w")
VOWELS = ("a", "e", "i", "o", "u", "ea", "ou")
ENDINGS = ("ton", "field", "burg", "mouth", "ford", "dale", "port", "ham", "wick", "ville")

Generator = np.random.Generator
Indices = NDArray[np.intp]


@final
@dataclass(frozen=True, slots=True)
class _Cities:
    """Cities with their state, postcodes, coordinates and relative size."""

    names: list[str]
    states: list[str]
    postcodes: list[list[str]]
    latitude: NDArray[np.float64]
    longitude: NDArray[np.float64]
    sizes: NDArray[np.float64]


def build_payments(seed: int, n_rows: int = N_ROWS) -> pa.Table:
    """Return card payments without errors and without missing values.

    A customer has a birth date, an account, a card, a device and a home city, where most payments
    are made. A city has a state, up to six postcodes and coordinates. Amounts are log-normal around
    the usual one of the merchant's category. Times follow the day.
    """
    generator = np.random.default_rng(seed)
    cities = _build_cities(generator)
    customers = generator.choice(N_CUSTOMERS, n_rows, p=_draw_shares(generator, N_CUSTOMERS))
    columns = _build_payment_columns(generator, n_rows)
    columns |= _build_customer_columns(generator, customers)
    home = generator.choice(N_CITIES, N_CUSTOMERS, p=cities.sizes)
    elsewhere = generator.choice(N_CITIES, n_rows, p=cities.sizes)
    city_indices = np.where(generator.random(n_rows) < AT_HOME, home[customers], elsewhere)
    return pa.table(columns | _build_city_columns(generator, cities, city_indices))


def _draw_shares(generator: Generator, n: int) -> NDArray[np.float64]:
    """Return shares that add up to 1, few of them large."""
    sizes = generator.lognormal(0.0, 0.8, n)
    return np.asarray(sizes / sizes.sum())


def _choose(generator: Generator, weights: dict[str, int], n: int) -> NDArray[np.str_]:
    shares = np.array(list(weights.values()), dtype=np.float64)
    return generator.choice(list(weights), n, p=shares / shares.sum())


def _build_cities(generator: Generator) -> _Cities:
    names: dict[str, None] = {}
    while len(names) < N_CITIES:
        syllables = [
            generator.choice(ONSETS) + generator.choice(VOWELS)
            for _ in range(generator.integers(1, 3))
        ]
        names["".join([*syllables, str(generator.choice(ENDINGS))]).capitalize()] = None
    states = np.sort(generator.integers(len(STATES), size=N_CITIES))
    starts = generator.choice(9_000, N_CITIES, replace=False) + 1_000
    return _Cities(
        names=list(names),
        states=[STATES[state] for state in states],
        postcodes=[
            [f"{start}{digit}" for digit in range(generator.integers(1, 7))] for start in starts
        ],
        latitude=36 + states % 5 * 2.5 + generator.uniform(0, 2.5, N_CITIES),
        longitude=-110 + states // 5 * 8.0 + generator.uniform(0, 8, N_CITIES),
        sizes=_draw_shares(generator, N_CITIES),
    )


def _build_payment_columns(generator: Generator, n_rows: int) -> dict[str, pa.Array]:
    category = _choose(generator, {name: share for name, (share, _) in MERCHANTS.items()}, n_rows)
    usual = np.array([MERCHANTS[each][1] for each in category])
    amount = np.maximum(np.round(usual * generator.lognormal(0.0, 0.6, n_rows), 2), 0.5)
    days = generator.integers(0, 90, n_rows)
    hours = generator.choice(24, n_rows, p=np.array(HOURS) / sum(HOURS))
    seconds = days * 86_400 + hours * 3_600 + generator.integers(0, 3_600, n_rows)
    times = np.sort(np.datetime64("2024-01-01T00:00:00", "us") + seconds.astype("timedelta64[s]"))
    return {
        "transaction_time": pa.array(times),
        "amount": pa.array(amount),
        "fee": _texts([f"{max(0.3, 0.02 * each):.2f}" for each in amount]),
        "currency": _texts(_choose(generator, CURRENCIES, n_rows)),
        "merchant_category": _texts(category),
    }


def _build_customer_columns(generator: Generator, customers: Indices) -> dict[str, pa.Array]:
    ages = generator.normal(44, 15, N_CUSTOMERS).clip(18, 92)
    birth = np.datetime64("2024-01-01", "D") - (ages * 365.25).astype("timedelta64[D]")
    adult = (ages - 18) * 365.25
    opened_days = (adult * generator.beta(1, 2, N_CUSTOMERS)).clip(1, 9_000)
    opened = np.datetime64("2024-01-01", "D") - opened_days.astype("timedelta64[D]")
    cards = _choose(generator, CARDS, N_CUSTOMERS)
    devices = generator.integers(16**10, size=N_CUSTOMERS)
    return {
        "card_type": _texts(cards[customers]),
        "device_id": _texts([f"DV-{devices[each]:010X}" for each in customers]),
        "birth_date": pa.array(birth[customers].astype("datetime64[us]")),
        "account_opened": pa.array(opened[customers].astype("datetime64[us]")),
    }


def _build_city_columns(
    generator: Generator, cities: _Cities, city_indices: Indices
) -> dict[str, pa.Array]:
    noise = generator.normal(0, CITY_RADIUS, (2, len(city_indices)))
    return {
        "city": _texts([cities.names[each] for each in city_indices]),
        "state": _texts([cities.states[each] for each in city_indices]),
        "postcode": _texts(
            [str(generator.choice(cities.postcodes[each])) for each in city_indices]
        ),
        "latitude": pa.array(np.round(cities.latitude[city_indices] + noise[0], 4)),
        "longitude": pa.array(np.round(cities.longitude[city_indices] + noise[1], 4)),
    }


def _texts(values: Sequence[str] | NDArray[np.str_]) -> pa.Array:
    return pa.array([str(each) for each in values], type=pa.large_string())
