"""The page on parity, with a GPU's results and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bookpress.sphinx import parity
from bs4 import BeautifulSoup
from measured_book.evidence.results import read_result, results_folder, write_result
from measured_book.measuring import changes
from measured_book.measuring.measurement import measurements_of
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

ROOM = "norm_placement"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out a book of one page, for which the kept results are those of one room."""
    (tmp_path / "index.rst").write_text("Parity\n======\n\n.. parity::\n")
    kept = {ROOM: {p.stem: read_result(p) for p in results_folder(ROOM).glob("[a-z]*.json")}}
    monkeypatch.setattr(changes, "kept", lambda: kept)
    monkeypatch.setattr(changes, "rooms", lambda: [ROOM])
    return tmp_path


def page(source: Path) -> BeautifulSoup:
    with patch_docutils(source), docutils_namespace():
        build = source / "_build"
        app = Sphinx(source, None, build, build / "doctrees", "html", status=None, warning=None)
        parity.setup(app)
        app.build()
    return BeautifulSoup((build / "index.html").read_text(), "html.parser")


def gpu(source: Path, name: str, **shifts: float) -> None:
    result = read_result(results_folder(ROOM) / f"{name}.json")
    variables = dict(result.variables)
    for variable, shift in shifts.items():
        axes, values = variables[variable]
        variables[variable] = (axes, values + shift)
    provenance = {**result.provenance, "device": "NVIDIA Something", "seconds": 1.0}
    changed = replace(result, variables=variables, provenance=provenance)
    write_result(changed, source / "results-gpu" / ROOM / "results" / f"{name}.json")


def test_without_a_gpus_results_the_page_says_so(source: Path):
    text = page(source).get_text(" ")
    assert "Not measured yet" in text
    assert "nothing is said about parity" in text
    assert "table" not in str(page(source))


def test_with_both_every_claim_and_measurement_stands_side_by_side(source: Path):
    assert "Not measured yet" in page(source).get_text(" ")
    gpu(source, "border")
    shown = page(source)  # results that came make the page be read again
    text = " ".join(shown.get_text(" ").split())
    total = len(measurements_of(ROOM))
    assert total > 1
    assert f"1 of {total} measurements has been made on a GPU so far; where a claim" in text
    assert "Of 0 claims" not in text
    assert "NVIDIA Something (1)" in text
    claims, measurements = shown.find_all("table")
    assert [th.get_text(strip=True) for th in claims.find_all("th")] == [
        "Claim or part",
        "CPU",
        "GPU",
        "Differs",
    ]
    rows = [[td.get_text(" ", strip=True) for td in tr.find_all("td")] for tr in claims("tr")[1:]]
    assert rows
    assert all(cpu == gpu and not differs for _, cpu, gpu, differs in rows)
    assert claims.find("a")["href"].startswith("book/scorecard.html#")
    (row,) = measurements("tr")[1:]
    label, *_, within, outside = (td.get_text(strip=True) for td in row("td"))
    assert (label, within, outside) == (f"{ROOM}.border", "0", "0")


def test_a_set_is_counted_as_it_grows(source: Path):
    names = list(measurements_of(ROOM))
    for name in names[:2]:
        gpu(source, name)
    text = " ".join(page(source).get_text(" ").split())
    assert f"2 of {len(names)} measurements have been made on a GPU so far; where" in text
    for name in names[2:]:
        gpu(source, name)
    text = " ".join(page(source).get_text(" ").split())
    assert f"{len(names)} of {len(names)} measurements have been made on a GPU. Of " in text


def test_what_differs_is_marked(source: Path):
    result = read_result(results_folder(ROOM) / "border.json")
    variable = next(n for n, (_, v) in result.variables.items() if v.dtype.kind == "f")
    gpu(source, "border", **{variable: 100.0})
    shown = page(source)
    *_, row = shown.find_all("table")[-1]("tr")
    assert row("td")[-1].get_text(strip=True) != "0"
