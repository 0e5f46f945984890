"""Rarities of values, which are computed from the values of a table themselves."""

from altbi.rarities._value_rarities import ColumnRarity, Use, ValueRarities, fit_value_rarities

__all__ = ["ColumnRarity", "Use", "ValueRarities", "fit_value_rarities"]
