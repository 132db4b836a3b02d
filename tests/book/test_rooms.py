"""Pages of chapters: numbers and verdicts from kept results, claims in one line, data, and what ran."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil

import nbformat
import numpy as np
import pytest
import room_pages
import tiny_pages
from bookpress.sphinx import data
from bookpress.sphinx.data import write_kept, write_table
from measured_book.evidence.results import Result

WHY = "some_room/results/reversal.json was measured with other code; run make attest CHAPTER=some_room"


def words(node):
    return re.sub(r"\s+", " ", node.get_text(" ")).strip()


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    book = room_pages.make(tmp_path_factory.mktemp("rooms"))
    assert book.build() == []
    assert book.failed is None
    return book


@pytest.fixture(scope="module")
def page(printed):
    return printed.page("good").select_one("article")


def another(printed, folder, page=room_pages.PAGE, **states):
    """Return a book like the printed one, whose cells need not run again."""
    shutil.copytree(printed.root / "_build/.jupyter_cache", folder / "_build/.jupyter_cache")
    return room_pages.make(folder, page, **states)


def test_numbers_come_from_the_results(page):
    values = {node["data-measured"]: node.get_text() for node in page.select("span.measured")}
    assert values == {
        "reversal.accuracy[arm=random]|mean:.3f": "0.929",
        "floor:.2f": "1.14",
        "DD-7.7.alibi.effect:+.2f": "+0.63",
        "reversal.accuracy[arm=none]|mean:.2f": "0.30",
    }


def test_a_claim_is_one_line_that_unfolds(page):
    line = page.select_one("div.claim-line#claim-cs-1-3")
    assert (line["role"], line["aria-label"]) == ("group", "Claim CS-1.3, confirmed")
    unfolds = line.select_one("details")
    assert not unfolds.has_attr("open")
    summary = words(unfolds.select_one("summary"))
    assert re.fullmatch(
        r"Similarity .* depends on the offset alone\. largest error .*⁻¹⁴ in 10 draws ✓ confirmed",
        summary,
    )
    assert [words(term) for term in unfolds.select("dt")] == [
        "Measured",
        "Source",
        "Test",
        "Rule, declared beforehand",
        "Scope",
        "Verdict",
    ]
    links = [link["href"] for link in unfolds.select("a")]
    assert links[-2:] == ["scorecard.html#CS-1.3", "claims/CS-1.3.html"]


def test_a_line_of_parts_says_how_many_and_unfolds_to_each(page):
    line = page.select_one("#claim-dd-7-7")
    assert words(line.select_one("summary .claim-effect")) == (
        "1 confirmed, 1 refuted; it turns on the other scheme"
    )
    parts = [words(item) for item in line.select(".claim-measured li")]
    assert len(parts) == 2
    assert re.match(r"against ALiBi: mean difference 0\.63 \(95 % interval .*refuted", parts[1])
    comment = line.select_one(".claim-comment")
    assert comment.find_parent("details") is None
    assert words(comment) == "Mind that both are compared with the same base, 0.30 ."


def test_a_claim_is_called_by_its_name(page):
    named = {words(link): link["href"] for link in page.select("a.claim-name")}
    assert named == {
        "only the offset counts": "#claim-cs-1-3",
        "Rotary carries over better": "#claim-dd-7-7",
        "attention came after recurrence": "#claim-da-2-1",
    }
    assert all(page.select_one(href) is not None for href in named.values())


def test_no_claim_stands_twice(page):
    listed = page.select_one("details.fold:has(ul.claim-items)")
    assert words(listed.select_one("summary")) == (
        "4 claims: 1 confirmed, 1 refuted, 1 conditional, 1 fact."
    )
    items = listed.select("li")
    assert [item["id"] for item in items] == ["claim-cs-1-5", "claim-da-2-1"]
    assert items[0].select_one("a.claim-where")["href"] == "#smoothly"
    assert re.search("1 of 3 numbers breaks the bound .* ✗ refuted", words(items[0]))
    addresses = [item.select_one("div.cite a")["href"] for item in items]
    assert addresses == ["claims/CS-1.5.html", "claims/DA-2.1.html"]
    assert "verdict: refuted" in items[0].select_one("div.cite pre").get_text()
    above = {link.get_text(): link["href"] for link in listed.select(".claim-above a")}
    assert above == {"CS-1.3": "#claim-cs-1-3", "DD-7.7": "#claim-dd-7-7"}
    statements = ["depends on the offset alone.", "It falls off smoothly.", "Attention replaced"]
    cited = "".join(node.get_text() for node in page.select("div.cite"))
    counted = [page.get_text().count(text) - cited.count(text) for text in statements]
    assert counted == [1, 1, 1]
    ids = [node["id"] for node in page.select("[id]")]
    assert len(ids) == len(set(ids))


VIEWED = """
{numref}`fig-viewed` shows one value.

```{code-cell} ipython3
---
mystnb:
  figure:
    caption: One weight.
    name: fig-viewed
  image:
    alt: One square.
---
import numpy as np
from measured_transformer.viewer.attention import attention_viewer

attention_viewer(np.full((1, 1, 1, 1, 1), float(accuracy.max() > 0)), ["a"], title="One weight")
```
"""


def test_a_viewer_leads_to_its_data_under_its_one_caption(tmp_path):
    book = room_pages.make(
        tmp_path, room_pages.PAGE.replace("(smoothly)=", VIEWED + "\n(smoothly)=")
    )
    assert book.build() == []
    figure = book.page("good").select_one("article figure#fig-viewed")
    (caption,) = figure.select("figcaption")
    assert words(caption.select_one("p.data-links")).startswith("Data: reversal.accuracy as CSV")
    html = (book.root / "_build/html/good.html").read_text("utf-8")
    assert html.count("<figcaption>") == html.count("</figcaption>") == html.count("</figure>")


def test_a_figure_leads_to_its_data(printed, page):
    under = page.select_one("figure figcaption p.data-links")
    assert words(under) == "Data: reversal.accuracy as CSV , result file"
    table, kept = (link["href"] for link in under.select("a[download]"))
    html = printed.root / "_build/html"
    rows = list(csv.DictReader((html / table).read_text().splitlines()))
    assert len(rows) == 30
    assert {tuple(row) for row in rows} == {("variable", "seed", "arm", "value")}
    told = json.loads((html / kept).read_text())
    assert told == json.loads((printed.root / "rooms/some_room/results/reversal.json").read_text())
    random = [float(row["value"]) for row in rows if row["arm"] == "random"]
    assert f"{sum(random) / 10:.3f}" == page.select_one("span.measured").get_text()


def test_a_table_too_long_for_a_spreadsheet_is_compressed(tmp_path):
    accuracy = np.arange(1200.0).reshape(2, 600)
    result = Result(
        "some_room",
        "long",
        "many values",
        {"accuracy": (("seed", "step"), accuracy), "loss": (("seed",), np.array([1.5, 2.5]))},
        {"seed": [0, 1], "step": list(range(600))},
    )
    short = write_table(tmp_path, result, "loss")
    assert short.name == "long.loss.csv"
    assert short.read_text().splitlines()[1:] == ["loss,0,1.5", "loss,1,2.5"]
    for variable, name in (("accuracy", "long.accuracy.csv.gz"), (None, "long.csv.gz")):
        path = write_table(tmp_path, result, variable)
        assert path.name == name
        with gzip.open(path, "rt", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["variable"] == "accuracy"]
        assert [float(row["value"]) for row in rows] == accuracy.ravel().tolist()
        before = path.read_bytes()
        assert write_table(tmp_path, result, variable).read_bytes() == before


def test_of_very_many_values_there_is_the_kept_file_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "LONGEST", 29)  # of thirty
    book = room_pages.make(tmp_path, room_pages.PAGE)
    assert book.build() == []
    under = book.page("good").select_one("figure figcaption p.data-links")
    assert words(under) == "Data: reversal.accuracy as result file"
    written = {path.name for path in (book.root / "_build/html/_data/some_room").iterdir()}
    assert "reversal.json" in written
    assert not [name for name in written if name.startswith("reversal") and "csv" in name]


@pytest.mark.parametrize(("size", "name"), [(2_000, "one.json"), (8_000, "one.json.gz")])
def test_a_kept_file_that_is_large_is_compressed(size, name, tmp_path):
    path = tmp_path / "kept.json"
    path.write_bytes(b"0123456789" * (size // 10))
    written = write_kept(tmp_path, "one", path)
    assert written.name == name
    found = written.read_bytes()
    assert (gzip.decompress(found) if name.endswith(".gz") else found) == path.read_bytes()


def test_the_foot_says_what_ran_and_how_to_repeat_it(printed, page):
    foot = page.select_one("div.ran-line")
    line = words(foot.select_one("p"))
    assert line == (
        "What ran : 10 seeds, cpu, Some Processor, 2 cores, 2026-02-03, commit 0123456789ab. "
        "Code · Notebook · Lab notes"
    )
    code, notebook, notes = (link["href"] for link in foot.select("p")[0].select("a"))
    assert code.endswith("/blob/main/lib/measured_book/rooms/some_room/measure.py")
    assert (printed.root / "_build/html" / notebook).is_file()
    name, anchor = notes.split("#")
    assert printed.page(name.removesuffix(".html")).select_one(f"[id='{anchor}']") is not None
    folded = words(foot.select_one("details"))
    assert (
        "reversal : How well a small model reverses a sequence. 10 seeds; CSV , result file ."
        in folded
    )
    assert re.search(r"make measure CHAPTER\s*=\s*some_room", folded)


def test_lab_notes_are_taken_up_in_order(printed):
    notes = printed.page("lab-notes").select_one("article")
    assert [words(head).rstrip(" #") for head in notes.select("h1, h2, h3")] == [
        "Lab notes",
        "Positional encoding",
        "Seeds",
    ]


def test_the_table_of_what_ran_has_the_room(printed):
    row = words(printed.page("ran").select_one("table.runs-table tbody tr"))
    assert row == (
        "Positional encoding Seeds: 10 Device: cpu, Some Processor, 2 cores Date: 2026-02-03 "
        "Commit: 0123456789ab"
    )


def test_the_scorecard_has_one_verdict_for_a_claim(printed):
    card = printed.page("scorecard")
    row = card.select_one("tr#CS-1\\.3")
    cells = row.select("td")
    assert len(cells) == 2
    assert "✓ confirmed" in words(cells[1])
    assert cells[1].select_one(".score-where a")["href"] == "good.html#claim-cs-1-3"
    item = printed.page("walk").select_one(".score-item#CS-1\\.5")
    assert "✗ refuted" in words(item)


def test_the_notebook_says_the_same(printed):
    notebook = nbformat.read(printed.root / "_build/html/_notebooks/good.ipynb", as_version=4)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert "Random vectors reach 0.929" in prose
    line = next(line for line in prose.splitlines() if line.startswith("> Rotary carries over"))
    told = "1 confirmed, 1 refuted; it turns on the other scheme **conditional**"
    assert line == f"> Rotary carries over better. {told}"
    assert "**What ran**: 10 seeds, cpu" in prose
    assert "CSV" not in prose


@pytest.mark.parametrize("state", ["stale", "unattested"])
def test_a_result_that_does_not_hold_is_marked_where_it_stands(printed, tmp_path, state):
    book = another(printed, tmp_path, reversal=(state, WHY))
    for _ in range(2):  # also by a build that reads nothing else again
        assert [line.partition("WARNING: ")[2] for line in book.build()] == [WHY]
        assert book.failed is None
    page = book.page("good").select_one("article")
    marked = {node["data-measured"]: node for node in page.select(".doubtful")}
    assert len(marked) == 4
    first = marked["reversal.accuracy[arm=random]|mean:.3f"]
    assert first["title"] == WHY
    assert first.select_one(".doubt-sign")["aria-hidden"] == "true"
    assert words(first.select_one(".unseen")) == f"(does not hold now: {WHY})"
    assert WHY in words(page.select_one("#claim-dd-7-7 summary"))
    assert WHY not in words(page.select_one("#claim-cs-1-3"))
    assert WHY in words(page.select_one("p.data-links"))
    assert WHY in words(page.select_one("div.ran-line"))
    assert WHY in words(book.page("scorecard").select_one("tr#DD-7\\.7"))
    book = room_pages.make(tmp_path)  # measured again: any page that was marked is read anew
    assert book.build() == []
    assert book.page("good").select(".doubtful") == []


def test_a_damaged_result_leaves_a_mark_instead_of_numbers(printed, tmp_path):
    why = "some_room/results/reversal.json: its checksum is another one; restore it"
    book = another(printed, tmp_path, reversal=("damaged", why))
    assert [line.partition("WARNING: ")[2] for line in book.build()] == [why]
    page = book.page("good").select_one("article")
    value = page.select_one("[data-measured^='reversal.accuracy[arm=random]']")
    assert value.contents[0] == "?"
    assert value["title"] == why
    assert why in words(page.select_one("#claim-dd-7-7 summary"))
    assert page.select("p.data-links") == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{claim}`CS-1.3`", "the statement of CS-1.3 holds more than words; say what to call it"),
        ("{claim}`so they say <CS-9.9>`", "no claim 'CS-9.9' in the registry"),
        ("{measured}`flor:.2f`", "no measured value 'flor' on this page; nearest are floor"),
        ("```{claim} CS-1.3\n```", "claim CS-1.3 has a second line on this page"),
    ],
)
def test_complains(printed, tmp_path, text, complaint):
    book = another(printed, tmp_path, f"{room_pages.PAGE}\n{text}\n")
    told = book.build()
    assert len(told) == 1
    assert complaint in told[0]
    assert book.failed is not None


def test_another_verdict_than_the_prose_discusses_fails(printed, tmp_path):
    book = another(printed, tmp_path)
    book.claims("good", expected="refuted")
    told = book.build()
    assert len(told) == 1
    assert "discusses the verdict 'refuted', but the results give 'confirmed'" in told[0]
    assert book.failed is not None


def test_a_claim_without_evidence_and_a_room_that_there_is_not(printed, tmp_path):
    book = another(printed, tmp_path)
    extra = tiny_pages.CLAIMS.format(chapter="good", expected="confirmed", section="smoothly")
    extra = extra.split("\n\n")[0].replace("CS-1.3", "CS-2.1")
    book.write("claims/more.toml", extra)
    told = "\n".join(book.build())
    assert 'declare it in rooms/some_room/reading.py: @evidence("CS-2.1")' in told
    book.write("good.md", room_pages.PAGE.replace("some_room}", "no_room}"))
    assert "room no_room: expected a chapter that declares measurements" in "\n".join(book.build())


DECLARED = room_pages.DRAWN.format(data="measured: {data: {specs}}\n", name="fig-two")


@pytest.mark.parametrize(
    ("specs", "shown"),
    [
        ("[reversal]", "Data: reversal as CSV , result file"),
        ("reversal.loss", "Data: reversal.loss as CSV , result file"),
        (
            "[reversal, some_room/identity.error]",
            "Data: reversal as CSV , result file ; identity.error as CSV , result file",
        ),
        ("[]", None),
        ("[revrsal]", "some_room has reversal, identity, got 'revrsal'"),
        ("[reversal.los]", "expected one of accuracy, loss, got 'reversal.los'"),
    ],
)
def test_what_a_cell_declares_as_its_data_wins(printed, tmp_path, specs, shown):
    figure = DECLARED.replace("{specs}", specs) + "\nSee {numref}`fig-two`.\n"
    book = another(
        printed, tmp_path, room_pages.PAGE.replace("(smoothly)=", f"{figure}\n(smoothly)=")
    )
    told = book.build()
    under = book.page("good").select_one("figure#fig-two p.data-links")
    if shown and shown.startswith("Data"):
        assert told == []
        assert words(under) == shown
    else:
        assert under is None
        assert (shown or "") in "\n".join(told)
        assert bool(told) == bool(shown)


# A chapter of two rooms, and an address that it took over -------------------------------------------

OF_BOTH = room_pages.PAGE.replace(
    "{room: some_room}", "{room: some_room, further: [another_room], formerly: [before/other]}"
).replace("It does not.", "It does not. At most it is {measured}`another_room/ceiling:.1f`.")
OF_ANOTHER = (
    tiny_pages.CLAIMS.format(chapter="good", expected="confirmed", section="smoothly")
    .split("\n\n")[1]
    .replace("CS-1.5", "CS-2.8")
    .replace("refuted", "confirmed")
)


@pytest.fixture(scope="module")
def of_both(printed, tmp_path_factory):
    book = another(printed, tmp_path_factory.mktemp("both"), OF_BOTH)
    book.write("claims/more.toml", OF_ANOTHER)
    assert book.build() == []
    return book


def test_a_page_may_be_fed_by_two_rooms(of_both):
    page = of_both.page("good").select_one("article")
    assert page.select_one("[data-measured='ceiling:.1f']").get_text() == "4.0"
    listed = words(page.select_one("ul.claim-items"))
    assert {"CS-1.5", "CS-2.8"} <= set(re.findall(r"\bCS-\d\.\d", listed)), "one of each room"
    foot = page.select_one("div.ran-line")
    codes = [link["href"] for link in foot.select("p")[0].select("a") if "/rooms/" in link["href"]]
    assert [code.split("/rooms/")[1] for code in codes] == [
        "some_room/measure.py",
        "another_room/measure.py",
    ]
    folded = words(foot.select_one("details"))
    for room in ("some_room", "another_room"):
        assert re.search(rf"make measure CHAPTER\s*=\s*{room}", folded)


def test_a_result_of_the_further_room_that_does_not_hold_is_complained_of(printed, tmp_path):
    why = WHY.replace("some_room", "another_room")
    book = another(printed, tmp_path, OF_BOTH, **{"another_room/identity": ("stale", why)})
    book.write("claims/more.toml", OF_ANOTHER)
    told = book.build()
    assert len(told) == 1
    assert why in told[0]


def test_a_former_address_leads_to_the_same_anchor(of_both):
    text = (of_both.root / "_build/html/before/other.html").read_text("utf-8")
    assert 'location.replace("../good.html" + location.hash)' in text
    assert 'content="0; url=../good.html"' in text


def test_a_former_address_at_which_there_is_a_page_is_complained_of(printed, tmp_path):
    book = another(printed, tmp_path, OF_BOTH.replace("before/other", "walk"))
    book.write("claims/more.toml", OF_ANOTHER)
    told = "\n".join(book.build())
    assert "walk is said to be part of good now, but is a page" in told
