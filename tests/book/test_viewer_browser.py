"""The viewer for attention in a browser: by mouse and keyboard, in both themes, on a telephone, without
scripts; from a file, without a server."""

from __future__ import annotations

import re

import numpy as np
import pytest
from measured_transformer.viewer.attention import attention_viewer

WORDS = ["the", "cat", "saw", "the", "dog", "."]
LONG = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
HOSTILE = [
    "</script><script>document.title='broken'</script>",
    "<b>bold</b>",
    '"it\'s" &amp;',
    "a\nb",
    "\u0645\u0631\u062d",
]


def softmax(scores):
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def causal(n, seed=0, layers=2, heads=3):
    scores = np.random.default_rng(seed).normal(scale=2, size=(layers, heads, n, n))
    return softmax(np.where(np.tri(n, dtype=bool), scores, -np.inf))


EXAMPLES = [causal(6), causal(8, seed=1)]
HOSTILE_WEIGHTS = softmax(np.random.default_rng(2).normal(size=(1, 2, 5, 5)))
CROSS = softmax(np.random.default_rng(3).normal(size=(1, 1, 4, 3, 7)))


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """A page with three viewers: of two examples, of hostile tokens, of cross-attention."""
    folder = tmp_path_factory.mktemp("viewers")
    path = attention_viewer(
        EXAMPLES, [WORDS, LONG], labels=["short", "long"], title="Of a decoder"
    ).save(folder / "viewers.html")
    more = attention_viewer(HOSTILE_WEIGHTS, HOSTILE, title="Hostile <b>").html
    more += attention_viewer(
        CROSS, list("abc"), key_tokens=list("tuvwxyz"), compare=(0, 2), title="Cross"
    ).html
    path.write_text(path.read_text("utf-8").replace("</main>", f"{more}</main>"), "utf-8")
    return path


@pytest.fixture
def open_viewers(browser, page_file):
    """Open the page; whatever it asks for or complains about fails."""
    opened, complaints = [], []

    def said(message):
        if "getImageData" not in message.text:  # a hint for tests that read pixels
            complaints.append(message.text)

    def open_page(width=1000, theme="light", **more):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, **more
        )
        opened.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", said)
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:"))
                else complaints.append(request.url)
            ),
        )
        page.goto(page_file.as_uri())
        return page

    yield open_page
    for context in opened:
        context.close()
    assert complaints == []


def first(page):
    return page.locator(".attention-viewer").first


def status(viewer):
    return viewer.locator("[role=status]").text_content()


def select(viewer, name):
    return viewer.get_by_role("combobox", name=name, exact=True)


def point(viewer, query, key, panel=".av-one"):
    """Where a cell lies on the screen."""
    viewer.locator(f"{panel} canvas").scroll_into_view_if_needed()
    box = viewer.locator(f"{panel} canvas").bounding_box()
    grid = viewer.locator(".av-one [role=grid]")
    rows, columns = (int(grid.get_attribute(f"aria-{side}count")) for side in ("row", "col"))
    return box["x"] + (key + 0.5) * box["width"] / columns, box["y"] + (query + 0.5) * box[
        "height"
    ] / rows


def numbers(viewer):
    """The numbers in the list of tokens, masked ones as None."""
    items = viewer.locator(".av-tokens li").all()
    found = [item.locator(".av-number").all_text_contents() for item in items]
    return [
        [None if each == "masked" else float(each.replace("\u2212", "-")) for each in row]
        for row in found
    ]


def rounded(row, masked=()):
    return [[None] if k in masked else [round(float(value), 3)] for k, value in enumerate(row)]


def test_example_layer_and_head_by_mouse(open_viewers):
    viewer = first(open_viewers())
    assert status(viewer) == "", "nothing is announced before somebody asks"
    assert numbers(viewer) == rounded(EXAMPLES[0][0, 0, 5])
    select(viewer, "Layer").select_option(label="1")
    select(viewer, "Head").select_option(label="2")
    assert numbers(viewer) == rounded(EXAMPLES[0][1, 2, 5])
    assert viewer.locator(".av-about").text_content().startswith("Layer 1, head 2. ")
    viewer.get_by_role("radio", name="Layer 0, head 1").click()
    assert select(viewer, "Layer").input_value() == "0"
    assert select(viewer, "Head").input_value() == "1"
    select(viewer, "Example").select_option(label="long")
    assert numbers(viewer) == rounded(EXAMPLES[1][0, 1, 7])
    sentence = viewer.locator(".av-words ul").nth(1).locator("li").nth(1).text_content()
    assert viewer.locator(".av-about").text_content() == sentence
    select(viewer, "Query").select_option(label="2 three")
    assert numbers(viewer) == rounded(EXAMPLES[1][0, 1, 2], masked=range(3, 8))
    assert viewer.locator(".av-tokens li bdi").all_text_contents() == LONG


def test_pointing_shows_a_cell_and_a_click_keeps_it(open_viewers):
    page = open_viewers()
    viewer = first(page)
    readout = viewer.locator(".av-readout")
    before = readout.text_content()
    page.mouse.move(*point(viewer, 3, 1))
    assert (
        readout.text_content()
        == f"From \u201cthe\u201d (3) to \u201ccat\u201d (1): {EXAMPLES[0][0, 0, 3, 1]:.3f}"
    )
    assert numbers(viewer) == rounded(EXAMPLES[0][0, 0, 3], masked=(4, 5))
    assert status(viewer) == "", "a moving mouse is not announced"
    page.mouse.move(0, 0)
    assert readout.text_content() == before
    page.mouse.click(*point(viewer, 4, 2))
    page.mouse.move(0, 0)
    assert f"{EXAMPLES[0][0, 0, 4, 2]:.3f}" in readout.text_content()
    assert status(viewer).endswith(f"to saw, position 2: {EXAMPLES[0][0, 0, 4, 2]:.3f}")
    viewer.locator(".av-tokens li").nth(1).click()
    assert status(viewer).endswith(f"to cat, position 1: {EXAMPLES[0][0, 0, 4, 1]:.3f}")


def test_a_finger_chooses_a_cell(open_viewers):
    page = open_viewers(width=390, has_touch=True)
    viewer = first(page)
    page.touchscreen.tap(*point(viewer, 5, 3))
    assert status(viewer).endswith(f"to the, position 3: {EXAMPLES[0][0, 0, 5, 3]:.3f}")


def test_all_by_keyboard(open_viewers):
    page = open_viewers()
    viewer = first(page)
    select(viewer, "Example").focus()
    reached = []
    for _ in range(8):
        reached.append(
            page.evaluate(
                "document.activeElement.getAttribute('role') || document.activeElement.tagName"
            )
        )
        page.keyboard.press("Tab")
    assert reached == ["SELECT"] * 4 + ["radio", "gridcell", "SELECT", "SUMMARY"]
    viewer.locator("[role=radio][aria-checked=true]").focus()
    for key, name in [
        ("ArrowRight", "0 1"),
        ("ArrowDown", "1 1"),
        ("End", "1 2"),
        ("ArrowLeft", "1 1"),
        ("ArrowUp", "0 1"),
    ]:
        page.keyboard.press(key)
        layer, head = name.split()
        chosen = viewer.locator("[role=radio][aria-checked=true]")
        assert chosen.get_attribute("aria-label") == f"Layer {layer}, head {head}"
        assert chosen.evaluate("node => node === document.activeElement && node.tabIndex === 0")
        assert status(viewer).startswith(f"Layer {layer}, head {head}.")
    viewer.locator("[role=gridcell]").focus()
    shown = EXAMPLES[0][0, 1]
    page.keyboard.press("Control+Home")
    query = key = 0
    for press, down, right in [
        ("ArrowDown", 1, 0), ("ArrowDown", 1, 0), ("ArrowRight", 0, 1), ("Home", 0, -9), ("End", 0, 9),
        ("ArrowRight", 0, 1), ("ArrowUp", -1, 0), ("ArrowLeft", 0, -1), ("Control+End", 9, 9),
        ("ArrowDown", 1, 0),
    ]:  # fmt: skip
        page.keyboard.press(press)
        query, key = min(max(query + down, 0), 5), min(max(key + right, 0), 5)
        value = (
            "masked, this query may not look there" if key > query else f"{shown[query, key]:.3f}"
        )
        expected = (
            f"From {WORDS[query]}, position {query}, to {WORDS[key]}, position {key}: {value}"
        )
        assert status(viewer) == expected
        cell = viewer.locator("[role=gridcell]")
        assert cell.get_attribute("aria-label") == expected
        assert cell.get_attribute("aria-colindex") == str(key + 1)
        assert viewer.locator("[role=row]").get_attribute("aria-rowindex") == str(query + 1)
        assert cell.evaluate("node => node === document.activeElement")
    assert page.evaluate("scrollX") == 0


def test_two_heads_side_by_side(open_viewers):
    page = open_viewers()
    viewer = first(page)
    assert not viewer.locator(".av-two").is_visible()
    select(viewer, "Compare with").select_option(label="Layer 1, head 0")
    one, two = EXAMPLES[0][0, 0].round(3), EXAMPLES[0][1, 0].round(3)
    boxes = [
        viewer.locator(f"{panel} canvas").bounding_box()
        for panel in (".av-one", ".av-two", ".av-three")
    ]
    assert boxes[0]["y"] == boxes[1]["y"] == boxes[2]["y"], "beside one another where there is room"
    expected = [
        [a, b, round(a - b, 3)] for a, b in zip(one[5].tolist(), two[5].tolist(), strict=True)
    ]
    assert numbers(viewer) == expected
    page.mouse.move(*point(viewer, 4, 3, ".av-three"))
    said = viewer.locator(".av-readout").text_content()
    found = [
        float(each.replace("\u2212", "-")) for each in re.findall(r"[+\u2212]?\d\.\d{3}", said)
    ]
    assert found == [one[4, 3], two[4, 3], round(one[4, 3] - two[4, 3], 3)]
    assert viewer.locator(".av-about > span").count() == 2
    assert "difference" in viewer.locator(".av-scale").inner_text()
    assert viewer.locator(".av-other").get_attribute("aria-label") == "Layer 1, head 0"
    select(viewer, "Compare with").select_option(label="no other head")
    assert not viewer.locator(".av-three").is_visible()
    assert viewer.locator(".av-scale").inner_text().split() == [
        "weight",
        "0",
        "1",
        "empty:",
        "masked",
    ]


PIXEL = """([selector, x, y]) => {
  const canvas = document.querySelector(selector);
  const data = canvas.getContext("2d").getImageData(x * canvas.width, y * canvas.height, 1, 1).data;
  return [...data];
}"""


def test_shade_grows_with_the_weight_and_what_is_masked_is_empty(open_viewers):
    for theme, sign in (("light", -1), ("dark", 1)):
        page = open_viewers(theme=theme)
        at = lambda q, k: page.evaluate(PIXEL, [".av-one canvas", (k + 0.2) / 6, (q + 0.2) / 6])  # noqa: E731, B023
        row = EXAMPLES[0][0, 0, 5]
        shades = [sum(at(5, k)[:3]) for k in np.argsort(row)]
        assert [sign * shade for shade in shades] == sorted(sign * shade for shade in shades)
        assert len(set(shades)) > 3
        assert at(0, 3)[3] == 0
        assert at(3, 0)[3] == 255


def contrast(page, selector):
    """Contrast of an element's text with the viewer's ground."""
    colours = page.evaluate(
        """selector => [getComputedStyle(document.querySelector(selector)).color,
        getComputedStyle(document.querySelector(".av-live")).backgroundColor]""",
        selector,
    )
    levels = []
    for colour in colours:
        channels = np.array([float(each) for each in re.findall(r"\d+", colour)[:3]]) / 255
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        levels.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(levels) + 0.05) / (min(levels) + 0.05)


def test_the_theme_is_that_of_the_page_else_the_reader_s(open_viewers):
    page = open_viewers(theme="dark")
    look = "document.querySelector('.av-live').dataset.theme"
    assert page.evaluate(look) == "dark"
    for text in (".av-title", ".av-number", ".av-help", ".av-names span", ".av-live label span"):
        assert contrast(page, text) >= 4.5, text
    dark = page.evaluate(PIXEL, [".av-one canvas", 0.02, 0.98])
    page.evaluate("document.documentElement.dataset.theme = 'light'")  # this book
    page.wait_for_function(f"{look} === 'light'")
    assert page.evaluate(PIXEL, [".av-one canvas", 0.02, 0.98]) != dark
    for text in (".av-title", ".av-number", ".av-help", ".av-names span", ".av-live label span"):
        assert contrast(page, text) >= 4.5, text
    page.evaluate("delete document.documentElement.dataset.theme")
    page.wait_for_function(f"{look} === 'dark'")
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")  # JupyterLab
    page.wait_for_function(f"{look} === 'light'")
    page.evaluate(
        "delete document.body.dataset.jpThemeLight; document.documentElement.setAttribute('theme', 'dark')"
    )
    page.wait_for_function(f"{look} === 'dark'")  # Colab
    page.evaluate("document.documentElement.removeAttribute('theme')")
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"{look} === 'light'")


@pytest.mark.parametrize("width", [390, 1000])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_too_wide_and_all_is_accessible(open_viewers, width, theme):
    from axe_playwright_python.sync_playwright import Axe

    page = open_viewers(width=width, theme=theme)
    select(first(page), "Example").select_option(label="long")
    select(first(page), "Compare with").select_option(label="Layer 1, head 0")
    page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.eval_on_selector_all(
        ".av-live *",
        "nodes => nodes.filter(n => n.getBoundingClientRect().right > innerWidth).length",
    )
    assert wide == 0
    small = page.locator(":is(select, .av-thumbs button):visible").evaluate_all(
        "nodes => nodes.filter(n => Math.min(n.offsetWidth, n.offsetHeight) < 24).length"
    )
    assert small == 0  # WCAG 2.5.8
    found = [
        (v["id"], [n["target"] for n in v["nodes"]]) for v in Axe().run(page).response["violations"]
    ]
    assert found == []


def test_a_wider_window_gives_the_matrix_more_room(open_viewers):
    page = open_viewers(width=390)
    side = lambda: first(page).locator(".av-one canvas").bounding_box()["width"]  # noqa: E731
    select(first(page), "Example").select_option(label="long")
    narrow = side()
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_function(f"document.querySelector('.av-one canvas').offsetWidth > {narrow}")


def test_several_viewers_keep_apart_and_hostile_tokens_are_text(open_viewers):
    page = open_viewers()
    viewers = page.locator(".attention-viewer")
    assert page.locator(".av-live").count() == viewers.count() == 3
    assert page.title() == "Of a decoder"
    hostile, cross = viewers.nth(1), viewers.nth(2)
    hostile.get_by_role("radio", name="Layer 0, head 1").click()
    assert numbers(hostile) == rounded(HOSTILE_WEIGHTS[0, 1, 4])
    assert numbers(first(page)) == rounded(EXAMPLES[0][0, 0, 5])
    shown = hostile.locator(".av-tokens li bdi").all_text_contents()
    assert shown == [*HOSTILE[:3], "a\u21b5b", HOSTILE[4]]
    assert hostile.locator(".av-live bdi *").count() == 0
    page.mouse.click(*point(hostile, 1, 0))
    assert HOSTILE[0] in status(hostile)
    assert hostile.locator(".av-live").get_attribute("aria-label") == "Hostile <b>"
    assert cross.locator(".av-tokens li bdi").all_text_contents() == list("tuvwxyz")
    assert [row[0] for row in numbers(cross)] == CROSS[0, 0, 0, 2].round(3).tolist()
    assert not select(cross, "Layer").is_visible()
    assert "masked" not in cross.locator(".av-scale").inner_text()


def test_without_scripts_the_drawing_and_the_words_stay(open_viewers):
    page = open_viewers(java_script_enabled=False)
    viewer = first(page)
    assert viewer.locator(".av-static img").is_visible()
    assert viewer.locator(".av-live").count() == 0
    viewer.locator("summary").click()
    assert viewer.locator(".av-words li").count() == 2 * 2 * 3
    assert viewer.locator(".av-words li").last.is_visible()


def test_paper_has_the_drawing(open_viewers):
    page = open_viewers()
    viewer = first(page)
    assert not viewer.locator(".av-static img").is_visible()
    page.emulate_media(media="print")
    assert viewer.locator(".av-static img").is_visible()
    assert not viewer.locator(".av-live").is_visible()


def test_nothing_moves_for_those_who_want_no_motion(open_viewers):
    duration = "getComputedStyle(document.querySelector('.av-bar'), '::before').transitionDuration"
    assert open_viewers().evaluate(duration) != "0s"
    assert open_viewers(reduced_motion="reduce").evaluate(duration) == "0s"


def test_an_output_that_a_notebook_inserts_later_begins_too(open_viewers, page_file):
    """JupyterLab sets the HTML and then makes each script anew; a saved page has old controls in it."""
    page = open_viewers()
    page.evaluate(
        """() => {
          const saved = document.querySelector(".attention-viewer").outerHTML;
          const output = document.createElement("div");
          output.id = "output";
          output.innerHTML = saved;
          for (const old of output.querySelectorAll("script")) {
            const script = document.createElement("script");
            for (const { name, value } of old.attributes) script.setAttribute(name, value);
            script.textContent = old.textContent;
            old.replaceWith(script);
          }
          document.body.append(output);
        }"""
    )
    late = page.locator("#output")
    assert late.locator(".av-live").count() == 1
    late.get_by_role("radio", name="Layer 1, head 1").click()
    assert numbers(late) == rounded(EXAMPLES[0][1, 1, 5])
    assert page.locator(".av-live").count() == 4
