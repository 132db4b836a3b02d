"""Renewed results as a pull request, tried on a throw-away repository with a stand-in for `gh`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KEPT = "lib/measured_book/rooms/demo/results/one.json"
TABLE = "lib/measured_transformer/training/tuned.jsonl"


class Checkout:
    """A clone of a bare repository, with the tools of this one, and everything they call under eyes."""

    def __init__(self, folder: Path) -> None:
        self.bare, self.root, self.log = folder / "bare.git", folder / "clone", folder / "log"
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", self.bare], check=True)
        subprocess.run(
            ["git", "clone", "-q", self.bare, self.root], check=True, capture_output=True
        )
        for name in ("renew", "propose", "side-by-side"):
            self.write(f"tools/{name}", (ROOT / "tools" / name).read_text()).chmod(0o755)
        self.write(KEPT, "old\n")
        self.write(TABLE, "old\n")
        self.write("README.md", "A book.\n")
        self.git("checkout", "-q", "-B", "main")
        self.git("add", "-A")
        self.git("commit", "-qm", "A book")
        self.git("push", "-q", "origin", "main")
        self.bin = folder / "bin"
        self.stand_in("gh", 'echo "gh $*" >>"$LOG"; case "$*" in *"pr list"*) echo "$OPEN";; esac')
        self.folder = folder / "renewed"

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def stand_in(self, name: str, script: str, folder: str = "") -> None:
        path = (self.root / folder if folder else self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{shutil.which('sh')}\n{script}\n")
        path.chmod(0o755)

    def git(self, *words: str) -> str:
        own = ("-c", "user.name=A Test", "-c", "user.email=test@example.org")
        command = ["git", *own, *words]
        done = subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "GH_"))}
        environment = {
            **keep,
            "PATH": f"{self.bin}:{keep['PATH']}",
            "LOG": str(self.log),
            "OPEN": "",
            "MEASURED_MPS": "0",
        }
        return subprocess.run(
            words,
            cwd=self.root,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def pushed(self, branch: str) -> dict[str, str]:
        """The files that a branch of the bare repository changes since main, and what is in them."""
        names = self.git("diff", "--name-only", "main", f"origin/{branch}").split()
        return {name: self.git("show", f"origin/{branch}:{name}") for name in names}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    # A Python that measures: into the folder that it is told, or over what is kept; and that says what changed.
    made.stand_in(
        "python",
        'echo "python $*" >>"$LOG"\n'
        'case "$*" in\n'
        '*--diff*) echo "**1 interval moved, 0 verdicts flipped**";;\n'
        "*tuned_table*) echo new >>lib/measured_transformer/training/tuned.jsonl;;\n"
        "*measuring*) own=${MEASURED_RESULTS_DIR:-lib/measured_book/rooms}/demo/results\n"
        '  mkdir -p "$own"; echo "${VALUE:-new}" >"$own/one.json"; exit "${FAILS:-0}";;\n'
        "esac",
        ".venv/bin",
    )
    made.write(".gitignore", ".venv/\n")
    made.git("add", "-A")
    made.git("commit", "-qm", "What is not kept")
    made.git("push", "-q", "origin", "main")
    return made


def asked(checkout: Checkout) -> list[str]:
    return checkout.log.read_text().splitlines()


def test_the_gpus_set_becomes_a_pull_request_of_its_own(checkout: Checkout):
    done = checkout.run("tools/renew", "parity", str(checkout.folder))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("results.patch: 1 files\n")
    assert checkout.git("diff", "--cached") == "", "nothing is left staged"
    assert asked(checkout) == [
        "python -m measured_book.measuring",
        "python -m measured_book.measuring --diff HEAD --to results-gpu",
    ]
    shutil.rmtree(checkout.root / "results-gpu")  # the next step runs on another machine

    done = checkout.run("tools/propose", "parity", str(checkout.folder))
    assert done.returncode == 0, done.stderr
    assert checkout.pushed("results/parity") == {"results-gpu/demo/results/one.json": "new\n"}
    assert asked(checkout)[-1] == (
        "gh pr create --head results/parity --base main --title Results of the GPU, for the parity page "
        f"--body-file {checkout.folder}/changes.md"
    )
    assert "1 interval moved" in (checkout.folder / "changes.md").read_text()


def test_the_books_results_are_renewed_with_all_learning_rates(checkout: Checkout):
    done = checkout.run("tools/renew", "book", str(checkout.folder))
    assert done.returncode == 0, done.stderr
    assert asked(checkout)[0] == "python -m measured_book.measuring --renew"
    checkout.git("checkout", "-q", ".")
    done = checkout.run("tools/propose", "book", str(checkout.folder))
    assert done.returncode == 0, done.stderr
    assert checkout.pushed("results/book") == {KEPT: "new\n", TABLE: "new\n"}, "no old rate is left"


def test_everything_is_measured_again_where_that_is_asked_for(checkout: Checkout):
    checkout.run("tools/renew", "parity", str(checkout.folder), EVERYTHING="1")
    assert asked(checkout)[0] == "python -m measured_book.measuring --renew"


def test_a_slice_of_parity_goes_on_from_its_archive(checkout: Checkout):
    done = checkout.run("tools/renew", "parity", str(checkout.folder), MINUTES="9")
    assert done.returncode == 0, done.stderr
    words = "python -m measured_book.measuring --minutes 9 --archive"
    assert asked(checkout)[0] == f"{words} _build/parity.tar"
    own = {"MINUTES": "9", "ARCHIVE": "my own.tar", "EVERYTHING": "1"}
    checkout.run("tools/renew", "parity", str(checkout.folder), **own)
    renewing = words.replace("--minutes", "--renew --minutes")
    assert asked(checkout)[-2] == f"{renewing} my own.tar"
    assert (checkout.folder / "results.patch").read_text(), "what is done is proposed"


def test_the_books_results_are_not_renewed_in_slices(checkout: Checkout):
    done = checkout.run("tools/renew", "book", str(checkout.folder), MINUTES="9")
    assert done.returncode == 2
    assert "expected MINUTES with parity alone" in done.stderr
    assert not checkout.log.exists()
    assert checkout.git("status", "--porcelain") == "", "the table of learning rates is as it was"


@pytest.mark.parametrize("kind", ["parity", "book"])
def test_what_measures_has_its_processes_side_by_side_and_nothing_else(
    checkout: Checkout, kind: str
):
    checkout.stand_in("side-by-side", 'echo "side by side:" >>"$LOG"; exec "$@"', "tools")
    done = checkout.run("tools/renew", kind, str(checkout.folder))
    assert done.returncode == 0, done.stderr
    first, measuring, *others = asked(checkout)
    assert first == "side by side:"
    assert measuring.startswith("python -m measured_book.measuring")
    assert any("--diff" in line for line in others)
    assert first not in others


def test_an_open_pull_request_is_renewed(checkout: Checkout):
    checkout.run("tools/renew", "parity", str(checkout.folder))
    shutil.rmtree(checkout.root / "results-gpu")
    for number, value in (("", "new"), ("17", "newer")):
        patch = checkout.folder / "results.patch"
        patch.write_text(patch.read_text().replace("+new\n", f"+{value}\n"))
        done = checkout.run("tools/propose", "parity", str(checkout.folder), OPEN=number)
        assert done.returncode == 0, done.stderr
        checkout.git("checkout", "-q", "main")
    assert asked(checkout)[-1] == f"gh pr edit 17 --body-file {checkout.folder}/changes.md"
    assert checkout.pushed("results/parity") == {"results-gpu/demo/results/one.json": "newer\n"}


def test_what_a_workflow_proposes_says_how_its_checks_start(checkout: Checkout):
    """GitHub starts no workflow for what another's token pushes; opening it again by hand is an event."""
    checkout.run("tools/renew", "parity", str(checkout.folder))
    shutil.rmtree(checkout.root / "results-gpu")
    told = checkout.folder / "changes.md"
    before = told.read_text()
    for variables in ({}, {"GITHUB_ACTIONS": "true"}, {"GITHUB_ACTIONS": "true", "OPEN": "17"}):
        done = checkout.run("tools/propose", "parity", str(checkout.folder), **variables)
        assert done.returncode == 0, done.stderr
        added = told.read_text().removeprefix(before)
        assert added.count("close it and open it again, and both start.\n") == bool(variables)
        assert added == "" or added.startswith("\nNeither checks nor preview start")
        checkout.git("checkout", "-q", "main")
    for name in ("checks.yml", "preview.yml"):
        workflow = (ROOT / ".github" / "workflows" / name).read_text()
        assert "\n  pull_request:\n" in workflow, "of any type: opened, renewed and opened again"


def test_where_nothing_changed_nothing_is_proposed(checkout: Checkout):
    checkout.run("tools/renew", "book", str(checkout.folder))
    (checkout.folder / "results.patch").write_text("")
    checkout.log.unlink()
    done = checkout.run("tools/propose", "book", str(checkout.folder))
    assert (done.returncode, done.stdout) == (0, "no result changed: nothing to propose\n")
    assert not checkout.log.exists()


def test_a_patch_of_other_files_is_refused(checkout: Checkout):
    checkout.folder.mkdir()
    (checkout.folder / "changes.md").write_text("Nothing to see.\n")
    checkout.write("tools/renew", "#!/bin/sh\necho mine\n")
    patch = checkout.git("diff", "--binary", "HEAD")
    checkout.git("checkout", "-q", ".")
    (checkout.folder / "results.patch").write_text(patch)
    done = checkout.run("tools/propose", "parity", str(checkout.folder))
    assert done.returncode == 1
    assert "touches other files than results:\ntools/renew" in done.stderr
    assert not checkout.log.exists()
    assert "results/parity" not in checkout.git("branch", "--all")


def test_a_measuring_that_fails_proposes_nothing(checkout: Checkout):
    done = checkout.run("tools/renew", "parity", str(checkout.folder), FAILS="1")
    assert done.returncode == 1
    assert not (checkout.folder / "results.patch").exists()


@pytest.mark.parametrize("tool", ["renew", "propose"])
def test_another_word_is_refused(checkout: Checkout, tool: str):
    done = checkout.run(f"tools/{tool}", "weekly", str(checkout.folder))
    assert done.returncode == 2
    assert "expected parity or book, got weekly" in done.stderr
