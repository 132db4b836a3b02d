"""Every chapter is a room with the same names in it, and what serves one chapter alone stands in its room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jupytext
import pytest
from bookpress.chapters import front_matter, rooms_of
from measured_book.measuring.attestations import attestations_of
from measured_book.measuring.measurement import measurements_of, rooms
from measured_book.measuring.state import status

ROOT = Path(__file__).parents[2]
LIBRARY, LABORATORY = (ROOT / "lib" / name for name in ("measured_transformer", "measured_book"))
ROOMS = sorted(
    path for path in (LABORATORY / "rooms").iterdir() if (path / "__init__.py").is_file()
)
NAMES = {
    "claims.toml",
    "measure.py",
    "reading.py",
    "figures.py",
    "exercises.py",
    "results",
    "fingerprints.json",
}
INSTRUMENTS = {
    "analysis.alarms",
    "analysis.alignment",
    "analysis.attribution",
    "analysis.attribution_graph",
    "analysis.attribution_patching",
    "analysis.bench",
    "analysis.bleu",
    "analysis.calibration",
    "analysis.circuits",
    "analysis.edges",
    "analysis.erasure",
    "analysis.examination",
    "analysis.fact_counts",
    "analysis.fact_edits",
    "analysis.fact_lookups",
    "analysis.faithfulness",
    "analysis.folding",
    "analysis.interchange",
    "analysis.lens",
    "analysis.scaling",
    "analysis.patching",
    "analysis.path_patching",
    "analysis.readers",
    "analysis.references",
    "analysis.steering",
    "analysis.transcoders",
    "analysis.tuned_lens",
    "figures.fact_tables",
    "viewer.sentences",
    "viewer.table",
    "viewer.workbench",
    "viewer.live",
    "viewer.live_weights",
}
"""What is there for those who use the library and for chapters to come: one chapter, or none yet, is enough."""


def names_in(room: Path) -> set[str]:
    """What lies in a room; what Python leaves there does not count."""
    return {path.name for path in room.iterdir()} - {"__init__.py", "__pycache__"}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_room_has_the_same_names_in_it_as_all_others(room: Path):
    if room.name == "your_own_checkpoint":
        assert names_in(room) == {"figures.py", "comparison.json"}  # it was compared elsewhere
    else:
        further = {name for name in names_in(room) - NAMES if name.endswith(".py")}
        asked = {"carries.toml"} if room.name == "carry_over" else set()
        assert (names_in(room) - further - asked) | {"reading.py"} == NAMES
        assert {Path(name).stem for name in further} <= modules_by_question(room)


def pages_of(room: str) -> list[Path]:
    """The pages that a room feeds, and that of its name."""
    return [
        page
        for page in (ROOT / "book").rglob("*.md")
        if page.parent.name != "lab-notes"  # named like the chapters, and without code
        and room in (page.stem.replace("-", "_"), *rooms_of(front_matter(page.read_text("utf-8"))))
    ]


def modules_by_question(room: Path) -> set[str]:
    """The modules of a room that its measurements are made of, or that its page shows."""
    codes = [path.read_text("utf-8") for path in room.glob("*.py")]
    codes += [cell for page in pages_of(room.name) for cell in cells(page)]
    own = f"measured_book.rooms.{room.name}."
    return {
        name.removeprefix(own).partition(".")[0]
        for code in codes
        for name in imported(code)
        if name.startswith(own)
    }


@pytest.mark.parametrize("room", rooms())
def test_every_result_is_valid_for_the_code_as_it_is(room: str):
    for one in measurements_of(room).values():
        now = status(one)
        assert now.is_valid, now.why
        assert now.attestation is not None, f"{one.label} has no fingerprint: make attest"


@pytest.mark.parametrize("room", rooms())
def test_no_fingerprint_is_kept_of_what_is_measured_no_more(room: str):
    assert set(attestations_of(room)) <= set(measurements_of(room))


def declares_readings(path: Path) -> bool:
    """Return whether a module says what claims are judged by, or names numbers of the prose."""
    functions = [
        x for x in ast.parse(path.read_text("utf-8")).body if isinstance(x, ast.FunctionDef)
    ]
    words = [ast.unparse(one) for function in functions for one in function.decorator_list]
    return any(word == "number" or word.startswith("evidence(") for word in words)


@pytest.mark.parametrize(
    "path", sorted(LABORATORY.glob("rooms/*/measure.py")), ids=lambda p: p.parent.name
)
def test_how_results_are_read_stands_beside_what_is_measured(path: Path):
    """Only a small room has both in one file, and no room has readings in two."""
    reading = path.with_name("reading.py")
    if reading.exists():
        assert declares_readings(reading)
        assert not declares_readings(path)
        assert f"rooms.{path.parent.name}.reading" not in path.read_text("utf-8")
        assert "@measurement" not in reading.read_text("utf-8")
    elif declares_readings(path):
        assert len(path.read_text("utf-8").splitlines()) <= 300


def figure_functions(path: Path) -> list[str]:
    """The functions of a module that draw a figure for both themes."""
    return [
        node.name
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and any(ast.unparse(one).startswith("themed") for one in node.decorator_list)
    ]


def test_functions_that_draw_a_figure_are_called_so():
    files = [*LABORATORY.glob("figures/*.py"), *LABORATORY.glob("rooms/*/figures.py")]
    drawing = [f"{path.parent.name}.{name}" for path in files for name in figure_functions(path)]
    assert len(drawing) > 150
    assert [name for name in drawing if not name.partition(".")[2].startswith("plot_")] == []


def imported(code: str) -> Iterator[str]:
    """The modules of the library that code imports from, without the package's name."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield from (f"{node.module}.{alias.name}", node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def cells(page: Path) -> Iterator[str]:
    """The code of a page, cell by cell."""
    for cell in jupytext.read(page, fmt="md:myst").cells:
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            yield "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


@cache
def modules() -> dict[str, str]:
    """The code of every instrument, of every module of figures and of what is shown in a page, by name."""
    folders = (LIBRARY / "analysis", LIBRARY / "viewer", LABORATORY / "figures")
    files = [path for folder in folders for path in folder.glob("*.py")]
    return {
        f"{path.parent.name}.{path.stem}": path.read_text("utf-8")
        for path in sorted(files)
        if path.stem != "__init__"
    }


def users() -> dict[str, set[str]]:
    """For each instrument the chapters that use it, themselves or through another instrument."""
    found: dict[str, set[str]] = {name: set() for name in modules()}
    pages = {
        page.stem.replace("-", "_"): page
        for page in (ROOT / "book").rglob("*.md")
        if page.parent.name != "lab-notes"  # named like the chapters, and without code
    }

    def use(code: str, chapter: str) -> None:
        for name in imported(code):
            short = name.partition(".")[2]
            if chapter not in found.get(short, {chapter}):
                found[short].add(chapter)
                use(modules()[short], chapter)

    for room in ROOMS:
        codes = [path.read_text("utf-8") for path in room.glob("*.py")]
        if room.name in pages:
            codes += cells(pages[room.name])
        for code in codes:
            use(code, room.name)
    return found


def test_an_instrument_serves_more_than_one_chapter():
    """What serves one alone belongs into its room, where whoever changes the chapter finds it."""
    found = users()
    assert set(found) > INSTRUMENTS
    few = {name: of for name, of in found.items() if len(of) < 2 and name not in INSTRUMENTS}
    assert few == {}


def test_a_name_that_the_page_alone_imports_counts_as_used():
    found = users()
    assert "residual_stream" in found["figures.diagrams"]
    assert len(found["viewer.head_summary"]) > 1, "through the viewer"
