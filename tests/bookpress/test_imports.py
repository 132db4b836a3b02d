"""The import walk finds what running the code would import from the library, and nothing else.

The oracle is Python itself: each library here is also imported by a fresh interpreter, and the
modules that it then holds are compared with what the walk found.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bookpress.imports import Library, LibrarySyntaxError, cell_trees, resolve

LAZY = """\
from typing import TYPE_CHECKING
import importlib

if TYPE_CHECKING:
    from pkg.parts.norm import Norm
    from .parts.block import Block as Layer
    from pkg.inner import Deep

_WHERE = {"Norm": "pkg.parts.norm", "Layer": "pkg.parts.block", "Deep": "pkg.inner"}
_NAMES = {"Layer": "Block"}


def __getattr__(name):
    if name not in _WHERE:
        raise AttributeError(name)
    return getattr(importlib.import_module(_WHERE[name]), _NAMES.get(name, name))
"""
INNER = """\
from typing import TYPE_CHECKING
import importlib

if TYPE_CHECKING:
    from pkg.inner.deep import Deep

__all__ = ["Deep"]


def __getattr__(name):
    if name == "Deep":
        return importlib.import_module("." + name.lower(), __name__).Deep
    raise AttributeError(name)
"""
FILES = {
    "pkg/__init__.py": LAZY,
    "pkg/parts/__init__.py": "",
    "pkg/parts/norm.py": "class Norm: pass\n",
    "pkg/parts/block.py": "from ..parts import norm\nfrom . import mix as m\nclass Block: pass\n",
    "pkg/parts/mix.py": "from pkg.parts.norm import Norm\nimport json\n",
    "pkg/inner/__init__.py": INNER,
    "pkg/inner/deep.py": "from ..parts.mix import Norm as Deep\n",
    "pkg/late.py": "def f():\n    from pkg.parts import mix\n    return mix\n",
    "pkg/typed.py": (
        "import typing\nif typing.TYPE_CHECKING:\n    from pkg.parts.block import Block\n"
        "else:\n    import pkg.parts.norm\n"
        "if not typing.TYPE_CHECKING:\n    import space.leaf\n"
        "else:\n    import pkg.late\n"
    ),
    "pkg/named.py": "from importlib import import_module\nx = import_module('.parts.mix', 'pkg')\n",
    "pkg/tried.py": "try:\n    import absent\nexcept ImportError:\n    import pkg.parts.norm as n\n",
    "space/leaf.py": "value = 1\n",
    "eager/__init__.py": "from .shape import area\nfrom .shape import shape\n",
    "eager/shape.py": "def area(): pass\ndef shape(): pass\n",
    "eager/unused.py": "",
    "star/__init__.py": "from .names import *\n",
    "star/names.py": "__all__ = ['one']\none = 1\nimport star.more\n",
    "star/more.py": "",
    "ring/__init__.py": "",
    "ring/a.py": "import ring.b\n",
    "ring/b.py": "import ring.a\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lib")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


CASES = {
    "a module and the packages around it": "import pkg.parts.norm",
    "two names for one thing": "import pkg.parts.norm as n, eager.shape",
    "relative imports, and a submodule under another name": "import pkg.parts.block",
    "from a package import a submodule": "from pkg.parts import norm, mix as m",
    "a lazily exported name": "from pkg import Norm",
    "a lazily exported name that has another name at home": "from pkg import Layer",
    "a lazy name through two lazy packages": "from pkg import Deep",
    "an attribute of a lazy package": "import pkg\npkg.Norm()",
    "an attribute of a lazy package under another name": "import pkg as p\nx = [p.Layer]",
    "an attribute behind an imported submodule": "import pkg.parts.norm\npkg.Deep",
    "a lazy package that is only imported": "import pkg",
    "a lazy package that is asked for its file": "import pkg\npkg.__file__, pkg.__name__",
    "an attribute of a lazy subpackage": "from pkg import inner\ninner.Deep",
    "an import inside a function": "import pkg.late\npkg.late.f()",
    "imports for type checkers": "import pkg.typed",
    "a literal import_module": "import importlib\nimportlib.import_module('pkg.parts.norm')",
    "a literal relative import_module": "import pkg.named",
    "the dunder": "__import__('eager.shape')",
    "an import that may fail": "import pkg.tried",
    "a namespace package": "import space.leaf\nfrom space import leaf",
    "a package that imports its modules": "from eager import area",
    "a function with the name of its module": "from eager import shape",
    "a star import": "from star import *",
    "a star import from a lazy package": "from pkg.inner import *",
    "a ring": "import ring.a",
    "nothing of the library": "import math, json.decoder\nfrom os import path",
}


@pytest.mark.parametrize("code", CASES.values(), ids=CASES.keys())
def test_the_walk_finds_what_python_imports(folder: Path, code: str) -> None:
    tops = sorted({Path(name).parts[0] for name in FILES})
    script = (
        f"{code}\nimport sys, json\n"
        f"print(json.dumps([n for n, m in sys.modules.items() if n.split('.')[0] in {tops} "
        "and getattr(m, '__file__', None)]))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(Library(folder).files([ast.parse(code)])) == set(json.loads(ran.stdout))


def test_a_lazy_package_handed_on_as_a_value_counts_as_everything_it_exports(folder: Path) -> None:
    found = Library(folder).files([ast.parse("import pkg\nshow(pkg)")])
    assert {"pkg.parts.norm", "pkg.parts.block", "pkg.inner", "pkg.inner.deep"} <= set(found)
    assert "pkg.late" not in found


def test_a_computed_module_name_counts_as_the_whole_package(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    text = "import importlib\ndef get(name):\n    return importlib.import_module('shop.' + name)\n"
    (tmp_path / "shop/__init__.py").write_text(text)
    (tmp_path / "shop/apple.py").write_text("import other\n")
    (tmp_path / "other.py").write_text("")
    found = Library(tmp_path).files([ast.parse("import shop")])
    assert set(found) == {"shop", "shop.apple", "other"}


def test_an_unknown_name_of_a_lazy_package_counts_as_the_whole_package(folder: Path) -> None:
    found = Library(folder).files([ast.parse("from pkg import Unlisted")])
    assert {"pkg.late", "pkg.parts.block", "pkg.inner.deep"} <= set(found)


def test_names_are_shared_between_cells(folder: Path) -> None:
    cells = cell_trees(["import pkg as p", "p.Norm()"])
    assert set(Library(folder).files(cells)) == {"pkg", "pkg.parts", "pkg.parts.norm"}


@pytest.mark.parametrize(
    "source",
    [
        "%matplotlib inline\nimport eager.shape",
        "!ls\nimport eager.shape",
        "%%time\nimport eager.shape",
        "x = !pwd\nimport eager.shape",
        "help?\nimport eager.shape",
        "if True:\n    %cd .\n    import eager.shape",
    ],
)
def test_magics_do_not_hide_imports(folder: Path, source: str) -> None:
    assert set(Library(folder).files(cell_trees([source]))) == {"eager", "eager.shape"}


def test_a_cell_that_is_no_python_imports_nothing(folder: Path) -> None:
    assert Library(folder).files(cell_trees(["%%bash\necho hello", "def (:"])) == {}


def test_a_library_module_that_does_not_parse_says_where(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ny = = 2\n")
    with pytest.raises(LibrarySyntaxError, match=r"broken\.py, line 2: .*expected valid Python"):
        Library(tmp_path).files([ast.parse("import broken")])


def test_an_edited_module_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\n")
    (tmp_path / "b.py").write_text("")
    (tmp_path / "c.py").write_text("")
    library = Library(tmp_path)
    assert set(library.files([ast.parse("import a")])) == {"a", "b"}
    (tmp_path / "a.py").write_text("import b, c\n")
    assert set(library.files([ast.parse("import a")])) == {"a", "b", "c"}


def test_modules_that_come_go_or_lead_elsewhere_are_noticed(tmp_path: Path) -> None:
    clock = iter(range(10**9, 2 * 10**9))

    def wrote(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        for each in (path, path.parent, tmp_path):
            moment = next(clock)
            os.utime(each, (moment, moment))

    wrote("shop/__init__.py", "from . import till")
    wrote("shop/till.py", "import maths")
    library = Library(tmp_path)

    def found() -> set[str]:
        return set(library.files([ast.parse("import shop")]))

    assert found() == found() == {"shop", "shop.till"}
    wrote("maths.py", "")  # until now it was taken for a module from elsewhere
    assert found() == {"shop", "shop.till", "maths"}
    wrote("shop/till.py", "import stock")
    assert found() == {"shop", "shop.till"}
    wrote("stock/__init__.py", "from stock.shelf import *")
    wrote("stock/shelf.py", "")
    assert found() == {"shop", "shop.till", "stock", "stock.shelf"}
    (tmp_path / "shop" / "till.py").unlink()
    assert found() == {"shop"}


@pytest.mark.parametrize(
    ("statement", "package", "expected"),
    [
        ("from . import x", "a.b", "a.b"),
        ("from .c import x", "a.b", "a.b.c"),
        ("from ..c import x", "a.b", "a.c"),
        ("from ... import x", "a.b.c", "a"),
        ("from d.e import x", "a.b", "d.e"),
    ],
)
def test_relative_names(statement: str, package: str, expected: str) -> None:
    node = ast.parse(statement).body[0]
    assert isinstance(node, ast.ImportFrom)
    assert resolve(node, package) == expected
