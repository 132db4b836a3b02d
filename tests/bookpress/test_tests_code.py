"""What one test needs of its file, of helpers and of fixtures: all of it, and no more."""

from pathlib import Path

import pytest
from bookpress.tests_code import TestFile

FILE = '''
"""Tests."""

import json
import package.one as first
from package.two import needed, other
from helper import help_out, unused
import whole

pytestmark = first.mark
NUMBERS = other()


@first.fixture
def own():
    return needed()


def checked(x):
    return json.dumps(x)


def test_by_a_helper():
    checked(help_out())


def test_by_a_fixture(own):
    pass


@first.parametrize("number", NUMBERS)
def test_by_a_decorator(number):
    pass


def test_by_a_fixture_of_the_folder(of_folder):
    pass


@first.usefixtures("of_all")
def test_by_a_word():
    pass


def test_by_a_module():
    whole.run()


class TestMany:
    def test_inside(self, own):
        pass
'''
HELPER = """
from package.deep import deepest
from package.far import far


def help_out():
    return deepest()


def unused():
    return far()
"""
CONFTEST = """
import package.conf
from package.all import of_every_test


@package.conf.fixture(autouse=True)
def for_every_test():
    of_every_test()


@package.conf.fixture
def {name}(another):
    return {name}_value()


@package.conf.fixture
def another():
    from package.inner import inner
"""


@pytest.fixture
def file(tmp_path: Path) -> TestFile:
    files = {
        "conftest.py": CONFTEST.format(name="of_all"),
        "whole.py": "from package.whole import everything\n\n\ndef run():\n    pass\n",
        "parts/conftest.py": CONFTEST.replace("of_every_test", "beside").format(name="of_folder"),
        "parts/helper.py": HELPER,
        "parts/test_it.py": FILE,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return TestFile(tmp_path / "parts/test_it.py", tmp_path)


@pytest.mark.parametrize(
    ("test", "has", "lacks"),
    [
        ("test_by_a_helper", ["deepest()", "json.dumps"], ["far", "needed", "other()", "whole"]),
        ("test_by_a_fixture", ["needed()", "package.two"], ["deepest", "json", "other", "inner"]),
        ("test_by_a_decorator", ["other()", "import other"], ["needed", "deepest"]),
        (
            "test_by_a_fixture_of_the_folder",
            ["of_folder_value", "inner"],
            ["needed", "of_all_value"],
        ),
        ("test_by_a_word", ["of_all_value", "inner"], ["of_folder_value"]),
        ("test_by_a_module", ["everything", "def run"], ["needed", "deepest"]),
        ("TestMany", ["needed()"], ["deepest"]),
    ],
)
def test_a_test_needs_what_it_names(file: TestFile, test: str, has: list, lacks: list) -> None:
    code = "\n".join(file.code(test))
    assert [word for word in has if word not in code] == []
    assert [word for word in lacks if word in code] == []
    always = ["pytestmark = first.mark", "def for_every_test", "of_every_test()", "beside()"]
    assert [word for word in always if word not in code] == []


def test_a_file_needs_what_any_of_its_tests_needs(file: TestFile) -> None:
    assert file.tests == [
        "test_by_a_helper",
        "test_by_a_fixture",
        "test_by_a_decorator",
        "test_by_a_fixture_of_the_folder",
        "test_by_a_word",
        "test_by_a_module",
        "TestMany",
    ]
    of_all = set("\n".join(file.code()).splitlines())
    of_each = {line for test in file.tests for line in "\n".join(file.code(test)).splitlines()}
    assert of_all == of_each


def test_pieces_of_different_files_stay_apart(file: TestFile) -> None:
    """A name may mean one thing in a test and another in a helper."""
    pieces = file.code("test_by_a_helper")
    assert len(pieces) == 4
    assert [piece for piece in pieces if "deepest" in piece and "json" in piece] == []


def test_a_helper_that_is_no_python_is_an_error(file: TestFile, tmp_path: Path) -> None:
    (tmp_path / "parts/helper.py").write_text("def help_out(:\n")
    with pytest.raises(SyntaxError):
        file.code("test_by_a_helper")
