"""Publish a printed book: its pages on one branch, its notebooks on another, an edition a folder.

    python -m bookpress.publish --remote origin

The branch `pages` is what GitHub serves as the site: `latest/`, a folder for each release (`v0.2/`), and at its
root the way to the newest, the list of all editions and a map for search engines. The branch `notebooks` has
the same folders, with the notebooks that the pages' Colab buttons open. Each push replaces one edition and
leaves all others as they are; a release is written once. Both branches have one commit, so that the
repository does not grow with each print. Nothing but git and Python's own library is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from html import escape
from pathlib import Path

from bookpress.edition import LATEST, NOTE, VERSION, Edition, is_tag, read

PAGES, NOTEBOOKS = "pages", "notebooks"
PRINTED = Path("_build/html")
_NOT_PUBLISHED = shutil.ignore_patterns(".buildinfo*", ".doctrees", "*.map")
_IDENTITY = ("-c", "user.name=bookpress", "-c", "user.email=bookpress@users.noreply.github.com")
_NUMBERS = re.compile(r"\d+")

_PLAIN = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{more}<style>
:root {{ color-scheme: light dark; }}
body {{ max-width: 40rem; margin: 2rem auto; padding: 0 1rem; font: 1.05rem/1.55 system-ui, sans-serif; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def publish(pages: Path, remote: str, replace: bool = False) -> list[str]:
    """Publish what was printed.

    Args:
        pages: the folder of the printed pages.
        remote: the address of the repository, or a path.
        replace: write a release again that is there already.

    Returns:
        What was done, a line for each branch.

    Raises:
        ValueError: no printed book, one of no commit, or a release that is there with other pages.
        RuntimeError: git refused.
    """
    edition = read(pages)
    if not edition.commit:
        raise ValueError(
            "expected pages that know their commit, got none; print with MEASURED_COMMIT set "
            "(make publish does it)"
        )
    done = []
    for branch, source in ((PAGES, pages), (NOTEBOOKS, pages / "_notebooks")):
        with tempfile.TemporaryDirectory() as folder:
            done.append(_publish(Path(folder), branch, source, edition, remote, replace))
    return done


def _publish(
    work: Path, branch: str, source: Path, edition: Edition, remote: str, replace: bool
) -> str:
    before = _take(work, branch, remote)
    target = work / edition.name
    if edition.released and target.exists() and not replace:
        if branch == NOTEBOOKS or _commit_of(target) == edition.commit:
            return f"{branch}: {edition.name} is there, and stays as it is"
        raise ValueError(
            f"expected a release that is not published yet, got {edition.name}, which is there, printed "
            f"from {_commit_of(target)[:12]}: the addresses of a release keep what they have (--replace "
            "writes it again)"
        )
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=_NOT_PUBLISHED)
    if branch == PAGES:
        _write_root(work, edition)
    else:
        (work / "README.md").write_text(_about_notebooks(edition), "utf-8")
    _git(work, "add", "--all", "--force")
    tree = _git(work, "write-tree")
    if before and tree == _git(work, "rev-parse", f"{before}^{{tree}}"):
        return f"{branch}: {edition.name} is as it was"
    words = f"{edition.title}, {edition.name}, of {edition.commit}"
    made = _git(work, *_IDENTITY, "commit-tree", tree, "-m", words)
    ref = f"refs/heads/{branch}"
    _git(work, "push", "--quiet", f"--force-with-lease={ref}:{before}", remote, f"{made}:{ref}")
    return f"{branch}: {edition.name} published, from commit {edition.commit[:12]}"


def _take(work: Path, branch: str, remote: str) -> str:
    """Lay out what a branch holds now, in a folder; returns its commit, or "" where it is new."""
    _git(work, "init", "--quiet")
    ref = f"refs/heads/{branch}"
    listed = _git(work, "ls-remote", remote, ref)
    if not listed:
        return ""
    before = listed.split()[0]
    _git(work, "fetch", "--quiet", "--depth=1", remote, ref)
    _git(work, "checkout", "--quiet", "--detach", before)
    return before


def _commit_of(folder: Path) -> str:
    note = folder / NOTE
    return str(json.loads(note.read_text("utf-8"))["commit"]) if note.is_file() else ""


def editions_in(site: Path) -> list[str]:
    """Return the editions of a site: `latest` first, then releases from the newest on."""
    found = [path.parent.name for path in site.glob(f"*/{NOTE}")]
    return sorted(found, key=lambda n: (n == LATEST, *map(int, _NUMBERS.findall(n))), reverse=True)


def _write_root(site: Path, edition: Edition) -> None:
    """Write what lies beside the editions."""
    names = editions_in(site)
    notes = {name: read(site / name) for name in names}
    releases = [name for name in names if name != LATEST]
    first = LATEST if LATEST in names else releases[0]
    (site / ".nojekyll").write_text("", "utf-8")
    listed = {"editions": names, "newest": releases[0] if releases else first}
    (site / "editions.json").write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
    lines = "\n".join(
        f'<li><a href="{name}/index.html">{escape(name)}</a>, {_told(notes[name])}</li>'
        for name in names
    )
    title = escape(edition.title)
    pages = {
        "index.html": _PLAIN.format(
            title=title,
            more=f'<meta http-equiv="refresh" content="0; url={first}/index.html">\n',
            body=f'<p><a href="{first}/index.html">To the book</a></p>',
        ),
        "editions.html": _PLAIN.format(
            title=f"Editions of {title}", more="", body=f"<ul>\n{lines}\n</ul>"
        ),
        "404.html": _PLAIN.format(
            title="No such page",
            more="",
            body=f'<p>The page may have moved. <a href="{edition.site}/{first}/index.html">{title}</a> '
            f'has a table of contents and a search, and <a href="{edition.site}/editions.html">its '
            "editions</a> keep their pages.</p>",
        ),
    }
    for name, text in pages.items():
        (site / name).write_text(text, "utf-8")
    if (site / first / "sitemap.xml").is_file():
        shutil.copyfile(site / first / "sitemap.xml", site / "sitemap.xml")


def _told(edition: Edition) -> str:
    at = f"commit {edition.commit[:12]}"
    return f"a release, {at}" if edition.released else f"the branch main, {at}"


def _about_notebooks(edition: Edition) -> str:
    return (
        f"# Notebooks of {edition.title}\n\nWritten by the press with every print, an edition a folder; "
        f"the pages' Colab buttons open them. The book is at <{edition.site}/>.\n\n"
        "Their text is under the [Creative Commons Attribution licence 4.0]"
        "(https://creativecommons.org/licenses/by/4.0/) (CC BY 4.0), their code under the three-clause BSD "
        f"licence (BSD-3-Clause); say that they are from {edition.title}, and link to it.\n"
    )


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise RuntimeError(f"git {arguments[0]} failed: {words[-1] if words else done.returncode}")
    return done.stdout.strip()


# A release --------------------------------------------------------------------------------------


def release(root: Path, version: str, today: date) -> str:
    """Give the book a new version, and commit and tag it; nothing is pushed. Returns the tag.

    Everything is looked at before anything is written, and where git then refuses, all is put back.

    Raises:
        ValueError: a version that is none or is there, a tree with changes, nothing in the changelog, or a file
            without the line that is to say the version.
        RuntimeError: git refused.
    """
    if not VERSION.fullmatch(version):
        raise ValueError(f"expected a version such as 0.2 or 0.2.1, got {version!r}")
    tag = f"v{version}"
    if there := [name for name in _git(root, "tag").split() if _same(name, tag)]:
        raise ValueError(
            f"expected a new version, got {version}, of which there is the tag {there[0]}"
        )
    if changed := _git(root, "status", "--porcelain").splitlines():
        named = ", ".join(line.strip() for line in changed[:3])
        raise ValueError(f"expected all to be committed before a release, got changes: {named}")
    before = _git(root, "rev-parse", "HEAD")
    old, new = _with_version(root, version, today.isoformat())
    try:
        _write(new)
        _git(root, "commit", "--quiet", "--all", "--message", f"Release {version}")
        _git(root, "tag", "--annotate", tag, "--message", f"Release {version}")
    except (RuntimeError, OSError):
        _write(old)
        _git(root, "reset", "--quiet", before)
        raise
    return tag


def _same(one: str, other: str) -> bool:
    """Return whether two tags name one version: `v0.2` and `v0.2.0` do."""
    if not (is_tag(one) and is_tag(other)):
        return False
    a, b = ([int(number) for number in _NUMBERS.findall(name)] for name in (one, other))
    return [*a, 0][:3] == [*b, 0][:3]


def _with_version(root: Path, version: str, day: str) -> tuple[dict[Path, str], dict[Path, str]]:
    """Return the files that say the version, as they are and as they are to be."""
    names = ("CHANGELOG.md", "pyproject.toml", "CITATION.cff", "codemeta.json", ".zenodo.json")
    old = {name: (root / name).read_text("utf-8") for name in names}
    new = dict(old)

    def replace(name: str, pattern: str, by: str) -> None:
        new[name], count = re.subn(pattern, by, new[name], flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"expected one line like {pattern} in {name}, got {count}")

    unreleased = re.search(
        r"^## Unreleased\n(.*?)(?=^## |\Z)", old["CHANGELOG.md"], re.DOTALL | re.MULTILINE
    )
    if unreleased is None or not unreleased[1].strip():
        raise ValueError("expected CHANGELOG.md to say under Unreleased what changed, got nothing")
    replace("CHANGELOG.md", r"^## Unreleased$", f"## Unreleased\n\n## {version} ({day})")
    replace("pyproject.toml", r'^version = "[^"]+"$', f'version = "{version}"')
    replace("CITATION.cff", r"^version: .+$", f'version: "{version}"')
    replace("CITATION.cff", r"^date-released: .+$", f'date-released: "{day}"')
    for name, dated in (("codemeta.json", "dateModified"), (".zenodo.json", "publication_date")):
        replace(name, r'^(\s*)"version": "[^"]+"', rf'\g<1>"version": "{version}"')
        replace(name, rf'^(\s*)"{dated}": "[^"]+"', rf'\g<1>"{dated}": "{day}"')
    was, to_be = ({root / name: text for name, text in texts.items()} for texts in (old, new))
    return was, to_be


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text, "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish, or make a release; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m bookpress.publish", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--pages", type=Path, default=PRINTED, help="what was printed")
    parser.add_argument("--remote", default="origin", help="the repository: an address or a remote")
    parser.add_argument("--replace", action="store_true", help="write a release again")
    parser.add_argument(
        "--release", metavar="VERSION", help="instead: commit and tag a new version"
    )
    options = parser.parse_args(arguments)
    try:
        if options.release is not None:
            tag = release(Path(), options.release, date.today())
            print(f"committed and tagged {tag}; to publish it: git push --follow-tags")
            return 0
        for line in publish(options.pages, _address(options.remote), options.replace):
            print(line)
    except (ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _address(remote: str) -> str:
    """Return the address of a remote of the repository around the working directory, or what was given."""
    if re.fullmatch(r"[\w.-]+", remote):
        return _git(Path(), "remote", "get-url", "--push", remote)
    return str(Path(remote).resolve()) if Path(remote).is_dir() else remote


if __name__ == "__main__":
    raise SystemExit(main())
