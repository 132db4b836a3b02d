"""Publishing into a repository that is thrown away, and making a release."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

import pytest
import yaml
from bookpress.edition import Edition, edition_of, note_text
from bookpress.publish import editions_in, main, publish, release
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    command = ["git", *who, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    return tmp_path / "remote.git"


def printed(folder: Path, name: str, commit: str, page: str = "a page", code: str = "1") -> Path:
    """Write what a print leaves: a page, a notebook, the note on the edition and a sitemap."""
    edition = Edition(
        name, commit * 40, "0.2.0", "2027", "A Book", "We", "https://r", "https://site/b"
    )
    shutil.rmtree(folder, ignore_errors=True)
    files = {
        "index.html": page,
        "sitemap.xml": f"<urlset>{name}</urlset>",
        "edition.json": note_text(edition),
        "_notebooks/book/one.ipynb": code,
        ".buildinfo": "not published",
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def held(remote: Path, branch: str) -> dict[str, str]:
    names = git(remote, "ls-tree", "-r", "--name-only", branch).splitlines()
    return {name: git(remote, "show", f"{branch}:{name}") for name in names}


def test_pages_and_notebooks_are_pushed_where_buttons_and_addresses_point(
    tmp_path: Path, remote: Path
):
    done = publish(printed(tmp_path / "html", "latest", "a"), str(remote))
    assert [line.split(",")[0] for line in done] == [
        "pages: latest published",
        "notebooks: latest published",
    ]
    pages = held(remote, "pages")
    assert pages["latest/index.html"] == "a page"
    assert "latest/.buildinfo" not in pages
    assert 'url=latest/index.html"' in pages["index.html"]
    assert pages["sitemap.xml"] == "<urlset>latest</urlset>"
    assert ".nojekyll" in pages, "folders that begin with a line are served only with it"
    assert 'href="https://site/b/latest/index.html"' in pages["404.html"]
    notebooks = held(remote, "notebooks")
    assert notebooks["latest/book/one.ipynb"] == "1"
    for licence in ("CC BY 4.0", "BSD-3-Clause"):
        assert licence in notebooks["README.md"], (
            "whoever finds a notebook there learns its licence"
        )


def test_editions_lie_side_by_side_and_the_newest_comes_first(tmp_path: Path, remote: Path):
    for name, commit in (("v0.2", "b"), ("latest", "c"), ("v0.10", "d")):
        publish(printed(tmp_path / "html", name, commit, page=name), str(remote))
    pages = held(remote, "pages")
    assert {pages[f"{name}/index.html"] for name in ("v0.2", "latest", "v0.10")} == {
        "v0.2",
        "latest",
        "v0.10",
    }
    assert json.loads(pages["editions.json"]) == {
        "editions": ["latest", "v0.10", "v0.2"],
        "newest": "v0.10",
    }
    assert pages["editions.html"].count("<li>") == 3


def test_a_print_replaces_its_own_edition_and_the_branch_stays_one_commit(
    tmp_path: Path, remote: Path
):
    folder = tmp_path / "html"
    publish(printed(folder, "latest", "a"), str(remote))
    printed(folder, "latest", "b", page="another")
    (folder / "more.html").write_text("more")
    publish(folder, str(remote))
    publish(printed(folder, "latest", "c", page="a third"), str(remote))
    pages = held(remote, "pages")
    assert pages["latest/index.html"] == "a third"
    assert "latest/more.html" not in pages
    assert git(remote, "rev-list", "--count", "pages") == "1"


def test_a_release_is_written_once(tmp_path: Path, remote: Path):
    folder = tmp_path / "html"
    publish(printed(folder, "v0.2", "a"), str(remote))
    before = git(remote, "rev-parse", "pages")
    same = publish(printed(folder, "v0.2", "a"), str(remote))
    assert same[0] == "pages: v0.2 is there, and stays as it is"
    with pytest.raises(ValueError, match=r"not published yet, got v0\.2"):
        publish(printed(folder, "v0.2", "b", page="changed"), str(remote))
    assert git(remote, "rev-parse", "pages") == before
    publish(folder, str(remote), replace=True)
    assert held(remote, "pages")["v0.2/index.html"] == "changed"


def test_what_is_as_it_was_is_not_pushed(tmp_path: Path, remote: Path):
    publish(printed(tmp_path / "html", "latest", "a"), str(remote))
    before = git(remote, "rev-parse", "pages", "notebooks")
    done = publish(tmp_path / "html", str(remote))
    assert done == ["pages: latest is as it was", "notebooks: latest is as it was"]
    assert git(remote, "rev-parse", "pages", "notebooks") == before


def test_pages_of_no_commit_are_not_published(tmp_path: Path, remote: Path):
    with pytest.raises(ValueError, match="expected pages that know their commit"):
        publish(printed(tmp_path / "html", "latest", ""), str(remote))
    assert git(remote, "for-each-ref") == ""


def test_the_command_says_what_it_did_and_what_is_wrong(tmp_path: Path, remote: Path):
    printed(tmp_path / "html", "latest", "a")
    command = [sys.executable, "-m", "bookpress.publish", "--pages", "html", "--remote"]
    where = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
    run = {"cwd": tmp_path, "env": where, "capture_output": True, "text": True}
    done = subprocess.run([*command, str(remote)], **run, check=False)
    assert done.returncode == 0, done.stderr
    assert "pages: latest published" in done.stdout
    done = subprocess.run([*command, str(tmp_path / "nowhere.git")], **run, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: git ")


def test_editions_are_ordered_by_number(tmp_path: Path):
    for name in ("v0.9", "v0.10.1", "latest", "v0.10"):
        printed(tmp_path / name, name, "a")
    assert editions_in(tmp_path) == ["latest", "v0.10.1", "v0.10", "v0.9"]


# --- A release ------------------------------------------------------------------------------------

VERSIONED = (
    "CHANGELOG.md",
    "pyproject.toml",
    "CITATION.cff",
    "codemeta.json",
    ".zenodo.json",
    "_config.yml",
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with this one's files that hold the version."""
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "Test")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "test@example.org")
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in VERSIONED:
        shutil.copy(ROOT / name, folder)
    changes = (folder / "CHANGELOG.md").read_text()
    (folder / "CHANGELOG.md").write_text(
        changes.replace("## Unreleased\n", "## Unreleased\n\nSomething.\n", 1)
    )
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "begin")
    return folder


@pytest.mark.parametrize("version", ["9.8.7", "9.10"])
def test_a_release_gives_all_files_its_version_and_a_tag(checkout: Path, version: str):
    """`9.10` is a number to YAML, and the same as `9.1`, unless it is written as a text."""
    assert release(checkout, version, date(2031, 2, 3)) == f"v{version}"
    assert git(checkout, "describe", "--tags", "--exact-match") == f"v{version}"
    assert git(checkout, "status", "--porcelain") == ""
    cited = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert (cited["version"], cited["date-released"]) == (version, "2031-02-03")
    for name in ("codemeta.json", ".zenodo.json"):
        assert json.loads((checkout / name).read_text())["version"] == version
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    assert project["version"] == version == str(Version(version)), "as a wheel writes it"
    changes = (checkout / "CHANGELOG.md").read_text()
    assert f"## Unreleased\n\n## {version} (2031-02-03)\n" in changes
    edition = edition_of(checkout, {"MEASURED_EDITION": f"v{version}"})
    assert (edition.year, edition.version) == ("2031", version)
    assert edition.pinned("DD-3.9") == f"DD-3.9@v{version}"


def refused(
    checkout: Path, words: str, version: str = "9.8.7", error: type[Exception] = ValueError
) -> None:
    """Try a release that fails, and see that files, staged changes, commits and tags are as they were."""

    def state() -> tuple[dict[str, str], str, str]:
        texts = {path.name: path.read_text() for path in checkout.iterdir() if path.is_file()}
        return texts, git(checkout, "status", "--porcelain"), git(checkout, "show-ref")

    before = state()
    with pytest.raises(error, match=words):
        release(checkout, version, date(2031, 2, 3))
    assert state() == before


@pytest.mark.parametrize("version", ["", "9", "v9.8", "9.8rc1", "9.8.7.6", "9.8\n"])
def test_what_is_no_version_is_not_released(checkout: Path, version: str):
    refused(checkout, "expected a version such as", version)


def test_a_release_needs_something_in_the_changelog(checkout: Path):
    release(checkout, "9.8.7", date(2031, 2, 3))
    refused(checkout, "say under Unreleased what changed", "9.8.8")
    assert git(checkout, "tag") == "v9.8.7"


@pytest.mark.parametrize("change", ["changed", "staged", "new"])
def test_a_release_takes_no_change_with_it_that_was_not_committed(checkout: Path, change: str):
    path = checkout / ("new.txt" if change == "new" else "_config.yml")
    path.write_text("something unfinished\n")
    if change == "staged":
        git(checkout, "add", "--all")
    refused(checkout, f"expected all to be committed before a release, got changes: .*{path.name}")


@pytest.mark.parametrize("there", ["v9.8", "v9.8.0"])
@pytest.mark.parametrize("asked", ["9.8", "9.8.0"])
def test_a_version_is_released_once(checkout: Path, there: str, asked: str):
    git(checkout, "tag", there)
    refused(
        checkout, f"expected a new version, got {asked}, of which there is the tag {there}$", asked
    )


@pytest.mark.parametrize("name", VERSIONED[1:-1])
def test_a_file_that_would_not_say_the_version_is_noticed_before_any_is_written(
    checkout: Path, name: str
):
    path = checkout / name
    path.write_text(path.read_text().replace("version", "edition"))
    git(checkout, "commit", "--quiet", "--all", "-m", "another word")
    refused(checkout, f"expected one line like .*version.* in {name}, got 0")


@pytest.mark.parametrize("step", ["commit", "tag"])
def test_where_git_refuses_a_release_all_is_put_back(checkout: Path, step: str):
    if step == "commit":
        hook = checkout / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
        hook.chmod(0o755)
    else:
        git(checkout, "config", "tag.gpgSign", "true")
        git(checkout, "config", "gpg.program", "false")
    refused(checkout, f"git {step} failed", error=RuntimeError)
    assert git(checkout, "log", "--format=%s") == "begin"


def test_without_a_version_nothing_is_released_and_nothing_published(
    tmp_path: Path,
    remote: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """`make release` without VERSION hands over an empty one; what is printed lies ready to be pushed."""
    printed(tmp_path / "html", "latest", "a")
    monkeypatch.chdir(tmp_path)
    assert main(["--pages", "html", "--remote", str(remote), "--release", ""]) == 2
    assert "expected a version such as" in capsys.readouterr().err
    assert git(remote, "for-each-ref") == ""
