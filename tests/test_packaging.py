"""What is asked for, the pins, and the two commands' set-up."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from bookpress.edition import PDF
from bookpress.pdf import PAGES
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
ALONE = {canonicalize_name(Requirement(line).name) for line in GROUPS["weights"]}  # of their own
NAME = "measured_transformer"
LABORATORY = "measured_book"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LOCKED = (
    "notebook",
    "book",
    "test",
    "language",
    "pretrained",
    "cluster",
)  # the extras that the lock is made of


LOCK, BOOK, TORCH = "requirements.txt", "requirements-book.txt", "requirements-torch.txt"


def lock_lines(*files: str) -> list[tuple[str, list[str]]]:
    """Read the requirements of locks, each with the hashes that it may have."""
    text = "\n".join((ROOT / file).read_text() for file in files).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pieces = [re.split(r"\s+--hash=", line) for line in lines]
    return [(requirement.strip(), [each.strip() for each in own]) for requirement, *own in pieces]


def pins(
    environment: dict[str, str] | None = None, files: tuple[str, ...] = (LOCK, TORCH)
) -> dict[str, Version]:
    """Read the pinned version of every package that the lock installs here, or in an environment."""
    found = {}
    for line, _ in lock_lines(*files):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            (specifier,) = requirement.specifier
            found[canonicalize_name(requirement.name)] = Version(specifier.version)
    return found


def asked(*extras: str) -> list[Requirement]:
    """Read what pyproject.toml asks for: the library's own needs and those of some extras."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


# --- the editable install --------------------------------------------------------------------------


def test_the_editable_install_offers_the_press_as_well():
    code = (
        "import bookpress, measured_book, measured_transformer\n"
        "for one in (bookpress, measured_book, measured_transformer): print(one.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    found = done.stdout.split()
    assert len(found) == 3
    assert all(Path(line).is_relative_to(ROOT / "lib") for line in found)


# --- what is imported is asked for, what is asked for is pinned -----------------------------------


def third_party(*folders: str) -> dict[str, str]:
    """Map every distribution that the code in some folders imports to a file that does so."""
    homes = metadata.packages_distributions()
    own = {
        NAME,
        LABORATORY,
        "bookpress",
        "benchmarks",
        *(path.stem for path in (ROOT / "tests").rglob("*.py")),
    }
    found = {}
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for top in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - own:
                home = canonicalize_name(homes.get(top, [top])[0])
                found[home] = str(path.relative_to(ROOT))
    return found


def test_the_library_asks_for_exactly_what_it_imports():
    # IPython is there wherever a notebook runs; outside of one the library does without it.
    # dask comes with an extra of its own, and `--cluster` says so where it is missing; so does gguf.
    assert "dask" not in third_party(f"lib/{NAME}")
    found = third_party(f"lib/{NAME}", f"lib/{LABORATORY}")
    assert found["dask"] == f"lib/{LABORATORY}/measuring/__main__.py"
    assert "dask" in {canonicalize_name(requirement.name) for requirement in asked("cluster")}
    assert found["gguf"] == f"lib/{NAME}/interop/gguf_file.py"
    assert "gguf" in {canonicalize_name(requirement.name) for requirement in asked("pretrained")}
    imported = set(found) - {"ipython", "dask", "gguf"}
    assert imported == {canonicalize_name(requirement.name) for requirement in asked("language")}


def test_what_only_tasks_on_language_need_is_imported_by_those_that_need_it_alone():
    extra = {"num2words", "pooch", "sacrebleu", "tokenizers"}
    assert extra == {
        canonicalize_name(requirement.name)
        for requirement in asked("language")
        if requirement not in asked()
    }
    library, laboratory = third_party(f"lib/{NAME}"), third_party(f"lib/{LABORATORY}")
    for name in extra:
        place = "analysis/bleu.py" if name == "sacrebleu" else "tasks/"
        assert library[name].startswith(f"lib/{NAME}/{place}"), library[name]
        if name in laboratory:
            assert laboratory[name].startswith(f"lib/{LABORATORY}/rooms/"), laboratory[name]


@pytest.mark.parametrize("folder", ["lib/bookpress", "tests"])
def test_everything_the_press_and_the_tests_import_is_pinned(folder: str):
    unpinned = {name: file for name, file in third_party(folder).items() if name not in pins()}
    assert not unpinned, "add it to pyproject.toml and run: make lock"


def test_the_book_is_printed_with_what_its_own_lock_brings():
    brought = set(pins(files=(BOOK, TORCH)))
    needed = third_party("lib/bookpress", f"lib/{NAME}", f"lib/{LABORATORY}")
    lacking = {name: file for name, file in needed.items() if name not in brought}
    others = {"dask", "playwright", "pytest"}
    assert set(lacking) == others, "of --cluster, `make pdf` and `pytest --nbmake book` alone"
    code = "import sys, bookpress.cli, bookpress.sphinx; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_benchmarks_import_only_what_their_extra_brings():
    brought = {canonicalize_name(requirement.name) for requirement in asked("benchmark")}
    assert {"transformer-lens", "transformers", "x-transformers"} <= brought
    own = {canonicalize_name(path.stem) for path in (ROOT / "benchmarks").rglob("*.py")}
    strange = set(third_party("benchmarks")) - own - brought
    assert not strange, "add it to the extra `benchmark` in pyproject.toml"


def test_the_lock_is_made_of_every_extra_but_the_benchmarks():
    assert {*LOCKED, "benchmark"} == set(PROJECT["optional-dependencies"])
    script = (ROOT / "tools" / "lock").read_text()
    whole, book = (re.findall(r"--extra (\w+)", part) for part in script.split("The book's pins"))
    assert whole == list(LOCKED)
    assert "--group weights" in script
    assert book == ["notebook", "book", "language", "pretrained"]
    assert not {"transformer-lens", "x-transformers"} & set(pins())


def test_the_book_leaves_the_folders_that_are_no_pages_alone():
    unread = set(yaml.safe_load((ROOT / "_config.yml").read_text())["exclude_patterns"])
    assert {"benchmarks", "lib", "tests", "tools", "_build", "build", "dist", ".*"} <= unread


@pytest.mark.parametrize(("ci", "status", "said"), [("true", 2, "2 errors"), ("", 5, "2 skipped")])
def test_a_missing_reference_is_skipped_but_fails_on_ci(
    tmp_path: Path, ci: str, status: int, said: str
):
    shutil.copy(ROOT / "tests" / "interop" / "conftest.py", tmp_path)
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text('import pytest\npytest.importorskip("no_such_package")\n')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", tmp_path, tmp_path],
        env={**os.environ, "CI": ci},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert f"{said} in" in done.stdout


def test_the_library_asks_for_ranges_that_begin_where_the_readme_says():
    assert PROJECT["requires-python"] == ">=3.11", "a library sets no upper bound"
    torch = next(requirement for requirement in asked() if requirement.name == "torch")
    assert str(torch.specifier) == ">=2.6"


def test_every_line_of_the_lock_is_a_pin_with_the_hashes_of_its_files():
    for line, hashes in lock_lines(LOCK, BOOK):
        specifiers = list(Requirement(line).specifier)
        assert [specifier.operator for specifier in specifiers] == ["=="], line
        assert "*" not in specifiers[0].version, line
        assert hashes, f"{line}: no hash, so that pip would refuse the whole lock"
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes), line


def test_torch_stands_apart_without_hashes_because_its_builds_differ():
    ((line, hashes),) = lock_lines(TORCH)
    assert re.fullmatch(r"torch==\d+\.\d+\.\d+", line)
    assert not hashes
    assert "torch" not in pins(files=(LOCK,))
    assert "torch" not in pins(files=(BOOK,))


def test_the_books_lock_is_a_part_of_the_whole_without_browsers_and_checkers():
    whole, book = (
        {line.partition(" ;")[0]: own for line, own in lock_lines(file)} for file in (LOCK, BOOK)
    )
    assert {pin: own for pin, own in whole.items() if pin in book} == book
    left_out = set(pins()) - set(pins(files=(BOOK, TORCH)))
    assert {"playwright", "captum", "pytest", "mypy", "distributed"} <= left_out
    pinned = pins(files=(BOOK, TORCH))
    for requirement in asked("notebook", "book", "language", "pretrained"):
        assert canonicalize_name(requirement.name) in pinned, f"{requirement}; run: make lock"


@pytest.mark.parametrize("name", [LOCK, BOOK, TORCH])
def test_no_lock_names_an_index(name: str):
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def test_the_lock_leaves_the_choice_of_the_torch_build_open():
    assert str(pins()["torch"]) == "2.13.0", "no +cpu, no +cu: the index at hand decides"
    assert not [
        name for name in pins() if name.startswith(("nvidia-", "cuda-")) or name == "triton"
    ]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_answers_pyproject_on_every_python(python: str):
    environment = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.9",
    }
    pinned = pins(environment)
    for requirement in (*asked(*LOCKED), *map(Requirement, GROUPS["weights"])):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not pinned; run: make lock"
        assert requirement.specifier.contains(version), f"{requirement}: pinned {version}"


def test_the_lock_names_what_its_packages_need_in_turn():
    pinned = pins()
    cuda = re.compile("nvidia-|cuda-|triton")
    for name, version in pinned.items():
        package = metadata.distribution(name)
        here = Version(package.version)
        assert Version(here.public) == version, f"{name} {here} is installed, {version} is pinned"
        for line in (package.requires or []) if name not in ALONE else []:
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate({"extra": ""}):
                continue
            if name == "torch" and cuda.match(needed.name):
                continue  # comes with the CUDA build only
            answer = pinned.get(canonicalize_name(needed.name))
            assert answer is not None, f"{name} needs {needed}, which is not pinned; run: make lock"
            assert needed.specifier.contains(answer, prereleases=True), f"{name} needs {needed}"


# --- the two commands' set-up ---------------------------------------------------------------------


def environment(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "tools" / "environment", *arguments],
        env={**os.environ, "PATH": path or os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
    )


def fake_python(folder: Path, name: str, version: str) -> Path:
    """Write a stand-in for an interpreter: it answers as an old or a new Python would."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    suitable = "0" if version.startswith(PYTHONS) else "1"
    file.write_text(
        f'#!/bin/sh\ncase "$2" in *print*) echo {version};; *exit*) exit {suitable};; *) exit 1;; esac\n'
    )
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("version", ["3.10.13", "2.7.18"])
def test_an_unsuitable_python_is_named_and_nothing_is_made(tmp_path: Path, version: str):
    python = fake_python(tmp_path / "bin", "mine", version)
    done = environment(str(tmp_path / "venv"), str(python))
    assert done.returncode != 0
    assert f"PYTHON={python} is Python {version}; this book needs 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_that_is_not_there_is_named(tmp_path: Path):
    done = environment(str(tmp_path / "venv"), "/nowhere/python3")
    assert done.returncode != 0
    assert "PYTHON=/nowhere/python3 does not run" in done.stderr


def test_without_a_suitable_python_the_error_says_what_was_found(tmp_path: Path):
    folder = tmp_path / "bin"
    for tool in ("dirname", "grep", "cat"):
        folder.mkdir(exist_ok=True)
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    fake_python(folder, "python3", "3.9.2")
    done = environment(str(tmp_path / "venv"), path=str(folder))
    assert done.returncode != 0
    assert "no Python 3.11 or newer" in done.stderr
    assert "python3 is 3.9.2" in done.stderr


def test_a_python_without_venv_says_what_to_install(tmp_path: Path):
    python = fake_python(tmp_path / "bin", "bare", "3.12.1")
    done = environment(str(tmp_path / "venv"), str(python))
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr


def stamp_of(lock: str, kind: str) -> str:
    files = (lock, TORCH, "pyproject.toml")
    return f"{ROOT} 3.12.1 {kind}\n" + "".join((ROOT / file).read_text() for file in files)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Lay out an environment whose Python has no pip, so that an attempt to install fails."""
    python = fake_python(tmp_path, "python", "3.12.1")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    python.rename(tmp_path / "venv" / "bin" / "python")
    return tmp_path / "venv"


def test_an_environment_that_holds_what_is_asked_for_is_left_alone(made: Path):
    stamp = made / ".installed"
    stamp.write_text(stamp_of(LOCK, "all"))
    done = environment(str(made))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    stamp.write_text(stamp_of(LOCK, "all") + "changed\n")
    done = environment(str(made))
    assert done.returncode != 0
    assert "Installing the" in done.stdout
    assert "pip could not install the requirements" in done.stderr
    assert not stamp.exists(), "a set-up that failed is tried again"


def test_all_packages_serve_for_the_book_and_those_of_the_book_not_for_all(made: Path):
    stamp = made / ".installed"
    for lock, kind in ((LOCK, "all"), (BOOK, "book")):
        stamp.write_text(stamp_of(lock, kind))
        done = environment(str(made), "", "book")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), kind
    done = environment(str(made))
    assert done.returncode != 0
    assert f"packages of {LOCK}" in done.stdout


@pytest.mark.parametrize(
    ("index", "given"), [("", []), ("file:///cpu", ["--index-url file:///cpu"])]
)
def test_only_torch_comes_without_a_hash_and_from_an_index_of_its_own(
    made: Path, index: str, given: list[str]
):
    python = made / "bin" / "python"
    text = python.read_text().replace("*) exit 1", '*pip*) echo "asked: $*"; exit 0;; *) exit 0')
    python.write_text(text.replace('case "$2"', 'case "$*"'))
    done = subprocess.run(
        [ROOT / "tools" / "environment", made],
        env={**os.environ, "TORCH_INDEX": index},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    log = (made / "install.log").read_text().splitlines()
    asked_for = [line.split("--no-compile ")[1] for line in log if line.startswith("asked: ")]
    assert asked_for == [
        "--require-hashes --no-deps -r requirements.txt",
        " ".join([*given, "-r requirements-torch.txt"]),
        "--no-deps --no-build-isolation -e .",
    ]
    assert (made / ".installed").read_text() == stamp_of(LOCK, "all")


@pytest.mark.parametrize(
    ("report", "asked"),
    [
        ("WARNING: Retrying (Retry(total=4)) after connection broken by", True),
        ("NewConnectionError: [Errno -3] Temporary failure in name resolution", True),
        ("ERROR: Could not find a version that satisfies numpy (from versions: none)", True),
        (
            "ERROR: Could not find a version that satisfies numpy==9 (from versions: 1.0, 2.0)",
            False,
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", False),
    ],
)
def test_what_a_missing_network_leaves_in_the_report_is_asked_about(
    made: Path, report: str, asked: bool
):
    python = made / "bin" / "python"
    text = python.read_text().replace("*) exit 1", f'*pip*) echo "{report}"; exit 1;; *) exit 1')
    python.write_text(text.replace('case "$2"', 'case "$*"'))
    done = environment(str(made))
    assert done.returncode != 0
    sentence = "error: pip could not install the requirements."
    end = " Is there a network?" if asked else ""
    assert f"{sentence}{end}\n       Its full report: {made}/install.log\n" in done.stderr


def test_the_report_of_an_environment_in_this_folder_is_named_in_full(made: Path):
    done = environment(os.path.relpath(made, ROOT))
    assert f"Its full report: {ROOT}/{os.path.relpath(made, ROOT)}/install.log\n" in done.stderr


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the Makefile in a folder where every tool it calls is a stand-in."""
    command = ["make", "--no-print-directory", "-f", ROOT / "Makefile", *arguments]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """Lay out a folder whose Python only says what it was asked, and fails where FAIL says so."""
    for name in ("tools/environment", "venv/bin/python", "venv/bin/lint-imports"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(
            '#!/bin/sh\necho "ran: $*"\ncase "$*" in *"${FAIL:-nothing at all}"*) exit 3;; esac\n'
        )
        (tmp_path / name).chmod(0o755)
    return tmp_path


STAGES = [
    "-m ruff check .",
    "-m ruff format --check .",
    "-m mypy",
    "--no-logo",
    "-m bookpress.prose",
    "-m measured_book.measuring --repeat --share due",
    "-m bookpress execute --force",
    "-m bookpress build",
    "-m pytest -n 2 --dist loadfile -o addopts=--doctest-modules",
]
ALL = [
    *STAGES[:5],
    "-m measured_book.measuring --repeat",
    *STAGES[6:8],
    "-m pytest -n 2 --dist loadfile",
]


def ran(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line[5:] for line in done.stdout.splitlines() if line.startswith("ran: -")]


def test_make_test_runs_every_stage_and_says_how_long_it_took(stage: Path):
    done = make(stage, "test", "VENV=venv")
    assert done.returncode == 0, done.stderr
    assert ran(done) == STAGES
    for number in range(1, len(STAGES)):
        assert re.search(rf"^\[{number}/9\] .+: passed in \d+ s$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith(f"ran: {STAGES[-1]}\n"), "pytest has the last word"


def test_make_test_all_leaves_nothing_out(stage: Path):
    done = make(stage, "test-all", "VENV=venv")
    assert done.returncode == 0, done.stderr
    assert ran(done) == ALL


def test_make_check_runs_what_a_change_reaches(stage: Path):
    """The folder's Python prints words in the place of names, which the next command then gets."""
    done = make(stage, "check", "VENV=venv", "SINCE=HEAD~1")
    assert done.returncode == 0, done.stderr
    found = ran(done)
    assert found[:5] == [STAGES[0], STAGES[1], STAGES[3], STAGES[4], STAGES[2]]
    asked = {
        what: f"-m bookpress.reached {what} --since HEAD~1 --at-most {most}"
        for what, most in (("pages", 8), ("tests", 400))
    }
    assert found[5] == f"-m bookpress execute ran: {asked['pages']}"
    assert found[6].startswith(f"{STAGES[8]} ran: {asked['tests']}")


@pytest.mark.parametrize("number", range(len(STAGES)))
def test_make_test_stops_at_the_stage_that_fails(stage: Path, number: int):
    done = make(stage, "test", "VENV=venv", f"FAIL={STAGES[number]}")
    assert done.returncode != 0
    assert ran(done) == STAGES[: number + 1]


def test_make_book_sets_up_and_then_prints_the_book(stage: Path):
    done = make(stage, "book", "VENV=venv", "PYTHON=python3.12")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ran: venv python3.12 book", "ran: -m bookpress build"]
    assert make(stage, "book", "VENV=venv", "FAIL=bookpress build").returncode != 0


def test_make_pdf_brings_what_drives_chromium_and_prints_the_book_first(stage: Path):
    """`playwright` is in the whole environment only: see what the book's own lock lacks, above."""
    done = make(stage, "pdf", "VENV=venv")
    assert done.returncode == 0, done.stderr
    assert [line.strip() for line in done.stdout.splitlines()] == [
        "ran: venv",
        "ran: venv  book",
        "ran: -m bookpress build",
        "ran: -m bookpress.pdf",
    ]


def test_make_publish_prints_the_pdf_that_the_pages_link_before_it_pushes(stage: Path):
    """The folder of an edition is replaced as a whole: what is not among the pages is deleted from the site."""
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    for words in (["init", "-q"], ["add", "--all"], [*who, "commit", "-qm", "begin"]):
        subprocess.run(["git", *words], cwd=stage, check=True)
    done = make(stage, "publish", "VENV=venv", "REMOTE=there")
    assert done.returncode == 0, done.stderr
    pdf = f"-m bookpress.pdf --into {PAGES / PDF}"
    assert ran(done) == ["-m bookpress build", pdf, "-m bookpress.publish --remote there"]
    assert f"python {pdf}\n" in (ROOT / ".github" / "workflows" / "pages.yml").read_text()
    failed = make(stage, "publish", "VENV=venv", "FAIL=bookpress.pdf")
    assert failed.returncode != 0
    assert ran(failed) == ["-m bookpress build", pdf], "nothing is pushed without it"
    (stage / "tools" / "new").touch()
    assert "error: commit first" in make(stage, "publish", "VENV=venv").stderr


def test_no_command_uses_sudo_or_the_users_own_packages():
    for name in ("Makefile", "tools/environment", "tools/lock"):
        text = (ROOT / name).read_text()
        assert "sudo" not in text
        assert "install --user" not in text


def test_readers_install_the_library_from_its_repository():
    """No package index has it under its name."""
    address = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    told = [
        (path.relative_to(ROOT).as_posix(), rest)
        for path in (ROOT / "README.md", *sorted((ROOT / "book").rglob("*.md")))
        for rest in re.findall(r"pip install.*?measured-transformer(.*)", path.read_text())
    ]
    assert {"README.md", "book/index.md", "book/inside/real-model.md"} <= {name for name, _ in told}
    here = re.compile(rf'(\[\w+\])? @ git\+{re.escape(address)}"')
    assert [(name, rest) for name, rest in told if not here.match(rest)] == []


def test_the_wheel_says_the_licence_of_its_code_and_of_its_results():
    assert PROJECT["license"] == "BSD-3-Clause AND CC-BY-4.0"
    assert PROJECT["license-files"] == ["LICENSE", "LICENSE-text"]
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "rooms/*/results/*" in packed["package-data"][LABORATORY], (
        "which the second licence is for"
    )


def test_the_wheel_has_every_file_that_code_reads_beside_itself():
    """What is no module is packed only where a pattern says so."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]
    listed = ["git", "ls-files", "-z", *(f"lib/{package}" for package in data)]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    files = [path.removeprefix("lib/") for path in done.stdout.split("\0") if path]
    assert len(files) > 500
    packed = [f"{package}/{pattern}" for package, patterns in data.items() for pattern in patterns]
    lost = [
        path
        for path in files
        if not path.endswith(".py") and not any(Path(path).match(one) for one in packed)
    ]
    assert lost == []


def test_the_licences_and_the_citation_are_there():
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License")
    text = (ROOT / "LICENSE-text").read_text()
    assert "Creative Commons Attribution 4.0 International Public License" in text
    assert [n for n in range(1, 9) if f"Section {n} -- " not in text] == []
    scope = " ".join(text.partition("=====")[0].split())
    page = " ".join((ROOT / "book/about/licences.md").read_text().split())
    assert "results of its measurements" in scope
    assert "results of the book's measurements" in page
    assert "are licensed like the text" in page
    schema = ["--builtin-schema", "vendor.citation-file-format"]
    command = [sys.executable, "-m", "check_jsonschema", *schema, ROOT / "CITATION.cff"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
