"""A source's own words stand above ours wherever a claim is shown; our own checks are counted apart."""

from __future__ import annotations

import json
import re

import pytest
import tiny_pages
from bookpress.sphinx.quotes import quoted
from docutils import nodes

QUOTE = r"It depends on $|i - j|$ only. [...] Nothing else counts, so $W \in \mathbb{R}^{d \time d}$ is free."
"""A quotation with a formula, with a gap, and with a command of TeX that there is not."""
SHOWN = r"“It depends on \(|i - j|\) only. […] Nothing else counts, so W \in \mathbb{R}^{d \time d} is free.”"
PAGES = {
    "good": f"""{tiny_pages.ROOM_FRONT}
# A good page
{tiny_pages.CELLS}

```{{claim}} CS-1.3
```

(smoothly)=
## Does it fall off smoothly?

```{{claims-table}}
```
""",
    "scorecard": """# Scorecard

```{scorecard-counts}
```

```{scorecard-sources}
```

```{scorecard}
```
""",
    "walk": """# The case study

```{source-counts} CS
```

```{source-summary} CS
```

```{source-claims} CS
```
""",
}


def words(node) -> str:
    return re.sub(r"\s+", " ", node.get_text("")).strip()


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    book = tiny_pages.make(tmp_path_factory.mktemp("quotes"))
    text = tiny_pages.CLAIMS.format(chapter="good", expected="confirmed", section="smoothly")
    first, second = 'statement = "Similarity', 'statement = "It falls'
    text = text.replace(first, f"quote = '{QUOTE}'\n{first}")
    book.write("claims/good.toml", text.replace(second, f'ours = "Nobody says so."\n{second}'))
    for name, page in PAGES.items():
        book.write(f"{name}.md", page)
    assert book.build() == []
    return book


def test_a_quotation_is_words_and_formulas_between_its_marks():
    found = list(quoted(QUOTE))
    kinds = [type(node) for node in found]
    assert kinds == [nodes.Text, nodes.Text, nodes.math, nodes.Text, nodes.literal, nodes.Text]
    assert found[2].astext() == "|i - j|"
    assert [node.astext() for node in quoted("a $$b$$")] == ["“", "a ", "b", "”"]


def test_the_source_speaks_first_in_an_unfolded_line(printed):
    line = printed.page("good").select_one("#claim-cs-1-3")
    quote, unfolding = line.find_all(recursive=False)
    assert quote.name == "blockquote"
    assert "claim-quote" in quote["class"]
    assert words(quote).startswith(SHOWN)
    place = quote.select_one(".claim-quote-place")
    assert words(place) == "Case study on the components, section 1."
    assert unfolding.name == "details"
    assert not unfolding.select(".claim-quote")


def test_the_folded_list_of_a_page_says_which_check_is_ours(printed):
    item = next(
        item
        for item in printed.page("good").select(".claim-items > li")
        if "It falls off smoothly." in words(item)
    )
    assert words(item).startswith("Our check. Nobody says so. It falls off smoothly.")
    link = item.select_one("a.claim-where")
    assert words(link) == "Does it fall off smoothly?"
    assert words(link.find_parent("p")).startswith("It falls off smoothly.")


@pytest.mark.parametrize(("page", "anchor"), [("scorecard", "CS-1.3"), ("walk", "CS-1.3")])
def test_the_source_speaks_above_the_restatement(printed, page, anchor):
    row = printed.page(page).find(id=anchor)
    quote = row.select_one("blockquote.claim-quote")
    assert words(quote) == SHOWN
    assert "claim-statement" in quote.find_next_sibling()["class"]
    if page == "scorecard":
        other = printed.page(page).find(id="DD-7.7")
        assert other.select_one(".claim-quote") is None


def test_the_page_of_a_claim_quotes_it(printed):
    page = printed.page("claims/CS-1.3")
    assert words(page.select_one("main blockquote")) == SHOWN
    assert words(page.select_one("main .restated")).startswith("Similarity")
    assert "mathjax" in str(page.select("script"))
    ours = printed.page("claims/CS-1.5").select_one("main")
    assert "Our check. Nobody says so." in words(ours)
    assert ours.select_one("blockquote") is None


def test_our_own_checks_are_counted_apart(printed):
    page = printed.page("scorecard")
    article = words(page.select_one("article"))
    assert "3 claims, all covered by a chapter." in article
    apart = page.select_one(".score-apart")
    assert words(apart) == (
        "Counted apart: 1 check of our own, of which the source says nothing (1 refuted)."
    )
    assert apart.select_one("a")["href"] == "#source=ours"
    assert [words(item) for item in page.select(".score-counts li")] == [
        "✓ confirmed 1",
        "◐ conditional 1",
        "§ fact 1",
    ]
    assert page.find(id="CS-1.5")["data-source"] == "ours"
    lines = [[words(cell) for cell in row.select("td")] for row in page.select(".score-sources tr")]
    told = {line[0]: line[1] for line in lines if line}
    assert told["Case study on the components"] == "1"
    assert told["Our own checks"] == "1"
    assert told["All"] == "4"
    assert page.select_one('select[name="source"] option[value="ours"]') is not None


def test_a_source_is_not_charged_with_what_it_does_not_say(printed):
    page = printed.page("walk")
    assert "1 claim, all covered by a chapter." in words(page.select_one("article"))
    summary = words(page.select_one(".source-summary"))
    assert "1 confirmed of 1 claims" in summary
    assert "What it gets wrong" not in summary


def test_the_files_of_the_scorecard_hold_quotations(printed):
    data = json.loads((printed.root / "_build/html/scorecard.json").read_text("utf-8"))
    rows = {row["id"]: row for row in data["claims"]}
    assert rows["CS-1.3"]["quote"] == QUOTE
    assert rows["CS-1.5"]["our_check"] == "Nobody says so."
    assert data["counts"] == {"confirmed": 1, "conditional": 1, "fact": 1}
    assert data["counts_of_our_checks"] == {"refuted": 1}
