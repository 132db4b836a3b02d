"""What a change reaches: no more than it must, and nothing too little."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bookpress import reached

LIBRARY = '''
"""A module of the library."""


def changed():
    """What it says.

    >>> changed()
    1
    """
    return 1


def other():
    return changed_constant


changed_constant = 3
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a library, tests and a commit."""
    files = {
        "lib/measured_book/rooms/one/claims.toml": "",
        "lib/some/module.py": LIBRARY,
        "tests/conftest.py": "",
        "tests/parts/test_one.py": "def test_it(): pass\n",
        "tests/parts/test_two.py": "from helper import x\n\n\ndef test_it(): x()\n",
        "tests/rooms/one/test_measure.py": "",
        "tests/test_packaging.py": 'TEXT = "README.md"\n',
        "tests/test_other.py": "",
        "README.md": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (
        ["init", "--quiet", "--initial-branch", "main"],
        ["add", "--all"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "first"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def reached_after(root: Path, name: str, text: str) -> list[str]:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return reached.tests(root, reached.change(root, "main"))


def test_nothing_is_reached_where_nothing_changed(root: Path) -> None:
    changed = reached.change(root, "main")
    assert (changed.files, changed.definitions) == (frozenset(), frozenset())
    assert reached.tests(root, changed) == []


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("What it says.", "Other words.", set()),
        ("return 1", "return 1  # why", set()),
        ("return 1", "return 2", {"some.module:changed"}),
        ("changed_constant = 3", "changed_constant = 4", {"some.module:changed_constant"}),
        ("def other", "def another", {"some.module:other", "some.module:another"}),
    ],
)
def test_definitions_change_by_their_code_alone(root: Path, old: str, new: str, names: set) -> None:
    (root / "lib/some/module.py").write_text(LIBRARY.replace(old, new))
    assert reached.change(root, "main").definitions == names


def test_a_test_is_reached_by_its_own_file_and_by_a_helper_beside_it(root: Path) -> None:
    assert reached_after(root, "tests/parts/test_one.py", "x = 1\n") == ["tests/parts/test_one.py"]
    found = reached_after(root, "tests/parts/helper.py", "x = 1\n")
    assert found == ["tests/parts/test_one.py", "tests/parts/test_two.py"]


def test_a_room_s_tests_are_reached_by_anything_in_the_room(root: Path) -> None:
    found = reached_after(root, "lib/measured_book/rooms/one/claims.toml", "x = 1\n")
    assert found == ["tests/rooms/one/test_measure.py"]


def test_a_test_is_reached_by_another_file_that_it_names(root: Path) -> None:
    assert reached_after(root, "README.md", "words") == ["tests/test_packaging.py"]


def test_examples_in_docstrings_are_tests(root: Path) -> None:
    text = LIBRARY.replace("return 1\n", "return 2\n")
    assert reached_after(root, "lib/some/module.py", text) == ["lib/some/module.py"]


def test_a_test_is_reached_by_a_definition_that_it_leads_to(monkeypatch, root: Path) -> None:
    monkeypatch.setattr(
        reached, "_reach", lambda text: {"some.module:changed"} if "helper" in text else set()
    )
    text = LIBRARY.replace("return 1\n", "return 2\n")
    assert "tests/parts/test_two.py" in reached_after(root, "lib/some/module.py", text)


def test_of_a_file_only_the_tests_that_lead_there_are_run(monkeypatch, root: Path) -> None:
    monkeypatch.setattr(
        reached, "_reach", lambda text: {"some.module:changed"} if "near" in text else set()
    )
    (root / "tests/parts/test_two.py").write_text(
        "from some import near, far\n\ndef test_a(): near()\n\ndef test_b(): far()\n"
    )
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "two"],
        cwd=root,
        check=True,
    )
    text = LIBRARY.replace("return 1\n", "return 2\n")
    found = reached_after(root, "lib/some/module.py", text)
    assert [one for one in found if one.startswith("tests")] == ["tests/parts/test_two.py::test_a"]


def test_the_code_of_this_very_library_is_followed() -> None:
    text = "from measured_transformer.training.loop import train\n\n\ndef test_it():\n    train\n"
    found = set(reached._reach(text))
    assert "measured_transformer.training.losses:cross_entropy" in found
    assert not any(name.startswith("measured_transformer.interop") for name in found)


def test_everything_is_reached_by_what_every_test_depends_on(root: Path) -> None:
    assert reached_after(root, "pyproject.toml", "")[0] == "tests"


def test_an_unknown_commit_is_one_sentence(root: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(root)
    assert reached.main(["tests", "--since", "nowhere"]) == 2
    told = capsys.readouterr().err
    assert "expected a commit or branch to compare with, got 'nowhere'" in told
    assert told.count("\n") == 1


def test_the_nearest_come_first_and_what_is_left_out_is_said(
    root: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(reached, "_reach", lambda text: {"some.module:changed"})
    (root / "tests/test_other.py").write_text(
        "from some.module import changed\n\ndef test_it(): changed()\n"
    )
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "two"],
        cwd=root,
        check=True,
    )
    text = LIBRARY.replace("return 1\n", "return 2\n")
    found = reached_after(root, "lib/some/module.py", text)
    assert found[:2] == ["lib/some/module.py", "tests/test_other.py"]
    assert "tests/parts/test_two.py" in found[2:]
    monkeypatch.chdir(root)
    assert reached.main(["tests", "--since", "main", "--at-most", "2"]) == 0
    told = capsys.readouterr()
    assert told.out.split() == ["lib/some/module.py", "tests/test_other.py"]
    assert (
        f"{len(found)} tests reached; the nearest 2 are run now, `make test` runs all" in told.err
    )


def test_after_the_seconds_nothing_more_is_run(tmp_path: Path) -> None:
    """`make check` sets the limit; without one everything runs."""
    (tmp_path / "test_slow.py").write_text(
        "import time\n\ndef test_a(): time.sleep(1.5)\n\ndef test_b(): pass\n"
    )
    here = Path(__file__).parents[1]
    (tmp_path / "conftest.py").write_text((here / "conftest.py").read_text("utf-8"))
    for limit, told in (("1.2", "1 passed, 1 skipped"), ("", "2 passed"), ("60", "2 passed")):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--rootdir",
                tmp_path,
                tmp_path,
            ],
            env={
                **{name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"},
                "MEASURED_SECONDS": limit,
                "PYTHONPATH": str(here),
                "MEASURED_TIER": "all",
            },
            capture_output=True,
            text=True,
        )
        assert told in done.stdout, done.stdout + done.stderr
