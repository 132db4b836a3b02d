"""The Scorecard in a browser: its filters by mouse and by keyboard, on a desk and on a telephone."""

from __future__ import annotations

import csv
import re

import pytest

SCORECARD = "book/scorecard.html"
MEASURED = "confirmed,refuted,does-not-carry-over,misprint,conditional,not-reproduced," + (
    "underspecified,inconclusive,fact"
)


@pytest.fixture(scope="session")
def rows(built):
    """The rows as the file beside the page has them."""
    with (built / "book/scorecard.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    # Our own checks of a source's subject are counted apart from what the source says.
    return [{**row, "source": "ours"} if row["our_check"] else row for row in found]


# What a page is like when it is opened: nothing unfolded or chosen, from its beginning; then on to a fragment.
AS_OPENED = """async (fragment) => {
  const goTo = (hash) => new Promise((done) => {
    if (location.hash === hash) return done();
    addEventListener("hashchange", () => setTimeout(done), { once: true });
    location.hash = hash;
  });
  for (const details of document.querySelectorAll(".bd-article details")) details.open = false;
  document.activeElement?.blur();
  await goTo("");
  scrollTo({ top: 0, behavior: "instant" });
  await goTo(fragment);
}"""


@pytest.fixture(scope="module")
def contexts(browser):
    """Contexts of this module's pages, closed in the end."""
    opened = []
    yield lambda **settings: opened.append(browser.new_context(**settings)) or opened[-1]
    for context in opened:
        context.close()


@pytest.fixture(scope="module")
def at_a_desk(contexts):
    """One page on which the Scorecard is opened once: it takes seconds."""
    return contexts(viewport={"width": 1280, "height": 844}, color_scheme="light").new_page()


@pytest.fixture
def open_at(built, contexts, at_a_desk):
    """Show the Scorecard at a fragment; complaints of the page fail.

    The page of a desk is one for all, and goes to the fragment as to any other part of it. Where `anew` is
    true, and for all other settings, the page is loaded.
    """
    complaints, watched = [], []

    def watch(page):
        def said(error):
            complaints.append(str(error))

        page.on("pageerror", said)
        watched.append((page, said))

    def open_page(fragment="", width=1280, theme="light", *, anew=False, **more):
        address = (built / SCORECARD).as_uri()
        if anew or more or (width, theme) != (1280, "light"):
            screen = {"width": width, "height": 844}
            page = contexts(viewport=screen, color_scheme=theme, **more).new_page()
            watch(page)
            page.goto(address + fragment)
            return page
        page = at_a_desk
        watch(page)
        if page.url.partition("#")[0] != address:
            page.goto(address)
        page.emulate_media(media="screen")
        page.evaluate(AS_OPENED, fragment)
        return page

    yield open_page
    for page, said in watched:
        page.remove_listener("pageerror", said)
    assert complaints == []


def shown(page):
    """Ids of the rows that can be seen, from above."""
    return page.eval_on_selector_all(
        "table.scorecard tbody tr",
        "rows => rows.filter(row => row.getClientRects().length).map(row => row.id)",
    )


def found(page):
    return page.locator(".score-found").inner_text()


def ids(rows, **wanted):
    return [row["id"] for row in rows if all(row[key] == value for key, value in wanted.items())]


def fragment(page):
    return page.evaluate("location.hash")


def test_all_rows_are_there_and_counted(open_at, rows):
    page = open_at()
    assert shown(page) == [row["id"] for row in rows]
    assert found(page) == f"{len(rows)} claims"
    assert page.locator(".score-found").get_attribute("role") == "status"
    assert not page.locator(".score-empty").is_visible()


def test_filters_by_mouse(open_at, rows):
    page = open_at()
    page.locator("label.verdict", has_text="refuted").click()
    assert shown(page) == ids(rows, verdict="refuted")
    page.locator("select[name=source]").select_option("CS")
    assert shown(page) == ids(rows, verdict="refuted", source="CS")
    page.locator("label.verdict", has_text="conditional").click()
    both = [
        row["id"]
        for row in rows
        if row["verdict"] in ("refuted", "conditional") and row["source"] == "CS"
    ]
    assert shown(page) == both
    assert found(page) == f"{len(both)} of {len(rows)} claims"
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function("!location.hash")
    assert len(shown(page)) == len(rows)
    assert page.locator("input[name=verdict]:checked").count() == 0


def test_filters_by_keyboard(open_at, rows):
    """Tab reaches each control in the order of the page; Space and the arrow keys change it."""
    page = open_at()
    page.locator("input[name=verdict]").first.focus()
    page.keyboard.press("Space")
    first = page.locator("input[name=verdict]").first.get_attribute("value")
    assert shown(page) == ids(rows, verdict=first)
    reached = []
    while not reached or reached[-1] != "BUTTON":
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.name")
        reached.append(name or page.evaluate("document.activeElement.tagName"))
        if name == "source":
            page.keyboard.press("ArrowDown")
            source = page.evaluate("document.activeElement.value")
            assert shown(page) == ids(rows, verdict=first, source=source)
        if name == "words":
            page.keyboard.type("zzz")
            assert shown(page) == []
            page.keyboard.press("Enter")
            assert "words=zzz" in fragment(page)
            assert page.evaluate("location.search") == "", "Enter sends nothing anywhere"
    boxes = page.locator("input[name=verdict]").count()
    rest = ["source", "chapter", "surprise", "size", "again", "words", "order", "BUTTON"]
    assert reached == ["verdict"] * (boxes - 1) + rest
    page.keyboard.press("Enter")
    page.wait_for_function("!location.hash")
    assert len(shown(page)) == len(rows)


def test_details_open_by_keyboard(open_at):
    page = open_at()
    details = page.locator("table.scorecard details").first
    assert not details.locator("dl").is_visible()
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    assert details.locator("dl").is_visible()


def test_the_focus_can_be_seen(open_at):
    page = open_at()
    page.locator("input[name=words]").focus()
    page.keyboard.press("Shift+Tab")
    for selector in ("select[name=again]", "label.verdict:has(:focus-visible)"):
        if selector.startswith("label"):
            for _ in ("size", "surprise", "chapter", "source", "verdict"):
                page.keyboard.press("Shift+Tab")
        style = page.locator(selector).evaluate(
            "node => getComputedStyle(node).outlineStyle + getComputedStyle(node).boxShadow"
        )
        assert style != "nonenone", selector


def test_a_filtered_view_has_an_address(open_at, rows):
    page = open_at()
    page.locator("label.verdict", has_text="refuted").click()
    page.locator("select[name=source]").select_option("CS")
    assert fragment(page) == "#source=CS&verdict=refuted"
    chapter = page.locator("select[name=chapter] option").nth(1).get_attribute("value")
    page.locator("select[name=chapter]").select_option(chapter)
    page.locator("input[name=words]").fill("smooth & near, 100 %")
    address = fragment(page)
    again = open_at(address, anew=True)
    assert again.locator("input[name=words]").input_value() == "smooth & near, 100 %"
    assert again.locator("select[name=chapter]").input_value() == chapter
    assert shown(again) == shown(page)
    assert fragment(again) == address
    several = open_at(f"#verdict={MEASURED}")
    assert shown(several) == [row["id"] for row in rows if row["verdict"] != "planned"]


def test_what_the_address_says_is_read_again_when_it_changes(open_at, rows):
    page = open_at("#verdict=refuted")
    page.locator("table.score-sources a[href='#source=EX']").click()
    assert shown(page) == ids(rows, source="EX")
    page.go_back()
    page.wait_for_function("location.hash === '#verdict=refuted'")
    assert shown(page) == ids(rows, verdict="refuted")


def test_an_address_that_names_nothing_known_filters_nothing(open_at, rows):
    page = open_at("#source=XX&verdict=wrong&chapter=none&order=odd")
    assert len(shown(page)) == len(rows)


def test_words_are_found_in_any_order_and_case(open_at):
    page = open_at()
    page.locator("input[name=words]").fill("SOFTMAX   attention")
    some = shown(page)
    assert some
    for claim in some:
        text = page.locator(f"[id='{claim}']").text_content().lower()
        assert "softmax" in text
        assert "attention" in text
    page.locator("input[name=words]").fill("attention softmax")
    assert shown(page) == some


def test_counts_of_a_filter_say_what_choosing_it_would_leave(open_at, rows):
    page = open_at("#source=CS&verdict=refuted")
    for verdict in ("refuted", "conditional"):
        label = page.locator("label.verdict", has_text=verdict)
        count = int(re.search(r"\d+", label.inner_text())[0])
        assert count == len(ids(rows, source="CS", verdict=verdict))
    other = page.locator("select[name=source] option[value=DD]").text_content()
    assert other.endswith(f"({len(ids(rows, source='DD', verdict='refuted'))})")


def test_rows_are_filtered_and_sorted_by_surprise(open_at, rows):
    """Alone, with another filter, and from the address; the sharpest contradiction comes first."""
    page = open_at()
    page.locator("select[name=surprise]").select_option("against")
    assert shown(page) == ids(rows, verdict="refuted")
    page.locator("select[name=source]").select_option("DA")
    page.locator("select[name=order]").select_option("surprise")
    assert sorted(shown(page)) == sorted(ids(rows, verdict="refuted", source="DA"))
    ranks = page.eval_on_selector_all(
        "table.scorecard tbody tr:not([hidden])", "rows => rows.map(row => +row.dataset.rank)"
    )
    assert ranks == sorted(ranks, reverse=True)
    assert fragment(page) == "#source=DA&surprise=against&order=surprise"
    assert shown(open_at(fragment(page), anew=True)) == shown(page)


def test_rows_without_an_effect_come_last_when_sorted_by_it(open_at):
    page = open_at("#order=effect")
    effects = page.eval_on_selector_all(
        "table.scorecard tbody tr", "rows => rows.map(row => row.dataset.effect)"
    )
    known = [float(effect) for effect in effects if effect]
    assert known == sorted(known, reverse=True)
    assert effects[: len(known)] == [effect for effect in effects if effect]


def test_a_second_set_of_seeds_is_a_filter(open_at):
    page = open_at("#again=same")
    assert shown(page), "verdicts of a second set of seeds are kept"
    for claim in shown(page):
        assert "give the same verdict" in page.locator(f"[id='{claim}']").text_content()


def data(page, name):
    """What the rows that can be seen have in their data, from above."""
    return page.eval_on_selector_all(
        "table.scorecard tbody tr:not([hidden])",
        "(rows, name) => rows.map(row => row.dataset[name])",
        name,
    )


def test_the_size_of_an_effect_is_a_filter(open_at, rows):
    """Each choice shows the rows with such an effect; together they are all."""
    together = []
    bounds = {"large": (10, float("inf")), "small": (1, 10), "zero": (0, 1)}
    for size in ("large", "small", "zero", "none"):
        page = open_at(f"#size={size}")
        assert shown(page), size
        together += shown(page)
        effects = data(page, "effect")
        if size == "none":
            assert set(effects) == {""}
        else:
            low, high = bounds[size]
            assert all(low <= float(effect) <= high for effect in effects)
    assert sorted(together) == sorted(row["id"] for row in rows)
    page = open_at()
    page.get_by_role("combobox", name="Effect", exact=True).select_option("large")
    assert set(data(page, "size")) == {"large"}
    assert fragment(page) == "#size=large"


def test_rows_are_sorted_by_what_other_seeds_do(open_at):
    page = open_at()
    page.get_by_role("combobox", name="Order", exact=True).select_option("again")
    assert fragment(page) == "#order=again"
    found = data(page, "again")
    assert found == sorted(found, key=("other", "open", "same", "none").index)
    assert found[0] != "none", "verdicts of a second set of seeds are kept"
    assert found[-1] == "none", "not all claims were measured again"


def test_nothing_found_is_said(open_at):
    page = open_at("#words=qqqqqq")
    assert page.locator(".score-empty").is_visible()
    assert not page.locator("table.scorecard").is_visible()
    assert found(page).startswith("0 of ")
    page.get_by_role("button", name="Clear").click()
    page.locator("table.scorecard").wait_for(state="visible", timeout=5_000)
    assert not page.locator(".score-empty").is_visible()


def test_rows_can_be_ordered(open_at, rows):
    page = open_at("#order=verdict")
    verdicts = page.eval_on_selector_all(
        "table.scorecard tbody tr", "rows => rows.map(row => row.dataset.verdict)"
    )
    seen = list(dict.fromkeys(verdicts))
    assert verdicts == sorted(verdicts, key=seen.index), "each verdict in one stretch"
    assert seen[0] == "confirmed"
    assert seen[-1] == "fact", "no claim is planned any more"
    page.locator("select[name=order]").select_option("")
    assert shown(page) == [row["id"] for row in rows]


def test_a_claim_has_an_address_that_no_filter_hides(open_at, rows):
    last = [row["id"] for row in rows if row["verdict"] != "refuted"][-1]
    page = open_at(f"#{last}")
    in_view = """id => {
      const box = document.getElementById(id).getBoundingClientRect();
      return box.height > 0 && box.top >= 0 && box.top < innerHeight;
    }"""
    assert page.evaluate(in_view, last)
    page.locator("label.verdict", has_text="refuted").click()
    assert last not in shown(page)
    page.evaluate("id => { location.hash = id; }", last)
    page.wait_for_function(f"({in_view})('{last}')")
    assert len(shown(page)) == len(rows)
    assert fragment(page) == f"#{last}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_filtered_on_a_telephone_nothing_is_too_wide_and_all_is_accessible(open_at, theme):
    """Each row is a card of its own there, with every column in it."""
    from axe_playwright_python.sync_playwright import Axe

    page = open_at("#source=CS&verdict=refuted,conditional", width=390, theme=theme)
    page.eval_on_selector_all("table.scorecard details", "all => all.forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for claim in shown(page):
        cells = page.locator(f"[id='{claim}'] > td")
        boxes = cells.evaluate_all("all => all.map(cell => cell.getBoundingClientRect().toJSON())")
        assert len(boxes) == 2
        assert all(box["left"] >= 0 and box["right"] <= 390 and box["height"] for box in boxes)
        assert boxes[0]["bottom"] <= boxes[1]["top"] + 1, "below one another"
    # What is filtered out is nowhere on the page; axe would go through all of it.
    page.eval_on_selector_all(
        "table.scorecard tr[hidden]", "rows => rows.forEach(row => row.remove())"
    )
    violations = Axe().run(page).response["violations"]
    inside = [
        (violation["id"], node["target"])
        for violation in violations
        for node in violation["nodes"]
        if violation["id"] not in ("region", "label-content-name-mismatch")
    ]
    assert inside == []


def test_controls_are_large_enough_for_a_finger(open_at):
    page = open_at(width=390)
    heights = page.locator(
        "form.score-filter :is(label.verdict, select, input[type=search], button)"
    ).evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().height)")
    assert min(heights) >= 24, heights  # WCAG 2.5.8


def test_without_scripts_the_page_is_complete(open_at, rows):
    page = open_at(java_script_enabled=False)
    assert not page.locator("form.score-filter").is_visible()
    assert page.locator("table.scorecard tbody tr").count() == len(rows)
    for claim in (rows[0]["id"], rows[-1]["id"]):
        assert page.locator(f"[id='{claim}']").is_visible()
    details = page.locator("table.scorecard details").first
    details.locator("summary").click()
    assert details.locator("dl").is_visible()


def test_links_from_other_pages_arrive_at_the_filtered_rows(built, browser, rows):
    page = browser.new_page()
    page.goto((built / "book/index.html").as_uri())
    page.locator("ul.score-counts a", has_text="refuted").click()
    page.wait_for_selector("form.score-filter:not([hidden])")
    assert shown(page) == ids(rows, verdict="refuted")
    page.goto((built / "book/sources/dissecting.html").as_uri())
    page.locator(".score-total a").click()
    page.wait_for_selector("form.score-filter:not([hidden])")
    assert shown(page) == ids(rows, source="DA")
    page.close()


def test_paper_shows_the_rows_that_were_chosen(open_at):
    page = open_at("#verdict=refuted")
    chosen = shown(page)
    page.emulate_media(media="print")
    assert shown(page) == chosen
    assert not page.locator("form.score-filter").is_visible()
    assert not page.locator("table.scorecard .score-said dl:visible").count(), "unless unfolded"
    page.evaluate("location.hash = 'verdict=conditional'")
    page.wait_for_function("document.querySelector('.score-filter [value=conditional]').checked")
    folded = page.locator("table.scorecard tr:not([hidden]) .score-came details li")
    assert folded.count(), "no conditional claim has many parts"
    assert folded.first.is_visible(), "paper cannot be unfolded"
