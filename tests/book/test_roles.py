"""Roles, directives and figures on pages of a tiny book, and the notebooks made of them."""

# ruff: noqa: RUF001 (what a reader sees has true minus and multiplication signs)

from __future__ import annotations

import re
import shutil

import nbformat
import pytest
import tiny_pages
from nbclient import NotebookClient
from packaging.requirements import Requirement

FIGURE = tiny_pages.FIGURE.format(
    metadata="""\
  figure:
    caption: A line of slope $1$, see {ref}`good`.
    name: fig-line
  image:
    alt: A line that rises.""",
    call="line()",
)
GOOD = f"""{tiny_pages.ROOM_FRONT}
(good)=
# A good page

The floor is {{measured}}`floor:.2f`, random vectors reach
{{measured}}`reversal.accuracy[arm=random]|mean:.0%`, and the largest error is
{{measured}}`CS-1.3.effect:.0e`. Look at {{claim}}`the offset <CS-1.3>` and {{claim}}`DD-7.7`.
The source says {{quoted}}`12.4`; the base is {{constant}}`10000`.
As {{cite:t}}`vaswani2017attention` say, $a_b$ is *not* `code` and x * y is a_c; see {{numref}}`fig-line`
and {{eq}}`eq-sum`.

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
from measured_book import check

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
        "floor:.2f": "1.14",
        "reversal.accuracy[arm=random]|mean:.0%": "93%",
        "CS-1.3.effect:.0e": "2\u00a0×\u00a010⁻¹⁴",
    }


def test_numbers_of_others_are_plain_text(page):
    assert "The source says 12.4 ; the base is 10000 ." in words(page)


def test_a_claim_unfolds_to_what_stands_behind_it(page):
    said = words(page.select_one("div.claim-line#claim-dd-7-7"))
    assert "It turns on the other scheme:" in said
    assert re.search(
        r"against ALiBi: mean difference 0\.63 \(95 % interval .*, 10 seeds\) ✗ refuted", said
    )
    assert "For each part: The mean difference, paired by seed, lies below −0.1" in said
    beside = (
        r"Computed beside against sinusoidal: bootstrap interval −[\d.]+ to −[\d.]+, Hedges. g −"
    )
    assert re.search(beside + r"[\d.]+, p \d.* after Holm.s correction against ALiBi", said)
    said = words(page.select_one("div.claim-line#claim-cs-1-3"))
    assert "A word of mine, with" in said
    assert re.search(r"Measured Largest error .* in 10 draws; the control is off by 0\.2", said)
    assert "and a negative control, which must fail, exceeds 0.001." in said
    source = page.select_one("#claim-cs-1-3 dd a")
    assert source["href"].startswith("index.html#")


def test_anchors_are_unique(page):
    ids = [node["id"] for node in page.select("[id]")]
    assert len(ids) == len(set(ids))


def test_what_cells_show_is_on_the_page(page):
    shown = [words(output) for output in page.select(".cell_output")]
    assert shown == ["seen by the reader", words(page.select_one("figure"))]


def test_a_figure_has_two_drawings_and_one_caption(page):
    figure = page.select_one("figure#fig-line")
    light, dark = figure.select("img")
    assert light["alt"] == dark["alt"] == "A line that rises."
    assert "only-light" in light["class"]
    assert "only-dark" in dark["class"]
    assert light["src"].endswith(".svg"), "a line is drawn as one file for both themes"
    assert dark["src"] == f"{light['src']}#dark"
    assert [a["href"] for a in figure.select("a.image-reference")] == 2 * [light["src"]]
    assert light["loading"] == dark["loading"] == "lazy"
    assert light.find_parent("div", class_="drawings")["style"] == "--proportions: 1280 / 400"
    assert words(figure.select_one("figcaption")).startswith("Fig. 1")
    # the theme hides a caption that is a sibling of a hidden drawing
    assert figure.select_one("figcaption").parent is not light.parent.parent
    width = re.search(r"width: (\d+)px", light["style"])
    assert width is not None
    assert width[1] == "640"


def test_runs_table_lists_the_chapters(good):
    table = good.page("plain").select_one("table.runs-table")
    assert words(table.select_one("tbody tr td")) == "A good page"
    assert table.select_one("tbody a")["href"] == "good.html"
    assert "Seeds: 10 Device: cpu, Some Processor, 2 cores" in words(table)


def test_header_offers_the_notebook_and_colab_can_open_it(good):
    links = {link.get_text(strip=True): link["href"] for link in good.page("good").select("a.btn")}
    assert links[".ipynb"] == "_notebooks/good.ipynb"
    assert links["Colab"] == (
        "https://colab.research.google.com/github/somebody/some-book/blob/notebooks/latest/good.ipynb"
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
        "The floor is 1.14, random vectors reach 93%, and the largest error is 2\u00a0×\u00a010⁻¹⁴.",
        "Look at the offset and Rotary carries over better.",
        "Vaswani *et al.* [2017] say, $a_b$ is *not* `code` and x \\* y is a_c; see Fig. 1 and (1).",
        "$$\ns = \\sum_i x_i \\tag{1}\n$$",
        "**Figure 1:** A line of slope $1$, see A good page.",
        "depends on the offset alone. largest error",
        "> **Exercise 1 (By hand)**",
        "<details>\n<summary>Solution</summary>\n\nBecause.\n\n</details>",
        "## Does it fall off smoothly?",
        "| where | what |\n| --- | --- |\n| $x$ | `a\\|b` |",
        "> **What people get wrong**",
        "**What ran**: 10 seeds, cpu",
        "Ashish Vaswani, Noam Shazeer, and Niki Parmar.",
    ):
        assert text in prose, text


def test_notebook_has_no_markup_of_the_book(prose):
    assert not re.search(r"\{[a-z:-]+\}`|```\{|:label:|^---$", prose, re.MULTILINE)


def test_notebook_has_all_cells_in_order_and_no_outputs(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    firsts = [cell.source.splitlines()[0] for cell in code]
    assert firsts[0].startswith("# This notebook needs the book's library and")
    assert firsts[1:] == [
        "from pathlib import Path",  # hidden on the page, but needed by what follows
        "from measured_book.evidence.results import load_result",
        "from measured_book.figures.plots import subplots",
        "from measured_book import check",  # what an exercise begins with
        "assert sum(range(4)) == 6",
    ]


def test_its_first_cell_installs_the_library_of_this_print_with_extras(notebook):
    first = next(cell.source for cell in notebook.cells if cell.cell_type == "code")
    (asked,) = re.findall(r'pip install "(.+)"', first)
    requirement = Requirement(asked)
    assert (requirement.name, requirement.extras) == ("measured-transformer", {"language"})
    assert requirement.url == "git+https://github.com/somebody/some-book@main"
    assert '"sacrebleu": "sacrebleu>=' in first
    exec(
        compile(first, "the first cell", "exec"), {}
    )  # nothing is missing here, so nothing happens


def test_an_exercise_goes_on_in_a_cell_of_the_notebook(notebook):
    (at,) = (n for n, cell in enumerate(notebook.cells) if "import check" in cell.source)
    start = notebook.cells[at]
    assert start.cell_type == "code"
    assert start.source.endswith('check("learning_rate.edge", ...)')
    assert notebook.cells[at - 1].source.rstrip().endswith("> Show that $a = b$.")
    assert notebook.cells[at + 1].source.startswith("<details>\n<summary>Solution</summary>")


def test_notebook_runs_elsewhere(notebook, good, tmp_path):
    """With the results that the hidden cell of these tests reads, and nothing else of the book."""
    shutil.copytree(good.root / "rooms", tmp_path / "rooms")
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
    assert "1.14" in text
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
    return f"{tiny_pages.ROOM_FRONT}\n# A page\n\n{cells}\n{body}\n"


def picture(metadata, call="line()"):
    return tiny_pages.FIGURE.format(metadata=metadata, call=call)


NAMED = "  figure:\n    caption: A line.\n    name: fig-{name}\n"
WARNINGS = {
    "unknown-value": (
        bad("{measured}`flor:.3f`"),
        r"no measured value 'flor' on this page; nearest are floor",
    ),
    "unknown-part": (
        bad("{measured}`DD-7.7.rotary.effect`"),
        r"no measured value 'DD-7.7.rotary.effect'.*nearest are DD-7.7",
    ),
    "unknown-format": (bad("{measured}`floor:.3q`"), r"number format.*'.3q'"),
    "value-without-room": (
        "# A page\n\n{measured}`floor`",
        r"floor is asked for on a page without a room; name the room in its front matter",
    ),
    "no-such-role": (bad("{verdict}`CS-1.3`"), r'Unknown interpreted text role "verdict"'),
    "unknown-claim": (bad("```{claim} CS-9.9\n```"), r"no claim 'CS-9.9' in the registry"),
    "covered-without-room": (
        f"# A page\n{TABLE}",
        r"claim CS-1.3 is covered by covered-without-room, which has no room",
    ),
    "other-verdict": (
        bad(TABLE),
        r"claim CS-1.3: the prose discusses the verdict 'refuted', but the results give 'confirmed'",
    ),
    "second-line": (
        bad("```{claim} CS-1.3\n```\n\n```{claim} CS-1.3\n```\n" + TABLE),
        r"claim CS-1.3 has a second line on this page",
    ),
    "shown-nowhere": (
        bad("```{claim} CS-1.3\n```\n"),
        r"claim CS-1.5 is covered by this page, but stands in no line and no list",
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
        r"the room of this page judges claim CS-1.3, which the registry gives to another chapter",
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
        r"bare-numeral\.md:4: WARNING: bare numeral '12\.4' in prose; show what was measured with",
    ),
}
WITH_CLAIMS = (
    "unknown-part",
    "covered-without-room",
    "other-verdict",
    "second-line",
    "shown-nowhere",
    "no-such-section",
    "of-another",
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
    for name in WITH_CLAIMS:
        for old in (book.root / "claims").iterdir():
            old.unlink()
        expected = "refuted" if name == "other-verdict" else "confirmed"
        book.claims("elsewhere" if name == "of-another" else name, expected=expected)
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
    shutil.copytree(good.root, tmp_path / "copy")
    book = tiny_pages.Tiny(tmp_path / "copy")
    assert book.build() == []
    assert book.failed is None
    (book.root / "good.md").unlink()
    assert any("are covered by good, which is not in the book" in line for line in book.build())
    assert book.failed is not None


def test_a_contradiction_fails_every_build_until_it_is_gone(good, tmp_path):
    """Without any flag: warnings alone would let the book be printed."""
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
    shutil.copytree(good.root / "_build/.jupyter_cache", tmp_path / "_build/.jupyter_cache")
    assert book.build(parallel=2) == []
    for selector in ("div.claim-line", "details.fold", "figure", "div.ran-line"):
        expected = [words(node) for node in good.page("good").select(selector)]
        assert [words(node) for node in book.page("good").select(selector)] == expected
    assert "A good page" in words(book.page("plain").select_one("table.runs-table"))
    assert (tmp_path / "_build/html/_notebooks/good.ipynb").exists()


def test_search_works_in_a_folder_that_no_server_serves(good, browser):
    """A file may not read other files, so the index is a script, and results come without excerpts."""
    page = browser.new_page()
    page.goto(f"{(good.root / '_build/html/search.html').as_uri()}?q=rotary")
    links = page.locator("#search-results li a")
    links.first.wait_for(timeout=20_000)
    assert "good.html" in [link.get_attribute("href").split("#")[0] for link in links.all()]
    page.goto(f"{(good.root / '_build/html/search.html').as_uri()}?q=hippopotamus")
    page.get_by_text("did not match any documents").wait_for(timeout=20_000)
    assert links.count() == 0
    page.close()
