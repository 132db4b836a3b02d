"""The workbench in a browser: by mouse and keyboard, in both themes, on a telephone, without scripts; from a
file, without a server."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer import Config, Decoder, Encoder
from measured_transformer.viewer.workbench import workbench

WORDS = ["the", "cat", "saw", "dogs", "and", "ran"]
HOSTILE = [
    "</script><script>document.title='broken'</script>",
    "<b>bold</b>",
    "a\nb",
    "\u0645\u0631\u062d",
]
CONFIG = Config(vocab=6, d_model=24, n_layers=2, n_heads=3, positions="rotary")
LOOKS = [(1000, "light"), (390, "dark")]
"""What a page is looked at in: contrast is a matter of the theme, room of the width, nothing of both."""


@pytest.fixture(scope="module")
def benches():
    """Of a decoder on two sentences, of hostile tokens, of an encoder that names none."""
    torch.manual_seed(0)
    return [
        workbench(
            Decoder(CONFIG), [[0, 1, 2, 3, 4, 5], [3, 3, 1]], tokens=WORDS, title="Of a decoder"
        ),
        workbench(
            Decoder(CONFIG.replace(vocab=4)), [[0, 1, 2, 3]], tokens=HOSTILE, title="Hostile <b>"
        ),
        workbench(
            Encoder(CONFIG.replace(head="none", placement="post")), [[0, 1, 2]], title="States"
        ),
    ]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory, benches):
    path = benches[0].save(tmp_path_factory.mktemp("benches") / "benches.html")
    more = "".join(each.html for each in benches[1:])
    path.write_text(path.read_text("utf-8").replace("</main>", f"{more}</main>"), "utf-8")
    return path


@pytest.fixture(scope="module")
def usual(browser):
    """A page of the usual width, in the light theme, which every test loads anew; its complaints."""
    complaints = []
    context = browser.new_context(viewport={"width": 1000, "height": 900}, color_scheme="light")
    yield watched(context, complaints), complaints
    context.close()


def watched(context, complaints):
    """A new page; whatever it asks for or complains about is written down."""

    def went(request):
        if not request.url.startswith(("file:", "data:", "blob:", "about:")):
            complaints.append(request.url)

    context.set_default_timeout(10_000)
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", went)
    return page


@pytest.fixture
def open_benches(browser, usual, page_file):
    """Open the page; whatever it asks for or complains about fails."""
    usual_page, complaints = usual
    complaints.clear()
    opened = []

    def open_page(width=1000, theme="light", scripts=True, **more):
        if (width, theme, scripts, more) == (1000, "light", True, {}):
            page = usual_page
            page.emulate_media(media="screen")
        else:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=theme,
                java_script_enabled=scripts,
                **more,
            )
            opened.append(context)
            page = watched(context, complaints)
        page.goto(page_file.as_uri())
        if scripts:
            page.wait_for_function("document.querySelectorAll('.wb-live').length === 3")
        return page

    yield open_page
    for context in opened:
        context.close()
    assert complaints == []


def first(page):
    return page.locator(".workbench").first


def status(bench):
    return bench.locator("[role=status]").text_content()


def select(bench, name):
    return bench.get_by_role("combobox", name=name, exact=True)


def token(bench, at):
    return bench.locator(".wb-strip button").nth(at)


def head(bench, layer, at):
    return bench.get_by_role("radio", name=f"Layer {layer}, head {at}:")


def tab(bench, name):
    bench.get_by_role("tab", name=name, exact=True).click()
    return bench.get_by_role("tabpanel")


def weights(bench):
    """The numbers below the tokens, None where a token is not seen."""
    found = bench.locator(".wb-strip .wb-number:not(.wb-change)").all_text_contents()
    return [None if each == "\u2013" else float(each) for each in found]


def nats(value):
    return f"{round(float(value), 2) + 0.0:+.2f}".replace("-", "\u2212")


def test_sentence_token_layer_and_head_by_mouse(open_benches, benches):
    bench, (found, other) = first(open_benches()), benches[0].examinations
    assert status(bench) == "", "nothing is announced before somebody asks"
    token(bench, 3).click()
    head(bench, 1, 2).click()
    row = found.pattern[1, 2, 3, :4]
    assert weights(bench)[4:] == [None, None]
    assert np.allclose(weights(bench)[:4], row, atol=0.008)
    assert (
        bench.locator(".wb-panel p")
        .first.text_content()
        .startswith("Layer 1, head 2 from \u201cdogs\u201d looks most at")
    )
    assert token(bench, 3).get_attribute("aria-checked") == "true"
    box = bench.locator(".wb-matrix").bounding_box()
    bench.page.mouse.click(box["x"] + 4, box["y"] + 1.5 * box["height"] / 6)
    assert token(bench, 1).get_attribute("aria-checked") == "true"
    likely = WORDS[int(found.lens_tokens[-1, 1, 0])]
    assert f"Position 1, \u201ccat\u201d: most likely \u201c{likely}\u201d" in status(bench)
    select(bench, "Sentence").select_option(label="dogs dogs cat")
    assert len(weights(bench)) == 3
    assert np.allclose(weights(bench)[:2], other.pattern[1, 2, 1, :2], atol=0.008)


def test_a_head_is_switched_off_and_its_effect_is_the_measured_one(open_benches, benches):
    bench, found = first(open_benches()), benches[0].examinations[0]
    token(bench, 2).click()
    head(bench, 0, 1).click()
    switch = bench.get_by_role("button", name="Switch off: layer 0, head 1")
    switch.click()
    assert bench.locator(".wb-switch").get_attribute("aria-pressed") == "true"
    for how, label in (("mean", "its mean"), ("zero", "zeros")):
        select(bench, "In its place").select_option(label=label)
        gone = found.without[how]
        assert status(bench).endswith(f"{nats(gone.loss[0, 1, 2])} nats.")
        shown = bench.locator(".wb-change:visible").all_text_contents()
        assert shown == [f"{nats(value)} nats" for value in gone.loss[0, 1, :5]]
        panel = tab(bench, "Without it")
        effect = f"{round(gone.effect[0, 1], 3) + 0.0:+.3f}".replace("-", "\u2212")
        assert f"a token costs {effect} nats on average" in panel.locator("p").first.text_content()
        changed = int((gone.token[0, 1] != found.lens_tokens[-1, :, 0]).sum())
        assert f"another one at {changed} of 6 positions" in panel.locator("p").first.text_content()
        assert panel.locator("tbody b").count() == changed
    bench.locator(".wb-switch").click()
    assert status(bench) == "Layer 0, head 1 is on again."
    assert bench.locator(".wb-change:visible").count() == 0


def test_the_number_on_each_head_can_be_chosen(open_benches, benches):
    bench, found = first(open_benches()), benches[0].examinations[0]
    token(bench, 1).click()
    shown = lambda: bench.locator(".wb-thumbs .wb-number").all_text_contents()  # noqa: E731
    assert shown() == [nats(v) for v in found.without["mean"].effect.ravel()]
    for value, wanted in (
        ("here", found.without["mean"].loss[..., 1]),
        ("push", found.direct_target[..., 1]),
    ):
        select(bench, "Number on each head").select_option(value)
        assert shown() == [nats(v) for v in wanted.ravel()]
    select(bench, "Number on each head").select_option("size")
    assert shown() == [f"{v:.2f}" for v in found.size[..., 1].ravel()]


def test_lens_writes_and_stream_are_told_for_the_token(open_benches, benches):
    bench, found = first(open_benches()), benches[0].examinations[0]
    token(bench, 4).click()
    rows = tab(bench, "Lens").locator("table").first.locator("tbody tr")
    assert rows.count() == 3
    for row, depth in enumerate((2, 1, 0)):
        best = WORDS[int(found.lens_tokens[depth, 4, 0])]
        cell = rows.nth(row).locator("td").first.inner_text()
        assert cell.split()[0] == best
        assert abs(float(cell.split()[-1]) - found.lens_chances[depth, 4, 0]) < 0.006
        assert ("\u2713" in cell) == (best == WORDS[5])
    cells = bench.locator(".wb-lens tbody td")
    assert cells.count() == 3 * 6
    cells.nth(1).click()
    assert token(bench, 1).get_attribute("aria-checked") == "true"
    words = tab(bench, "Writes").inner_text()
    assert f"a vector of length {found.size[0, 0, 1]:.2f}" in words
    assert f"{nats(found.direct_target[0, 0, 1])} logits" in words
    raised = [WORDS[int(t)] for t in found.direct_tokens[0, 0, 1, :3]]
    first_table = bench.locator(".wb-panel table").first
    assert first_table.locator("tbody tr td:first-child").all_text_contents() == raised
    stream = tab(bench, "Stream").locator("tbody tr")
    assert stream.count() == 1 + 3 * 2
    assert f"{found.stream[2, 1]:.2f}" in stream.last.inner_text()


def test_everything_is_reached_and_chosen_by_keyboard(open_benches, benches):
    page = open_benches()
    bench = first(page)
    focused = (
        "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
    )
    order = []
    page.keyboard.press("Tab")
    for _ in range(8):
        order.append(page.evaluate(focused))
        page.keyboard.press("Tab")
    assert [each.split(":")[0].split(",")[0] for each in order] == [
        "Sentence", "4", "Switch off", "In its place", "Number on each head", "Layer 0", "Looks at",
        "The sentences in words",
    ]  # fmt: skip
    token(bench, 4).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused).startswith("2, saw: weight")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused).startswith("0, the"), "the end of the row is the end"
    assert status(bench).startswith("Position 0")
    head(bench, 0, 0).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused).startswith("Layer 1, head 1")
    assert status(bench).startswith("Layer 1, head 1.")
    for _ in range(3):
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    assert status(bench).startswith("Without layer 1, head 1")
    bench.get_by_role("tab", name="Looks at").focus()
    page.keyboard.press("End")
    assert bench.get_by_role("tabpanel", name="Stream").is_visible()
    page.keyboard.press("Control+ArrowLeft")
    assert bench.get_by_role("tabpanel", name="Stream").is_visible(), "other keys are the browser's"


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_accessible_and_never_wider_than_the_screen(open_benches, width, theme):
    from axe_playwright_python.sync_playwright import Axe

    page = open_benches(width=width, theme=theme)
    bench = first(page)
    assert bench.locator(".wb-live").get_attribute("data-theme") == theme
    token(bench, 4).click()
    bench.locator(".wb-switch").click()
    for name in bench.get_by_role("tab").all_text_contents():
        tab(bench, name)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(v["id"], [n["target"] for n in v["nodes"]]) for v in found] == [], name
    small = page.locator(".wb-live :is(button, select)").evaluate_all(
        "nodes => nodes.filter(n => n.offsetParent && Math.min(n.offsetWidth, n.offsetHeight) < 24).length"
    )
    assert small == 0  # WCAG 2.5.8


def test_a_finger_chooses_on_a_telephone(open_benches):
    bench = first(open_benches(width=390, has_touch=True))
    token(bench, 2).tap()
    assert status(bench).startswith("Position 2")
    head(bench, 1, 0).tap()
    bench.locator(".wb-switch").tap()
    assert status(bench).startswith("Without layer 1, head 0")


def test_several_benches_keep_apart_and_hostile_tokens_are_text(open_benches):
    page = open_benches()
    _, hostile, states = page.locator(".workbench").all()
    assert page.title() == "Of a decoder"
    assert hostile.locator(".wb-live").get_attribute("aria-label") == "Hostile <b>"
    for name in hostile.get_by_role("tab").all_text_contents():
        tab(hostile, name)
        assert hostile.locator(".wb-live bdi *").count() == 0
    assert hostile.locator(".wb-strip bdi").all_text_contents() == [
        *HOSTILE[:2],
        "a\u21b5b",
        HOSTILE[3],
    ]
    names = states.get_by_role("tab").all_text_contents()
    assert names == ["Looks at", "Writes", "Without it", "Stream"], (
        "no lens where no token is named"
    )
    assert "of their length" in tab(states, "Without it").inner_text()
    assert status(first(page)) == ""
    ids = page.evaluate("[...document.querySelectorAll('.wb-live [id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))


def test_without_scripts_and_on_paper_the_drawing_and_the_words_stay(open_benches):
    bench = first(open_benches(scripts=False))
    assert bench.locator(".wb-static img").is_visible()
    assert bench.locator(".wb-live").count() == 0
    bench.locator("summary").click()
    assert bench.locator(".wb-words li").last.is_visible()
    page = open_benches()
    assert not first(page).locator(".wb-static img").is_visible()
    page.emulate_media(media="print")
    assert first(page).locator(".wb-static img").is_visible()
    assert not first(page).locator(".wb-live").is_visible()


def test_nothing_moves_for_those_who_want_no_motion(open_benches):
    duration = "getComputedStyle(document.querySelector('.wb-bar'), '::before').transitionDuration"
    assert open_benches().evaluate(duration) != "0s"
    assert open_benches(reduced_motion="reduce").evaluate(duration) == "0s"


def test_a_browser_that_cannot_unpack_it_shows_the_drawing(browser, page_file):
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(page_file.as_uri())
    bench = first(page)
    bench.get_by_text("cannot unpack the workbench").wait_for()
    assert bench.locator(".wb-static img").is_visible()
    context.close()


def test_an_output_that_a_notebook_inserts_later_begins_too(open_benches):
    """JupyterLab sets the HTML and then makes each script anew; a saved page has old controls in it."""
    page = open_benches()
    page.evaluate(
        """() => {
          const output = document.createElement("div");
          output.id = "output";
          output.innerHTML = document.querySelector(".workbench").outerHTML;
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
    late.locator(".wb-live").wait_for()
    head(late, 1, 1).click()
    assert status(late).startswith("Layer 1, head 1.")
    assert page.locator(".wb-live").count() == 4
