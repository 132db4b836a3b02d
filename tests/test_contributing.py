"""The guide for contributors, tried: the chapter that it builds is measured, and its page fits its claims."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import measured_book.rooms
import pytest
from bookpress.chapters import front_matter
from measured_book.evidence import declarations, registry, results
from measured_book.exercises import check
from measured_book.exercises import registry as exercise_registry
from measured_book.measuring import measure
from measured_book.measuring.judging import judge_results, value_of
from measured_book.measuring.measurement import measurements_of
from measured_transformer.viewer.style import ThemedFigure

ROOT = Path(__file__).parents[1]
IN_ROOM = ("__init__.py", "claims.toml", "measure.py", "figures.py", "exercises.py")
MODULE = "measured_book.rooms.tied_embeddings"
NAME = "tied_embeddings.logits"
NAMES = runpy.run_path(str(ROOT / "tests/rooms/test_rooms.py"))["NAMES"]
parts_of = runpy.run_path(str(ROOT / "tests/exercises/exercise_pages.py"))["parts_of"]
LISTED = re.compile(r"<!-- file: (\S+) -->\n(`{3,})\w+\n(.*?)\n\2\n", re.DOTALL)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    return {name: content + "\n" for name, _, content in LISTED.findall(text)}


@pytest.fixture
def room(files, tmp_path, monkeypatch):
    """The guide's room, the only one as long as a test runs."""
    folder = tmp_path / "rooms" / "tied_embeddings"
    folder.mkdir(parents=True)
    for name in IN_ROOM:
        (folder / name).write_text(files[name], "utf-8")
    (tmp_path / "_config.yml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "_ROOMS", folder.parent)
    monkeypatch.setattr(measured_book.rooms, "__path__", [str(folder.parent)])
    monkeypatch.setattr(exercise_registry, "_KNOWN", {})
    yield folder
    for name in [name for name in sys.modules if name.startswith(MODULE)]:
        del sys.modules[name]
    if hasattr(measured_book.rooms, "tied_embeddings"):
        del measured_book.rooms.tied_embeddings


def drawn(losses) -> ThemedFigure:
    return importlib.import_module(f"{MODULE}.figures").plot_losses(losses)


def as_result(found) -> results.Result:
    variables = {str(name): (one.dims, one.values) for name, one in found.data_vars.items()}
    coords = {str(axis): labels.values.tolist() for axis, labels in found.coords.items()}
    return results.Result("tied_embeddings", "losses", "", variables, coords)


def test_the_guide_lists_a_whole_room(files):
    """With what every room has in it, but for the results and fingerprints, which are measured."""
    assert set(files) == {*IN_ROOM, "page.md", "wrong_answers.py"}
    assert {*IN_ROOM, "results", "reading.py", "fingerprints.json"} == NAMES | {"__init__.py"}


def test_its_paper_is_in_the_bibliography(files):
    keys = re.findall(r"^@\w+\{([^,]+),", (ROOT / "references.bib").read_text("utf-8"), re.M)
    (cited,) = re.findall(r'^reference = "(\S+)"', files["claims.toml"], re.M)
    assert cited in keys


def test_its_chapter_can_be_measured_and_drawn(files, room, monkeypatch):
    known = declarations.parse_claims(files["claims.toml"], "claims.toml")
    monkeypatch.setattr(registry, "_packaged", lambda: known)

    (losses,) = measurements_of("tied_embeddings").values()
    with ThreadPoolExecutor(1) as here:  # other processes would not know this room
        found = measure(losses, seeds=2, executor=here, progress=False)
    assert found.loss.dims == ("seed", "arm")
    assert (found.loss < 1.5).all(), "both learn the rule: guessing costs ln 32 = 3.5"
    saved = found.weights.sel(arm="untied") - found.weights.sel(arm="tied")
    assert (saved == 32 * 32).all(), "one matrix less"

    values = judge_results("tied_embeddings", {"losses": as_result(found)})
    (record,) = values.records.values()
    assert record["values"]["treatment"] == found.loss.sel(arm="tied").values.tolist()
    printed = re.findall(r"\{measured\}`([^`]+)`", files["page.md"])
    assert len({value_of(values, one) for one in printed}) == len(printed) == 4

    figure = drawn(found)
    assert isinstance(figure, ThemedFigure)
    (axes,) = figure.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["tied", "untied"]
    dots = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    assert [list(dot) for dot in dots] == found.loss.transpose("arm", "seed").values.tolist()


def test_its_exercise_can_be_solved_and_wrong_answers_are_told_apart(files, room):
    (asked,) = exercise_registry.exercises()
    assert (asked.name, asked.chapter) == (NAME, "book/machine/tied-embeddings")
    start, solution = parts_of(files["page.md"], asked.chapter)
    assert (start.kind, solution.kind) == ("exercise", "solution")
    assert start.names == solution.names == (NAME,)
    assert start.label == solution.label
    assert solution.folded
    given = {}
    for part in (start, solution):
        exec(part.code[0], given)
        assert check(NAME, given["logits"]).passed == (part is solution), part.kind
    exec(files["wrong_answers.py"], given)
    assert set(given["WRONG"]) == {NAME}
    for slip, (answer, words) in given["WRONG"][NAME].items():
        result = check(NAME, answer)
        assert not result.passed, slip
        assert words in result.message, slip


PLACES = {
    "wrong_answers.py": "tests/rooms/one_layer",
    **dict.fromkeys(IN_ROOM, "lib/measured_book/rooms/one_layer"),
}
"""File -> where another room has it; what is imported from the laboratory is sorted by the place."""


@pytest.mark.parametrize("name", [name for name in PLACES if name.endswith(".py")])
def test_its_code_is_in_the_style_that_is_checked(files, name):
    for asked in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *asked, "--stdin-filename", f"{PLACES[name]}/{name}"],
            cwd=ROOT,
            input=files[name],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_its_page_shows_its_figure(files):
    (named,) = re.findall(r"^    name: (\S+)$", files["page.md"], re.MULTILINE)
    assert f"{{numref}}`{named}`" in files["page.md"]
    assert f"from {MODULE}.figures import plot_losses" in files["page.md"]


def test_its_page_belongs_to_its_room_and_claims_what_is_declared(files):
    about = front_matter(files["page.md"])
    assert about["measured"] == {"room": "tied_embeddings"}
    claimed = re.findall(r"```\{claim\} (\S+)", files["page.md"])
    declared = re.findall(r'^id = "(\S+)"', files["claims.toml"], re.MULTILINE)
    assert claimed == declared
    labels = re.findall(r"^\((\S+)\)=$", files["page.md"], re.MULTILINE)
    assert re.findall(r'^section = "(\S+)"', files["claims.toml"], re.MULTILINE)[0] in labels
