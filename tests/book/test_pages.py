"""The printed pages: read as files, and used in a browser."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urljoin, urlparse

import nbformat
import pytest
from bs4 import BeautifulSoup, NavigableString, Tag
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from visiting import none, soup_of


@cache
def ids_of(path: Path) -> frozenset[str]:
    return frozenset(str(node["id"]) for node in soup_of(path).select("[id]"))


@pytest.fixture(scope="session")
def notebooks(built: Path) -> dict[str, Path]:
    """Page -> the notebook that it offers."""
    folder = built / "_notebooks"
    return {
        path.relative_to(folder).with_suffix(".html").as_posix(): path
        for path in sorted(folder.rglob("*.ipynb"))
    }


# Read as files ----------------------------------------------------------------------------------


SILENT = ("pre", "code", "script", "style", "template")


def words_outside_code(node: Tag) -> Iterator[str]:
    """The texts of a node, but for those in code and mathematics."""
    for child in node.children:
        if not isinstance(child, Tag):
            if type(child) is NavigableString:  # no comment
                yield str(child)
        elif child.name not in SILENT and "math" not in child.get("class", ()):
            yield from words_outside_code(child)


def test_every_role_and_directive_was_understood(articles):
    problems = defaultdict(list)
    for page, article in articles.items():
        text = " ".join(words_outside_code(article))
        problems[page] += re.findall(r"\{[a-z][a-z:-]*\}\s?`?[^\s`]*|```|:::", text)
        problems[page] += [str(node) for node in article.select(".problematic, .system-message")]
    none(problems)


def test_words_outside_code_leave_out_code_and_mathematics():
    text = '<p>a {x}`y` <code>{b}`c`</code><span class="math x">{d}</span><b>e</b><!--{f}--></p>'
    assert "".join(words_outside_code(BeautifulSoup(text, "html.parser"))) == "a {x}`y` e"


def test_no_number_is_missing(articles):
    problems = defaultdict(list)
    for page, article in articles.items():
        for node in article.select(
            "span.measured, .claim-line, .claim-items, .ran-line, .cell_output"
        ):
            problems[page] += re.findall(
                r".{0,30}(?<!math\.)\b(?:nan|NaN|inf)\b.{0,30}", node.get_text(" ")
            )
        problems[page] += [str(node) for node in article.select("span.measured") if not node.text]
    none(problems)


def test_every_image_has_words_of_its_own(articles):
    problems = defaultdict(list)
    for page, article in articles.items():
        for image in article.select("img"):
            alt = image.get("alt", "").strip()
            if not alt or alt.startswith("../") or "_images/" in alt or alt == image["src"]:
                problems[page].append(f"{image['src']} has the alternative text {alt!r}")
    none(problems)


def test_every_figure_has_a_caption_a_name_and_is_referred_to(articles):
    links = {
        (urljoin(page, link["href"].partition("#")[0]) or page, link["href"].partition("#")[2])
        for page, article in articles.items()
        for link in article.select("a[href*='#']:not(.headerlink)")
    }
    problems = defaultdict(list)
    for page, article in articles.items():
        for figure in article.select("figure"):
            name = figure.get("id")
            if not name:
                problems[page].append("a figure without name")
            elif not figure.select_one("figcaption .caption-text"):
                problems[page].append(f"{name} has no caption")
            elif (page, name) not in links:
                problems[page].append(f"{name} is not referred to from any text")
        for image in article.select(".cell_output img"):
            if image.find_parent("figure") is None:
                problems[page].append(f"{image['src']} stands outside of a figure")
    none(problems)


def test_links_and_anchors_lead_somewhere(built, pages):
    problems = defaultdict(list)
    for page in pages:
        for node in soup_of(built / page).select("[href], [src]"):
            address = node.get("href") or node.get("src") or ""
            parts = urlparse(address)
            if parts.scheme or address.startswith("//") or address in ("", "#"):
                continue
            target = (built / page).parent / unquote(parts.path) if parts.path else built / page
            if not target.is_file():
                problems[page].append(f"{address} does not exist")
            elif parts.fragment and target.suffix == ".html":
                fragment = unquote(parts.fragment)
                if target.name == "scorecard.html" and "=" in fragment:
                    continue  # filters, which the tests of these follow
                if fragment not in ids_of(target.resolve()):
                    problems[page].append(f"{address} has no such anchor")
    none(problems)


def test_headings_do_not_skip_a_level(articles):
    problems = defaultdict(list)
    for page, article in articles.items():
        levels = [int(heading.name[1]) for heading in article.select("h1, h2, h3, h4, h5, h6")]
        if levels.count(1) != 1:
            problems[page].append(f"{levels.count(1)} main headings")
        problems[page] += [
            f"heading of level {after} after one of level {before}"
            for before, after in pairwise(levels)
            if after > before + 1
        ]
    none(problems)


def test_nothing_is_loaded_from_elsewhere(built, pages):
    """What the browser tests see in action, here for every address in the source."""
    problems = defaultdict(list)
    for page in [*pages, "search.html"]:
        for node in soup_of(built / page).select("script[src], link[href], img[src], iframe[src]"):
            address = node.get("src") or node.get("href") or ""
            if node.name == "link" and "canonical" in node.get("rel", []):
                continue
            if urlparse(address).scheme in ("http", "https") or address.startswith("//"):
                problems[page].append(str(node)[:120])
    none(problems)


def test_solutions_are_folded_and_follow_their_exercises(articles):
    problems = defaultdict(list)
    for page, article in articles.items():
        exercises = article.select("div.exercise")
        solutions = article.select("div.solution")
        if len(exercises) != len(solutions):
            problems[page].append(f"{len(exercises)} exercises, {len(solutions)} solutions")
        problems[page] += [
            f"solution {solution.get('id')} is not folded"
            for solution in solutions
            if "dropdown" not in solution["class"]
        ]
    none(problems)


# What a chapter offers --------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chapters(articles: dict[str, Tag]) -> dict[str, Tag]:
    """The pages with executed cells."""
    return {page: article for page, article in articles.items() if article.select("div.cell")}


def test_every_page_with_measurements_says_what_ran(chapters):
    measuring = {
        page: article
        for page, article in chapters.items()
        if article.select("span.measured, .claim-line, .claim-items, .data-links")
    }
    assert measuring, "no page measures anything"
    none([page for page, article in measuring.items() if len(article.select(".ran-line")) != 1])


def test_every_chapter_offers_its_notebook(built, chapters, notebooks):
    problems = defaultdict(list)
    for page in chapters:
        if page not in notebooks:
            problems[page].append("has no notebook")
            continue
        soup = soup_of(built / page)
        links = {"the header": soup.select_one("a.btn-download-notebook-button")}
        if soup.select_one("div.ran-line"):
            links["the foot"] = soup.select_one("a.notebook-link")
        for what, link in links.items():
            if link is None:
                problems[page].append(f"{what} does not link the notebook")
            elif (built / page).parent.joinpath(link["href"]).resolve() != notebooks[
                page
            ].resolve():
                problems[page].append(f"{what} links {link['href']}")
        colab = soup.select_one("a[href*='colab.research.google.com']")
        if colab is None or not colab["href"].endswith(f"{page.removesuffix('.html')}.ipynb"):
            problems[page].append(f"Colab opens {colab and colab['href']}")
    none(problems)


def test_notebooks_are_clean(notebooks):
    problems = defaultdict(list)
    for page, path in notebooks.items():
        if path.stat().st_size > 500_000:
            problems[page].append(f"{path.stat().st_size} bytes")
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "code" and (cell.outputs or cell.execution_count):
                problems[page].append(f"cell {number} has outputs")
            prose = re.sub(r"```.*?```|`[^`]*`", "", cell.source, flags=re.DOTALL)
            if cell.cell_type == "markdown" and re.search(r"\{[a-z][a-z:-]*\}`|:label:", prose):
                problems[page].append(f"cell {number} has markup of the book: {prose[:80]}")
        install = next(cell.source for cell in notebook.cells if cell.cell_type == "code")
        if "pip install" not in install:
            problems[page].append("the first code cell does not say how to install the library")
        if "torch" in "".join(re.findall(r"pip install.*", install)):
            problems[page].append("the first code cell touches the reader's PyTorch")
    none(problems)


def test_a_notebook_runs_outside_the_repository(notebooks, chapters, tmp_path, monkeypatch):
    """That of the chapter with claims and the fewest cells; with `MEASURED_NOTEBOOKS=all`, that of each."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as the press runs chapters
    judged = {page: article for page, article in chapters.items() if article.select(".claim-line")}
    assert judged, "no chapter judges a claim"
    chosen = [min(judged, key=lambda page: len(judged[page].select("div.cell")))]
    if os.environ.get("MEASURED_NOTEBOOKS") == "all":
        chosen = list(chapters)
    problems = defaultdict(list)
    for page in chosen:
        notebook = nbformat.read(notebooks[page], as_version=4)
        folder = tmp_path / page.replace("/", "-")
        folder.mkdir()
        try:
            NotebookClient(
                notebook, timeout=1800, resources={"metadata": {"path": str(folder)}}
            ).execute()
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            problems[page].append(str(error))
            continue
        shown = any(cell.get("outputs") for cell in notebook.cells)
        if not shown and chapters[page].select("div.cell_output"):
            problems[page].append("its notebook showed nothing")
        if any(folder.iterdir()):
            problems[page].append("its notebook left files behind")
    none(problems)


# Used in a browser ------------------------------------------------------------------------------


def test_theme_can_be_switched_and_stays(built, pages, browser):
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    page.goto((built / pages[0]).as_uri())
    seen = set()
    for _ in range(3):
        page.locator("button.theme-switch-button:visible").first.click()
        seen.add(page.evaluate("document.documentElement.dataset.theme"))
    context.close()
    assert seen == {"light", "dark"}


def test_paper_is_light(built, articles, browser):
    name = next((p for p, article in articles.items() if article.select("div.claim-line")), None)
    assert name is not None, "no page has a claim"
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto((built / name).as_uri())
    read = "document.documentElement.dataset.theme"
    assert page.evaluate(read) == "dark"
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(read) == "light"
    assert page.locator("dl.claim-details").first.is_visible()  # paper cannot be unfolded
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(read) == "dark"
    context.close()


def test_claims_unfold_by_keyboard(built, articles, browser):
    page_name = next(
        (p for p, article in articles.items() if article.select("div.claim-line")), None
    )
    assert page_name is not None, "no page has a claim"
    page = browser.new_page()
    page.goto((built / page_name).as_uri())
    line = page.locator("div.claim-line").first
    details = line.locator("dl.claim-details")
    assert not details.is_visible()
    line.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert details.is_visible()
    page.close()


def found_by_search(browser, site: str, word: str, wanted: str) -> None:
    """Search a site for a word, and wait until a page is among what is found."""
    page = browser.new_page()
    page.goto(f"{site}/search.html?q={word}")
    listed = "[...document.querySelectorAll('#search-results li a')].map((link) => link.href)"
    page.wait_for_function(
        f"(wanted) => {listed}.some((link) => link.split(/[?#]/)[0] === wanted)",
        arg=f"{site}/{wanted}",
        timeout=20_000,
    )
    page.close()


def test_search_finds_a_chapter(server, articles, browser):
    name, article = next(iter(articles.items()))
    heading = article.select_one("h1")
    heading.select_one("a.headerlink").extract()
    word = max(re.findall(r"[A-Za-z]+", heading.get_text()), key=len)
    found_by_search(browser, server, word, name)


@pytest.mark.parametrize("opened", ["by a server", "from its folder"])
def test_search_finds_rotary(built, server, pages, browser, opened):
    (wanted,) = [name for name in pages if name.endswith("/rotary-and-alibi.html")]
    site = server if opened == "by a server" else built.as_uri()
    found_by_search(browser, site, "rotary", wanted)


def test_pages_are_light_enough(built, pages, server, browser):
    """A first visit, before figures: scripts, styles and fonts."""
    sizes: dict[str, int] = {}
    page = browser.new_page()
    page.on(
        "response",
        lambda response: (
            sizes.update({response.url: int(response.headers["content-length"])})
            if "content-length" in response.headers
            else None
        ),
    )
    page.goto(f"{server}/{pages[0]}", wait_until="load")
    page.wait_for_timeout(500)
    page.close()
    weight = sum(size for url, size in sizes.items() if "/_static/" in url)
    assert weight < 2_300_000, json.dumps(sizes, indent=1)
