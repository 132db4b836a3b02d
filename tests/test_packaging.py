"""The library as others install it, the pins, and the two commands' set-up."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = "measured_transformer"
PYTHONS = ("3.11", "3.12", "3.13")


def lock_lines() -> list[str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pins(environment: dict[str, str] | None = None) -> dict[str, Version]:
    """Read the pinned version of every package that the lock installs here, or in an environment."""
    found = {}
    for line in lock_lines():
        if line != "-e .":
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


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library's wheel from a copy, so that no build folder appears in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "lib", folder / "source" / "lib", ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
    done = subprocess.run([*build, folder / "source"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="session")
def described(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone into a folder of its own."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--target", target, wheel],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def run_installed(installed: Path, code: str) -> str:
    """Run code with the installed wheel first on the path and the source tree nowhere on it."""
    prelude = f"import sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT / 'lib')!r}]\n"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", prelude + code]
    done = subprocess.run(
        command, cwd=installed, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the wheel ------------------------------------------------------------------------------------


def test_the_wheel_holds_the_library_and_nothing_else(contents: set[str]):
    tops = {name.split("/")[0] for name in contents}
    assert tops == {NAME, f"{NAME}-{PROJECT['version']}.dist-info"}


def test_the_wheel_holds_every_file_of_the_library(contents: set[str]):
    library = ROOT / "lib" / NAME
    source = {p for p in library.rglob("*") if p.suffix in {".py", ".toml"} or p.name == "py.typed"}
    expected = {path.relative_to(ROOT / "lib").as_posix() for path in source}
    assert f"{NAME}/py.typed" in expected
    assert any(re.fullmatch(f"{NAME}/evidence/claims/.+[.]toml", name) for name in expected)
    assert expected <= contents, expected - contents


def test_the_wheel_says_what_it_is(described: Message):
    assert described["Name"] == "measured-transformer"
    assert described["License-Expression"] == "BSD-3-Clause"
    assert described.get_all("License-File") == ["LICENSE"]
    assert described["Description-Content-Type"] == "text/markdown"
    assert described.get_payload().startswith("# The Measured Transformer")
    urls = dict(line.split(", ", 1) for line in described.get_all("Project-URL", []))
    assert urls["Homepage"] == "https://github.com/measured-transformer/measured-transformer"
    supported = [f"Programming Language :: Python :: {version}" for version in PYTHONS]
    assert set(supported) <= set(described.get_all("Classifier", []))


def test_one_version_everywhere(described: Message):
    import measured_transformer

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    versions = {
        "pyproject.toml": PROJECT["version"],
        "the package": measured_transformer.__version__,
        "the wheel": described["Version"],
        "CITATION.cff": str(citation["version"]),
    }
    assert len(set(versions.values())) == 1, versions


def test_the_installed_library_imports_from_the_wheel(installed: Path):
    code = f"import {NAME} as m; print(m.__file__); print(m.__version__)"
    file, version = run_installed(installed, code).splitlines()
    assert Path(file).is_relative_to(installed)
    assert version == PROJECT["version"]


def test_the_installed_library_runs_and_finds_its_claims(installed: Path):
    output = run_installed(
        installed,
        f"""
import importlib, json, pkgutil
from importlib.resources import files
import {NAME} as package
names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    importlib.import_module(name)
claims = files("{NAME}.evidence").joinpath("claims")
tables = sorted(path.name for path in claims.iterdir())
print(json.dumps([names, tables, "bookpress" in sys.modules]))
""",
    )
    names, tables, press = json.loads(output)
    assert f"{NAME}.parts.attention" in names
    assert [name for name in tables if name.endswith(".toml")]
    assert not press


def test_importing_the_library_loads_nothing_heavy(installed: Path):
    heavy = ["torch", "scipy", "matplotlib", "numpy", "jaxtyping", "IPython", "pandas"]
    code = f"import {NAME}; print([name for name in {heavy} if name in sys.modules])"
    assert run_installed(installed, code).strip() == "[]"


def test_models_need_neither_matplotlib_nor_scipy(installed: Path):
    code = f"from {NAME} import Decoder; print([n for n in ('matplotlib', 'scipy') if n in sys.modules])"
    assert run_installed(installed, code).strip() == "[]"


def test_the_example_of_the_readme_runs(installed: Path):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert run_installed(installed, example).count("torch.Size") == 2


def test_a_name_that_the_library_lacks_is_an_attribute_error(installed: Path):
    code = f"import {NAME} as m\ntry: m.Decodre\nexcept AttributeError as e: print(e)"
    assert "Decodre" in run_installed(installed, code)


def test_the_editable_install_offers_the_press_as_well():
    code = (
        "import bookpress, measured_transformer as m; print(bookpress.__file__); print(m.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    assert all(Path(line).is_relative_to(ROOT / "lib") for line in done.stdout.split())


# --- what is imported is asked for, what is asked for is pinned -----------------------------------


def third_party(folder: str) -> dict[str, str]:
    """Map every distribution that the code in a folder imports to a file that does so."""
    homes = metadata.packages_distributions()
    own = {NAME, "bookpress", *(path.stem for path in (ROOT / "tests").rglob("*.py"))}
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
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
    imported = set(third_party(f"lib/{NAME}")) - {"ipython"}
    assert imported == {canonicalize_name(requirement.name) for requirement in asked()}


@pytest.mark.parametrize("folder", ["lib/bookpress", "tests"])
def test_everything_the_press_and_the_tests_import_is_pinned(folder: str):
    unpinned = {name: file for name, file in third_party(folder).items() if name not in pins()}
    assert not unpinned, "add it to pyproject.toml and run: make lock"


def test_the_library_asks_for_ranges_that_begin_where_the_readme_says():
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    torch = next(requirement for requirement in asked() if requirement.name == "torch")
    assert str(torch.specifier) == ">=2.6"


def test_every_line_of_the_lock_is_the_library_or_a_pin():
    lines = lock_lines()
    assert lines[0] == "-e ."
    for line in lines[1:]:
        specifiers = list(Requirement(line).specifier)
        assert [specifier.operator for specifier in specifiers] == ["=="], line
        assert "*" not in specifiers[0].version, line


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
    for requirement in asked("notebook", "book", "test"):  # the extras that the lock is made of
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
        for line in package.requires or []:
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


@pytest.mark.parametrize("version", ["3.10.13", "3.14.0", "2.7.18"])
def test_an_unsuitable_python_is_named_and_nothing_is_made(tmp_path: Path, version: str):
    python = fake_python(tmp_path / "bin", "mine", version)
    done = environment(str(tmp_path / "venv"), str(python))
    assert done.returncode != 0
    assert f"PYTHON={python} is Python {version}; this book needs 3.11, 3.12 or 3.13" in done.stderr
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
    assert "no Python 3.11, 3.12 or 3.13" in done.stderr
    assert "python3 is 3.9.2" in done.stderr


def test_a_python_without_venv_says_what_to_install(tmp_path: Path):
    python = fake_python(tmp_path / "bin", "bare", "3.12.1")
    done = environment(str(tmp_path / "venv"), str(python))
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr


def test_an_environment_that_holds_what_is_asked_for_is_left_alone(tmp_path: Path):
    venv = tmp_path / "venv"
    python = fake_python(tmp_path, "python", "3.12.1")
    (venv / "bin").mkdir(parents=True)
    python.rename(venv / "bin" / "python")
    asked_for = (ROOT / "requirements.txt").read_text() + (ROOT / "pyproject.toml").read_text()
    stamp = venv / ".installed"
    stamp.write_text(f"{ROOT} 3.12.1\n{asked_for}")
    done = environment(str(venv))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    stamp.write_text(f"{ROOT} 3.12.1\n{asked_for}changed\n")
    done = environment(str(venv))  # the stand-in has no pip, so that the attempt to install fails
    assert done.returncode != 0
    assert "Installing the" in done.stdout
    assert "pip could not install the requirements" in done.stderr
    assert not stamp.exists(), "a set-up that failed is tried again"


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
    for name in ("tools/environment", "venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(
            '#!/bin/sh\necho "ran: $*"\ncase "$*" in *"${FAIL:-nothing at all}"*) exit 3;; esac\n'
        )
        (tmp_path / name).chmod(0o755)
    return tmp_path


STAGES = [
    "-m ruff check .",
    "-m ruff format --check .",
    "-m mypy",
    "-m bookpress.prose",
    "-m bookpress execute",
    "-m bookpress build",
    "-m pytest -n 2 --dist loadfile",
]


def ran(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line[5:] for line in done.stdout.splitlines() if line.startswith("ran: -m")]


def test_make_test_runs_every_stage_and_says_how_long_it_took(stage: Path):
    done = make(stage, "test", "VENV=venv")
    assert done.returncode == 0, done.stderr
    assert ran(done) == STAGES
    for number in range(1, len(STAGES)):
        assert re.search(rf"^\[{number}/7\] .+: passed in \d+ s$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith(f"ran: {STAGES[-1]}\n"), "pytest has the last word"


@pytest.mark.parametrize("number", range(len(STAGES)))
def test_make_test_stops_at_the_stage_that_fails(stage: Path, number: int):
    done = make(stage, "test", "VENV=venv", f"FAIL={STAGES[number]}")
    assert done.returncode != 0
    assert ran(done) == STAGES[: number + 1]


def test_make_book_sets_up_and_then_prints_the_book(stage: Path):
    done = make(stage, "book", "VENV=venv", "PYTHON=python3.12")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ran: venv python3.12", "ran: -m bookpress build"]
    assert make(stage, "book", "VENV=venv", "FAIL=bookpress build").returncode != 0


def test_no_command_uses_sudo_or_the_users_own_packages():
    for name in ("Makefile", "tools/environment", "tools/lock"):
        text = (ROOT / name).read_text()
        assert "sudo" not in text
        assert "install --user" not in text


def test_the_licences_and_the_citation_are_there():
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License")
    text = (ROOT / "LICENSE-text").read_text()
    assert "Creative Commons Attribution 4.0 International Public License" in text
    assert [n for n in range(1, 9) if f"Section {n} -- " not in text] == []
    schema = ["--builtin-schema", "vendor.citation-file-format"]
    command = [sys.executable, "-m", "check_jsonschema", *schema, ROOT / "CITATION.cff"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
