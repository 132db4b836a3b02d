"""Pages that measure something print what their room's kept results say, judged as they are printed.

A page belongs to a room when its front matter says so: ``measured: {room: positional_encoding}``. Its
numbers and verdicts come from the room's results. A chapter of two rooms names the other one, too:
``measured: {room: heads, further: [one_head]}``; numbers of that one have its name in front of them.
A result that does not hold for the code as it is now (`Shown.why` says what to run) is marked wherever it
stands, and complained of: that fails the strict build and lets a plain one print the marked page, which every
later build reads again.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from measured_transformer.provenance import files_of_source, unchanging
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookpress import chapters
from bookpress.sphinx.page import TYPE, logger, warn

ROOM = "measured_room"
"""Page metadata: the room that the page belongs to."""
ROOMS = "measured_rooms"
"""Page metadata: all rooms that feed the page, its own first."""
SHARED = "measured_shared"
"""Page metadata: other pages that the page's rooms feed."""
INVALID = "invalid-result"
"""Subtype of the complaint that a result is not valid."""
_MARKED = "measured_marked"
_VALID = ("current", "attested")


class Shown(Protocol):
    """A result as a page shows it."""

    name: str
    what: str
    state: str
    why: str
    result: Any
    """The `evidence.results.Result`; None where it is missing or damaged."""

    @property
    def seeds(self) -> list[int]:
        """The seeds; none where the result is missing."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where and when it was measured."""

    @property
    def path(self) -> Path | None:
        """Its file."""


class Judged(Protocol):
    """A room's claims and numbers, as its results give them now."""

    @property
    def records(self) -> Mapping[str, Any]:
        """Claim -> its record."""

    @property
    def values(self) -> Mapping[str, Any]:
        """The numbers that the prose names."""

    @property
    def results(self) -> Mapping[str, Any]:
        """Name of a measurement -> what is shown of it."""


@dataclass(frozen=True)
class _Nothing:
    """What is known of a room that cannot be judged."""

    records: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)


def room_of(env: BuildEnvironment, docname: str | None = None) -> str | None:
    """Return the room of a page, of the one being read where none is named; None for all others."""
    found: str | None = env.metadata[docname or env.docname].get(ROOM)
    return found


def rooms_of(env: BuildEnvironment, docname: str | None = None) -> list[str]:
    """Return all rooms that feed a page, its own first; none for a page that measures nothing."""
    return list(env.metadata[docname or env.docname].get(ROOMS, ()))


def shared_with(env: BuildEnvironment, docname: str | None = None) -> list[str]:
    """Return the other pages that a page's rooms feed, as its front matter names them."""
    return list(env.metadata[docname or env.docname].get(SHARED, ()))


def records_of(env: BuildEnvironment) -> dict[str, Any]:
    """Return claim -> its record, of all rooms of the page being read."""
    return {
        claim_id: record
        for room in rooms_of(env)
        for claim_id, record in judged(env, room).records.items()
    }


def judged(env: BuildEnvironment, room: str) -> Judged:
    """Return what a room's results say; judged once a build, with complaints of what does not work."""
    kept: dict[str, Judged] = env.app.__dict__.setdefault("measured_judged", {})
    if room not in kept:
        try:
            with unchanging():  # or the same modules are looked for again for each measurement
                kept[room] = _judging(env).judge_room(room)
        except (ValueError, KeyError, ImportError) as error:
            warn(f"room {room}: {_words(error)}", "record", env.docname)
            kept[room] = _Nothing()
    return kept[room]


def _judging(env: BuildEnvironment) -> Any:
    """The module that judges, of which `judge_room`, `value_of` and `results_of` are asked for here."""
    return importlib.import_module(env.config.measured_judging)


def _words(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__


# Numbers and claims of a page ---------------------------------------------------------------------


def value(env: BuildEnvironment, room: str, expression: str) -> tuple[str, str]:
    """Return the words for an expression, and why it may not hold: nothing where it does.

    Raises:
        KeyError: a path that leads nowhere.
        ValueError: a label, reduction or format that does not fit.
    """
    doubt = doubts_of(env, room, expression)
    try:
        return _judging(env).value_of(judged(env, room), expression), doubt
    except ValueError:
        if doubt:
            return "?", doubt
        raise


def addressed(env: BuildEnvironment, expression: str) -> tuple[str | None, str]:
    """Return the room that an expression speaks of, and the rest of it.

    ``one_head/spares.rise|mean:.2f`` names a room of its own, as a page does that tells of several
    chapters; any other expression belongs to the room of the page being read.
    """
    room, sign, rest = expression.partition("/")
    if not sign or not room.isidentifier():
        return room_of(env), expression
    _depend(env, room)
    return room, rest


def read_by(env: BuildEnvironment, room: str, expression: str) -> list[Shown]:
    """Return the results that an expression, or a claim, stands on."""
    found = judged(env, room)
    if isinstance(found, _Nothing):
        return []
    names: Iterable[str] = _judging(env).results_of(found, expression)
    return [found.results[name] for name in names]


def doubts_of(env: BuildEnvironment, room: str, expression: str) -> str:
    """Say why an expression or claim may not hold; nothing where all results that it stands on do."""
    whys = [doubt_of(shown) for shown in read_by(env, room, expression)]
    return "; ".join(dict.fromkeys(why for why in whys if why))


def doubt_of(shown: Shown) -> str:
    """Say why a result does not hold, and what to run; nothing where it holds."""
    return "" if shown.state in _VALID else shown.why


def complain(env: BuildEnvironment) -> None:
    """Complain of each result of a page's rooms that does not hold, and have the page read again."""
    for shown in (one for room in rooms_of(env) for one in judged(env, room).results.values()):
        if why := doubt_of(shown):
            env.metadata[env.docname][_MARKED] = True
            logger.warning(why, type=TYPE, subtype=INVALID, location=env.docname)


# The room of the page being read ------------------------------------------------------------------


def _note_room(app: Sphinx, docname: str, source: list[str]) -> None:
    """Keep which room a page belongs to, and read the page again when what it shows may have changed."""
    if docname not in app.env.found_docs or not str(app.env.doc2path(docname)).endswith(".md"):
        return
    about = chapters.front_matter(source[0])
    own = chapters.rooms_of(about)
    if not own:
        return
    app.env.metadata[docname][ROOM], app.env.metadata[docname][ROOMS] = own[0], own
    app.env.metadata[docname][SHARED] = chapters.shared_with(about)
    for room in own:
        _depend(app.env, room)


def _depend(env: BuildEnvironment, room: str) -> None:
    """Have the page being read read again when what a room says may have changed."""
    for shown in judged(env, room).results.values():
        if shown.path is not None:
            env.note_dependency(str(shown.path))
    for path in _reached(room):
        env.note_dependency(str(path))


def declared(text: str) -> str | None:
    """Return the room that the front matter of a page names; None where it names none."""
    return next(iter(chapters.rooms_of(chapters.front_matter(text))), None)


def _reached(room: str) -> list[Path]:
    """The files of the library that a room's measurements, and what its claims are judged by, may use."""
    names = [f"measured_book.rooms.{room}.{file}" for file in ("measure", "reading")]
    with unchanging():
        return files_of_source([f"import {name}\n{name}" for name in names])


def _read_marked_again(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    del app, added, changed, removed
    return [name for name in env.all_docs if env.metadata[name].get(_MARKED)]


def setup(app: Sphinx) -> None:
    """Register the setting, and look at each page before anything else does."""
    app.add_config_value("measured_judging", "measured_book.measuring.judging", "env", str)
    app.connect("source-read", _note_room, priority=50)
    app.connect("env-get-outdated", _read_marked_again)
