"""Roles, directives and figures on pages of a tiny book, and the notebooks made of them."""

# ruff: noqa: RUF001 (what a reader sees has true minus and multiplication signs)

from __future__ import annotations

import json
import re

import nbformat
import pytest
import tiny_pages
from bookpress.records import committed
from nbclient import NotebookClient

FIGURE = tiny_pages.FIGURE.format(
    metadata="""\
  figure:
    caption: A line of slope $1$, see {ref}`good`.
    name: fig-line
  image:
    alt: A line that rises.""",
    call="line()",
)
GOOD = f"""{tiny_pages.FRONT}
(good)=
# A good page

The closest two are {{measured}}`min_distance:.3f` apart, {{measured}}`rises|share:.0%` rise, and the
largest error is {{measured}}`CS-1.3.effect:.0e`. Look at {{verdict}}`CS-1.3`, {{verdict}}`CS-1.5` and
{{verdict}}`DA-2.1`. The source says {{quoted}}`12.4`; the base is {{constant}}`10000`.
As {{cite:t}}`vaswani2017attention` say, $a_b$ is *not* `code` and x * y is a_c; see {{numref}}`fig-line`
and {{eq}}`eq-sum`.

```{{ran}}
Five seeds of {{constant}}`300` steps.
```

```{{math}}
:label: eq-sum
s = \\sum_i x_i
```
{tiny_pages.CELLS}
{FIGURE}

```{{claim}} CS-1.3
A word of mine, with $k$.
```

```{{claim}} DD-7.7
```

````{{exercise}} By hand
:label: ex-by-hand

Show that $a = b$.

```python
from measured_transformer.exercises import check

check("learning_rate.edge", ...)
```
````

````{{solution}} ex-by-hand
:class: dropdown

Because.
````

```{{exercise}} By code
:label: ex-by-code

Check it.
```

```{{solution-start}} ex-by-code
:class: dropdown
```

```{{code-cell}} ipython3
assert sum(range(4)) == 6
```

```{{solution-end}}
```

(smoothly)=
## Does it fall off smoothly?

| where | what |
|---|---|
| $x$ | `a\\|b` |

```{{admonition}} What people get wrong
Much.
```

```{{claims-table}}
```
"""


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    book = tiny_pages.make(tmp_path_factory.mktemp("good"))
    book.claims("good")
    book.write("good.md", GOOD)
    book.write("plain.md", "# A page without cells\n\n```{runs-table}\n```\n")
    warnings = book.build()
    assert warnings == []
    return book


@pytest.fixture(scope="session")
def page(good):
    return good.page("good").select_one("article")


def words(node):
    return re.sub(r"\s+", " ", node.get_text(" ")).strip()


def test_values_stand_in_the_text(page):
    values = {node["data-measured"]: node.get_text() for node in page.select("span.measured")}
    assert values == {
        "min_distance:.3f": "1.472",
        "rises|share:.0%": "50%",
        "CS-1.3.effect:.0e": "3\u00a0×\u00a010⁻¹⁴",
    }


def test_numbers_of_others_are_plain_text(page):
    assert "The source says 12.4 ; the base is 10000 ." in words(page)


def test_verdicts_are_words_with_a_sign_and_lead_to_the_claim(page):
    first = page.select("p")[0]
    badges = [(words(link), link["href"]) for link in first.select("a.verdict-link")]
    assert badges == [
        ("✓ confirmed", "#claim-cs-1-3"),
        ("✗ refuted", "#claim-cs-1-5"),
        ("§ fact", "#claim-da-2-1"),
    ]
    for _, href in badges:
        assert page.select_one(href) is not None


def test_card_says_what_was_claimed_tested_and_measured(page):
    card = page.select_one("div.claim#claim-cs-1-3")
    assert card["role"] == "group"
    assert card["aria-label"] == "Claim CS-1.3, confirmed"
    said = words(card)
    for part in (
        "Claim CS-1.3 ✓ confirmed",
        "depends on the offset alone.",
        "A word of mine, with",
        "Largest error 3 × 10⁻¹⁴ in 2 draws; the control is off by 0.3.",
        "No error is larger than 1 × 10⁻⁹, and a negative control, which must fail, exceeds 0.001.",
        "Scope The encodings themselves.",
    ):
        assert part in said, part
    details = card.select_one("details.fold")
    assert not details.has_attr("open")
    assert details.select_one("summary").get_text() == "Source, test and rule"
    assert details.select_one("dd a")["href"].startswith("index.html#")


def test_card_of_a_claim_with_parts_names_the_axis_and_each_part(page):
    said = words(page.select_one("#claim-dd-7-7"))
    assert "It turns on the other scheme:" in said
    assert re.search(
        r"against sinusoidal: mean difference −3 \(95 % interval −3\.\d+ to −2\.\d+, 5 seeds\) ✓ conf",
        said,
    )
    assert re.search(r"against ALiBi: mean difference 3 .* ✗ refuted", said)
    assert "For each part: The mean difference, paired by seed, lies below −0.1" in said
    beside = (
        r"Computed beside against sinusoidal: bootstrap interval −[\d.]+ to −[\d.]+, Hedges. g −"
    )
    assert re.search(beside + r"[\d.]+, p \d.* after Holm.s correction against ALiBi", said)


def test_table_lists_every_claim_and_links_it(page):
    table = page.select_one("table.claims-table")
    rows = table.select("tbody tr")
    assert [words(row.select_one(".claim-head")) for row in rows] == [
        "CS-1.3",
        "CS-1.5",
        "DD-7.7",
        "DA-2.1",
    ]
    links = [row.select_one(".claim-head a") for row in rows]
    assert [link and link["href"] for link in links] == [
        "#claim-cs-1-3",
        "#smoothly",
        "#claim-dd-7-7",
        None,
    ]
    assert page.select_one("#smoothly") is not None
    assert [words(row.select_one(".verdict")) for row in rows] == [
        "✓ confirmed",
        "✗ refuted",
        "◐ conditional",
        "§ fact",
    ]
    assert "4 claims: 1 confirmed, 1 refuted, 1 conditional, 1 fact." in words(page)


def test_table_folds_the_list_of_many_parts(many_parts):
    row = many_parts.page("many").select_one("table.claims-table tbody tr")
    assert words(row.select_one("details.fold summary")) == "3 parts: 1 confirmed, 2 refuted"
    assert len(row.select("details.fold li")) == 3
    card = many_parts.page("many").select_one("div.claim")
    assert card.select_one("div.claim-measured details") is None


@pytest.fixture(scope="session")
def many_parts(tmp_path_factory):
    book = tiny_pages.make(tmp_path_factory.mktemp("many"))
    limits = (0.0, 2.0, 0.5)
    rule = '[claim.part.rule]\ntype = "bound"\nat_most = {limit}\n'
    claims = """\
[[claim]]
id = "CS-2.1"
source = "CS"
place = "section 2"
chapter = "many"
statement = "It stays small."
kind = "arithmetic"
scope = "Here."
test = "Compute it."
expected = "conditional"
axis = "the limit"
""" + "".join(
        f'[[claim.part]]\nname = "part{number}"\n{rule.format(limit=limit)}'
        for number, limit in enumerate(limits)
    )
    book.write("claims/many.toml", claims)
    book.write("recorded/many.toml", claims)
    cell = """
```{code-cell} ipython3
from pathlib import Path
from measured_transformer.evidence import registry
from measured_transformer.evidence.record import record
registry._packaged = lambda: registry.read_claims(Path("recorded"))
record("CS-2.1", {f"part{number}": {"value": 1.0} for number in range(3)})
```

```{claim} CS-2.1
```

```{claims-table}
```
"""
    book.write("many.md", f"{tiny_pages.FRONT}\n# Many parts\n{cell}")
    assert book.build() == []
    return book


def test_anchors_are_unique(page):
    ids = [node["id"] for node in page.select("[id]")]
    assert len(ids) == len(set(ids))


def test_records_do_not_show_and_other_outputs_do(page):
    assert "seen by the reader" in words(page)
    assert page.select_one("[aria-label='Measured values']") is None
    shown = [words(output) for output in page.select(".cell_output")]
    assert shown == ["seen by the reader", words(page.select_one("figure"))]


def test_a_figure_has_two_drawings_and_one_caption(page):
    figure = page.select_one("figure#fig-line")
    light, dark = figure.select("img")
    assert light["alt"] == dark["alt"] == "A line that rises."
    assert "only-light" in light["class"]
    assert "only-dark" in dark["class"]
    assert light["src"] != dark["src"]
    assert light["loading"] == dark["loading"] == "lazy"
    assert light.find_parent("div", class_="drawings")["style"] == "--proportions: 1280 / 400"
    assert words(figure.select_one("figcaption")).startswith("Fig. 1")
    # the theme hides a caption that is a sibling of a hidden drawing
    assert figure.select_one("figcaption").parent is not light.parent.parent
    width = re.search(r"width: (\d+)px", light["style"])
    assert width is not None
    assert width[1] == "640"


def test_box_says_what_ran(page):
    box = page.select_one("div.ran")
    said = words(box)
    assert "Five seeds of 300 steps." in said
    facts = {words(term): words(term.find_next("dd")) for term in box.select("dt")}
    assert facts["Profile"] == "quick"
    assert "Python 3." in facts["Versions"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts["Date"])
    assert re.fullmatch(r"\d+ s", facts["Time"])
    assert box.select_one("a.notebook-link")["href"] == "_notebooks/good.ipynb"


def test_runs_table_lists_the_chapters(good):
    table = good.page("plain").select_one("table.runs-table")
    assert words(table.select_one("tbody tr td")) == "A good page"
    assert table.select_one("tbody a")["href"] == "good.html"
    assert "Profile: quick" in words(table)


def test_header_offers_the_notebook_and_colab_can_open_it(good):
    links = {link.get_text(strip=True): link["href"] for link in good.page("good").select("a.btn")}
    assert links[".ipynb"] == "_notebooks/good.ipynb"
    assert links["Colab"] == (
        "https://colab.research.google.com/github/somebody/some-book/blob/notebooks/good.ipynb"
    )
    assert not (good.root / "_build/html/_sources/good.ipynb").exists()


@pytest.fixture(scope="session")
def notebook(good):
    path = good.root / "_build/html/_notebooks/good.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


@pytest.fixture(scope="session")
def prose(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def test_notebook_has_the_text_with_everything_resolved(prose):
    for text in (
        "# A good page",
        "The closest two are 1.472 apart, 50% rise, and the largest error is 3\u00a0×\u00a010⁻¹⁴.",
        "Look at **confirmed**, **refuted** and **fact**.",
        "Vaswani *et al.* [2017] say, $a_b$ is *not* `code` and x \\* y is a_c; see Fig. 1 and (1).",
        "$$\ns = \\sum_i x_i \\tag{1}\n$$",
        "**Figure 1:** A line of slope $1$, see A good page.",
        "> **Claim CS-1.3** **confirmed**",
        "> **Exercise 1 (By hand)**",
        "<details>\n<summary>Solution</summary>\n\nBecause.\n\n</details>",
        "## Does it fall off smoothly?",
        "| where | what |\n| --- | --- |\n| $x$ | `a\\|b` |",
        "> **What people get wrong**",
        "- **Profile**: quick",
        "Ashish Vaswani, Noam Shazeer, and Niki Parmar.",
    ):
        assert text in prose, text


def test_notebook_has_no_markup_of_the_book(prose):
    assert not re.search(r"\{[a-z:-]+\}`|```\{|:label:|^---$", prose, re.MULTILINE)


def test_notebook_has_all_cells_in_order_and_no_outputs(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    firsts = [cell.source.splitlines()[0] for cell in code]
    assert firsts[0].startswith("# This notebook needs the book's library.")
    assert firsts[1:] == [
        "from pathlib import Path",  # hidden on the page, but needed by what follows
        "from measured_transformer.evidence.record import record, report",
        'record("CS-1.5", value=[0, 3, -1])',
        "from measured_transformer.figures.plots import subplots",
        "from measured_transformer.exercises import check",  # what an exercise begins with
        "assert sum(range(4)) == 6",
    ]


def test_an_exercise_goes_on_in_a_cell_of_the_notebook(notebook):
    (at,) = (n for n, cell in enumerate(notebook.cells) if "exercises import" in cell.source)
    start = notebook.cells[at]
    assert start.cell_type == "code"
    assert start.source.endswith('check("learning_rate.edge", ...)')
    assert notebook.cells[at - 1].source.rstrip().endswith("> Show that $a = b$.")
    assert notebook.cells[at + 1].source.startswith("<details>\n<summary>Solution</summary>")


def test_notebook_runs_elsewhere(notebook, good, tmp_path):
    """With the folder that the hidden cell of these tests reads, and nothing else of the book."""
    (tmp_path / "recorded").mkdir()
    text = (good.root / "recorded/claims.toml").read_text()
    (tmp_path / "recorded/claims.toml").write_text(text)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}})
    executed = client.execute()
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("builder", ["latex", "texinfo", "singlehtml"])
def test_other_builders_print_the_page_too(good, builder):
    warnings = good.build(builder)
    assert [line for line in warnings if "measured" in line or "bookpress" in line] == []
    printed = [path for path in (good.root / f"_build/{builder}").iterdir() if path.is_file()]
    text = "".join(
        path.read_text("utf-8", errors="ignore")
        for path in printed
        if path.suffix in (".txt", ".tex", ".1", ".texi", ".html")
    )
    assert "1.472" in text
    assert "confirmed" in text
    if builder == "latex":
        assert text.count("includegraphics") == 1


def test_nothing_is_read_again_when_nothing_changed(good):
    trees = {path: path.stat().st_mtime_ns for path in good.root.glob("_build/.doctrees/*.doctree")}
    assert len(trees) == 3
    assert good.build() == []
    assert {path: path.stat().st_mtime_ns for path in trees} == trees


# What must not pass silently --------------------------------------------------------------------

TABLE = "\n```{claims-table}\n```\n\n(smoothly)=\n## Smoothly\n"


def bad(body, cells=tiny_pages.CELLS):
    return f"{tiny_pages.FRONT}\n# A page\n\n{cells}\n{body}\n"


def picture(metadata, call="line()"):
    return tiny_pages.FIGURE.format(metadata=metadata, call=call)


NAMED = "  figure:\n    caption: A line.\n    name: fig-{name}\n"
WARNINGS = {
    "unknown-value": (
        bad("{measured}`min_distanse:.3f`"),
        r"no measured value 'min_distanse' on this page; nearest are min_distance",
    ),
    "unknown-part": (
        bad("{measured}`DD-7.7.rotary.effect`"),
        r"no measured value 'DD-7.7.rotary.effect'.*nearest are DD-7.7",
    ),
    "unknown-format": (bad("{measured}`min_distance:.3q`"), r"number format.*'.3q'"),
    "value-without-cells": (
        "# A page\n\n{measured}`min_distance`",
        r"no measured value 'min_distance' on this page",
    ),
    "unknown-verdict": (bad("{verdict}`CS-9.9`"), r"no claim 'CS-9.9' in the registry"),
    "unknown-card": (bad("```{claim} CS-9.9\n```"), r"no claim 'CS-9.9' in the registry"),
    "covered-unrecorded": (
        bad("{measured}`none_here`" + TABLE, cells=""),
        r"claim CS-1.3 is covered by covered-unrecorded, but no cell of this page records it",
    ),
    "other-verdict": (
        bad(TABLE),
        r"claim CS-1.3: the prose discusses the verdict 'refuted', but profile quick measured "
        r"'confirmed'",
    ),
    "second-card": (
        bad("```{claim} CS-1.3\n```\n\n```{claim} CS-1.3\n```\n" + TABLE),
        r"claim CS-1.3 has a second card on this page",
    ),
    "shown-nowhere": (
        bad("```{claim} CS-1.3\n```\n"),
        r"claim CS-1.5 is covered by this page, but stands in no card and no table",
    ),
    "no-such-section": (
        bad("```{claims-table}\n```"),
        r"labelled 'smoothly', but this page has no",
    ),
    "empty-table": (
        "# A page\n\n```{claims-table}\n```",
        r"a table of claims on a page that covers",
    ),
    "of-another": (
        bad("text"),
        r"records claim CS-1.3, which the registry gives to another chapter",
    ),
    "no-alt": (bad(picture(NAMED.format(name="a"))), r"figure without alternative text"),
    "no-caption": (
        bad(picture("  image:\n    alt: A line.")),
        r"figure without caption or name",
    ),
    "no-dark": (
        bad(picture(NAMED.format(name="b") + "  image:\n    alt: A line.", "line().figure")),
        r"figure without a drawing for dark pages",
    ),
    "no-alt-of-file": ("# A page\n\n![](picture.png)", r"image picture.png without alternative"),
    "bare-numeral": (
        "# A page\n\nSome words.\nThe distance is 12.4 here.",
        r"bare-numeral\.md:4: WARNING: bare numeral '12\.4' in prose; show what a cell measured with",
    ),
    "ran-nothing": ("# A page\n\n```{ran}\n```", r"a page without cells has nothing that ran"),
}
WITH_CLAIMS = (
    "covered-unrecorded",
    "other-verdict",
    "second-card",
    "shown-nowhere",
    "no-such-section",
)


@pytest.fixture(scope="session")
def complaints(tmp_path_factory):
    """Each bad page in a book of its own that shares the executed cells, and what Sphinx says."""
    from PIL import Image

    book = tiny_pages.make(tmp_path_factory.mktemp("bad"))
    Image.new("RGB", (4, 4)).save(book.root / "picture.png")
    for name, (text, _) in WARNINGS.items():
        book.write(f"{name}.md", text)
    found = {}
    book.write("claims/none.toml", "")
    book.claims("recorded-by")
    (book.root / "claims/recorded-by.toml").unlink()
    for name in WITH_CLAIMS:
        for old in (book.root / "claims").iterdir():
            old.unlink()
        expected = "refuted" if name == "other-verdict" else "confirmed"
        book.claims(name, expected=expected)
        found[name] = [line for line in book.build() if f"{name}.md" in line or name in line]
    for old in (book.root / "claims").iterdir():
        old.unlink()
    book.write("claims/none.toml", "")
    for page in book.root.glob("*.md"):
        page.write_text(page.read_text() + "\n")
    lines = book.build()
    for name in WARNINGS.keys() - set(WITH_CLAIMS):
        found[name] = [line for line in lines if f"/{name}.md" in line]
    return found


@pytest.mark.parametrize("name", WARNINGS)
def test_warns(name, complaints):
    assert any(re.search(WARNINGS[name][1], line) for line in complaints[name]), complaints[name]
    assert all("WARNING" in line or "ERROR" in line for line in complaints[name])


@pytest.mark.parametrize("full", ["conditional", "confirmed"])
def test_what_quick_may_leave_open_it_may_decide_as_full_does_and_no_other_way(tmp_path, full):
    book = tiny_pages.make(tmp_path)
    book.claims("page")
    declared = (book.root / "claims/page.toml").read_text()
    left_open = f'expected = {{quick = "inconclusive", full = "{full}"}}'
    book.write("claims/page.toml", declared.replace('expected = "conditional"', left_open))
    book.write("page.md", bad(TABLE + "\n(smoothly)=\n## Smoothly\n\nWords.\n"))
    told = [line for line in book.build() if "the prose discusses" in line]
    if full == "conditional":
        assert told == []
    else:
        assert "DD-7.7: the prose discusses the verdict 'inconclusive' or 'confirmed'" in told[0]
        assert "profile quick measured 'conditional'" in told[0]


def full_record(book, name, **values):
    path = committed(book.root, name, "full")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"records": {}, "values": values}))


def test_a_value_of_the_last_full_run_is_that_of_its_record_and_follows_it(tmp_path):
    book = tiny_pages.make(tmp_path)
    book.write("claims/none.toml", "")
    book.write(
        "page.md", "# A page\n\nIt is {full}`shares|mean:.2f`, at most {full}`shares|max`.\n"
    )
    full_record(book, "page", shares=[0.25, 0.75])
    assert book.build() == []
    shown = book.page("page").select("span[data-full]")
    assert [value.text for value in shown] == ["0.50", "0.75"]
    assert all(value["title"] == "measured by the last full run" for value in shown)
    full_record(book, "page", shares=[0.5, 1.0])
    assert book.build() == []
    shown = book.page("page").select("span[data-full]")
    assert [value.text for value in shown] == ["0.75", "1"]


def test_a_value_that_no_full_run_measured_fails_the_build(tmp_path):
    book = tiny_pages.make(tmp_path)
    book.write("claims/none.toml", "")
    book.write("other.md", "# A page\n\nIt is {full}`share`.\n")
    book.write("page.md", "# A page\n\nIt is {full}`shre`.\n")
    full_record(book, "page", share=0.5)
    told = "\n".join(book.build())
    assert re.search(r"page\.md.*in the last full run: no measured value 'shre'.*share", told)
    assert re.search(
        r"other\.md.*no record of a full run \(.*/other/results/legacy-full\.json\).*asks for share",
        told,
    )


def test_a_claim_of_a_chapter_that_is_not_in_the_book(tmp_path):
    book = tiny_pages.make(tmp_path)
    book.claims("elsewhere")
    expected = (
        "CS-1.3, CS-1.5, DD-7.7, DA-2.1 are covered by elsewhere, which is not in the book; put it "
        "into the table of contents, or mark the claims planned"
    )
    for _ in range(2):
        assert any(expected in line for line in book.build())
        assert book.failed is not None


def test_a_chapter_that_leaves_the_book_while_it_covers_claims(good, tmp_path):
    import shutil

    shutil.copytree(good.root, tmp_path / "copy")
    book = tiny_pages.Tiny(tmp_path / "copy")
    assert book.build() == []
    assert book.failed is None
    (book.root / "good.md").unlink()
    assert any("are covered by good, which is not in the book" in line for line in book.build())
    assert book.failed is not None


def test_a_contradiction_fails_every_build_until_it_is_gone(good, tmp_path):
    """Without any flag: warnings alone would let the book be printed."""
    import shutil

    shutil.copytree(good.root, tmp_path / "copy")
    book = tiny_pages.Tiny(tmp_path / "copy")
    book.claims("good", expected="refuted")
    for _ in range(2):
        assert any("discusses the verdict 'refuted'" in line for line in book.build())
        assert book.failed == "1 complaint, see above"
    book.claims("good")
    assert book.build() == []
    assert book.failed is None


def test_other_warnings_fail_nothing_by_themselves(tmp_path):
    book = tiny_pages.make(tmp_path)
    book.write("claims/none.toml", "")
    book.write("page.md", "# Page\n\nSee {ref}`nowhere-at-all`.\n")
    assert any("nowhere-at-all" in line for line in book.build())
    assert book.failed is None


def test_a_changed_registry_makes_the_page_anew(good, tmp_path):
    import shutil

    shutil.copytree(good.root, tmp_path / "copy")
    book = tiny_pages.Tiny(tmp_path / "copy")
    book.build()
    book.claims("good", expected="refuted")
    assert any("discusses the verdict 'refuted'" in line for line in book.build())


def test_reading_and_writing_in_parallel_gives_the_same_pages(good, tmp_path):
    book = tiny_pages.make(tmp_path)
    book.claims("good")
    book.write("good.md", GOOD)
    book.write("plain.md", "# A page without cells\n\n```{runs-table}\n```\n")
    for number in range(6):  # Sphinx reads in parallel from five pages on
        book.write(f"more-{number}.md", "# More\n")
    import shutil

    shutil.copytree(good.root / "_build/.jupyter_cache", tmp_path / "_build/.jupyter_cache")
    assert book.build(parallel=2) == []
    for selector in ("div.claim", "table.claims-table", "figure", "div.ran"):
        expected = [words(node) for node in good.page("good").select(selector)]
        assert [words(node) for node in book.page("good").select(selector)] == expected
    assert "A good page" in words(book.page("plain").select_one("table.runs-table"))
    assert (tmp_path / "_build/html/_notebooks/good.ipynb").exists()
