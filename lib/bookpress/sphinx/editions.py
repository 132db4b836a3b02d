"""The edition that is printed, for all parts of this package that speak of addresses."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

from bookpress.edition import Edition, edition_of

_SETTING = "measured_edition"


def edition_in(app: Sphinx) -> Edition:
    """Return the edition that is printed."""
    return Edition(**app.config[_SETTING])


def edition_words(edition: Edition) -> str:
    """Say in a few words which edition a page belongs to."""
    if edition.released:
        return f"edition {edition.name}"
    return f"latest edition{f' (commit {edition.commit[:12]})' if edition.commit else ''}"


def write_if_new(path: Path, text: str) -> None:
    """Write a file unless it holds this text already."""
    if not path.is_file() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _find(app: Sphinx, config: Config) -> None:
    """Find the edition, and let notebooks link the pages of their own."""
    edition = edition_of(Path(app.srcdir))
    config[_SETTING] = dict(vars(edition))
    if edition.site:
        config.html_baseurl = edition.address().rstrip("/")


def setup(app: Sphinx) -> None:
    """Have the edition known before anything is read; where it changes, all pages are read again."""
    app.add_config_value(_SETTING, {}, "env", dict)
    app.connect("config-inited", _find)
