"""Letters after the year where two works would be cited alike: Zhong et al. 2023a and 2023b.

The letters go into the bibliography's own data, so that citation and list agree. They follow the works' titles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from string import ascii_lowercase
from typing import Any

from sphinx.application import Sphinx

_AFTER_THE_BIBLIOGRAPHY_IS_READ = 600


def give_letters(entries: Mapping[str, Any]) -> None:
    """Put a letter after the year of each work that shares its names and year with another.

    Works without a year get none: they are not told apart by it.
    """
    alike: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for entry in entries.values():
        year = str(entry.fields.get("year", "")).rstrip(ascii_lowercase)
        if year:
            entry.fields["year"] = year
            alike[_names(entry), year].append(entry)
    for (_, year), group in alike.items():
        if len(group) > 1:
            ordered = sorted(group, key=lambda entry: (_title(entry), entry.key))
            for letter, entry in zip(ascii_lowercase, ordered, strict=False):
                entry.fields["year"] = f"{year}{letter}"


def _names(entry: Any) -> str:
    """Return whom a citation names: one author, two, or the first and the others."""
    people = entry.persons.get("author") or entry.persons.get("editor") or []
    last = [" ".join((*person.prelast_names, *person.last_names)) for person in people]
    return f"{last[0]} et al." if len(last) > 2 else " and ".join(last)


def _title(entry: Any) -> str:
    return str(entry.fields.get("title", "")).casefold().lstrip("{")


def _give(app: Sphinx) -> None:
    domain: Any = app.env.get_domain("cite") if app.env.domains.get("cite") else None
    if domain is not None:
        give_letters(domain.bibdata.data.entries)


def setup(app: Sphinx) -> None:
    """Give letters as soon as the bibliography is read."""
    app.connect("builder-inited", _give, priority=_AFTER_THE_BIBLIOGRAPHY_IS_READ)
