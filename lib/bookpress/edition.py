"""Which edition of the book is printed, and the addresses that it will have.

An edition is a release, named by its tag (`v0.2`), or `latest`, the state of the branch `main`. What is
printed knows it from two variables: `MEASURED_EDITION` and `MEASURED_COMMIT`, which publishing sets; without
them it is `latest`, of no commit. Title, version, date and authors come from `CITATION.cff`, and the site's
address from that of the repository in `_config.yml`, by the rule of GitHub's Pages.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

LATEST = "latest"
EDITION, COMMIT = "MEASURED_EDITION", "MEASURED_COMMIT"
NOTE = "edition.json"
"""The file beside the pages that says which edition they are."""
CLAIMS = "claims"
"""Folder of the pages that are the claims' addresses."""
PDF = "measured-transformer.pdf"
"""The file beside the published pages that has the book as one PDF."""
VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
"""A version of the book: `0.2`, or `0.2.1` where it mends an earlier one. Its tag has a `v` before it."""
_HASH = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True)
class Edition:
    """What a page says of the edition that it belongs to.

    Attributes:
        name: the tag of a release, or `latest`.
        commit: the commit that was printed; "" where nobody said.
        version: of the library, which is the book's too.
        year: in which this version was released.
        title: of the book.
        author: of the book, as `CITATION.cff` names the first.
        repository: its address.
        site: address under which all editions are published, without a slash at its end.
    """

    name: str
    commit: str
    version: str
    year: str
    title: str
    author: str
    repository: str
    site: str

    @property
    def released(self) -> bool:
        """True if this is a release, whose addresses stay."""
        return self.name != LATEST

    def address(self, path: str = "", edition: str | None = None) -> str:
        """Return the address of a file of this edition, or of another."""
        return f"{self.site}/{edition or self.name}/{path}"

    def claim_address(self, claim: str) -> str:
        """Return the address of a claim in this edition."""
        return self.address(f"{CLAIMS}/{claim}.html")

    def pinned(self, claim: str) -> str:
        """Return the name of a claim as this edition judges it: `DD-3.9@v0.2`.

        Between releases the commit takes the place of the tag, where it is known.
        """
        return f"{claim}@{self.name if self.released or not self.commit else self.commit[:7]}"

    @property
    def code_at(self) -> str:
        """What names the code of this edition in the repository: its commit, else its tag or the branch."""
        return self.commit or (self.name if self.released else "main")


def edition_of(root: Path, environ: Mapping[str, str] = os.environ) -> Edition:
    """Read which edition of a book is printed.

    Args:
        root: the book's root folder.
        environ: where the two variables are looked up.

    Raises:
        ValueError: a variable that is no tag, or no commit.
    """
    name = environ.get(EDITION) or LATEST
    commit = environ.get(COMMIT) or ""
    if name != LATEST and not is_tag(name):
        raise ValueError(f"expected {EDITION} to be {LATEST} or a tag such as v0.2, got {name!r}")
    if commit and not _HASH.fullmatch(commit):
        raise ValueError(f"expected {COMMIT} to be the hash of a commit, got {commit!r}")
    config = _loaded(root / "_config.yml")
    cited = _loaded(root / "CITATION.cff")
    first: dict[str, Any] = next(iter(cited.get("authors", ())), {})
    repository = str(config.get("repository", {}).get("url", "")).rstrip("/")
    return Edition(
        name=name,
        commit=commit,
        version=str(cited.get("version", "")),
        year=str(cited.get("date-released", ""))[:4],
        title=str(cited.get("title") or config.get("title", "")),
        author=str(first.get("name", "")),
        repository=repository,
        site=str(config.get("html", {}).get("baseurl") or site_of(repository)).rstrip("/"),
    )


def is_tag(name: str) -> bool:
    """Return whether a release could have this name.

    >>> is_tag("v0.2"), is_tag("v0.2.1"), is_tag("0.2"), is_tag("v0")
    (True, True, False, False)
    """
    return name.startswith("v") and VERSION.fullmatch(name[1:]) is not None


def site_of(repository: str) -> str:
    """Return where GitHub publishes the Pages of a repository; "" for one that lies elsewhere.

    >>> site_of("https://github.com/Owner/name")
    'https://owner.github.io/name'
    """
    parts = urlparse(repository)
    path = [part for part in parts.path.split("/") if part]
    if parts.hostname != "github.com" or len(path) != 2:
        return ""
    return f"https://{path[0].lower()}.github.io/{path[1]}"


def note_text(edition: Edition) -> str:
    """Return an edition as the text of the file that lies beside its pages."""
    return json.dumps(asdict(edition), indent=1, ensure_ascii=False) + "\n"


def read(pages: Path) -> Edition:
    """Read which edition lies in a folder of printed pages.

    Raises:
        ValueError: no printed book lies there.
    """
    path = pages / NOTE
    if not path.is_file():
        raise ValueError(f"expected a printed book, with {NOTE} in it, got {pages}")
    return Edition(**json.loads(path.read_text("utf-8")))


def _loaded(path: Path) -> dict[str, Any]:
    import yaml  # not needed by those that only read what an edition is

    found = yaml.safe_load(path.read_text("utf-8")) if path.is_file() else None
    return found if isinstance(found, dict) else {}
