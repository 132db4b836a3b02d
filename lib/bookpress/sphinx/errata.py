"""The errata: what the book said wrongly, since when, how it was found, and what stands there now.

The page `measured_errata` (a setting) holds the place ``{errata}``. Its entries stand beside it in one file,
which has the page's name and ends in `.toml`: a table ``[[erratum]]`` for each, with the keys of `Erratum`.
Each chapter with entries becomes a section with the label `errata-at-inference`, in the order of the file, and
its foot links it.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

_PLACE = re.compile(r"^```\{errata\}\n```$", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_SHOWN = "measured_errata_shown"
"""Page metadata: a digest of the entries that the page shows or counts."""
_AFTER_THE_PROSE_IS_READ = 200


@dataclass(frozen=True)
class Erratum:
    """One error of the book.

    Attributes:
        chapter: the page that had it, as in `_toc.yml`.
        place: the label of its section.
        said: the words that were wrong, as they stood in the page's source; they stand there no longer.
        beside: where something was missing, words that stand there still, beside which it was; either this or
            `said` is given.
        wrong: what is wrong about them, or what was missing.
        now: what stands there now.
        found: how the error was found.
        since: the day on which the words came into the book.
        mended: the day on which they left it.
        open: what is still to be measured before more can be said; empty where nothing is.
    """

    chapter: str
    place: str
    wrong: str
    now: str
    found: str
    since: datetime.date
    mended: datetime.date
    said: str = ""
    beside: str = ""
    open: str = ""


def read_errata(path: Path) -> list[Erratum]:
    """Read a file of errata.

    Raises:
        ValueError: an entry that lacks something, has a key that none has, a text where a day is expected or
            the other way round, or a day of mending before that of the error.
    """
    found = tomllib.loads(path.read_text("utf-8"))
    if set(found) != {"erratum"}:
        raise ValueError(f"{path.name}: expected tables [[erratum]] alone, got {', '.join(found)}")
    return [
        _checked(entry, f"{path.name}, entry {n}") for n, entry in enumerate(found["erratum"], 1)
    ]


def _checked(entry: Mapping[str, Any], where: str) -> Erratum:
    known = {field.name for field in fields(Erratum)}
    if lacking := sorted(known - {"said", "beside", "open"} - set(entry)):
        raise ValueError(f"{where}: expected the keys {', '.join(lacking)} as well")
    if ("said" in entry) == ("beside" in entry):
        raise ValueError(f"{where}: expected either the key said or the key beside")
    if strange := sorted(set(entry) - known):
        raise ValueError(f"{where}: expected the keys {', '.join(sorted(known))}, got {strange[0]}")
    for key, value in entry.items():
        day = key in ("since", "mended")
        if day != isinstance(value, datetime.date) or not (day or isinstance(value, str)):
            kind = "a day such as 2026-11-25" if day else "a text"
            raise ValueError(f"{where}: expected {kind} for {key}, got {value!r}")
        if not day and not value.strip():
            raise ValueError(f"{where}: expected words for {key}, got none")
    if entry["mended"] < entry["since"]:
        raise ValueError(
            f"{where}: expected a day of mending from {entry['since']} on, got {entry['mended']}"
        )
    return Erratum(**entry)


# Pages ------------------------------------------------------------------------------------------


def way_to(env: BuildEnvironment, docname: str) -> nodes.reference | None:
    """Return a link to a chapter's errata, and note how they stand; nothing where it has none."""
    own = [one for one in _errata(env) if one.chapter == docname]
    env.metadata[docname][_SHOWN] = _digest(own)
    page = env.config.measured_errata
    if not own or page not in env.found_docs:
        return None
    uri = f"{env.app.builder.get_relative_uri(docname, page)}#errata-{Path(docname).name}"
    return nodes.reference("", f"Errata ({len(own)})", refuri=uri, internal=True)


def _file(env: BuildEnvironment) -> Path:
    return Path(env.srcdir) / f"{env.config.measured_errata}.toml"


def _errata(env: BuildEnvironment) -> list[Erratum]:
    path = _file(env)
    return read_errata(path) if path.is_file() else []


def _digest(errata: Sequence[Erratum]) -> str:
    return hashlib.sha256(repr(errata).encode()).hexdigest()


def _take_up(app: Sphinx, docname: str, source: list[str]) -> None:
    """Write the entries into their page."""
    if docname != app.config.measured_errata:
        return
    env, errata = app.env, _errata(app.env)
    env.metadata[docname][_SHOWN] = _digest(errata)
    source[0] = _PLACE.sub(lambda _: written(errata, Path(env.srcdir)), source[0])


def written(errata: Sequence[Erratum], book: Path) -> str:
    """Write entries as the sections of a page, a section for each chapter, in MyST Markdown.

    Args:
        errata: the entries; chapters stand in the order in which they occur.
        book: the folder that the chapters' names start from.
    """
    sections = []
    for chapter in dict.fromkeys(one.chapter for one in errata):
        own = [one for one in errata if one.chapter == chapter]
        title = _TITLE.search((book / f"{chapter}.md").read_text("utf-8"))
        head = f"(errata-{Path(chapter).name})=\n## {title[1] if title else chapter}\n\n"
        way = f"In {{doc}}`the chapter </{chapter}>`:\n\n"
        sections.append(head + way + "\n\n".join(_item(one) for one in own))
    return "\n\n".join(sections) or "No error is known."


def _item(one: Erratum) -> str:
    """Write one entry as an item of a list."""
    words = f"said: “{one.said}”" if one.said else f"had, and has: “{one.beside}”"
    days = f"since {one.since.isoformat()}, mended {one.mended.isoformat()}"
    lines = [
        f"{{ref}}`The section <{one.place}>` {words}",
        f"**{'Wrong' if one.said else 'Missing'}:** {one.wrong.strip()}",
        f"**Now:** {one.now.strip()}",
        *([f"**Still to be measured:** {one.open.strip()}"] if one.open else []),
        f"Found by {one.found.strip()}; {days}.",
    ]
    return "- " + "\n\n  ".join(" ".join(line.split()) for line in lines)


def _read_again(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Read pages again whose entries have changed: the errata, and the chapters whose feet link them."""
    del added, changed, removed
    page, errata = app.config.measured_errata, _errata(env)
    shown = {name: env.metadata[name].get(_SHOWN) for name in env.all_docs}
    own = {name: [one for one in errata if one.chapter == name] for name in shown}
    own[page] = errata
    return [name for name, digest in shown.items() if digest and digest != _digest(own[name])]


def setup(app: Sphinx) -> None:
    """Register the setting, and write the entries when their page is read."""
    app.add_config_value("measured_errata", "book/about/errata", "env", str)
    app.connect("source-read", _take_up, priority=_AFTER_THE_PROSE_IS_READ)
    app.connect("env-get-outdated", _read_again)
