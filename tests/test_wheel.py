"""The wheel: what is in it, and that it does its work alone, with nothing but what it asks for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = "measured_transformer"
LABORATORY = "measured_book"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library's wheel from a copy, so that no build folder appears in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "lib", folder / "source" / "lib", ignore=unwanted)
    for name in ("pyproject.toml", "README.md", *PROJECT["license-files"]):
        shutil.copy(ROOT / name, folder / "source")
    for name in ("benchmarks", "tests"):  # beside lib, and not to be packed
        (folder / "source" / name).mkdir()
        (folder / "source" / name / "__init__.py").touch()
    done = called(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder],
        folder / "source",
    )
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


def called(command: list[object], *arguments: object) -> subprocess.CompletedProcess[str]:
    """Call a program away from the repository, without pip's settings and Python's variables."""
    outer = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
    return subprocess.run(
        [str(word) for word in (*command, *arguments)],
        cwd="/",
        env={**outer, "PIP_CONFIG_FILE": os.devnull, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


# --- a clean environment --------------------------------------------------------------------------


def needed_by(lines: list[str]) -> dict[str, metadata.Distribution]:
    """Find what requirements need, directly or through others, among the packages installed here."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(line), "") for line in lines]
    while waiting:
        needed, extra = waiting.pop()
        if needed.marker and not needed.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(needed.name)
        found[name] = metadata.distribution(name)
        for each in {"", *needed.extras}:
            if (name, each) not in seen:
                seen.add((name, each))
                further = found[name].requires or []
                waiting += [(Requirement(line), each) for line in further]
    return found


@pytest.fixture(scope="session")
def clean(
    wheel: Path, described: Message, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, metadata.Distribution]]:
    """Install the wheel into a fresh virtual environment; give its Python and the packages around it.

    Of the packages installed here it sees those that the wheel's metadata ask for, with what these need in
    turn, through links: as good as downloading them, and done in a moment. Any other import fails there.
    """
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    paths = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    packages = needed_by(described.get_all("Requires-Dist", []))
    for name, package in packages.items():
        assert package.files, f"{name} does not say which files it consists of"
        for top in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))).resolve())
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    done = called(pip, "install", "--no-index", "--no-compile", "--quiet", wheel)
    assert done.returncode == 0, done.stdout + done.stderr  # also: all requirements are satisfied
    return python, packages


def run(clean: tuple[Path, object], *arguments: object) -> str:
    """Call the clean environment's Python; `-I` leaves it nothing but its own packages."""
    done = called([clean[0], "-I", "-B"], *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_clean_environment_has_what_the_wheel_asks_for_and_nothing_else(clean):
    code = "from importlib.metadata import distributions as d; print(*(p.name for p in d()))"
    there = {canonicalize_name(name) for name in run(clean, "-c", code).split()}
    assert there == {"measured-transformer", *clean[1]}
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]} < there
    for name in ("transformers", "pytest", "IPython", "jupyter_core", "yaml", "bookpress"):
        assert find_spec(name), f"{name} is not even here: it would be no wonder"
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is not None)"
        run(clean, "-c", code)


def test_the_library_comes_from_the_wheel(clean):
    code = f"import {NAME} as m; print(m.__file__); print(m.__version__)"
    file, version = run(clean, "-c", code).splitlines()
    assert Path(file).is_relative_to(clean[0].parents[1])
    assert version == PROJECT["version"]


def test_every_module_imports_without_a_warning(clean):
    output = run(
        clean,
        *("-W", "error", "-c"),
        f"""
import importlib, json, pkgutil, sys
import {NAME}, {LABORATORY}
names = []
for package in ({NAME}, {LABORATORY}):
    names += [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    importlib.import_module(name)
print(json.dumps(names))
""",
    )
    folders = (ROOT / "lib" / name for name in (NAME, LABORATORY))
    paths = (path for folder in folders for path in folder.rglob("*.py"))
    files = (path.relative_to(ROOT / "lib").with_suffix("") for path in paths)
    expected = {".".join(path.parts).removesuffix(".__init__") for path in files}
    assert {NAME, LABORATORY, *json.loads(output)} == expected


def test_an_assignment_can_be_solved_with_the_wheel_alone(clean, tmp_path: Path):
    script = ROOT / "tests" / "course_assignment.py"
    loaded = set(json.loads(run(clean, script, tmp_path)))
    assert {NAME, "torch", "safetensors", "matplotlib"} <= loaded
    assert not loaded & {"transformers", "pytest", "IPython", "jupyter_core", "bookpress"}
    assert (tmp_path / "checkpoint" / "model.safetensors").is_file()


def readme_examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_example_of_the_readme_shows_what_it_says(clean):
    example = readme_examples()[0]
    trained, best, *weights, without = map(
        float, re.findall(r"\d+\.\d+", run(clean, "-c", example))
    )
    assert best < trained < best + 0.05, "it has learned the rule"
    assert len(weights) == 4
    assert min(weights) > 0.8, "every head looks at the token that decides the next one"
    assert without > trained + 0.5, "and without them the rule is lost"


def test_the_first_page_shows_the_same_example():
    text = (ROOT / "book" / "index.md").read_text()
    assert re.findall(r"```python\n(.*?)```", text, re.DOTALL) == readme_examples()[:1]


def test_the_readmes_sweep_gives_the_runs_that_it_promises(clean):
    example = readme_examples()[1]
    smaller = example.replace('"steps": 500', '"steps": 2').replace("range(10)", "range(2)")
    assert smaller.count('"steps": 2,') == smaller.count("range(2)") == 1
    told = run(clean, "-c", smaller + "\nprint({n: len(r) for n, r in runs.items()})")
    assert told == "{'rotary': 2, 'alibi': 2, 'none': 2}\n"


@pytest.mark.parametrize("package", [NAME, LABORATORY])
def test_importing_a_package_loads_nothing_heavy(clean, package: str):
    heavy = ["torch", "scipy", "matplotlib", "numpy", "jaxtyping"]
    code = f"import sys, {package}; print([name for name in {heavy} if name in sys.modules])"
    assert run(clean, "-c", code).strip() == "[]"


def test_models_need_neither_matplotlib_nor_scipy(clean):
    loaded = "[n for n in ('matplotlib', 'scipy') if n in sys.modules]"
    assert run(clean, "-c", f"import sys\nfrom {NAME} import Decoder; print({loaded})") == "[]\n"


def test_a_result_and_an_exercise_are_one_import_away(clean):
    code = (
        f"import sys\nfrom {LABORATORY} import load_result\n"
        "print('torch' in sys.modules, load_result('norm_placement', 'untrained').sizes['seed'] > 1)\n"
        f"from {LABORATORY} import check\nprint(check('learning_rate.half_life', 0).passed)"
    )
    assert run(clean, "-c", code).splitlines()[:1] == ["False True"]
    assert run(clean, "-c", code).splitlines()[-1] == "False"


def test_a_name_that_the_library_lacks_is_an_attribute_error(clean):
    code = f"import {NAME} as m\ntry: m.Decodre\nexcept AttributeError as e: print(e)"
    assert "Decodre" in run(clean, "-c", code)


# --- what is in it --------------------------------------------------------------------------------


def test_the_wheel_holds_the_library_and_the_laboratory_and_nothing_else(contents: set[str]):
    tops = {name.split("/")[0] for name in contents}
    assert tops == {NAME, LABORATORY, f"{NAME}-{PROJECT['version']}.dist-info"}


def test_the_wheel_holds_every_file_of_both(contents: set[str]):
    expected = {
        path.relative_to(ROOT / "lib").as_posix()
        for package in (NAME, LABORATORY)
        for path in (ROOT / "lib" / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {f"{NAME}/py.typed", f"{LABORATORY}/py.typed"} <= expected
    assert any(re.fullmatch(f"{LABORATORY}/rooms/.+/claims[.]toml", name) for name in expected)
    assert any(re.fullmatch(f"{LABORATORY}/rooms/.+/results/.+[.]json", name) for name in expected)
    assert f"{NAME}/training/tuned.jsonl" in expected
    packed = {name for name in contents if name.startswith((f"{NAME}/", f"{LABORATORY}/"))}
    assert packed == expected


def test_the_wheel_says_what_it_is(described: Message):
    assert described["Name"] == "measured-transformer"
    assert described["License-Expression"] == "BSD-3-Clause AND CC-BY-4.0"
    assert described.get_all("License-File") == ["LICENSE", "LICENSE-text"]
    urls = dict(line.split(", ", 1) for line in described.get_all("Project-URL", []))
    assert urls["Homepage"] == "https://github.com/measured-transformer/measured-transformer"
    supported = [f"Programming Language :: Python :: {version}" for version in PYTHONS]
    assert set(supported) <= set(described.get_all("Classifier", []))


def test_its_page_reads_well_away_from_the_repository(described: Message):
    assert described["Description-Content-Type"] == "text/markdown"
    text = described.get_payload()
    assert text.startswith("# The Measured Transformer")
    for target in re.findall(r"\]\(([^)]*)\)", text):
        assert target.startswith("https://"), f"{target} leads nowhere outside the repository"


def test_without_an_extra_it_asks_for_what_pyproject_lists(described: Message):
    plain = [line for line in described.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(plain) == sorted(PROJECT["dependencies"])
    assert set(described.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


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
