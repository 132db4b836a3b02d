"""The Scorecard, its summary and the walks through the sources, on a tiny book."""

# ruff: noqa: RUF001 (what a reader sees has true minus and multiplication signs)

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import fake_judging
import pytest
import tiny_pages
from bookpress.sphinx import summaries
from bookpress.sphinx.words import SYMBOLS
from docutils import nodes

PLANNED = """\
chapter = "part/coming-soon"

[[claim]]
id = "CS-2.10"
source = "CS"
place = "section 2, and later"
statement = "It is planned."
kind = "arithmetic"
scope = "Here."
test = "Compute it."
status = "planned"
[claim.rule]
type = "bound"
at_most = 0

[[claim]]
id = "CS-2.2a"
source = "CS"
place = "section 2"
statement = "It rises at first."
kind = "arithmetic"
scope = "Small $x$."
test = "Compute it."
status = "planned"
[claim.rule]
type = "bound"
at_most = 0

[[claim]]
id = "CS-2.2b"
source = "CS"
place = "section 2"
statement = "It falls in the end."
kind = "arithmetic"
scope = "Large $x$."
test = "Compute it."
status = "planned"
[claim.rule]
type = "bound"
at_most = 0
"""
CHAPTER = f"""{tiny_pages.ROOM_FRONT}
# A good page
{tiny_pages.CELLS}

```{{claim}} CS-1.3
```

(smoothly)=
## Does it fall off smoothly?

```{{claims-table}}
```
"""
SCORECARD = """\
# Scorecard

```{scorecard-counts}
```

```{scorecard-sources}
```

```{scorecard}
```
"""
SOURCE = """\
# The case study

```{source-counts} CS
```

## First

```{source-claims} CS
:places: section 1
```

## Second

```{source-claims} CS
:places: section 2*
```
"""
ROWS = ["CS-1.3", "CS-1.5", "CS-2.2a", "CS-2.2b", "CS-2.10", "DA-2.1", "DD-7.7"]


def words(node):
    return re.sub(r"\s+", " ", node.get_text(" ")).strip()


def write(book):
    book.claims("good")
    book.write("claims/planned.toml", PLANNED)
    book.write("good.md", CHAPTER)
    book.write("scorecard.md", SCORECARD)
    book.write("walk.md", SOURCE)
    book.write("front.md", "# Front\n\n```{scorecard-counts}\n```\n")


@pytest.fixture(scope="session")
def printed(tmp_path_factory):
    book = tiny_pages.make(tmp_path_factory.mktemp("scorecard"))
    write(book)
    assert book.build() == []
    return book


@pytest.fixture
def copied(printed, tmp_path):
    """The printed book once more, for a test that changes it."""
    shutil.copytree(printed.root, tmp_path / "copy")
    book = tiny_pages.Tiny(tmp_path / "copy")
    assert book.build() == []  # which reads all, because the folder is another
    return book


@pytest.fixture(scope="session")
def table(printed):
    return printed.page("scorecard").select_one("table.scorecard")


def cells(table, claim_id):
    return table.find(id=claim_id).select("td")


# The Scorecard ------------------------------------------------------------------------------------


def test_every_claim_has_a_row_with_an_anchor_of_its_own(table):
    assert [row["id"] for row in table.select("tbody tr")] == ROWS
    assert [words(cell) for cell in table.select("th")] == ["Claim", "What was measured"]
    for row in table.select("tbody tr"):
        assert row.select_one(".claim-head a")["href"] == f"#{row['id']}"


def test_rows_can_be_found_by_source_chapter_and_verdict(table):
    found = {row["id"]: row.attrs for row in table.select("tbody tr")}
    assert {name: found["DD-7.7"][f"data-{name}"] for name in ("source", "chapter", "verdict")} == {
        "source": "DD",
        "chapter": "good",
        "verdict": "conditional",
    }
    assert found["CS-2.10"]["data-chapter"] == "coming-soon"
    assert found["CS-2.10"]["data-verdict"] == "planned"
    assert found["DA-2.1"]["data-verdict"] == "fact"


def test_a_row_says_what_was_claimed_measured_and_where(table):
    said, came = cells(table, "CS-1.3")
    begins = "CS-1.3 cite Similarity \\(s(i, j)\\) depends on the offset alone."
    assert words(said).startswith(begins)
    source = said.select_one(".claim-source a")
    assert words(source) == "Case study on the components, section 1"
    assert source["href"] == "walk.html#CS-1.3"
    details = said.select_one("details")
    assert not details.has_attr("open")
    for part in ("Test Deviation from", "Rule, declared beforehand No error is", "Scope The enco"):
        assert part in words(details), part
    assert re.match(r"Largest error .* × 10⁻¹⁴ in 10 draws.* ✓ confirmed In", words(came))
    assert words(came).endswith("In A good page")
    assert came.select_one("a")["href"] == "good.html#claim-cs-1-3"


def test_a_line_in_a_chapter_leads_to_its_row(printed):
    links = {words(a): a["href"] for a in printed.page("good").select("div.claim-line a")}
    assert links["CS-1.3 in the Scorecard"] == "scorecard.html#CS-1.3"
    assert links["CS-1.3@latest"] == "claims/CS-1.3.html"


def test_the_link_leads_to_the_section_where_there_is_no_line(table, printed):
    links = {key: cells(table, key)[1].select_one("a")["href"] for key in ("CS-1.5", "DD-7.7")}
    assert links == {"CS-1.5": "good.html#smoothly", "DD-7.7": "good.html#claim-dd-7-7"}
    for link in links.values():
        assert printed.page("good").find(id=link.partition("#")[2]) is not None


def test_parts_intervals_and_seeds_stand_in_the_row(table):
    _, came = cells(table, "DD-7.7")
    assert "It turns on the other scheme:" in words(came)
    assert re.search(
        r"against ALiBi: mean difference 0\.63 \(95 % interval .*, 10 seeds\)", words(came)
    )


def test_planned_and_cited_claims_are_told_apart_from_measured_ones(table):
    _, came = cells(table, "CS-2.10")
    assert words(came) == "○ planned Chapter to come: Coming soon"
    _, came = cells(table, "DA-2.1")
    assert words(came) == "Cited, not tested here. § fact In A good page"


def test_the_filters_are_hidden_without_scripts_and_know_what_there_is(printed):
    page = printed.page("scorecard")
    form = page.select_one("form.score-filter")
    assert form.has_attr("hidden")
    assert {box["value"] for box in form.select("input[name=verdict]")} == {
        "confirmed",
        "refuted",
        "conditional",
        "fact",
        "planned",
    }
    options = [words(option) for option in form.select("option")]
    for option in ("Case study on the components (5)", "A good page (4)", "Coming soon (3)"):
        assert option in options
    assert words(form.select_one("[role=status]")) == "7 claims"
    assert page.select_one("script[src*='scorecard.js'][defer]") is not None
    assert printed.page("good").select_one("script[src*='scorecard.js']") is None


def test_counts_are_computed_and_lead_to_the_rows(printed):
    for name, prefix in (("scorecard", ""), ("front", "scorecard.html")):
        article = printed.page(name).select_one("article")
        assert "7 claims : 4 covered by a chapter, 3 planned." in words(article)
        counts = article.select("ul.score-counts a")
        assert {words(link): link["href"] for link in counts} == {
            "✓ confirmed 1": f"{prefix}#verdict=confirmed",
            "✗ refuted 1": f"{prefix}#verdict=refuted",
            "◐ conditional 1": f"{prefix}#verdict=conditional",
            "§ fact 1": f"{prefix}#verdict=fact",
            "○ planned 3": f"{prefix}#verdict=planned",
        }


def test_sources_have_a_row_each(printed):
    table = printed.page("scorecard").select_one("table.score-sources")
    lines = [[words(cell) for cell in row.select("td")] for row in table.select("tbody tr")]
    assert lines == [
        ["Case study on the components", "5", "1", "1", "0", "0", "3"],
        ["Attention dissection report", "1", "0", "0", "0", "1", "0"],
        ["Attention deep dive", "1", "0", "0", "1", "0", "0"],
        ["All", "7", "1", "1", "1", "1", "3"],
    ]
    first = table.select("tbody tr")[0]
    assert [link["href"] for link in first.select("a")] == [
        "walk.html",
        "#source=CS",
        "#source=CS&verdict=confirmed",
        "#source=CS&verdict=refuted",
        "#source=CS&verdict=planned",
    ]


def test_rows_can_be_taken_along(printed):
    pages = printed.root / "_build/html"
    links = printed.page("scorecard").select(".score-files a")
    assert [link["href"] for link in links] == ["scorecard.json", "scorecard.csv"]
    data = json.loads((pages / "scorecard.json").read_text("utf-8"))
    assert data["counts"] == {
        "confirmed": 1,
        "refuted": 1,
        "conditional": 1,
        "fact": 1,
        "planned": 3,
    }
    claims = {claim["id"]: claim for claim in data["claims"]}
    assert list(claims) == ROWS
    assert claims["CS-1.5"]["link"] == "good.html#smoothly"
    assert claims["CS-1.3"]["expected"] == "confirmed"
    assert claims["CS-1.3"]["measured"]["device"] == "cpu, Some Processor, 2 cores"
    alibi = claims["DD-7.7"]["measured"]["parts"][1]
    assert alibi["effect"] == pytest.approx(0.63, abs=0.01)
    assert alibi["interval"][0] < alibi["effect"] < alibi["interval"][1]
    assert claims["CS-2.10"]["measured"] is None
    with (pages / "scorecard.csv").open(encoding="utf-8", newline="") as file:
        lines = {line["id"]: line for line in csv.DictReader(file)}
    assert list(lines) == ROWS
    assert lines["CS-1.3"]["verdict"] == "confirmed"
    assert (lines["DD-7.7"]["seeds"], lines["DD-7.7"]["date"]) == ("10", "2026-02-03")
    assert "against ALiBi: mean difference 0.63" in lines["DD-7.7"]["measured"]
    assert lines["CS-2.10"]["measured"] == ""


MANY = """\
[[claim]]
id = "CS-2.9"
source = "CS"
place = "section 2"
chapter = "good"
statement = "It stays small."
kind = "arithmetic"
scope = "Here."
test = "Compute it."
expected = "conditional"
axis = "the limit"
""" + "".join(
    f'[[claim.part]]\nname = "part{number}"\n[claim.part.rule]\ntype = "bound"\nat_most = {limit}\n'
    for number, limit in enumerate((0.0, 2.0, 0.5))
)


def test_the_list_of_many_parts_is_folded_in_the_table_and_not_in_the_chapter(copied):
    copied.write("claims/many.toml", MANY)
    copied.write("good.md", CHAPTER + "\n```{claim} CS-2.9\n```\n")
    assert copied.build() == []
    row = copied.page("scorecard").find(id="CS-2.9")
    assert words(row.select_one(".score-came summary")) == "3 parts: 1 confirmed, 2 refuted"
    assert len(row.select(".score-came details li")) == 3
    line = copied.page("good").select_one("#claim-cs-2-9")
    assert len(line.select(".claim-measured li")) == 3
    assert line.select_one(".claim-measured details") is None


# The walk through a source ------------------------------------------------------------------------


def test_a_source_is_walked_through_in_its_own_order(printed):
    page = printed.page("walk").select_one("article")
    order = [node.get("id") or words(node).rstrip(" #") for node in page.select("h2, .score-item")]
    assert order == ["First", "CS-1.3", "CS-1.5", "Second", "CS-2.2a", "CS-2.2b", "CS-2.10"]
    assert "5 claims : 2 covered by a chapter, 3 planned." in words(page)
    counts = [link["href"] for link in page.select("ul.score-counts a")]
    assert counts[0] == "scorecard.html#source=CS&verdict=confirmed"
    assert page.select_one(".score-total a")["href"] == "scorecard.html#source=CS"


def test_a_claim_of_a_source_has_its_verdict_value_and_place(printed):
    page = printed.page("walk")
    item = page.find(id="CS-1.5")
    assert words(item).startswith("CS-1.5 ✗ refuted section 1 It falls off smoothly.")
    assert [link["href"] for link in item.select("a")] == [
        "scorecard.html#CS-1.5",
        "good.html#smoothly",
    ]
    assert words(page.find(id="CS-2.10")).endswith("Chapter to come: Coming soon")


def test_scoped_rows_of_one_claim_stand_together(printed):
    group = printed.page("walk").select_one(".score-group")
    assert [item["id"] for item in group.select(".score-item")] == ["CS-2.2a", "CS-2.2b"]
    assert "taken apart" in words(group)


# Never stale, never needlessly made anew ----------------------------------------------------------


def written(book):
    return {
        path.name: path.stat().st_mtime_ns
        for path in (book.root / "_build/html").glob("*.*")
        if path.stem in ("scorecard", "walk", "front", "good")
    }


def changed(book, before):
    return {name for name, time in written(book).items() if time != before.get(name)}


ALL_ROWS = {"scorecard.html", "walk.html", "front.html"}
EXPORTS = {"scorecard.json", "scorecard.csv"}


def test_nothing_changed_nothing_written(copied):
    before = written(copied)
    assert copied.build() == []
    assert changed(copied, before) == set()


def test_a_chapter_that_says_or_measures_something_else_changes_the_rows(copied):
    before = written(copied)
    text = (copied.root / "good.md").read_text()
    copied.write("good.md", text.replace("# A good page", "# A better page"))
    assert copied.build() == []
    assert changed(copied, before) == ALL_ROWS | {"good.html"}
    came = cells(copied.page("scorecard").select_one("table.scorecard"), "CS-1.3")[1]
    assert words(came).endswith("In A better page")
    before = written(copied)
    text = (copied.root / "good.md").read_text()
    copied.write("good.md", text.replace("## Does it fall", "More words.\n\n## Does it fall"))
    assert copied.build() == []
    assert changed(copied, before) == {"good.html"}, "no row has changed"
    before = written(copied)
    fake_judging.measure_again(copied.root, error=5e-14)
    assert copied.build() == []
    assert changed(copied, before) == ALL_ROWS | EXPORTS | {"good.html"}
    came = cells(copied.page("scorecard").select_one("table.scorecard"), "CS-1.3")[1]
    assert "5 × 10⁻¹⁴" in words(came)
    assert "5 × 10⁻¹⁴" in words(copied.page("good").select_one("div.claim-line"))


def test_a_changed_registry_changes_the_rows(copied):
    before = written(copied)
    copied.write("claims/planned.toml", PLANNED.replace("It is planned.", "It is still planned."))
    assert copied.build() == []
    assert changed(copied, before) >= {"scorecard.html", "walk.html", "scorecard.json"}
    assert "It is still planned." in words(copied.page("scorecard").find(id="CS-2.10"))


def test_a_new_file_of_the_registry_changes_the_rows(copied):
    more = PLANNED.replace("CS-2", "IW-3").replace('"CS"', '"IW"')
    copied.write("claims/more.toml", more)
    assert copied.build() == []
    rows = copied.page("scorecard").select("table.scorecard tbody tr")
    assert [row["id"] for row in rows] == [*ROWS, "IW-3.2a", "IW-3.2b", "IW-3.10"]
    (copied.root / "claims/more.toml").unlink()
    assert copied.build() == []
    rows = copied.page("scorecard").select("table.scorecard tbody tr")
    assert [row["id"] for row in rows] == ROWS


def test_a_source_page_complains_of_a_claim_that_came_later(copied):
    more = PLANNED.replace("CS-2", "CS-3").replace("section 2", "section 5")
    copied.write("claims/more.toml", more)
    assert any("leaves out CS-3.2a, CS-3.2b, CS-3.10" in line for line in copied.build())


def test_a_build_that_was_interrupted_is_made_up_for(copied, monkeypatch):
    fake_judging.measure_again(copied.root, error=5e-14)
    from bookpress.sphinx import scorefill

    with monkeypatch.context() as patch:

        def interrupt(*args, **kwargs):
            raise KeyboardInterrupt

        patch.setattr(scorefill, "measurement", interrupt)
        with pytest.raises(KeyboardInterrupt):
            copied.build()
    assert copied.build() == []
    came = cells(copied.page("scorecard").select_one("table.scorecard"), "CS-1.3")[1]
    assert "5 × 10⁻¹⁴" in words(came)


def test_pages_do_not_depend_on_who_reads_first(printed, tmp_path):
    book = tiny_pages.make(tmp_path)
    write(book)
    for number in range(6):  # Sphinx reads in parallel from six pages on
        book.write(f"a-{number}.md", "# More\n")
    shutil.copytree(printed.root / "_build/.jupyter_cache", tmp_path / "_build/.jupyter_cache")
    assert book.build(parallel=3) == []
    for name in ("scorecard", "walk", "front"):
        for selector in ("table", "form", "div.score-item", "ul.score-counts"):
            expected = [str(node) for node in printed.page(name).select(f"article {selector}")]
            assert [str(node) for node in book.page(name).select(f"article {selector}")] == expected
    for name in EXPORTS:
        made = [root / "_build/html" / name for root in (tmp_path, printed.root)]
        assert made[0].read_bytes() == made[1].read_bytes()


@pytest.mark.parametrize("builder", ["latex", "text"])
def test_other_builders_print_the_rows_too(printed, tmp_path, builder):
    shutil.copytree(printed.root, tmp_path / "copy")
    book = tiny_pages.Tiny(tmp_path / "copy")
    assert [line for line in book.build(builder) if "measured" in line] == []
    text = "".join(
        path.read_text("utf-8", errors="ignore")
        for path in Path(book.root / f"_build/{builder}").iterdir()
        if path.suffix in (".tex", ".txt")
    )
    for part in ("CS-2.10", "It is planned.", "Coming soon", "not reproduced"[:3]):
        assert part in text


# What must not pass silently ----------------------------------------------------------------------


def only_page(tmp_path, text, **more):
    book = tiny_pages.make(tmp_path)
    book.write("claims/planned.toml", PLANNED)
    book.write("page.md", text)
    for name, content in more.items():
        book.write(name.replace("_", "/", 1), content)
    return book, book.build()


PROBLEMS = {
    "a source that there is not": (
        "# Page\n\n```{source-claims} XY\n```\n",
        r"expected one of the sources CS, DA, DD, EX, IW, LT, got 'XY'",
    ),
    "a place that there is not": (
        SOURCE,
        r"no claim stands at 'section 1'; the registry has the places section 2",
    ),
    "a claim left out": (
        SOURCE.replace("section 2*", "section 2"),
        r"this page leaves out CS-2.10; give their places \(section 2, and later\)",
    ),
    "a claim shown twice": (
        SOURCE.replace("section 1", "section 2"),
        r"this page shows CS-2.2a, CS-2.2b more than once",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_complains(name, tmp_path):
    text, message = PROBLEMS[name]
    book, lines = only_page(tmp_path, text)
    assert any(re.search(message, line) for line in lines), lines
    assert "see above" in book.failed


# What a source gets right and wrong ---------------------------------------------------------------


def test_what_did_not_appear_is_not_listed_as_wrong():
    """*Not reproduced* says that an effect is not there, and not that the source's opposite holds."""
    verdicts = {
        "CS-1.1": "confirmed",
        "CS-1.2": "refuted",
        "CS-1.3": "not reproduced",
        "CS-1.4": "not reproduced",
        "CS-1.5": "conditional",
        "CS-1.6": "cited",
    }
    rows = {
        claim: {"verdict": verdict, "outcome": None, "chapter": "book/a", "group": "CS"}
        for claim, verdict in verdicts.items()
    }
    said = {}
    for claim in verdicts:
        said[claim] = nodes.container("", nodes.paragraph("", "It does."))
        said[claim]["kind"] = "experiment"
    holder, rest = summaries._summary(said, rows)
    lists = {}
    for part in holder.children:
        title = next(part.findall(nodes.strong)).astext()
        links = [link.astext() for link in part.findall(nodes.reference)]
        lists[title] = (part[0].astext().removeprefix(f"{title}: "), links)
    assert lists == {
        "What it gets right": ("1 confirmed of 5 claims.", ["CS-1.1"]),
        "What it gets wrong": ("1 refuted of 5 claims.", ["CS-1.2"]),
        "What did not appear here": ("2 not reproduced of 5 claims.", ["CS-1.3", "CS-1.4"]),
        "What depends": ("1 conditional of 5 claims.", ["CS-1.5"]),
    }
    assert rest.astext().startswith("One more is")


def test_every_verdict_of_a_measurement_has_one_list():
    listed = [word for _, words in summaries._LISTS for word in words]
    assert len(listed) == len(set(listed))
    assert set(SYMBOLS) - set(listed) == {"inconclusive", "fact"}, "they decide nothing about it"
