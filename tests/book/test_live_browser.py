"""A live model in a browser: typing, experiments, keyboard, themes, a telephone, bad input; from a file."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest
import torch
from bookpress.sphinx.live import moved
from measured_transformer import Config, Decoder
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.analysis.lens import TunedLens
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.internals.capture import capture
from measured_transformer.tasks.byte_pairs import encode, learn_merges
from measured_transformer.tasks.task import Batch
from measured_transformer.viewer.live import live, live_choice

WORDS = ["the", "cat", "saw", "dogs", "and", "<b>ran</b>"]
CONFIG = Config(vocab=6, d_model=24, n_layers=2, n_heads=3, positions="rotary")
LOOKS = [(1000, "light"), (360, "dark")]
"""What a page is looked at in: contrast is a matter of the theme, room of the width, nothing of both."""


def model_of(config):
    torch.manual_seed(0)
    model = Decoder(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2.0)  # sure of itself, so that changes show
    return model


@pytest.fixture(scope="module")
def shown():
    """A model of words, and one of bytes, which borrows the other's drawing."""
    of_words = live(
        model_of(CONFIG), ["the cat saw dogs and", "dogs saw"], tokens=WORDS, title="Of words"
    )
    byte_config = CONFIG.replace(vocab=256, positions="learned", max_length=80)
    of_bytes = live(model_of(byte_config), ["a cat, a cat", "zz"], title="Of bytes")
    vars(of_bytes)["static"] = of_words.static
    return of_words, of_bytes


@pytest.fixture(scope="module")
def files_of(tmp_path_factory, shown):
    folder = tmp_path_factory.mktemp("live")
    return [each.save(folder / f"{at}.html") for at, each in enumerate(shown)]


class Watched:
    """Pages; whatever one of them asks for or complains about is written down."""

    def __init__(self, browser):
        self.browser, self.complaints = browser, []

    def page(self, context):
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("request", self.asked)
        return page

    def asked(self, request):
        if not request.url.startswith(("file:", "data:", "blob:", "about:")):
            self.complaints.append(request.url)


@pytest.fixture(scope="module")
def usual(browser):
    """A page of the usual width, in the light theme, which every test loads anew."""
    watched = Watched(browser)
    context = browser.new_context(viewport={"width": 1000, "height": 900}, color_scheme="light")
    yield watched, watched.page(context)
    context.close()


@pytest.fixture
def opened(browser, usual, files_of):
    """Open a page; whatever it asks for or complains about fails.

    The usual page is the same one whenever it is opened; one that is unlike it is in a context of its own.
    """
    watched, usual_page = usual
    watched.complaints.clear()
    contexts = []

    def open_page(which=0, width=1000, theme="light", before="", hash="", path=None, **more):
        if (width, theme, before, more) == (1000, "light", "", {}):
            page = usual_page
            page.goto("about:blank")
            page.emulate_media(media="screen")
        else:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=theme, **more
            )
            contexts.append(context)
            page = watched.page(context)
        if before:
            page.add_init_script(before)
        page.goto((path or files_of[which]).as_uri() + hash)
        if more.get("java_script_enabled", True):
            page.locator(".lm-strip button").first.wait_for()
            settled(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert watched.complaints == []


def readout(page):
    return page.locator(".lm-readout").inner_text()


def type_in(page, text):
    page.get_by_label(re.compile("^Text")).fill(text)
    settled(page)


def settled(page):
    """Wait until what was asked last is answered."""
    page.wait_for_function("!document.querySelector('.lm-live[data-busy]')")


def off(page, label):
    page.get_by_label(f"Switch off {label}", exact=True).check()
    settled(page)


def tab(page, name):
    page.get_by_role("tab", name=name, exact=True).click()
    settled(page)
    return page.get_by_role("tabpanel")


def chances(page, column):
    """Token -> probability, of the table of next tokens."""
    rows = page.locator(".lm-panel tbody tr")
    return {
        rows.nth(i).locator("th").inner_text(): float(rows.nth(i).locator("td").nth(column).inner_text())
        for i in range(rows.count())
    }  # fmt: skip


@torch.no_grad()
def wanted(model, tokens, at=-1):
    return model(torch.tensor([tokens]))[0, at].softmax(-1).numpy()


def test_typing_shows_the_next_token_and_a_position_can_be_chosen(opened, shown):
    page = opened()
    type_in(page, "the dogs saw")
    found = chances(page, 0)
    right = wanted(shown[0].model, [0, 3, 2])
    assert len(found) == 6
    assert np.allclose([found[word] for word in WORDS], right, atol=6e-4)
    best = WORDS[int(right.argmax())]
    assert f"Position 2, after “saw”: most likely next is “{best}”" in readout(page)
    page.locator(".lm-strip button").nth(0).click()
    settled(page)
    assert np.allclose(
        [chances(page, 0)[word] for word in WORDS], wanted(shown[0].model, [0]), atol=6e-4
    )
    assert "The text goes on with “dogs”" in readout(page)


def test_a_set_is_switched_off_and_its_effect_is_the_library_s(opened, shown):
    page, model, kept = opened(), shown[0].model, shown[0].kept
    off(page, "layer 0, head 1")
    off(page, "layer 1, network")
    parts = [Component("blocks.0.attention.mixed", 1), Component("blocks.1.feedforward.out")]
    tokens = [0, 1, 2, 3, 4]
    for label, how in (("zeros", "zero"), ("its mean over kept sentences", "mean")):
        page.get_by_label("In its place").select_option(label=label)
        settled(page)
        cut = kept[:, :5]
        batch = Batch(cut, cut, torch.ones_like(cut, dtype=torch.bool))
        with ablated(model, parts, how, reference=batch):
            right = wanted(model, tokens)
        assert np.allclose([chances(page, 1)[word] for word in WORDS], right, atol=6e-4)
    assert "Without head 0.1, network 1 (mean)." in readout(page)
    page.get_by_role("button", name="Whole model again").click()
    settled(page)
    assert "Without" not in readout(page)


def test_heads_lens_and_ledger_are_told(opened, shown):
    page, model = opened(), shown[0].model
    with torch.no_grad(), capture(model, "*.pattern", "*.feedforward.out") as seen:
        model(torch.tensor([[0, 1, 2, 3, 4]]))
    panel = tab(page, "Heads")
    page.get_by_role("radio", name="Layer 1, head 2").click()
    settled(page)
    row = seen["blocks.1.attention.pattern"][0, 2, 4]
    assert f"looks most at position {int(row.argmax())}" in panel.inner_text()
    assert f"({float(row.max()):.2f})" in panel.inner_text()
    page.get_by_label("Shown").select_option("weighted")
    settled(page)
    assert panel.locator("canvas").count() == 1
    panel = tab(page, "Lens")
    assert panel.locator(".lm-lens tbody tr").count() == 1 + 3
    last = int(wanted(model, [0, 1, 2, 3, 4]).argmax())
    assert panel.locator(".lm-lens tbody tr").first.locator("td").last.inner_text() == WORDS[last]
    panel = tab(page, "Ledger")
    assert panel.locator("tbody tr").count() == 1 + 2 * (3 + 2) + 1
    length = float(seen["blocks.1.feedforward.out"][0, 4].norm())
    assert f"{length:.2f}" in panel.get_by_role("row", name="layer 1, network").inner_text()


@torch.no_grad()
def test_each_part_alone_is_missed_as_the_library_says(opened, shown):
    page, model = opened(), shown[0].model
    panel = tab(page, "One by one")
    whole = wanted(model, [0, 1, 2, 3, 4])
    cells = panel.locator("tbody td").all_inner_texts()
    assert len(cells) == 2 * (3 + 1)
    parts = []
    for block in ("blocks.0", "blocks.1"):
        parts += [Component(f"{block}.attention.mixed", head) for head in range(3)]
        parts.append(Component(f"{block}.feedforward.out"))
    changing = 0
    for part, cell in zip(parts, cells, strict=True):
        with ablated(model, [part], "zero"):
            left = wanted(model, [0, 1, 2, 3, 4])
        moved_by = float((whole * np.log(whole / left)).sum())
        assert abs(float(cell.split()[0]) - moved_by) < 6e-4
        is_other = left.argmax() != whole.argmax()
        assert ("\u2192" in cell) == is_other
        assert not is_other or cell.endswith(f"\u201c{WORDS[left.argmax()]}\u201d")
        changing += is_other
    said = panel.inner_text()
    assert f"{changing} of 8 parts" in said if changing else "No part" in said
    page.get_by_label("Number", exact=True).select_option("cost")
    settled(page)
    off(page, "layer 1, head 0")
    cost = re.search(r"costs ([+\u2212][\d.]+) nats", readout(page))[1]
    assert panel.locator("tbody td").nth(4).inner_text().split()[0] == cost


def test_the_numbers_at_any_tap_are_the_library_s(opened, shown):
    page, model = opened(), shown[0].model
    panel = tab(page, "Numbers")
    tap = "blocks.1.feedforward.neurons"
    page.get_by_label("Numbers at").select_option(tap)
    settled(page)
    page.locator(".lm-strip button").nth(2).click()
    settled(page)
    with torch.no_grad(), capture(model, tap) as seen:
        model(torch.tensor([[0, 1, 2, 3, 4]]))
    right = seen[tap][0, 2].numpy()
    told = [float(each.replace("\u2212", "-")) for each in panel.locator("td").all_inner_texts()]
    assert np.allclose(told, right, atol=6e-4)
    assert f"has {len(right)} numbers of length {np.linalg.norm(right):.2f}" in panel.inner_text()
    off(page, "layer 0, head 1")
    assert panel.locator("thead th").all_inner_texts() == ["number", "whole model", "changed"]
    page.get_by_role("button", name="Share").click()
    address = page.get_by_label("Address of this state").first.input_value()
    other = opened(hash=address[address.index("#") :])
    assert other.get_by_label("Numbers at").input_value() == tap


def test_patch_steer_and_rules_are_told_in_words(opened):
    page = opened()
    whole = chances(page, 0)
    page.get_by_text("Patch from a second sentence").click()
    page.get_by_label("Second sentence").fill("dogs saw the cat")
    page.get_by_label("Taken at").select_option("blocks.0.residual_post")
    page.get_by_label("Put at position (none: all)").fill("2")
    settled(page)
    assert (
        "With blocks.0.residual_post patched at position 2 from position 2 of the second sentence."
        in readout(page)
    )
    page.get_by_text("Steer", exact=True).click()
    page.get_by_label("Dose").fill("2")
    page.get_by_text("Change the rules").click()
    page.get_by_label("no causal mask").check()
    settled(page)
    assert "steered by +2.00; no causal mask" in readout(page)
    assert chances(page, 1) != whole
    page.get_by_label("Put at position (none: all)").fill("40")
    page.get_by_text("The text has no position 40: it has 5 tokens, 0 to 4.").wait_for()
    assert page.get_by_role("alert").filter(has_text="position 40").is_visible()
    assert "has no answer" in readout(page), "and none of before stays, as if it were one"
    assert page.get_by_role("tabpanel").inner_text() == ""
    page.get_by_label("Put at position (none: all)").fill("4")
    page.get_by_text("The second sentence has no position 4: its last one is 3.").wait_for()
    assert page.get_by_text("It has 4 tokens, at positions 0 to 3.").is_visible()
    page.get_by_label("From its position (none: the same)").fill("3")
    settled(page)
    assert "steered by +2.00" in readout(page)


def test_predict_first_then_reveal(opened):
    page = opened()
    page.get_by_label("I predict first").check()
    off(page, "layer 0, whole block")
    assert not page.get_by_role("tabpanel").is_visible()
    assert "What happens?" in readout(page)
    page.get_by_role("button", name="less likely").click()
    settled(page)
    assert re.match(r"You said less likely, and it is .*\([01] of 1 right\)", readout(page))
    assert page.get_by_role("tabpanel").is_visible()
    type_in(page, "cat saw")
    assert page.get_by_role("tabpanel").is_visible(), "the same experiment is not asked for twice"


def test_was_that_luck_asks_every_kept_sentence(opened, shown):
    page, (bench, _) = opened(), shown
    panel = tab(page, "Was that luck?")
    assert page.get_by_role("button", name="Ask 64 kept sentences").is_disabled()
    off(page, "layer 0, head 2")
    page.get_by_role("button", name="Ask 64 kept sentences").click()
    panel.get_by_text("On 64 kept sentences").wait_for()
    found = json.loads(page.locator(".lm-live").get_attribute("data-luck"))
    cost = []
    for parts in ([], [Component("blocks.0.attention.mixed", 2)]):
        with torch.no_grad(), ablated(bench.model, parts, "zero"):
            logits = bench.model(bench.kept)[:, :-1].log_softmax(-1)
        cost.append(-logits.gather(-1, bench.kept[:, 1:, None]).mean((1, 2)))
    assert np.allclose(found, (cost[1] - cost[0]).numpy(), atol=1e-4)
    mean = float((cost[1] - cost[0]).mean())
    assert f"costs {mean:+.3f}".replace("-", "\u2212") in panel.inner_text()
    moved_by = json.loads(page.locator(".lm-live").get_attribute("data-moved"))
    said = panel.inner_text()
    assert (
        f"At position 4 the prediction of a kept sentence moves by {np.mean(moved_by):.3f}" in said
    )
    own = re.search(r"moves by ([\d.]+) nats \(KL\) here", readout(page))[1]
    share = round(100 * np.mean(np.array(moved_by) < float(own)))
    assert f"Yours moves by {own} at position 4, more than {share} % of them" in said


def test_a_verdict_is_of_one_experiment_even_if_the_reader_goes_on(opened):
    page = opened(
        before="const start = window.Worker; window.Worker = class extends start { postMessage(given) {"
        " if (given.call === 'luck') setTimeout(() => super.postMessage(given), 150);"
        " else super.postMessage(given); } };"
    )
    panel = tab(page, "Was that luck?")
    off(page, "layer 0, head 2")
    ask = page.get_by_role("button", name="Ask 64 kept sentences")
    ask.click()
    panel.get_by_text("On 64 kept sentences").wait_for()
    first = page.locator(".lm-live").get_attribute("data-luck")
    type_in(page, "dogs saw")
    assert not panel.get_by_text("On 64 kept sentences").is_visible(), "it was of another text"
    ask.click()
    off(page, "layer 1, network")
    panel.get_by_text("The experiment has changed while the sentences were asked").wait_for()
    assert page.locator(".lm-live").get_attribute("data-luck") == first
    ask.click()
    panel.get_by_text("On 64 kept sentences").wait_for()
    assert page.locator(".lm-live").get_attribute("data-luck") != first


def test_it_writes_on_with_a_seed_as_the_library_does(opened, shown):
    page, model = opened(), shown[0].model
    panel = tab(page, "Write on")
    page.get_by_label("Seed").fill("3")
    page.get_by_label("Tokens", exact=True).fill("12")
    page.get_by_label("Top-k (none: all)").fill("4")
    panel.get_by_role("button", name="Write on").click()
    panel.locator(".lm-written").wait_for()
    strategy = Sampling(torch.Generator().manual_seed(3), temperature=0.8, top_k=4)
    right = generate(model, [[0, 1, 2, 3, 4]], max_new_tokens=12, strategy=strategy).tokens[0]
    assert panel.locator(".lm-written b").inner_text().split() == [WORDS[i] for i in right.tolist()]


def test_what_may_be_drawn_follows_temperature_top_k_and_top_p(opened, shown):
    page, model = opened(), shown[0].model
    panel = tab(page, "Write on")
    with torch.no_grad():
        logits = model(torch.tensor([[0, 1, 2, 3, 4]]))[0, -1:]
    levers = {"Temperature": "0.5", "Top-p": "0.9", "Top-k (none: all)": "4"}
    sampling = {}
    for (label, value), key in zip(levers.items(), ("temperature", "top_p", "top_k"), strict=True):
        page.get_by_label(label, exact=True).fill(value)
        settled(page)
        sampling[key] = int(value) if key == "top_k" else float(value)
        strategy = Sampling(torch.Generator(), **sampling)
        right = strategy.logits(logits)[0].softmax(-1).numpy()
        rows = panel.locator("tbody tr")
        names = rows.locator("th").all_inner_texts()
        told = [float(each) for each in rows.locator("td").all_inner_texts()]
        assert np.allclose(told, [right[WORDS.index(each)] for each in names], atol=6e-4)
        assert set(names) == {WORDS[i] for i in np.flatnonzero(right)}
        assert f"{len(names)} of 6 tokens are left" in panel.inner_text()


def test_an_address_brings_the_experiment_back(opened):
    page = opened()
    type_in(page, "dogs saw the cat")
    off(page, "layer 1, head 0")
    page.get_by_role("button", name="Share").click()
    address = page.get_by_label("Address of this state").first.input_value()
    words, hash = readout(page), address[address.index("#") :]
    other = opened(hash=hash)
    settled(other)
    assert readout(other) == words
    assert other.get_by_label("Switch off layer 1, head 0").is_checked()
    for wrong, why in (
        (re.sub(r"live=[^~]+", "live=0.abc", hash), "another version"),
        ("#live=" + re.search(r"live=([^~]+)", hash)[1] + "~!!", "cannot be read"),
    ):
        other = opened(hash=wrong)
        assert why in other.locator(".lm-source").inner_text()
        assert "Without" not in readout(other)


def address_of(page):
    page.get_by_role("button", name="Share").click()
    return page.get_by_label("Address of this state").first.input_value()


def state_in(address):
    packed = address.split("~")[1]
    return json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))


def with_state(address, state):
    packed = base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")
    return address[address.index("#") :].split("~")[0] + "~" + packed


def test_an_address_has_all_that_was_chosen(opened):
    page = opened()
    tab(page, "Heads")
    page.get_by_label("Shown").select_option("weighted")
    page.get_by_label("I predict first").check()
    tab(page, "Write on")
    chosen = {"Temperature": "1.3", "Top-p": "0.85", "Top-k (none: all)": "3", "Seed": "12"}
    for label, value in chosen.items():
        page.get_by_label(label).fill(value)
    other = opened(hash="#" + address_of(page).split("#")[1])
    for label, value in chosen.items():
        assert other.get_by_label(label).input_value() == value
    assert "1.3" in other.locator(".lm-slide", has_text="Temperature").inner_text()
    assert other.get_by_label("I predict first").is_checked()
    tab(other, "Heads")
    assert other.get_by_label("Shown").input_value() == "weighted"


def test_an_address_that_arrives_in_an_open_page_is_taken_and_shown(opened, tmp_path, shown):
    path = shown[0].save(tmp_path / "long.html")
    text = path.read_text("utf-8").replace("<main>", '<main><div style="height: 4000px"></div>')
    path.write_text(text, "utf-8")
    page = opened(path=path)
    type_in(page, "dogs saw the cat")
    off(page, "layer 1, head 0")
    hash, words = "#" + address_of(page).split("#")[1], readout(page)
    page = opened(path=path, hash=hash)
    assert readout(page) == words
    assert page.evaluate("scrollY") > 3000, "the reader sees what was shared"
    page.get_by_role("button", name="Whole model again").click()
    type_in(page, "the cat")
    off(page, "layer 0, network")
    page.evaluate("scrollTo(0, 0)")
    page.evaluate("(hash) => { location.hash = ''; location.hash = hash; }", hash)
    page.wait_for_function("document.querySelector('textarea').value === 'dogs saw the cat'")
    settled(page)
    assert readout(page) == words, "nothing of what stood there is left"
    assert page.evaluate("scrollY") > 3000


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: None,
        lambda state: [],
        lambda state: 7,
        lambda state: {key: value for key, value in state.items() if key != "t"},
        lambda state: state | {"t": {}},
        lambda state: state | {"o": 3},
        lambda state: state | {"patch": None},
    ],
)
def test_an_address_of_another_form_changes_nothing(opened, spoil):
    page = opened()
    first = readout(page)
    off(page, "layer 1, head 0")
    address = address_of(page)
    other = opened(hash=with_state(address, spoil(state_in(address))))
    assert "cannot be read" in other.locator(".lm-source").inner_text()
    assert readout(other) == first
    type_in(other, "the cat")
    assert "cannot be read" not in other.locator(".lm-source").inner_text()


@pytest.mark.parametrize(
    "wrong",
    [
        {"o": ["1.0", "7.7", "x", 3]},
        {"l": 99, "h": -1, "v": "nothing", "a": "blocks.9.out", "s": "9.9", "e": "all", "d": 1e9},
        {"w": ["mask", "gravity"], "i": "infinity"},
        {"patch": ["dogs", "blocks.7.residual_post", "12", "-4", "a"]},
        {"steer": ["cat", "dogs", "77", "1e99"]},
        {"p": 1e9, "g": ["hot", "9", "-3", "seed", "many"]},
    ],
)
def test_what_an_address_asks_for_in_vain_is_left_out_and_said(opened, wrong):
    page = opened()
    off(page, "layer 1, head 0")
    address = address_of(page)
    other = opened(hash=with_state(address, state_in(address) | wrong))
    assert "does not have: they are left out" in other.locator(".lm-source").inner_text()
    assert "Without head 1.0" in readout(other), "what fits is taken"
    for view in other.get_by_role("tab").all_text_contents():
        tab(other, view)
        assert other.get_by_role("tabpanel").inner_text()


@pytest.mark.parametrize("length", [0, 1, 12, 40])
def test_an_address_that_is_cut_off_is_refused(opened, length):
    page = opened()
    address = address_of(page)
    hash = address[address.index("#") :]
    packed = hash.index("~") + 1
    other = opened(hash=hash[: packed + length])
    if length:
        assert "cannot be read" in other.locator(".lm-source").inner_text()
    assert readout(other) == readout(page)


def test_a_patch_is_taken_from_a_token_of_the_second_sentence(opened):
    page = opened()
    page.get_by_text("Patch from a second sentence").click()
    page.get_by_label("Taken at").select_option("blocks.0.residual_post")
    assert page.get_by_text("Type a second sentence: nothing is patched so far.").is_visible()
    page.get_by_label("Taken at").select_option("")
    page.get_by_label("Second sentence").fill("dogs saw the cat")
    settled(page)
    assert page.get_by_text("Say below where in the model its values are taken").is_visible()
    said = page.get_by_label("Taken at").locator("option").all_text_contents()
    assert "Block 0: stream after it (residual_post)" in said
    assert "Block 1: what the network adds (feedforward.out)" in said
    assert len(set(said)) == len(said)
    page.get_by_label("Taken at").select_option("blocks.0.residual_post")
    strip = page.get_by_role("radiogroup", name="Tokens to patch from")
    strip.get_by_role("radio", name="1, saw").click()
    settled(page)
    assert page.get_by_label("Put at position").input_value() == "4", "where the text is looked at"
    assert "patched at position 4 from position 1 of the second sentence" in readout(page)
    page.keyboard.press("ArrowRight")
    settled(page)
    assert "patched at position 4 from position 2 of the second sentence" in readout(page)
    assert strip.locator("[aria-checked=true]").get_attribute("aria-label") == "2, the"


@torch.no_grad()
def test_scores_become_weights_in_numbers(opened, shown):
    page, model = opened(), shown[0].model
    panel = tab(page, "Heads")
    page.get_by_role("radio", name="Layer 1, head 2").click()
    settled(page)
    panel.locator("summary", has_text="From scores to weights").click()
    for position, change in (
        (4, None),
        (2, None),
        (2, "scores without their scale"),
        (2, "no causal mask"),
    ):
        page.locator(".lm-strip button").nth(position).click()
        if change:
            page.get_by_text("Change the rules").click() if not page.get_by_label(
                change
            ).is_visible() else None
            page.get_by_label(change).check()
        settled(page)
        rows = panel.locator("details tbody tr")
        cells = [row.locator("th, td").all_inner_texts() for row in rows.all()]
        assert [each[0] for each in cells] == [
            *map(str, range(5 if change == "no causal mask" else position + 1)),
            "sum",
        ]
        weights = [float(each[4]) for each in cells]
        raised = [float(each[3]) for each in cells]
        assert abs(sum(weights[:-1]) - 1) < 3e-3
        assert np.allclose(np.array(raised[:-1]) / raised[-1], weights[:-1], atol=2e-3)
        if change is None:
            with capture(model, "blocks.1.attention.scores", "blocks.1.attention.pattern") as seen:
                model(torch.tensor([[0, 1, 2, 3, 4]]))
            scores = [float(each[2].replace("\u2212", "-")) for each in cells[:-1]]
            at = slice(0, position + 1)
            assert np.allclose(
                scores, seen["blocks.1.attention.scores"][0, 2, position, at], atol=6e-3
            )
            assert np.allclose(
                weights[:-1], seen["blocks.1.attention.pattern"][0, 2, position, at], atol=6e-4
            )
    assert "\u00d7 1.000" in panel.inner_text(), "the scale is off"


def code_of(page):
    page.get_by_role("button", name="As Python").click()
    return page.locator(".lm-live pre code").text_content()


def everything(page):
    """An experiment with all that there is."""
    off(page, "layer 0, head 1")
    off(page, "layer 1, network")
    page.get_by_text("Patch from a second sentence").click()
    page.get_by_text("Steer", exact=True).click()
    page.get_by_text("Change the rules").click()
    page.get_by_label("Dose").fill("-0.5")


@pytest.mark.parametrize("instead", ["zero", "mean", "resample"])
@pytest.mark.parametrize("which", [0, 1])
def test_the_experiment_as_python_runs_as_printed(opened, shown, which, instead):
    page = opened(which)
    everything(page)
    page.get_by_label("In its place").select_option(instead)
    page.get_by_label("Second sentence").fill(["saw the dogs", 'zé "q"'][which])
    page.get_by_label("Taken at").select_option("blocks.1.attention.values")
    page.get_by_label("Head", exact=True).select_option("2")
    if which:
        page.get_by_label("Put at position (none: all)").fill("3")
        page.get_by_label("From its position").fill("1")
    for rule in page.locator("details:has-text('no causal mask') input").all()[: [4, 2][which]]:
        rule.check()
    settled(page)
    tab(page, "Write on").get_by_role("button", name="Write on").click()
    page.locator(".lm-written").first.wait_for()
    tab(page, "Next token")
    names = {"bench": shown[which]}
    bench = shown[which]
    fresh = live(
        bench.model, ["the cat"], tokens=None if which else WORDS, kept=bench.kept
    )  # the code changes its model
    names = {"bench": fresh}
    exec(code_of(page), names)
    torch.set_grad_enabled(True)
    found = page.locator(".lm-panel tbody tr")
    named = {fresh._data["names"][i]: i for i in range(fresh.model.config.vocab)}
    position = names["n"] - 1
    for i in range(found.count()):
        token = named[found.nth(i).locator("th").inner_text()]
        before, after = (float(found.nth(i).locator("td").nth(at).inner_text()) for at in (0, 1))
        assert abs(before - float(names["before"][position, token])) < 6e-4
        assert abs(after - float(names["after"][position, token])) < 6e-4
    assert float((names["before"][position] - names["after"][position]).abs().max()) > 1e-3
    assert len(names["text"]) == 48


def test_bad_input_is_a_sentence_and_the_page_goes_on(opened):
    page = opened()
    type_in(page, "the zebra saw a cat")
    assert "never seen “zebra”, “a”: left out" in page.locator(".lm-source").inner_text()
    assert page.locator(".lm-strip button").count() == 3
    type_in(page, "   ")
    assert "The text is empty" in readout(page)
    type_in(page, "no word known")
    assert "The model knows nothing of this text" in readout(page)
    type_in(page, "cat " * 70)
    assert (
        "The text has 70 tokens: the model reads the last 64"
        in page.locator(".lm-source").inner_text()
    )
    assert page.locator(".lm-strip button").count() == 64
    page = opened(1)
    type_in(page, "é")
    assert "beyond ASCII" in page.locator(".lm-source").inner_text()
    assert page.locator(".lm-strip button").all_inner_texts() == ["\\xc3", "\\xa9"]


def test_weights_that_do_not_arrive_leave_the_drawing(browser, tmp_path, files_of):
    """As the book has them, in a file of their own: there, missing, and spoilt."""
    page_file, html = tmp_path / "page.html", files_of[0].read_text("utf-8")
    page_file.write_text(moved(html, tmp_path), "utf-8")
    (weights,) = (tmp_path / "_static/live").iterdir()
    assert weights.read_text("utf-8").count('"') == 4
    assert len(page_file.read_text("utf-8")) < len(html)
    whole = weights.read_text("utf-8")
    place = whole.index('= "') + 400
    spoilt = whole[:place] + ("A" if whole[place] != "A" else "B") + whole[place + 1 :]
    for text, expected in (
        (whole, None),
        (None, "did not arrive"),
        (spoilt, "did not arrive whole"),
    ):
        weights.unlink(missing_ok=True)
        if text is not None:
            weights.write_text(text, "utf-8")
        page = browser.new_page()
        errors = []
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        page.goto(page_file.as_uri())
        if expected is None:
            page.locator(".lm-strip button").first.wait_for()
        else:
            page.get_by_text(expected).wait_for()
            assert page.locator(".lm-static img").is_visible()
            weights.write_text(whole, "utf-8")
            if text is None:
                page.get_by_role("button", name="Try again").click()
                page.locator(".lm-strip button").first.wait_for()
        assert errors == []
        page.close()


@pytest.mark.parametrize(
    "before",
    [
        "window.Worker = class { constructor() { throw new Error('forbidden'); } };",
        "delete window.Worker;",
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } });"
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new Error('no'); } });"
        "Object.defineProperty(navigator, 'clipboard', { get() { throw new Error('no'); } });",
    ],
)
def test_where_workers_or_storage_are_forbidden_it_works(opened, shown, before):
    page = opened(before=before)
    off(page, "layer 0, head 0")
    page.get_by_role("button", name="Share").click()
    assert "#live=" in page.get_by_label("Address of this state").first.input_value()
    panel = tab(page, "Was that luck?")
    page.get_by_role("button", name="Ask 64 kept sentences").click()
    panel.get_by_text("On 64 kept sentences").wait_for()


def test_a_slow_device_is_told_so(opened):
    page = opened(
        before="delete window.Worker; const now = performance.now.bind(performance); let t = 0;"
        "performance.now = () => { t += 300; return now() + t; };"
    )
    type_in(page, "cat saw")
    type_in(page, "cat saw dogs")
    assert "This device is slow for it" in page.locator(".lm-live").inner_text()


def test_everything_is_reached_by_keyboard(opened):
    page = opened()
    focused = (
        "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
        " || document.activeElement.tagName"
    )
    page.keyboard.press("Tab")
    page.keyboard.type(" cat")
    settled(page)
    assert "after “cat”" in readout(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    settled(page)
    assert page.evaluate(focused).startswith("4, and")
    page.keyboard.press("Home")
    settled(page)
    assert page.evaluate(focused) == "0, the"
    assert "Position 0" in readout(page)
    page.keyboard.press("Tab")
    order = []
    for _ in range(40):
        order.append(page.evaluate(focused))
        page.keyboard.press("Tab")
    for name in (
        "Switch off layer 1, head 2",
        "Patch from a second sentence",
        "Steer",
        "Next token",
        "Share",
    ):
        assert any(each.startswith(name) for each in order), name
    page.get_by_role("tab", name="Next token").focus()
    page.keyboard.press("ArrowRight")
    settled(page)
    assert page.get_by_role("tabpanel", name="Overview").is_visible()
    page.wait_for_timeout(500)
    assert page.get_by_role("status").last.text_content().startswith("Position 0")


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_accessible_and_never_wider_than_the_screen(opened, width, theme):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(width=width, theme=theme)
    assert page.locator(".lm-live").get_attribute("data-theme") == theme
    everything(page)
    page.get_by_label("Second sentence").fill("dogs saw the cat")
    page.get_by_label("Taken at").select_option("blocks.1.residual_post")
    page.get_by_label("Switch off layer 0, head 1").press("Tab")
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="As Python").click()
    for name in page.get_by_role("tab").all_text_contents():
        panel = tab(page, name)
        if name == "Was that luck?":
            page.get_by_role("button", name="Ask").click()
            panel.get_by_text("On 64 kept").wait_for()
        if name == "Heads":
            panel.locator("summary").click()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(v["id"], [n["target"] for n in v["nodes"]]) for v in found] == [], name
    page.get_by_label("I predict first").check()
    off(page, "layer 1, head 2")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(v["id"], [n["target"] for n in v["nodes"]]) for v in found] == []
    small = page.locator(".lm-live :is(button, select, summary, label)").evaluate_all(
        "nodes => nodes.filter(n => n.offsetParent && Math.min(n.offsetWidth, n.offsetHeight) < 24)"
        ".map(n => n.outerHTML.slice(0, 90))"
    )
    assert small == []  # WCAG 2.5.8


def test_without_scripts_and_on_paper_the_drawing_and_the_words_stay(opened):
    page = opened(java_script_enabled=False)
    assert page.locator(".lm-static img").is_visible()
    page.locator("summary", has_text="The first text in words").click()
    assert page.locator(".lm-words li").last.is_visible()
    page = opened()
    assert not page.locator(".lm-static img").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".lm-static img").is_visible()
    assert not page.locator(".lm-live").is_visible()


def test_two_on_a_page_keep_apart_and_one_that_comes_later_begins(
    opened, tmp_path, shown, files_of
):
    path = tmp_path / "two.html"
    html = files_of[0].read_text("utf-8")
    path.write_text(html.replace("</main>", f"{shown[1].html}</main>"), "utf-8")
    page = opened(path=path)
    page.wait_for_function("document.querySelectorAll('.lm-strip').length === 2")
    ids = page.evaluate("[...document.querySelectorAll('.lm-live [id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))
    assert page.locator(".lm-strip b").count() == 0, "tokens are text"
    page.evaluate(
        """() => {
          const output = document.createElement("div");
          output.id = "output";
          output.innerHTML = document.querySelector(".live-model").outerHTML;
          for (const old of output.querySelectorAll("script")) {
            const script = document.createElement("script");
            for (const { name, value } of old.attributes) script.setAttribute(name, value);
            script.textContent = old.textContent;
            old.replaceWith(script);
          }
          document.body.append(output);
        }"""
    )
    page.locator("#output .lm-strip button").first.wait_for()
    assert page.locator(".lm-live").count() == 3


# Several models, pieces and the tuned lens ----------------------------------------------------------

STORY = "Tom had a red ball. Tom gave the red ball to Mia."
MERGES = learn_merges((STORY * 3).encode(), 30)


@pytest.fixture(scope="module")
def of_pieces(shown):
    """A model of pieces in eight bits, with a tuned lens, of which a reader sees four views."""
    model = model_of(CONFIG.replace(vocab=256 + len(MERGES)))
    torch.manual_seed(1)
    weight = torch.randn(3, 24, 24) * torch.tensor([0.5, 0.5, 0.0])[:, None, None]
    lens = TunedLens(weight, torch.zeros(3, 24), (np.zeros(3), np.zeros(3)))
    found = live(
        model,
        [STORY, "Tom"],
        merges=MERGES,
        lens=lens,
        bits=8,
        views=("heads", "lens", "next", "write"),
        experiments=("off", "patch"),
        title="Of pieces",
    )
    vars(found)["static"] = shown[0].static
    return found


@pytest.fixture(scope="module")
def choice(tmp_path_factory, shown, of_pieces):
    """The file of a page on which a reader chooses among three models, with weights in files of their own."""
    chosen = live_choice({"Words": shown[0], "Bytes": shown[1], "Pieces": of_pieces}, title="Three")
    folder = tmp_path_factory.mktemp("choice")
    path = chosen.save(folder / "choice.html")
    path.write_text(moved(path.read_text("utf-8"), folder), "utf-8")
    return path


def chosen_model(page, name):
    page.get_by_role("radio", name=name, exact=True).click()
    page.locator(".live-model:not([hidden]) .lm-strip button").first.wait_for()
    settled(page)


def visible_box(page):
    return page.locator(".live-model:not([hidden]):not(.lm-choose)")


def test_a_reader_switches_between_models_and_each_arrives_when_it_is_chosen(opened, choice):
    page = opened(path=choice)
    assert page.locator("script[src]").count() == 1, "the first alone has been fetched"
    box = visible_box(page)
    assert box.count() == 1
    assert "after “and”" in box.locator(".lm-readout").inner_text()
    chosen_model(page, "Bytes")
    assert page.locator("script[src]").count() == 2
    assert box.count() == 1
    assert box.locator(".lm-strip button").count() == len("a cat, a cat")
    page.get_by_role("radio", name="Bytes", exact=True).press("ArrowLeft")
    settled(page)
    assert (
        page.get_by_role("radio", name="Words", exact=True).get_attribute("aria-checked") == "true"
    )
    assert "after “and”" in box.locator(".lm-readout").inner_text(), "it is as it was left"
    assert page.locator("script[src]").count() == 2
    chosen_model(page, "Pieces")
    page.emulate_media(media="print")
    assert page.locator(".lm-static img:visible").count() == 1


def test_an_address_brings_back_the_model_too(opened, choice):
    page = opened(path=choice)
    chosen_model(page, "Pieces")
    box = visible_box(page)
    box.get_by_label(re.compile("^Text")).fill("Mia had a ball.")
    box.get_by_role("tab", name="Lens").click()
    box.get_by_label("Read with").select_option("tuned")
    settled(page)
    box.get_by_role("button", name="Share").click()
    address = box.get_by_label("Address of this state").first.input_value()
    other = opened(path=choice, hash=address[address.index("#") :])
    settled(other)
    assert (
        other.get_by_role("radio", name="Pieces", exact=True).get_attribute("aria-checked")
        == "true"
    )
    assert visible_box(other).locator("textarea").input_value() == "Mia had a ball."
    assert visible_box(other).get_by_label("Read with").input_value() == "tuned"
    for name in ("Words", "Bytes"):
        chosen_model(other, name)
        assert "another version" not in visible_box(other).inner_text()
    other = opened(path=choice, hash="#live=1.0000~e30")
    assert "another version" in visible_box(other).inner_text()


def test_pieces_are_typed_and_written_on(opened, choice, of_pieces):
    page = opened(path=choice)
    chosen_model(page, "Pieces")
    box = visible_box(page)
    text = "Mia gave Tom é\u00a0a ball"
    box.get_by_label(re.compile("^Text .the model reads at most 64 pieces.$")).fill(text)
    settled(page)
    tokens = encode(text.encode(), MERGES)
    names = of_pieces._data["names"]
    assert box.locator(".lm-strip button bdi").all_inner_texts() == [names[t] for t in tokens]
    assert box.get_by_text("A letter beyond ASCII is several bytes").is_visible()
    assert [each.inner_text() for each in box.get_by_role("tab").all()] == [
        "Heads",
        "Lens",
        "Next token",
        "Write on",
    ]
    assert box.locator("summary").all_inner_texts()[:2] == [
        "Switch off",
        "Patch from a second sentence",
    ]
    box.get_by_role("tab", name="Write on").click()
    box.get_by_label("Seed").fill("5")
    box.get_by_label("Tokens", exact=True).fill("9")
    box.get_by_role("button", name="Write on").click()
    box.locator(".lm-written").wait_for()
    strategy = Sampling(torch.Generator().manual_seed(5), temperature=0.8)
    right = generate(of_pieces.model, [tokens], max_new_tokens=9, strategy=strategy).tokens[0]
    spelled = {i: bytes([i]) for i in range(256)}
    for i, (left, other) in enumerate(MERGES):
        spelled[256 + i] = spelled[left] + spelled[other]
    said = b"".join(spelled[i] for i in right.tolist()).decode(errors="replace")
    assert box.locator(".lm-written b").text_content() == said


def test_a_book_that_is_pasted_does_not_stop_the_page(opened, choice):
    page = opened(path=choice)
    chosen_model(page, "Pieces")
    box = visible_box(page)
    box.get_by_text("Patch from a second sentence").click()
    for text in ("a" * 300_000, "Tom gave the ball. " * 20_000, "\U0001f600" * 100_000):
        box.get_by_label(re.compile("^Text")).fill(text)
        box.get_by_label("Second sentence").fill(text)
        settled(page)
        assert box.locator(".lm-strip button").count() == 64
        box.get_by_label(re.compile("^Text")).fill(text)
        settled(page)
        assert "A text may have 4000 letters here" in box.locator(".lm-source").inner_text()
    box.get_by_role("button", name="Share").click()
    assert len(box.get_by_label("Address of this state").first.input_value()) < 30_000


@torch.no_grad()
def test_the_tuned_lens_of_the_page_is_the_library_s(opened, choice, of_pieces):
    page = opened(path=choice)
    chosen_model(page, "Pieces")
    box = visible_box(page)
    box.get_by_role("tab", name="Lens").click()
    settled(page)
    plain = box.get_by_role("tabpanel").inner_text()
    box.get_by_label("Read with").select_option("tuned")
    settled(page)
    assert box.get_by_role("tabpanel").inner_text() != plain
    tokens = torch.tensor([encode(STORY.encode(), MERGES)])
    stream = ("embedding", "blocks.0.residual_post", "blocks.1.residual_post")
    with capture(of_pieces.model, *stream) as seen:
        of_pieces.model(tokens)
    states = torch.stack([seen[each] for each in stream])
    chances = of_pieces.model.unembed(of_pieces.lens.translated(states))[:, 0].softmax(-1)
    count = tokens.shape[1]
    assert count <= 16, "all are shown"
    rows = box.locator(".lm-lens tbody tr")
    for depth in range(3):
        cells = rows.nth(2 - depth).locator("td")
        best = chances[depth].max(-1)
        assert [cells.nth(i).inner_text() for i in range(count)] == [
            of_pieces._data["names"][i] for i in best.indices.tolist()
        ]
        told = [float(cells.nth(i).get_attribute("title")) for i in range(count)]
        assert np.allclose(told, best.values, atol=6e-3)


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_a_choice_is_accessible_and_never_wider_than_the_screen(opened, choice, width, theme):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(path=choice, width=width, theme=theme)
    for name in ("Words", "Pieces"):
        chosen_model(page, name)
        if name == "Pieces":
            visible_box(page).get_by_role("tab", name="Lens").click()
            visible_box(page).get_by_label("Read with").select_option("tuned")
            settled(page)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(v["id"], [n["target"] for n in v["nodes"]]) for v in found] == [], name
    small = page.locator(".lm-live :is(button, select, summary, label)").evaluate_all(
        "nodes => nodes.filter(n => n.offsetParent && Math.min(n.offsetWidth, n.offsetHeight) < 24)"
        ".map(n => n.outerHTML.slice(0, 90))"
    )
    assert small == []
