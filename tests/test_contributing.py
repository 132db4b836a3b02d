"""The guide for contributors, tried: the chapter that it builds is measured, and its page fits its claims."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import measured_transformer.chapters
import pytest
from bookpress.chapters import front_matter
from measured_transformer.evidence import registry, results
from measured_transformer.measuring import measure
from measured_transformer.measuring.measurement import measurements_of

ROOT = Path(__file__).parents[1]
LISTED = re.compile(r"<!-- file: (\S+) -->\n(`{3,})\w+\n(.*?)\n\2\n", re.DOTALL)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    return {name: content + "\n" for name, _, content in LISTED.findall(text)}


def test_the_guide_lists_a_whole_room(files):
    assert set(files) == {"__init__.py", "claims.toml", "measure.py", "page.md"}


def test_its_chapter_can_be_measured(files, tmp_path, monkeypatch):
    room = tmp_path / "chapters" / "tied_embeddings"
    room.mkdir(parents=True)
    for name, content in files.items():
        (room / name).write_text(content, "utf-8")
    (tmp_path / "_config.yml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "_CHAPTERS", room.parent)
    monkeypatch.setattr(measured_transformer.chapters, "__path__", [str(room.parent)])
    known = registry.parse_claims(files["claims.toml"], "claims.toml")
    monkeypatch.setattr(registry, "_packaged", lambda: known)

    (losses,) = measurements_of("tied_embeddings").values()
    with ThreadPoolExecutor(1) as here:  # other processes would not know this room
        found = measure(losses, seeds=1, executor=here, progress=False)
    assert found.loss.dims == ("seed", "arm")
    assert (found.loss < 1.5).all(), "both learn the rule: guessing costs ln 32 = 3.5"
    saved = found.weights.sel(arm="untied") - found.weights.sel(arm="tied")
    assert (saved == 32 * 32).all(), "one matrix less"


def test_its_page_belongs_to_its_room_and_claims_what_is_declared(files):
    about = front_matter(files["page.md"])
    assert about["measured"] == {"room": "tied_embeddings"}
    claimed = re.findall(r"```\{claim\} (\S+)", files["page.md"])
    declared = re.findall(r'^id = "(\S+)"', files["claims.toml"], re.MULTILINE)
    assert claimed == declared
    labels = re.findall(r"^\((\S+)\)=$", files["page.md"], re.MULTILINE)
    assert re.findall(r'^section = "(\S+)"', files["claims.toml"], re.MULTILINE)[0] in labels
