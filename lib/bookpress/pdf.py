"""The book as one PDF: the printed pages in their order, set for paper by Chromium.

    python -m bookpress.pdf

Chapters with their figures, numbers, claims and solutions are in it, with bookmarks and links among them. The
reference, the Scorecard, the sources' walks and the lab notes are left to the pages, and links lead there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlparse

import yaml
from bs4 import BeautifulSoup, Tag

from bookpress.edition import PDF, Edition, read

TARGET = Path("_build") / PDF
PAGES = Path("_build/html")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LEFT_OUT = (
    "book/reference/",
    "book/sources/",
    "book/scorecard",
    "book/about/lab-notes",
    "book/about/what-ran",
)
_TEMPORARY = "_paper.html"
_STYLE = Path(__file__).with_name("paper.css")
_WAIT_MS = 1_200_000

# What has no place on paper: buttons, links to files, hidden code, drawings for the dark theme.
_DROPPED = (
    "script, style, button, .headerlink, .only-dark, .cite, .data-links, .notebook-link, .ran-line details, "
    "details.hide, .copybtn, .attention-viewer > .av-live, .live-model > .lm-live, mjx-container, "
    ".claim-line .claim-body"
)


def order(toc: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of the book with the pages that are in its PDF; the first part is the front page."""
    yield "", [str(toc["root"])]
    for part in toc.get("parts", ()):
        pages = [str(chapter["file"]) for chapter in part.get("chapters", ())]
        kept = [page for page in pages if not page.startswith(LEFT_OUT)]
        if kept:
            yield str(part.get("caption", "")), kept


def whole(folder: Path, parts: Sequence[tuple[str, list[str]]], edition: Edition) -> str:
    """Return all pages as one document.

    Args:
        folder: the printed pages.
        parts: captions and pages, in order.
        edition: that the pages are.

    Raises:
        ValueError: a page that is not printed.
    """
    inside = {page for _, pages in parts for page in pages}
    contents: list[str] = []
    body: list[str] = []
    for caption, pages in parts:
        if caption:
            contents.append(f'<p class="caption">{escape(caption)}</p>')
            body.append(
                f'<section class="part"><h1 class="part-title">{escape(caption)}</h1></section>'
            )
        for page in pages:
            article = _article(folder, page)
            _for_paper(article, page, inside, edition)
            heading = article.select_one("h1")
            title = heading.get_text().strip() if heading else page
            contents.append(
                f'<p><a href="#{slug(page)}"><span>{escape(title)}</span>'
                f'<span class="leads-to" data-page="{slug(page)}">000</span></a></p>'
            )
            body.append(
                f'<section class="page" id="{slug(page)}">{article.decode_contents()}</section>'
            )
    said = f"{edition.name}, version {edition.version}" if edition.released else "latest edition"
    commit = f", commit {edition.commit[:12]}" if edition.commit else ""
    return _DOCUMENT.format(
        title=escape(edition.title),
        author=escape(edition.author),
        edition=escape(f"{said}{commit}, {edition.year}"),
        address=escape(edition.address("index.html") if edition.site else edition.repository),
        contents="\n".join(contents),
        body="\n".join(body),
    )


_DOCUMENT = """<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="stylesheet" href="_static/pygments.css">
<link rel="stylesheet" href="paper.css">
<script>window.MathJax = {{"options": {{"processHtmlClass": "math"}}}};</script>
<script defer src="_static/mathjax/tex-chtml.js"></script>
</head>
<body class="tex2jax_ignore">
<section class="cover"><h1>{title}</h1><p>{author}</p><p>{edition}</p>
<p>Text and figures: CC BY 4.0. Code: BSD-3-Clause.<br><a href="{address}">{address}</a><br>
The pages there have the reference, the Scorecard of all claims, lab notes, data and notebooks as well.</p>
</section>
<nav class="contents"><h1>Contents</h1>
{contents}
</nav>
{body}
</body>
</html>
"""


def slug(page: str, anchor: str = "") -> str:
    """Return the name of a page, or of an anchor on it, in the one document."""
    name = page.removeprefix("book/").replace("/", "-")
    return f"{name}--{anchor}" if anchor else name


def _article(folder: Path, page: str) -> Tag:
    path = folder / f"{page}.html"
    text = path.read_text("utf-8") if path.is_file() else ""
    start, end = text.find('<article class="bd-article"'), text.find("</article>")
    if start < 0 or end < 0:
        raise ValueError(f"expected {path} to be a printed page, got none; run make book")
    found = BeautifulSoup(text[start : end + len("</article>")], "html.parser").article
    assert found is not None
    return found


def _for_paper(article: Tag, page: str, inside: set[str], edition: Edition) -> None:
    """Take away what paper cannot show, open what is folded, and make addresses those of one document."""
    for node in article.select(_DROPPED):
        node.extract()
    for node in article.select(".cell"):
        if not node.get_text(strip=True) and node.find("img") is None:
            node.extract()
    for node in article.select("details"):
        node["open"] = ""
    for node in article.select("[id]"):
        node["id"] = slug(page, str(node["id"]))
    for node in article.select("img[src]"):
        node["src"] = _from_root(page, str(node["src"]))
        del node["loading"]
    for node in article.select("a[href]"):
        if node.find("img") is not None and not node.get_text(strip=True):
            node.unwrap()
            continue
        node["href"] = _address(page, str(node["href"]), inside, edition)


def _from_root(page: str, address: str) -> str:
    return address if urlparse(address).scheme else urljoin(f"/{page}.html", address)[1:]


def _address(page: str, address: str, inside: set[str], edition: Edition) -> str:
    if urlparse(address).scheme:
        return address
    target, _, anchor = _from_root(page, address).partition("#")
    to = unquote(target).removesuffix(".html")
    if to in inside:
        return f"#{slug(to, unquote(anchor))}"
    base = edition.address() if edition.site else f"{edition.repository}/"
    return f"{base}{target}{f'#{anchor}' if anchor else ''}"


def print_pdf(folder: Path, document: str, target: Path) -> None:
    """Print a document that lies among the pages.

    Raises:
        RuntimeError: no Chromium, or mathematics that could not be set.
    """
    from playwright.sync_api import Error, sync_playwright

    source = folder / _TEMPORARY
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    try:
        source.write_text(document, "utf-8")
        shutil.copyfile(_STYLE, folder / _STYLE.name)
        with sync_playwright() as playwright:
            try:
                browser = playwright.chromium.launch(
                    executable_path=path, args=["--no-sandbox", "--disable-background-networking"]
                )
            except Error as error:
                words = str(error).splitlines()[0]
                raise RuntimeError(f"no Chromium to print with: install it ({words})") from error
            page = browser.new_page()
            page.set_default_timeout(_WAIT_MS)
            page.goto(source.resolve().as_uri(), wait_until="load", timeout=_WAIT_MS)
            page.evaluate("() => MathJax.startup.promise")
            page.evaluate("() => document.fonts.ready")
            if wrong := page.evaluate("() => document.querySelectorAll('mjx-merror').length"):
                raise RuntimeError(f"{wrong} formulas could not be set")
            target.parent.mkdir(parents=True, exist_ok=True)
            # Chromium has no numbers of other pages to offer, so the first print says them.
            for _ in range(2):
                page.pdf(path=str(target), prefer_css_page_size=True, outline=True, tagged=True)
                numbers = page_numbers(target.read_bytes())
                changed = page.evaluate(_FILL_IN, numbers)
            if changed:
                raise RuntimeError(
                    f"expected the contents to keep their length, got {changed} pages moved"
                )
            browser.close()
    finally:
        for name in (_TEMPORARY, _STYLE.name):
            (folder / name).unlink(missing_ok=True)


_FILL_IN = """(numbers) => {
  let changed = 0;
  for (const node of document.querySelectorAll("[data-page]")) {
    const number = String(numbers[node.dataset.page] ?? "");
    if (node.textContent !== number) changed += 1;
    node.textContent = number;
  }
  return changed;
}"""


def page_numbers(pdf: bytes) -> dict[str, int]:
    """Return the page on which each place lies that a link of a PDF of Chromium's leads to, from 1."""
    objects = dict(re.findall(rb"(?:^|\n)(\d+) 0 obj\n(.*?)\nendobj", pdf, re.DOTALL))
    kids = {
        number: re.findall(rb"(\d+) 0 R", found[1])
        for number, body in objects.items()
        if (found := re.search(rb"/Type\s*/Pages\b.*?/Kids\s*\[(.*?)\]", body, re.DOTALL))
    }
    below = {kid for those in kids.values() for kid in those}

    def leaves(number: bytes) -> Iterator[bytes]:
        for kid in kids.get(number, ()):
            yield from leaves(kid) if kid in kids else (kid,)

    pages = [page for top in kids.keys() - below for page in leaves(top)]
    counted = {page: count for count, page in enumerate(pages, start=1)}
    named = re.search(rb"/Dests (\d+) 0 R", pdf)
    places = re.findall(rb"/([^\s\[]+) \[(\d+) 0 R", objects[named[1]]) if named else []
    return {_name(place): counted[page] for place, page in places}


def _name(written: bytes) -> str:
    """Return a name of a PDF, in which two digits behind a sign stand for a byte."""
    return re.sub(rb"#([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(m[1].decode()), written).decode()


def count_pages(pdf: Path) -> int:
    """Return how many pages a PDF of Chromium's has."""
    return len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the PDF; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m bookpress.pdf", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--pages", type=Path, default=PAGES, help="the printed pages")
    parser.add_argument("--into", type=Path, default=TARGET, help="the file to write")
    parser.add_argument("--only", help="pages to print alone, between commas")
    options = parser.parse_args(arguments)
    try:
        edition = read(options.pages)
        parts = list(order(yaml.safe_load(Path("_toc.yml").read_text("utf-8"))))
        if options.only:
            parts = [("", options.only.split(","))]
        print_pdf(options.pages, whole(options.pages, parts, edition), options.into)
    except (ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = options.into.stat().st_size / 1e6
    print(f"{options.into}: {count_pages(options.into)} pages, {size:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
