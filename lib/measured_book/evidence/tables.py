"""Reads TOML tables field by field; errors name the place, the field, what was expected and what came."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any


class Table:
    """Reads a TOML table field by field; errors name the place."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = dict(data)
        self.where = where
        self.allowed: list[str] = []

    def error(self, field: str, expected: str, came: object) -> ValueError:
        """The error for a field: its place, what was expected and what came."""
        came = came if isinstance(came, Words) else repr(came)
        return ValueError(f"{self.where}, field {field}: expected {expected}, got {came}")

    def take(self, field: str) -> Any:
        """Remove a field and return its value; None when it is not there."""
        self.allowed.append(field)
        return self.data.pop(field, None)

    def text(self, field: str, *, needed: bool = True) -> str | None:
        """A field's text with single spaces; None when it is not there and not needed."""
        value = self.take(field)
        if value is None and not needed:
            return None
        if value is None:
            raise self.error(field, "a text", Words("nothing"))
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, "a text that is not empty", value)
        return " ".join(value.split())

    def needed_text(self, field: str) -> str:
        """The text of a field that must be there."""
        value = self.text(field)
        assert value is not None
        return value

    def choice(self, field: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """A field that is one of several texts."""
        value = self.take(field)
        value = default if value is None else value
        if value not in choices:
            came = Words("nothing") if value is None else value
            raise self.error(field, "one of " + ", ".join(choices), came)
        return str(value)

    def done(self) -> None:
        """Raise a ValueError for a field that nobody asked for, with the nearest of those that were."""
        if self.data:
            field = next(iter(self.data))
            near = difflib.get_close_matches(field, self.allowed, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise self.error(field, "only the fields " + ", ".join(self.allowed), field + hint)


class Words(str):
    """Words that an error message shows without quotes."""
