"""Parameter objects, and the checks of their values."""

import inspect
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Self

from altbi.errors import ParameterError, quote

# For each parameter: whether its value is valid, and a description of the valid values.
Rules = Mapping[str, tuple[bool, str]]

# Longest value in an error message: a hostile model file may hold a value of any length.
MAX_SHOWN = 200


class ParameterObject:
    """Base class of objects that only hold parameters, such as a schedule or a backbone.

    It has scikit-learn's `get_params` and `set_params`, so that `clone`, ``schedule__n0=64`` and
    grid searches work. Subclasses store the arguments of their constructor unchanged.
    """

    @classmethod
    def _list_parameter_names(cls) -> list[str]:
        """Return the names of the constructor's parameters, in order."""
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Not used: the values hold no parameters of their own.

        Returns
        -------
        dict
            The value of each parameter of the constructor.
        """
        return {name: getattr(self, name) for name in self._list_parameter_names()}

    def set_params(self, **params: Any) -> Self:  # noqa: ANN401 - scikit-learn's signature
        """Set parameters by name; the values are not checked.

        A name that is not a parameter raises a `ParameterError`.

        Parameters
        ----------
        **params : object
            Values by parameter name.

        Returns
        -------
        object
            This object.
        """
        names = self._list_parameter_names()
        for name, value in params.items():
            if name not in names:
                raise ParameterError(
                    f"{type(self).__name__} has no parameter {quote(name)}. Use one of {names}."
                )
            setattr(self, name, value)
        return self

    def _copy_with(self, **changes: object) -> Self:
        """Return a new object with the same parameters, except for the given changes."""
        return type(self)(**{**self.get_params(), **changes})

    def __repr__(self) -> str:
        """Return the constructor call with the parameters that differ from their defaults."""
        defaults = inspect.signature(type(self).__init__).parameters
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if not _is_same(value, defaults[name].default)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def __eq__(self, other: object) -> bool:
        """Return whether the parameters are equal; NotImplemented for another class."""
        if type(other) is not type(self):
            return NotImplemented
        return self.get_params() == other.get_params()

    def __hash__(self) -> int:
        """Return a hash of the class and `repr`, because parameters need not be hashable."""
        return hash((type(self), repr(self)))


def _is_same(value: object, default: object) -> bool:
    """Return whether a value has the type of the default and equals it; 1 differs from 1.0."""
    return type(value) is type(default) and bool(value == default)


def is_count(value: object, least: int = 1) -> bool:
    """Return whether a value is an integer of at least `least`; booleans are not integers here."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object, least: float = -math.inf, most: float = math.inf) -> bool:
    """Return whether a value is a finite real number with ``least <= value <= most``.

    Booleans are not numbers here.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        number = float(value)
    except OverflowError:  # an integer above 1e308
        return False
    return math.isfinite(number) and least <= number <= most


def is_share(value: object) -> bool:
    """Return whether a value is a number in (0, 1]; booleans are not numbers here."""
    return is_number(value, 0, 1) and value != 0


def check_parameters(owner: str, values: Mapping[str, object], rules: Rules) -> None:
    """Raise a `ParameterError` for the first parameter in `rules` whose value is not valid.

    `rules` has, by parameter name, whether the value is valid, and a description of valid values.
    `owner` (the class of the parameters) and `values` are only for the message, which cuts long
    values.
    """
    for name, (is_valid, expected) in rules.items():
        if not is_valid:
            shown = quote(values[name], MAX_SHOWN)
            raise ParameterError(f"{owner}: {name}={shown}, but expected {expected}.")
