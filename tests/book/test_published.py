"""What the printed pages say to those that link to them, cite them or pass them on."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from bookpress.edition import LATEST, read
from bookpress.sphinx.cards import HEIGHT, WIDTH
from bookpress.sphinx.licences import work_of
from bs4 import BeautifulSoup
from measured_book.evidence import registry
from PIL import Image
from pybtex.database import parse_string
from visiting import none, soup_of

OWN = {path.name for path in (Path(__file__).parents[2] / "book" / "_static").iterdir()}


def meta(soup: BeautifulSoup) -> dict[str, str]:
    found = soup.select("meta[content]")
    return {str(node.get("property") or node.get("name")): str(node["content"]) for node in found}


def test_every_page_names_its_address_in_the_latest_edition_and_a_picture(
    built: Path, pages: list[str]
):
    edition, problems = read(built), defaultdict(list)
    for page in pages:
        if page.startswith("book/sources/") or not page.startswith("book/"):
            continue
        head = (built / page).read_text("utf-8").partition("</head>")[0]
        soup = BeautifulSoup(head, "html.parser")
        here = edition.address(page, LATEST)
        canonical = soup.select_one("link[rel=canonical]")
        said = meta(soup)
        if canonical is None or canonical["href"] != here or said.get("og:url") != here:
            problems[page].append(f"has another address, {canonical}")
        card = said.get("og:image", "").removeprefix(edition.address("", LATEST))
        if not card or not (built / card).is_file():
            problems[page].append(f"its card {card!r} is not there")
    none(problems)


def test_a_card_is_as_large_as_networks_ask_for_and_small_as_a_file(built: Path):
    cards = sorted((built / "_cards").glob("*.png"))
    assert cards
    for path in cards:
        with Image.open(path) as card:
            assert card.size == (WIDTH, HEIGHT), path.name
        assert path.stat().st_size < 300_000, path.name


LARGEST = 85_000_000
"""Bytes of the whole site; 80 million are aimed at."""


def test_the_site_stays_small(built: Path):
    sizes: dict[str, int] = defaultdict(int)
    for path in built.rglob("*"):
        if path.is_file():
            sizes[path.suffix] += path.stat().st_size
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:6]
    assert sum(sizes.values()) < LARGEST, f"the most is in {largest}"


BOX = re.compile(r'<div class="cite">.*?</details>\s*</div>', re.DOTALL)


def test_every_chapter_and_every_claim_on_it_says_how_to_cite_it(built: Path, pages: list[str]):
    problems, edition = defaultdict(list), read(built)
    told = {}
    for page in pages:
        text = (built / page).read_text("utf-8")
        boxes = [BeautifulSoup(box, "html.parser") for box in BOX.findall(text)]
        cited = {
            entry.fields["url"]
            for box in boxes
            for entry in parse_string(box.select_one("pre").get_text(), "bibtex").entries.values()
        }
        if 'class="ran-line"' in text and edition.address(page) not in cited:
            problems[page].append("does not say how to cite the chapter")
        told[page.removesuffix(".html")] = cited
    for claim in registry.claims().values():
        if claim.status == "covered" and edition.claim_address(claim.id) not in told[claim.chapter]:
            problems[claim.chapter].append(f"does not say how to cite {claim.id}")
    none(problems)


def test_every_claim_has_a_page_that_is_its_address(built: Path):
    edition, problems = read(built), defaultdict(list)
    for claim_id in registry.claims():
        path = built / "claims" / f"{claim_id}.html"
        if not path.is_file():
            problems[claim_id].append("has no page")
            continue
        soup = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        if edition.pinned(claim_id) not in soup.h1.get_text():
            problems[claim_id].append("its page does not name it")
        if soup.main.get_text().count("Scope") != 1:
            problems[claim_id].append("does not say its scope once")
        (entry,) = parse_string(soup.pre.get_text(), "bibtex").entries.values()
        if entry.fields["url"] != edition.claim_address(claim_id):
            problems[claim_id].append("is cited by another address")
        for link in soup.select("a[href]"):
            target = str(link["href"]).partition("#")[0]
            if "://" not in target and not (path.parent / target).is_file():
                problems[claim_id].append(f"{target} does not exist")
    none(problems)


def test_a_claims_page_passes_and_asks_for_nothing(built: Path, browser):
    from axe_playwright_python.sync_playwright import Axe

    for width, theme in ((390, "light"), (1280, "dark")):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto((built / "claims" / f"{next(iter(registry.claims()))}.html").as_uri())
        assert [url for url in asked if not url.startswith("file:")] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert Axe().run(page).response["violations"] == []
        context.close()


def test_the_site_map_has_every_page(built: Path, pages: list[str]):
    text, edition = (built / "sitemap.xml").read_text("utf-8"), read(built)
    missing = [
        page
        for page in pages
        if page.startswith("book/") and f"<loc>{edition.address(page, LATEST)}</loc>" not in text
    ]
    assert not missing


def test_everything_that_others_wrote_stands_on_the_page_of_licences(built: Path):
    strange, works = [], set()
    for path in sorted((built / "_static").rglob("*")):
        name = path.relative_to(built).as_posix()
        own = path.name in OWN or path.parent.name == "live"  # weights of the book's own models
        if path.is_file() and not own:
            work = work_of(name)
            works.add(work)
            strange += [] if work else [name]
    assert not strange, "whose is it? add it to bookpress/sphinx/licences.py"
    page = soup_of(built / "book" / "about" / "licences.html")
    listed = {row.td.get_text(strip=True): row for row in page.select("table.licences tbody tr")}
    for work in works:
        link = listed[work.name].select_one("a[href]")
        text = (built / "book" / "about" / link["href"]).read_text("utf-8")
        assert len(text) > 500, f"{work.name}: its licence's text"


SITE = "https://measured-transformer.github.io/measured-transformer"


def test_on_the_site_the_link_to_editions_becomes_a_choice(built: Path, browser):
    """The site is this folder, behind the site's address; an older release says so."""
    from playwright.sync_api import expect

    assert read(built).site == SITE
    page = browser.new_page()
    name = "book/about/licences.html"

    def answer(route):
        path = route.request.url.removeprefix(f"{SITE}/").partition("?")[0]
        if path == "editions.json":
            route.fulfill(json={"editions": ["latest", "v0.2", "v0.1"], "newest": "v0.2"})
            return
        edition, _, file = path.partition("/")
        target = built / file
        if not target.is_file():
            route.fulfill(status=404)
        elif target.suffix == ".html":
            text = target.read_text("utf-8")
            said = f'data-edition="{read(built).name}"'
            route.fulfill(
                body=text.replace(said, f'data-edition="{edition}"'), content_type="text/html"
            )
        else:
            route.fulfill(path=target)

    page.route("**/*", answer)
    page.goto(f"{SITE}/v0.1/{name}")
    select = page.get_by_label("Edition")
    # The list of editions is fetched: it comes after the page.
    expect(select.locator("option")).to_have_text(["latest", "edition v0.2", "edition v0.1"])
    assert select.input_value() == "v0.1"
    assert "The newest is v0.2." in page.locator("p.older-edition").inner_text()
    select.select_option("latest")
    page.wait_for_url(f"{SITE}/latest/{name}")
    assert page.locator("p.older-edition").count() == 0
    page.close()


def test_the_entrance_leads_on_and_has_an_icon(built):
    page = soup_of(built / "index.html")
    assert page.html["lang"] == "en"
    first = page.find("meta", attrs={"http-equiv": "refresh"})["content"].partition("url=")[2]
    icon = page.find("link", rel="icon")["href"]
    assert (built / first).is_file()
    assert (built / icon).is_file()
    assert page.a["href"] == first
