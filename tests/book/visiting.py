"""Looking at the printed pages in a browser: what one visit of a page shows, and what must hold for each.

`Visits` has the tests. A file of tests gives it the widths and themes to look in: each file is one process's
work, and looking takes long.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlparse

from bs4 import BeautifulSoup, Tag

WIDTHS = {"desk": (1280, 900), "telephone": (390, 844)}

# The pages of the reference that are always checked for accessibility: it takes long, and all are made alike.
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
  // What is folded is not shown; asked for its place, a browser lays it out all the same, for seconds.
  const folded = new Set(document.querySelectorAll(".bd-article details:not([open]) > :not(summary) *"));
  const wide = [...document.querySelectorAll(".bd-article *")].filter((node) => {
    if (folded.has(node) || !shown(node) || node.getBoundingClientRect().right <= innerWidth + 1) return false;
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
      // A viewer has figures of its own.
      (figure) => !figure.closest("details:not([open]), .toggle-hidden, .live-model")
    ).map((figure) => ({
      id: figure.id,
      drawings: [...figure.querySelectorAll("img")].filter(shown).map(
        (image) => [image.naturalWidth, image.getBoundingClientRect().width, image.src.includes(".svg")]
      ),
      viewers: [
        ...figure.querySelectorAll(
          ".attention-viewer > .av-live, .workbench > .wb-live, .live-model:not(.lm-choose) > .lm-live"
        )
      ].filter(shown).length,
      caption: [...figure.querySelectorAll(":scope > figcaption")].filter(shown).length,
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

# What code is wider than its column: all code as it is shown, and the book's own also where nothing wraps it.
# Everything that is folded is opened for as long as it takes to look.
WIDE_CODE = """() => {
  const article = document.querySelector(".bd-article");
  if (!article) return [];
  const own = ".cell_input pre, .exercise pre, .solution pre";
  const folds = [...article.querySelectorAll("details:not([open])")];
  const hidden = [...article.querySelectorAll(".toggle-hidden")];
  for (const fold of folds) fold.open = true;
  for (const node of hidden) node.classList.remove("toggle-hidden");
  const wider = (nodes) => [...nodes].filter((node) => node.scrollWidth > node.clientWidth + 1)
    .map((node) => node.textContent.split("\\n").sort((a, b) => b.length - a.length)[0]);
  const found = wider(article.querySelectorAll("pre"));
  const unwrapped = document.createElement("style");
  unwrapped.textContent = `:is(${own}) { white-space: pre !important; }`;
  document.head.append(unwrapped);
  found.push(...wider(article.querySelectorAll(own)));
  unwrapped.remove();
  for (const fold of folds) fold.open = false;
  for (const node of hidden) node.classList.add("toggle-hidden");
  return found;
}"""


@cache
def soup_of(path: Path) -> BeautifulSoup:
    """A page's elements, kept for all tests of this process.

    They are millions of objects that nothing frees: what looks for unused ones need not go through them, which
    took half of the time of parsing, and more of each later look.
    """
    looks = gc.isenabled()
    gc.disable()
    try:
        return BeautifulSoup(path.read_text("utf-8"), "html.parser")
    finally:
        gc.freeze()
        if looks:
            gc.enable()


def none(problems: list[str] | dict[str, list[str]]) -> None:
    """Fail with all problems, not only the first."""
    if isinstance(problems, dict):
        problems = [f"{page}: {what}" for page, found in problems.items() for what in found]
    more = f"\n... and {len(problems) - 40} more" if len(problems) > 40 else ""
    assert not problems, "\n" + "\n".join(problems[:40]) + more


Kind = tuple[tuple[str, tuple[str, ...], str], ...]


def kinds(article: Tag) -> set[Kind]:
    """How the texts of an article are marked up: tag, classes and style of what holds each, and around it.

    A text's colour and its ground come from these and from the theme.
    """

    def own(node: Tag) -> tuple[str, tuple[str, ...], str]:
        return node.name, tuple(sorted(node.get("class") or ())), str(node.get("style", ""))

    return {
        (own(node), own(node.parent))
        for node in article.find_all(True)
        if any(isinstance(child, str) and child.strip() for child in node.children)
    }


def covering(found: Mapping[str, Iterable[Hashable]]) -> set[str]:
    """A few pages on which every kind stands that stands on any: always the one with most new kinds next."""
    left = {page: set(those) for page, those in sorted(found.items())}
    chosen: set[str] = set()
    while any(left.values()):
        page = max(left, key=lambda name: len(left[name]))
        chosen.add(page)
        new = left[page]
        left = {name: those - new for name, those in left.items()}
    return chosen


# What axe is asked. Contrast, of texts and of links among them, takes it longest, and depends on the theme
# and not on the width: it is asked for in both themes on pages that have every kind of text between them.
# All other rules: of every page on a telephone, and of those pages on a desk. Of further pages whose turn it is
# in a run of `make test`, contrast is asked for in the dark theme, where a colour is forgotten more easily.
ALL: dict[str, Any] = {}
ALL_BUT_CONTRAST: dict[str, Any] = {
    "rules": {rule: {"enabled": False} for rule in ("color-contrast", "link-in-text-block")}
}


ONLY_CONTRAST: dict[str, Any] = {
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
}


def asked_of_axe(
    visit: Visit, covered: set[str], in_turn: Collection[str] = ()
) -> dict[str, Any] | None:
    """Options for axe on this visit; None where it is not asked."""
    if visit.page in covered:
        return ALL
    if visit.page in in_turn:
        return ONLY_CONTRAST if visit.theme == "dark" else ALL_BUT_CONTRAST
    alike = visit.page.startswith("book/reference/") and visit.page not in SAMPLES
    return None if alike or visit.width == "desk" else ALL_BUT_CONTRAST


# On a long page axe takes minutes over what one template made hundreds of times: rows of a table, entries of a
# list. A run of `make test` asks it about a few: a part stays while it has a tag with classes that few had.
ALIKE = """most => {
  const mark = (node) => `${node.tagName} ${node.className}`;
  const seen = new Map();
  let removed = 0;
  for (const parent of document.querySelectorAll(".bd-article :is(tbody, ul, ol, dd, section)")) {
    if (!parent.isConnected) continue;
    const around = mark(parent);
    for (const child of [...parent.children]) {
      if (!child.matches("tr, li, dl, section, div, details")) continue;
      const marks = new Set([child, ...child.querySelectorAll("*")].map((node) => `${around} > ${mark(node)}`));
      const count = (one) => seen.get(one) ?? 0;
      if ([...marks].every((one) => count(one) >= most)) { child.remove(); removed += 1; continue; }
      for (const one of marks) seen.set(one, count(one) + 1);
    }
  }
  return removed;
}"""
ALIKE_AT_MOST = 4

# What the browser itself gives up, such as an icon that it asked for twice: no page lacks anything by that.
GIVEN_UP = "net::ERR_ABORTED"


def look_at(
    page: Any,
    address: str,
    visit: Visit,
    axe: Any = None,
    asked: dict[str, Any] | None = None,
    alike_at_most: int | None = None,
) -> None:
    """Open a page, wait until its mathematics stands, and note what there is to see.

    `asked` are options for `axe`; where they are None it is not asked. It is asked about `alike_at_most` parts
    of each kind, or about all.
    """
    origin = f"{urlparse(address).scheme}://{urlparse(address).netloc}"
    requests, complaints = visit.requests, visit.complaints

    def went_out(request: Any) -> None:
        if not request.url.startswith((origin, "data:", "blob:")):
            requests.append(request.url)

    def said(message: Any) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text}")

    def failed(request: Any) -> None:
        if request.failure != GIVEN_UP:
            complaints.append(f"failed: {request.url} ({request.failure})")

    page.on("request", went_out)
    page.on("console", said)
    page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
    page.on("requestfailed", failed)
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
    # A live model's drawing stands until its weights are there.
    page.wait_for_function(
        "() => !document.querySelector('.live-model > .lm-live > [role=status]:only-child')",
        timeout=20_000,
    )
    visit.facts = page.evaluate(FACTS)
    if visit.width == "desk":
        visit.facts["code"] = page.evaluate(WIDE_CODE)
    visit.requests, visit.complaints = list(visit.requests), list(visit.complaints)
    if asked is not None:  # axe asks for the style sheets again, from its own origin
        if alike_at_most is not None:
            page.evaluate(ALIKE, alike_at_most)
        options = {"resultTypes": ["violations"], **asked}
        visit.violations = axe.run(page, options=options).response["violations"]


class Visits:
    """Every page from its file, at the widths and in the themes of `LOOKS`."""

    LOOKS: ClassVar[tuple[tuple[str, str], ...]]

    def test_pages_follow_the_reader_s_theme(self, visits):
        none([f"{v}: shows {v.facts['theme']}" for v in visits if v.facts["theme"] != v.theme])

    def test_pages_from_a_folder_ask_nobody_for_anything(self, visits):
        none([f"{visit}: {address}" for visit in visits for address in visit.requests])

    def test_browser_has_nothing_to_complain_about(self, visits):
        none([f"{visit}: {what}" for visit in visits for what in visit.complaints])

    def test_nothing_is_wider_than_the_screen(self, visits):
        none(
            [
                f"{visit}: {visit.facts['overflow']} pixels too wide {visit.facts['wide']}"
                for visit in visits
                if visit.facts["overflow"] > 0 or visit.facts["wide"]
            ]
        )

    def test_code_is_no_wider_than_its_column(self, visits):
        """On a telephone it may scroll inside its box, on a desk it may not."""
        none([f"{visit}: {line}" for visit in visits for line in visit.facts.get("code", ())])

    def test_each_figure_shows_one_crisp_drawing_and_its_caption(self, visits):
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
                elif drawings and not drawings[0][2] and drawings[0][0] < 1.9 * drawings[0][1]:
                    problems.append(f"{visit}: {figure['id']} has {drawings[0][0]} pixels")
            problems += [f"{visit}: {address} is broken" for address in visit.facts["broken"]]
        none(problems)

    def test_mathematics_is_set(self, visits):
        problems = []
        for visit in visits:
            if visit.facts["wrong"]:
                problems.append(f"{visit}: {visit.facts['wrong']}")
            if visit.facts["rendered"] < visit.facts["math"]:
                problems.append(
                    f"{visit}: {visit.facts['math']} formulas, {visit.facts['rendered']} set"
                )
        none(problems)

    def test_icons_are_drawn(self, visits):
        none(
            [
                f"{visit}: {visit.facts['icons']} icons missing, {visit.facts['drawn']} drawn"
                for visit in visits
                if visit.facts["icons"] or not visit.facts["drawn"]
            ]
        )

    def test_pages_are_accessible(self, visits):
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
