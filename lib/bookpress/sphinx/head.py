"""What a page tells those that link to it: its address, a description, a picture; and which edition it is.

The canonical address is the page's in the latest edition, whichever edition is printed. Nothing here makes a
page load anything.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape as xml

from docutils import nodes
from sphinx.application import Sphinx

from bookpress.edition import CLAIMS, LATEST, NOTE, PDF, Edition, note_text
from bookpress.sphinx import cards
from bookpress.sphinx.editions import edition_in, edition_words, write_if_new

_ENTRANCE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url={first}">
<title>{title}</title>{icon}
</head>
<body><p><a href="{first}">{title}</a></p></body>
</html>
"""
_LONGEST = 200
_BEFORE_THE_TEMPLATE = 600
_UNFIT = (nodes.Admonition, nodes.topic, nodes.table, nodes.figure, nodes.footnote, nodes.legend)


def description_of(doctree: nodes.Node) -> str:
    """Return the first sentences of a page, at most 200 characters of them; nothing where it has none."""
    for paragraph in doctree.findall(nodes.paragraph):
        above, within = paragraph.parent, False
        while above is not None:
            within = within or isinstance(above, _UNFIT)
            above = above.parent
        text = " ".join(paragraph.astext().split())
        if not within and len(text) > 30 and not list(paragraph.findall(nodes.math)):
            return shortened(text)
    return ""


def shortened(text: str, longest: int = _LONGEST) -> str:
    """Return as many whole sentences as fit, else as many whole words and three dots."""
    if len(text) <= longest:
        return text
    sentences = re.match(rf"(.{{40,{longest - 1}}}[.?!])\s", text)
    if sentences:
        return sentences[1]
    return f"{text[:longest].rpartition(' ')[0].rstrip(',;:')} \N{HORIZONTAL ELLIPSIS}"


def tags(edition: Edition, pagename: str, title: str, description: str, card: str) -> str:
    """Return a page's `<meta>` elements, for networks, search engines and managers of references."""
    whole = edition.title if title == edition.title else f"{title} ({edition.title})"
    drawn = "" if card.endswith(f"/{cards.BOOK}.png") else ", and a figure of the page"
    properties = {
        "og:type": "article",
        "og:site_name": edition.title,
        "og:title": title,
        "og:description": description,
        "og:url": edition.address(f"{pagename}.html", LATEST),
        "og:image": edition.address(card, LATEST),
        "og:image:width": str(cards.WIDTH),
        "og:image:height": str(cards.HEIGHT),
        "og:image:alt": f"The title, {whole}{drawn}",
    }
    names = {
        "description": description,
        "twitter:card": "summary_large_image",
        "citation_title": title,
        "citation_inbook_title": edition.title,
        "citation_author": edition.author,
        "citation_publication_date": edition.year,
        "citation_public_url": edition.address(f"{pagename}.html"),
    }
    lines = [_meta("property", key, value) for key, value in properties.items() if value]
    lines += [_meta("name", key, value) for key, value in names.items() if value]
    return "\n".join(lines)


def _meta(kind: str, key: str, value: str) -> str:
    return f'<meta {kind}="{key}" content="{escape(value)}" />'


def _add(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    del templatename
    edition = edition_in(app)
    context["theme_extra_footer"] = _footer(app, edition, pagename)
    if not edition.site or pagename not in app.env.all_docs or doctree is None:
        context.pop("pageurl", None)
        return
    context["pageurl"] = edition.address(f"{pagename}.html", LATEST)
    title = app.env.titles[pagename].astext()
    found = tags(edition, pagename, title, description_of(doctree), cards.card_of(app, pagename))
    context["metatags"] = f"{context.get('metatags') or ''}\n{found}\n"


def _footer(app: Sphinx, edition: Edition, pagename: str) -> str:
    """Return the line at the foot of every page: which edition it is, and the ways to others."""
    back = "../" * pagename.count("/")
    ways = [
        f'<a href="{back}{page}.html">{words}</a>'
        for page, words in (
            ("book/about/changelog", "Changelog"),
            ("book/about/licences", "Licences"),
        )
        if page in app.env.all_docs
    ]
    if edition.site:
        site = escape(f"{edition.site}/")
        ways.insert(0, f'<a class="editions" href="{site}editions.html">other editions</a>')
    if edition.site and edition.commit:  # it is published, and its PDF with it
        ways.append(f'<a href="{escape(edition.address(PDF))}">PDF</a>')
    words = edition_words(edition)
    first = f"{words[0].upper()}{words[1:]}"
    line = " \N{MIDDLE DOT} ".join([escape(first), *ways])
    about = (
        f' data-site="{escape(edition.site)}" data-edition="{edition.name}"' if edition.site else ""
    )
    return f'<p class="edition"{about}>{line}</p>'


def sitemap(edition: Edition, pages: list[str]) -> str:
    """Return the map of a site's pages, at their canonical addresses."""
    lines = [f"<url><loc>{xml(edition.address(page, LATEST))}</loc></url>" for page in pages]
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    schema = "http://www.sitemaps.org/schemas/sitemap/0.9"
    return "\n".join((head, f'<urlset xmlns="{schema}">', *lines, "</urlset>", ""))


def entrance(first: str, title: str, icon: str) -> str:
    """Return a page that leads on to the first one. It names the icon, or a browser looks for one in vain."""
    found = f'\n<link rel="icon" href="_static/{escape(icon)}">' if icon else ""
    return _ENTRANCE.format(first=escape(first), title=escape(title), icon=found)


def _write(app: Sphinx, error: Exception | None) -> None:
    """Write the entrance, the sitemap and the note on the edition, beside the pages."""
    if error is not None or app.builder.format != "html":
        return
    out, edition = Path(app.outdir), edition_in(app)
    if app.config.root_doc != "index":
        icon = Path(app.config.html_favicon or "").name
        page = entrance(f"{app.config.root_doc}.html", edition.title, icon)
        write_if_new(out / "index.html", page)
    write_if_new(out / NOTE, note_text(edition))
    if edition.site:
        pages = [f"{name}.html" for name in sorted(app.env.all_docs)]
        pages += sorted(f"{CLAIMS}/{path.name}" for path in (out / CLAIMS).glob("*.html"))
        write_if_new(out / "sitemap.xml", sitemap(edition, pages))


def setup(app: Sphinx) -> None:
    """Connect late, when claims have their pages."""
    app.connect("html-page-context", _add, priority=_BEFORE_THE_TEMPLATE)
    app.connect("build-finished", _write, priority=800)
