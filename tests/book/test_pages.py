"""The printed pages: read as files, and looked at in a browser in both themes and two widths."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlparse

import nbformat
import pytest
from bs4 import BeautifulSoup, Tag
from nbclient import NotebookClient

WIDTHS = {"desk": (1280, 900), "telephone": (390, 844)}
THEMES = ("light", "dark")
# Nothing depends on width and theme at once.
LOOKS = (("desk", "light"), ("desk", "dark"), ("telephone", "light"))

# The pages of the reference that are checked for accessibility: it takes long, and all are made alike.
SAMPLES = (
    "book/reference/index.html",
    "book/reference/internals.html",
    "book/reference/parts.html",
)

# Accessibility rules that the theme's own frame breaks, each with the part of the frame it concerns.
# Nothing inside the article is forgiven.
KNOWN = {
    "region": (".sidebar-primary-item", ".sidebar-primary-items__start"),
    "label-content-name-mismatch": (".btn", ".search-button", "button"),
}


@dataclass
class Visit:
    """What one visit of a page showed."""

    page: str
    width: str
    theme: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page} ({self.width}, {self.theme})"


FACTS = """() => {
  const shown = (node) => node.getClientRects().length > 0;
  const wide = [...document.querySelectorAll(".bd-article *")].filter((node) => {
    if (!shown(node) || node.getBoundingClientRect().right <= innerWidth + 1) return false;
    for (let up = node; up && up !== document.body; up = up.parentElement) {
      const flow = getComputedStyle(up).overflowX;
      if (flow === "auto" || flow === "scroll" || flow === "hidden") return false;
    }
    return !node.closest("mjx-assistive-mml");
  });
  return {
    theme: document.documentElement.dataset.theme,
    overflow: document.documentElement.scrollWidth - innerWidth,
    wide: wide.slice(0, 3).map((node) => node.outerHTML.slice(0, 120)),
    figures: [...document.querySelectorAll(".cell_output figure")].filter(
      (figure) => !figure.closest("details:not([open]), .toggle-hidden")
    ).map((figure) => ({
      id: figure.id,
      drawings: [...figure.querySelectorAll("img")].filter(shown).map(
        (image) => [image.naturalWidth, image.getBoundingClientRect().width]
      ),
      viewers: [...figure.querySelectorAll(".attention-viewer > .av-live")].filter(shown).length,
      caption: [...figure.querySelectorAll("figcaption")].filter(shown).length,
    })),
    broken: [...document.images].filter((image) => image.complete && !image.naturalWidth)
      .map((image) => image.src),
    math: document.querySelectorAll("span.math, div.math").length,
    rendered: document.querySelectorAll("mjx-container").length,
    wrong: [...document.querySelectorAll("mjx-merror")].map((node) => node.textContent),
    icons: [...document.querySelectorAll("i[class*='fa-'], span[class*='fa-']")].length,
    drawn: document.querySelectorAll("svg.svg-inline--fa path").length,
  };
}"""


@pytest.fixture(scope="session")
def pages(built: Path) -> list[str]:
    """Names of the printed pages, those of the theme (search) and the redirect left out."""
    names = [path.relative_to(built).as_posix() for path in built.rglob("*.html")]
    found = sorted(
        name
        for name in names
        if not name.startswith(("_", "reports/")) and name not in ("index.html", "search.html")
    )
    assert found, f"no page in {built}"
    return found


@cache
def soup_of(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


@cache
def ids_of(path: Path) -> frozenset[str]:
    return frozenset(str(node["id"]) for node in soup_of(path).select("[id]"))


@pytest.fixture(scope="session")
def articles(built: Path, pages: list[str]) -> dict[str, Tag]:
    """Page -> its article."""
    found = {page: soup_of(built / page).select_one("article.bd-article") for page in pages}
    assert all(found.values()), [page for page, article in found.items() if article is None]
    return {page: article for page, article in found.items() if article is not None}


@pytest.fixture(scope="session")
def notebooks(built: Path) -> dict[str, Path]:
    """Page -> the notebook that it offers."""
    folder = built / "_notebooks"
    return {
        path.relative_to(folder).with_suffix(".html").as_posix(): path
        for path in sorted(folder.rglob("*.ipynb"))
    }


def none(problems: list[str] | dict[str, list[str]]) -> None:
    """Fail with all problems, not only the first."""
    if isinstance(problems, dict):
        problems = [f"{page}: {what}" for page, found in problems.items() for what in found]
    more = f"\n... and {len(problems) - 40} more" if len(problems) > 40 else ""
    assert not problems, "\n" + "\n".join(problems[:40]) + more


# Read as files ----------------------------------------------------------------------------------


def test_every_role_and_directive_was_understood(articles):
    problems = defaultdict(list)
    for page, article in articles.items():
        copy = BeautifulSoup(str(article), "html.parser")
        for code in copy.select("pre, code, .math"):
            code.decompose()
        text = copy.get_text(" ")
        problems[page] += re.findall(r"\{[a-z][a-z:-]*\}\s?`?[^\s`]*|```|:::", text)
        problems[page] += [str(node) for node in copy.select(".problematic, .system-message")]
    none(problems)


def test_no_number_is_missing(articles):
    problems = defaultdict(list)
    for page, article in articles.items():
        for node in article.select("span.measured, .claim, .claims-table, .ran, .cell_output"):
            problems[page] += re.findall(r".{0,30}\b(?:nan|NaN|inf)\b.{0,30}", node.get_text(" "))
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
        if article.select("span.measured, .claim, .claims-table, .cell_output figure")
    }
    assert measuring, "no page measures anything"
    none([page for page, article in measuring.items() if len(article.select("div.ran")) != 1])


def test_every_chapter_offers_its_notebook(built, chapters, notebooks):
    problems = defaultdict(list)
    for page in chapters:
        if page not in notebooks:
            problems[page].append("has no notebook")
            continue
        soup = soup_of(built / page)
        links = {"the header": soup.select_one("a.btn-download-notebook-button")}
        if soup.select_one("div.ran"):
            links["the box"] = soup.select_one("a.notebook-link")
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


def seconds_of(article: Tag) -> float:
    """How long a chapter took, as its own box says."""
    found = re.search(r"Time\s+(\d+)\s+s", article.select_one("div.ran").get_text(" "))
    return float(found[1]) if found else float("inf")


def test_a_notebook_runs_outside_the_repository(notebooks, chapters, tmp_path, monkeypatch):
    """That of the quickest chapter with claims; with `MEASURED_NOTEBOOKS=all`, that of each."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as the press runs chapters
    judged = {page: article for page, article in chapters.items() if article.select(".claim")}
    assert judged, "no chapter judges a claim"
    chosen = sorted(judged, key=lambda page: seconds_of(judged[page]))
    if os.environ.get("MEASURED_NOTEBOOKS") != "all":
        chosen = chosen[:1]
    for page in chosen:
        notebook = nbformat.read(notebooks[page], as_version=4)
        resources = {"metadata": {"path": str(tmp_path)}}
        executed = NotebookClient(notebook, timeout=1800, resources=resources).execute()
        outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
        assert outputs, f"the notebook of {page} showed nothing"
        assert not any(tmp_path.iterdir()), f"the notebook of {page} left files behind"


# Looked at in a browser -------------------------------------------------------------------------


# Colours do not depend on the width, and nothing else depends on the theme: each is looked at once.
COLOURS: dict[str, Any] = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
RULES: dict[tuple[str, str], dict[str, Any]] = {
    ("desk", "dark"): COLOURS,
    ("telephone", "light"): {"rules": {"color-contrast": {"enabled": False}}},
}


def look_at(page: Any, address: str, visit: Visit, axe: Any) -> None:
    """Open a page, wait until its mathematics stands, and note what there is to see."""
    origin = f"{urlparse(address).scheme}://{urlparse(address).netloc}"
    requests, complaints = visit.requests, visit.complaints

    def asked(request: Any) -> None:
        if not request.url.startswith((origin, "data:", "blob:")):
            requests.append(request.url)

    def said(message: Any) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text}")

    page.on("request", asked)
    page.on("console", said)
    page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    page.goto(address, wait_until="load")
    page.wait_for_function(
        "() => !window.MathJax || (MathJax.startup && MathJax.startup.promise)", timeout=20_000
    )
    page.evaluate(
        "async () => { if (window.MathJax && MathJax.startup) await MathJax.startup.promise; "
        "await document.fonts.ready; }"
    )
    page.evaluate(
        """async () => {
          for (const image of document.images) image.loading = "eager";
          const visible = [...document.images].filter((image) => image.getClientRects().length);
          await Promise.all(visible.map((image) => image.decode().catch(() => null)));
        }"""
    )
    visit.facts = page.evaluate(FACTS)
    visit.requests, visit.complaints = list(visit.requests), list(visit.complaints)
    if axe is not None:  # which asks for the style sheets again, from its own origin
        options = RULES.get((visit.width, visit.theme), {})
        visit.violations = axe.run(page, options=options).response["violations"]


@pytest.fixture(scope="session")
def visits(built: Path, pages: list[str], browser: Any) -> list[Visit]:
    """Every page from its file, in both themes and, in the light one, at both widths."""
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()
    found = []
    for width, theme in LOOKS:
        x, y = WIDTHS[width]
        context = browser.new_context(viewport={"width": x, "height": y}, color_scheme=theme)
        for name in pages:
            visit = Visit(name, width, theme)
            page = context.new_page()
            alike = name.startswith("book/reference/") and name not in SAMPLES
            look_at(page, (built / name).as_uri(), visit, None if alike else axe)
            page.close()
            found.append(visit)
        context.close()
    return found


def test_pages_follow_the_reader_s_theme(visits):
    none([f"{v}: shows {v.facts['theme']}" for v in visits if v.facts["theme"] != v.theme])


def test_pages_from_a_folder_ask_nobody_for_anything(visits):
    none([f"{visit}: {address}" for visit in visits for address in visit.requests])


def test_browser_has_nothing_to_complain_about(visits):
    none([f"{visit}: {what}" for visit in visits for what in visit.complaints])


def test_pages_behind_a_server_ask_only_this_server(server, pages, browser):
    problems = []
    context = browser.new_context()
    for name in [*pages, "search.html", "index.html"]:
        visit = Visit(name, "desk", "light")
        page = context.new_page()
        look_at(page, f"{server}/{name}", visit, None)
        page.close()
        problems += [f"{name}: {what}" for what in visit.requests + visit.complaints]
    context.close()
    none(problems)


def test_nothing_is_wider_than_the_screen(visits):
    none(
        [
            f"{visit}: {visit.facts['overflow']} pixels too wide {visit.facts['wide']}"
            for visit in visits
            if visit.facts["overflow"] > 0 or visit.facts["wide"]
        ]
    )


def test_each_figure_shows_one_crisp_drawing_and_its_caption(visits):
    """Or, in place of the drawing, a viewer."""
    problems = []
    for visit in visits:
        for figure in visit.facts["figures"]:
            drawings = figure["drawings"]
            if len(drawings) + figure["viewers"] != 1 or figure["caption"] != 1:
                problems.append(
                    f"{visit}: {figure['id']} shows {len(drawings)} drawings, "
                    f"{figure['viewers']} viewers, {figure['caption']} captions"
                )
            elif drawings and drawings[0][0] < 1.9 * drawings[0][1]:
                problems.append(f"{visit}: {figure['id']} has {drawings[0][0]} pixels")
        problems += [f"{visit}: {address} is broken" for address in visit.facts["broken"]]
    none(problems)


def test_mathematics_is_set(visits):
    problems = []
    for visit in visits:
        if visit.facts["wrong"]:
            problems.append(f"{visit}: {visit.facts['wrong']}")
        if visit.facts["rendered"] < visit.facts["math"]:
            problems.append(
                f"{visit}: {visit.facts['math']} formulas, {visit.facts['rendered']} set"
            )
    none(problems)


def test_icons_are_drawn(visits):
    none(
        [
            f"{visit}: {visit.facts['icons']} icons missing, {visit.facts['drawn']} drawn"
            for visit in visits
            if visit.facts["icons"] or not visit.facts["drawn"]
        ]
    )


def test_pages_are_accessible(visits):
    """Contrast in both themes included. The theme's own frame has known flaws, listed above."""
    problems = []
    for visit in visits:
        for violation in visit.violations:
            for node in violation["nodes"]:
                target = " ".join(map(str, node["target"]))
                parts = KNOWN.get(violation["id"], ())
                if "article" not in target and any(part in target for part in parts):
                    continue
                why = node["failureSummary"].replace("\n", " ")[:200]
                problems.append(f"{visit}: {violation['id']} at {target}: {why}")
    none(problems)


def test_known_flaws_are_still_there(visits):
    """A flaw that the theme has mended need not be forgiven any longer."""
    seen = {violation["id"] for visit in visits for violation in visit.violations}
    # shown by a newer axe only
    assert KNOWN.keys() - seen <= {"label-content-name-mismatch"}


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
    name = next((p for p, article in articles.items() if article.select("div.claim")), None)
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
    page_name = next((p for p, article in articles.items() if article.select("div.claim")), None)
    assert page_name is not None, "no page has a claim"
    page = browser.new_page()
    page.goto((built / page_name).as_uri())
    card = page.locator("div.claim").first
    assert not card.locator("dl.claim-details").is_visible()
    card.locator("summary").focus()
    page.keyboard.press("Enter")
    assert card.locator("dl.claim-details").is_visible()
    page.close()


def test_search_finds_a_chapter(server, articles, browser):
    name, article = next(iter(articles.items()))
    heading = article.select_one("h1")
    heading.select_one("a.headerlink").extract()
    word = max(re.findall(r"[A-Za-z]+", heading.get_text()), key=len)
    page = browser.new_page()
    page.goto(f"{server}/search.html?q={word}")
    listed = "[...document.querySelectorAll('#search-results li a')].map((link) => link.pathname)"
    page.wait_for_function(f"() => {listed}.includes('/{name}')", timeout=20_000)
    page.close()


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
