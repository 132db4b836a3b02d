"""What docstrings mean to Sphinx, on a library of two modules."""

from __future__ import annotations

from pathlib import Path

import pytest
from bookpress.sphinx.docstrings import Names, as_rst, one_by_one, read_names

SHAPES = '''
"""Shapes."""
from functools import cached_property
from library.maths.area import Square as Base, area

Side = float
"""A length."""
undocumented = 3

class Cube(Base):
    """A cube."""

    corners: int = 8
    """How many corners."""

    def volume(self) -> float:
        """Its volume."""

    @property
    def edge(self) -> float:
        """Its edge."""

    @cached_property
    def face(self) -> float:
        """Its face."""

    def _hidden(self) -> None: ...

def paint(area: float) -> None:
    """Colour."""

def _private() -> None: ...
'''
AREA = '''
"""Areas."""
class Square:
    """A square."""

    def edge(self) -> float:
        """Its edge."""

def area(side: float) -> float:
    """The area."""
'''


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Names:
    root = tmp_path_factory.mktemp("sources") / "library"
    for name, text in {
        "__init__": '"""A library."""',
        "shapes": SHAPES,
        "maths/__init__": '"""Mathematics."""',
        "maths/area": AREA,
    }.items():
        path = Path(root, f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_names(root)


def test_public_names_and_their_kinds(names):
    assert names.kinds == {
        "library": "module",
        "library.maths": "module",
        "library.maths.area": "module",
        "library.maths.area.Square": "class",
        "library.maths.area.Square.edge": "method",
        "library.maths.area.area": "function",
        "library.shapes": "module",
        "library.shapes.Side": "data",
        "library.shapes.Cube": "class",
        "library.shapes.Cube.corners": "attribute",
        "library.shapes.Cube.volume": "method",
        "library.shapes.Cube.edge": "property",
        "library.shapes.Cube.face": "property",
        "library.shapes.paint": "function",
    }


@pytest.mark.parametrize(
    ("text", "where", "meant"),
    [
        ("volume", "library.shapes.Cube.edge", "library.shapes.Cube.volume"),
        ("volume", "library.shapes.paint", None),
        ("Cube.volume", "library.shapes.paint", "library.shapes.Cube.volume"),
        ("Cube.volume", "library.maths.area", "library.shapes.Cube.volume"),
        ("corners", "library.maths.area", None),
        ("Base", "library.shapes", "library.maths.area.Square"),
        ("Base.edge", "library.shapes", "library.maths.area.Square.edge"),
        ("edge", "library.shapes", None),
        ("area", "library.maths", "library.maths.area.area"),
        ("maths.area", "library.shapes", "library.maths.area"),
        ("area.area", "library.maths.area", "library.maths.area.area"),
        ("maths.area.Square", "library.shapes", "library.maths.area.Square"),
        ("library.shapes", "library.maths.area", "library.shapes"),
        ("paint()", "library.maths.area", "library.shapes.paint"),
        ("paint(3)", "library.maths.area", None),
        ("Side", "library.maths.area", "library.shapes.Side"),
        ("undocumented", "library.shapes", None),
        ("_private", "library.shapes", None),
        ("x @ W", "library.shapes", None),
    ],
)
def test_a_text_means_the_name_that_its_place_suggests(names, text, where, meant):
    assert names.find(text, names.scope(where)) == meant


def test_an_argument_is_no_link_to_a_function_of_its_name(names):
    where = "library.shapes.paint"
    assert names.find("area", names.scope(where)) == "library.maths.area.area"
    assert names.find("area", names.scope(where, ["area"])) is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"$x_i$ grows", r":math:`x_i` grows"),
        ("$a\n+ b$", ":math:`a + b`"),
        ("`x @ W`", "``x @ W``"),
        ("`Cube`s", r":py:obj:`Cube <library.shapes.Cube>`\ s"),
        ("``kept`` and :math:`kept`", "``kept`` and :math:`kept`"),
        ("at most |i - j|", r"at most \|i - j\|"),
        ("`|i|` and $|i|$", "``|i|`` and :math:`|i|`"),
        (":raises Square: when round", ":raises library.maths.area.Square: when round"),
        (":raises ValueError: when round", ":raises ValueError: when round"),
        (">>> print('`a` $b$')\n`a` $b$", ">>> print('`a` $b$')\n`a` $b$"),
        ("So::\n\n    `a` | $b$\n\n`a`", "So::\n\n    `a` | $b$\n\n``a``"),
    ],
)
def test_mathematics_and_names_become_markup(names, written, read):
    lines = as_rst(written.split("\n"), names, names.scope("library.shapes"))
    assert "\n".join(lines) == read


def test_attributes_with_one_description_get_an_entry_each():
    shared = [
        ":ivar keys, values: as in",
        "            the paper",
        ":ivar length: of both",
        "",
        "End",
    ]
    assert one_by_one(shared) == [
        ":ivar keys: as in",
        "            the paper",
        ":ivar values: as in",
        "            the paper",
        ":ivar length: of both",
        "",
        "End",
    ]
    assert one_by_one([":ivar a, b: last"]) == [":ivar a: last", ":ivar b: last"]
