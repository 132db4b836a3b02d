"""The reference: everything public is documented, has its entry on one page, and can be read there."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import measured_book
import measured_transformer
import pytest
import yaml
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).parents[2]
LIBRARY = Path(measured_transformer.__file__).parents[1]
PACKAGES = (measured_transformer, measured_book)
OF_PACKAGES = {"measured_transformer": "index", "measured_book": "laboratory"}
MAKING = ("__init__", "__post_init__", "__new__")
NAMED_IN_DOCSTRINGS = {"ValueError", "KeyError"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def none(problems: Any) -> None:
    """Fail with all problems, not only the first."""
    listed = sorted(problems)
    assert not listed, "\n" + "\n".join(listed)


def in_a_room(name: str) -> bool:
    """Return whether a module serves one chapter alone; such modules have no entries."""
    return name.startswith("measured_book.rooms.")


@cache
def modules() -> dict[str, ast.Module]:
    """Every public module of the library and the laboratory, and its source."""
    found = {}
    files = [path for one in PACKAGES for path in sorted((LIBRARY / one.__name__).rglob("*.py"))]
    for path in files:
        parts = path.relative_to(LIBRARY).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not any(part.startswith("_") for part in name.split(".")):
            found[name] = ast.parse(path.read_text("utf-8"))
    return found


# The sources ------------------------------------------------------------------------------------


def test_every_module_has_its_place_on_one_page_of_the_book():
    pages = {path: path.read_text("utf-8") for path in (ROOT / "book/reference").glob("*.md")}
    places = defaultdict(list)
    for path, text in pages.items():
        for module in re.findall(r"^\.\. automodule:: (\S+)$", text, re.MULTILINE):
            places[module].append(path.stem)
    assert set(places) == {name for name in modules() if not in_a_room(name)}
    none(f"{module} stands on {stems}" for module, stems in places.items() if len(stems) > 1)
    none(
        f"{module} stands on {stem}"
        for module, (stem,) in places.items()
        if stem != (OF_PACKAGES.get(module) or module.split(".")[1])
    )
    toc = yaml.safe_dump(yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8")))
    named = re.findall(r"file: book/reference/(\S+)", toc)
    assert sorted(named) == sorted(path.stem for path in pages)


def test_a_package_says_what_it_is_for_and_shows_it():
    """Its examples run with those of all docstrings; a page has no others."""
    problems = []
    for name, tree in modules().items():
        if in_a_room(name):
            continue  # a room has the same names in it as all others
        if (LIBRARY / name.replace(".", "/")).is_dir():
            prose, _, example = (ast.get_docstring(tree) or "").partition(">>> ")
            if len(prose) < 100 or "import" not in example:
                problems.append(f"{name}: expected a few sentences and an example, got {prose!r}")
    for path in (ROOT / "book/reference").glob("*.md"):
        if re.search(
            r"^```(?!\{)", re.sub(r"```\{.*?^```$", "", path.read_text(), flags=re.S | re.M)
        ):
            problems.append(f"{path.name} has code that nobody runs")
    none(problems)


def public(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Public functions and classes of a module, and the methods and properties of these."""
    for node in body:
        if isinstance(node, (ast.ClassDef, *Function.__args__)) and not node.name.startswith("_"):
            if any(ast.unparse(one) == "overload" for one in node.decorator_list):
                continue  # the implementation that follows speaks for all of them
            yield f"{prefix}.{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}.{node.name}")


def everything() -> Iterator[tuple[str, ast.AST]]:
    for module, tree in modules().items():
        yield from public(tree.body, module)


def test_everything_public_has_a_docstring():
    problems = [name for name, node in everything() if not (ast.get_docstring(node) or "").strip()]
    problems += [name for name, tree in modules().items() if not ast.get_docstring(tree)]
    none(problems)


def caught_by(node: ast.Try) -> set[str]:
    """Names of the errors that the handlers of a `try` catch."""
    found = set()
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        found |= {"Exception" if kind is None else ast.unparse(kind) for kind in kinds}
    return found | (NAMED_IN_DOCSTRINGS if found & {"Exception", "BaseException"} else set())


def errors(
    node: ast.AST, helpers: dict[str, ast.AST], caught: frozenset[str] = frozenset()
) -> set[str]:
    """The errors that code raises itself or through private helpers of its module."""
    found: set[str] = set()
    if isinstance(node, ast.Raise) and node.exc is not None:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        found |= {ast.unparse(error)} - caught
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).removeprefix("self.")
        if called in helpers:
            others = {name: helper for name, helper in helpers.items() if name != called}
            found |= errors(helpers[called], others) - caught
    for child in ast.iter_child_nodes(node):
        guarded = isinstance(node, ast.Try) and child in node.body
        found |= errors(child, helpers, caught | caught_by(node) if guarded else caught)
    return found & NAMED_IN_DOCSTRINGS


@cache
def helpers_of(module: str) -> dict[str, ast.AST]:
    """Private functions and methods of a module whose name says which one is called."""
    private = [
        node
        for node in ast.walk(modules()[module])
        if isinstance(node, Function) and re.match(r"_[^_]", node.name)
    ]
    counts = Counter(node.name for node in private)
    return {node.name: node for node in private if counts[node.name] == 1}


def test_errors_are_named_where_they_are_raised():
    problems = []
    for name, node in everything():
        module = next(m for m in sorted(modules(), reverse=True) if name.startswith(f"{m}."))
        if isinstance(node, ast.ClassDef):
            made = [m for m in node.body if isinstance(m, Function) and m.name in MAKING]
            bases = {ast.unparse(base) for base in node.bases}
            told = [ast.get_docstring(other) or "" for other in (node, *made)]
            told += [
                ast.get_docstring(other) or ""
                for other in modules()[module].body
                if isinstance(other, ast.ClassDef) and other.name in bases
            ]
            called = [m for m in node.body if isinstance(m, Function) and m.name == "__call__"]
            checked = [(made, " ".join(told))]
            checked += [([call], ast.get_docstring(call) or "") for call in called]
        else:
            checked = [([node], ast.get_docstring(node) or "")]
        for nodes, told in checked:
            raised = set().union(*(errors(n, helpers_of(module)) for n in nodes))
            problems += [f"{name} raises {e} and does not say so" for e in raised if e not in told]
    none(problems)


def test_the_check_of_errors_sees_what_is_raised_and_no_more():
    tree = ast.parse("""
def direct(): raise ValueError("no")
def nested():
    def inner(): raise KeyError
def caught():
    try: raise ValueError
    except (TypeError, ValueError): return
def turned():
    try: raise KeyError
    except KeyError: raise ValueError from None
def through(self): self._helper()
def harmless(): raise RuntimeError
""")
    helper = ast.parse("def _helper(): raise KeyError('no')").body[0]
    found = {node.name: errors(node, {"_helper": helper}) for node in tree.body}
    assert found == {
        "direct": {"ValueError"},
        "nested": {"KeyError"},
        "caught": set(),
        "turned": {"ValueError"},
        "through": {"KeyError"},
        "harmless": set(),
    }


# The printed pages ------------------------------------------------------------------------------


def importable() -> Iterator[str]:
    """Full names of all that is public, found by importing the library and the laboratory."""
    names = []
    for package in PACKAGES:
        walked = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        names += [package.__name__, *(found.name for found in walked)]
    for name in names:
        if any(part.startswith("_") for part in name.split(".")):
            continue  # a command (`python -m`) is run and not imported
        if in_a_room(name):
            continue
        module = importlib.import_module(name)
        for key, item in vars(module).items():
            own = getattr(item, "__module__", None) == name
            if key.startswith("_") or not own or not (inspect.isclass(item) or callable(item)):
                continue
            if item.__name__ != key:  # an alias
                continue
            yield f"{name}.{key}"
            if inspect.isclass(item):
                members = (property, cached_property, staticmethod, classmethod)
                for member, value in vars(item).items():
                    made = inspect.isfunction(value) or isinstance(value, members)
                    field = member in inspect.get_annotations(item)  # and this its default
                    if made and not field and not member.startswith("_"):
                        yield f"{name}.{key}.{member}"


@pytest.fixture(scope="module")
def printed(built: Path) -> dict[str, Tag]:
    """Page of the reference -> its article."""
    found = {
        path.stem: BeautifulSoup(path.read_text("utf-8"), "html.parser").select_one("article")
        for path in sorted((built / "book/reference").glob("*.html"))
    }
    assert len(found) > 10
    return found


@pytest.fixture(scope="module")
def entries(printed: dict[str, Tag]) -> dict[str, Tag]:
    """Full name -> the head of its entry."""
    heads = [head for article in printed.values() for head in article.select("dt.sig[id]")]
    none(f"{name} has {n} entries" for name, n in Counter(h["id"] for h in heads).items() if n > 1)
    return {head["id"]: head for head in heads}


def test_every_public_name_has_an_entry(entries):
    expected = set(importable())
    assert len(expected) > 200
    none(expected - set(entries))


def test_entries_are_of_the_library_and_documented(entries):
    problems = []
    for name, head in entries.items():
        if name.partition(".")[0] not in OF_PACKAGES:
            problems.append(f"{name} is none of ours")
        words = head.find_next_sibling("dd").get_text(" ", strip=True)
        if len(words) < 8:
            problems.append(f"{name} says only {words!r}")
    none(problems)


def test_signatures_are_short_and_keep_the_words_of_shapes(entries):
    none(f"{name}: {h.text}" for name, h in entries.items() if re.search(r"measured_\w+\.", h.text))
    none(
        f"{name}: {head.text}"
        for name, head in entries.items()
        if re.search(r"jaxtyping|typing\.|<\w+ (object|at)|0x[0-9a-f]{6}|<factory>", head.text)
    )
    none(
        f"{name}: {head.text}" for name, head in entries.items() if re.search(r"<desc|~", head.text)
    )
    attention = entries["measured_transformer.parts.attention_functions.attention_scores"].text
    assert "queries: Float[Tensor, '*batch query d_head']," in attention
    assert "→ Float[Tensor, '*batch query key']" in attention
    assert "activation: Activation = 'relu'" in (
        entries["measured_transformer.parts.feedforward.FeedForward"].text
    )
    assert "self" not in entries["measured_transformer.parts.tap.Tap.forward"].text


def test_long_signatures_have_a_line_for_each_argument(entries):
    problems = []
    for name, head in entries.items():
        lines = len(head.select(".sig-line"))
        if len(head.text.replace("[source]", "")) > 120 and len(head.select(".sig-param")) > lines:
            problems.append(f"{name}: {lines} lines for {head.text}")
    none(problems)


def test_names_in_signatures_and_text_lead_to_their_entries(entries, printed):
    def leads(head: Tag) -> set[str]:
        links = (link["href"] for link in head.select("a.reference.internal"))
        return {link.rpartition("#")[2] for link in links}

    parts, models = "measured_transformer.parts", "measured_transformer.models"
    assert f"{parts}.positions.Rotation" in leads(entries[f"{parts}.block.Block.forward"])
    assert f"{parts}.feedforward.Activation" in leads(entries[f"{models}.config.Config"])
    text = entries[f"{parts}.attention_functions.fused_attention"].find_next_sibling("dd")
    assert f"{parts}.attention_functions.attention_pattern" in leads(text)
    assert "measured_transformer.internals.capture.capture" in leads(printed["index"])
    base = entries[f"{models}.decoder.Decoder"].find_next_sibling("dd")
    assert f"{models}.stack.Stack" in leads(base)


def test_mathematics_and_code_are_marked_up(printed):
    problems = []
    for page, article in printed.items():
        problems += [f"{page}: {node}" for node in article.select(".problematic, .system-message")]
        text = BeautifulSoup(str(article), "html.parser")
        for code in text.select("pre, code, .math, .sig"):
            code.replace_with(" ")
        problems += [f"{page}: {found}" for found in re.findall(r".*[`$].*", text.get_text(" "))]
    none(problems)


def test_a_formula_stands_where_a_docstring_has_one(built):
    text = (built / "book/reference/parts.html").read_text("utf-8")
    assert r"\(1/\sqrt{d_\text{head}}\)" in text


def test_source_is_one_click_away_and_lies_beside_the_page(built, entries):
    problems = []
    for name, head in entries.items():
        link = head.select_one("a:has(.viewcode-link)")
        kind = head.parent["class"]
        if link is None:
            if not {"data", "attribute", "property"} & set(kind):
                problems.append(f"{name} has no source")
            continue
        file, _, anchor = link["href"].partition("#")
        target = (built / "book/reference" / file).resolve()
        if not target.is_file() or f'id="{anchor}"' not in target.read_text("utf-8"):
            problems.append(f"{name}: {link['href']} leads nowhere")
    none(problems)


def test_a_page_begins_with_a_table_of_its_entries(printed):
    problems = []
    for page, article in printed.items():
        if page == "index":
            continue
        rows = article.select("table.names-table tr:not(.names-part)")
        linked = [row.select_one("a")["href"].removeprefix("#") for row in rows]
        shown = [h["id"] for h in article.select("section > dl.py > dt.sig[id]")]
        if linked != shown:
            problems.append(f"{page}: {set(shown) ^ set(linked) or 'another order'}")
        problems += [f"{page}: {row}" for row in rows if len(row.select("td")[1].text) < 8]
    none(problems)


def test_search_finds_an_entry(server, browser):
    page = browser.new_page()
    page.goto(f"{server}/search.html?q=fused_attention")
    page.wait_for_selector("#search-results li a", timeout=15_000)
    found = page.eval_on_selector_all(
        "#search-results li a", "links => links.map(link => link.pathname + link.hash)"
    )
    page.close()
    entry = "#measured_transformer.parts.attention_functions.fused_attention"
    assert f"/book/reference/parts.html{entry}" in found
