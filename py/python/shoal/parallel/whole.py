"""Whole numbers that Python's callers give: refused by name here, as what computes with them
knows only its own types.
"""

from __future__ import annotations

import operator

from shoal._native import Invalid

__all__ = ["invalid", "whole"]


def invalid(field: str, problem: str, nearest: list[int] | None = None) -> Invalid:
    """The error for a value that cannot be: what is wrong with `field`, and the nearest values
    that are right.
    """
    error = Invalid(f"{field}: {problem}")
    error.field, error.nearest = field, nearest or []
    return error


def whole(field: str, value: object, least: int = 0) -> int:
    """The value as an int. Raises `Invalid` for what is no whole number from `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise invalid(field, f"{value!r} is no whole number from {least}", [least])
    return number
