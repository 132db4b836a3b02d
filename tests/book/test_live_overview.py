"""The overview of a live model in a browser: values beside the library's, switches, keyboard, narrow, paper."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.internals.capture import capture
from measured_transformer.viewer.live import live
from test_live_browser import (
    CONFIG,
    LOOKS,
    WORDS,
    files_of,
    model_of,
    off,
    opened,
    readout,
    settled,
    shown,
    tab,
    type_in,
    usual,
)

__all__ = ["files_of", "opened", "shown", "usual"]  # fixtures

CLOSE = 1e-4
TOKENS = [0, 1, 2, 3, 4]


def part(page, place):
    return page.locator(f'.lm-part[data-place="{place}"]')


def value(node, name="share"):
    return float(node.get_attribute(f"data-{name}"))


@torch.no_grad()
def told_by(model, position, parts=()):
    """By the library: shares of the stream that parts write, and probabilities that each depth would give."""
    with ablated(model, parts, "zero"), capture(model) as seen:
        model(torch.tensor([TOKENS]))

    def length(tap):
        return seen[tap][0, ..., position, :].norm(dim=-1)

    shares, depths = {}, [seen["embedding"]]
    for layer in range(model.config.n_layers):
        name = f"blocks.{layer}"
        before, middle = length(f"{name}.residual_pre"), length(f"{name}.residual_mid")
        for head, own in enumerate(length(f"{name}.attention.head_outputs") / before):
            shares[f"{layer}.{head}"] = float(own)
        shares[f"{layer}.n"] = float(length(f"{name}.feedforward.out") / middle)
        shares[f"{layer}.b"] = float(length(f"{name}.residual_post") / before)
        depths.append(seen[f"{name}.residual_post"])
    return shares, [model.unembed(each)[0, position].softmax(-1) for each in depths]


def agrees(page, model, position, parts=()):
    """Every value in the picture is the library's."""
    shares, depths = told_by(model, position, parts)
    assert page.locator(".lm-part").count() == len(shares)
    for place, right in shares.items():
        assert value(part(page, place)) == pytest.approx(right, abs=CLOSE), place
    chips = page.locator(".lm-reading")
    assert chips.count() == len(depths)
    for chip, right in zip(chips.all(), depths, strict=True):
        assert value(chip, "chance") == pytest.approx(float(right.max()), abs=CLOSE)
        assert chip.locator("bdi").inner_text() == WORDS[int(right.argmax())]
    for row in page.locator(".lm-next:visible").all():
        right = float(depths[-1][WORDS.index(row.locator("bdi").inner_text())])
        assert value(row, "chance") == pytest.approx(right, abs=CLOSE)


def test_its_values_are_the_library_s_and_follow_what_is_switched_off(opened, shown):
    page, model = opened(), shown[0].model
    assert page.locator(".lm-map").count() == 0, "nothing is drawn before it is asked for"
    tab(page, "Overview")
    agrees(page, model, 4)
    page.locator(".lm-strip button").nth(2).click()
    settled(page)
    agrees(page, model, 2)
    off(page, "layer 0, head 1")
    off(page, "layer 1, network")
    agrees(
        page,
        model,
        2,
        [Component("blocks.0.attention.mixed", 1), Component("blocks.1.feedforward.out")],
    )


@torch.no_grad()
def test_each_part_is_one_sentence(opened, shown):
    page, model = opened(), shown[0].model
    tab(page, "Overview")
    with capture(model, "blocks.1.attention.pattern") as seen:
        model(torch.tensor([TOKENS]))
    row = seen["blocks.1.attention.pattern"][0, 2, 4]
    share = told_by(model, 4)[0]["1.2"]
    best = int(row.argmax())
    assert part(page, "1.2").get_attribute("aria-label") == (
        f"Head 1.2 looks most at position {best}, “{WORDS[TOKENS[best]]}” ({row[best]:.2f}), and writes "
        f"{share:.2f} times the length of the stream."
    )
    off(page, "layer 1, head 2")
    assert part(page, "1.2").get_attribute("aria-label") == (
        "Head 1.2 is switched off: zeros stand in its place."
    )
    off(page, "layer 0, whole block")
    assert "is switched off with its block" in part(page, "0.n").get_attribute("aria-label")
    labels = [each.get_attribute("aria-label") for each in page.locator(".lm-part").all()]
    assert len(set(labels)) == len(labels) == 2 * (3 + 2)
    assert all(re.fullmatch(r"[A-Z][^.]*?(\.\d[^.]*?)*\.", each) for each in labels)
    page.get_by_label("In its place", exact=True).select_option("mean")
    settled(page)
    said = part(page, "1.2").get_attribute("aria-label")
    assert "its mean over kept sentences stands in its place, " in said
    assert value(part(page, "1.2")) > 0


def test_where_something_is_patched_in_is_said(opened):
    page = opened()
    tab(page, "Overview")
    page.get_by_text("Patch from a second sentence").click()
    page.get_by_label("Second sentence").fill("dogs saw the cat and")
    for tap, head, places in (
        ("blocks.1.attention.values", "2", ["1.2"]),
        ("blocks.0.attention.out", None, ["0.0", "0.1", "0.2"]),
        ("blocks.1.feedforward.neurons", None, ["1.n"]),
        ("blocks.0.attention_norm.scale", None, ["0.b"]),
        ("blocks.1.residual_mid", None, ["1.b"]),
        ("embedding", None, []),
    ):
        page.get_by_label("Taken at").select_option(tap)
        settled(page)
        if head:
            page.get_by_label("Head", exact=True).select_option(head)
            settled(page)
        said = page.locator(".lm-part[aria-label*='patched from the second sentence']").all()
        assert [each.get_attribute("data-place") for each in said] == places
        assert page.locator(".lm-part[data-patched]").count() == len(places)


def test_a_head_is_switched_off_and_on_by_keyboard(opened):
    page = opened()
    tab(page, "Overview")
    box = page.get_by_label("Switch off layer 0, head 1")
    focused = "document.activeElement.dataset.place || document.activeElement.textContent"
    page.locator(".lm-overview").focus()
    page.keyboard.press("Tab")
    order = []
    for _ in range(5):
        order.append(page.evaluate(focused))
        page.keyboard.press("ArrowRight")
    assert order == ["0.b", "0.0", "0.1", "0.2", "0.n"], "in the order of the picture"
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == "0.1"
    page.keyboard.press("Enter")
    card = page.get_by_role("group", name="Head 0.1", exact=True)
    assert card.is_visible()
    assert part(page, "0.1").get_attribute("aria-expanded") == "true"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Switch off head 0.1"
    page.keyboard.press("Enter")
    settled(page)
    assert box.is_checked(), "it is the same switch"
    assert "Without head 0.1 (zeros)." in readout(page)
    assert part(page, "0.1").get_attribute("data-off") is not None
    assert part(page, "0.1").locator("span").inner_text() == "off"
    assert value(part(page, "0.1")) == 0
    assert "switched off: zeros stand in its place" in card.inner_text()
    assert page.evaluate(focused) == "Switch head 0.1 on again", "the focus stays where it was"
    page.keyboard.press("Escape")
    assert not card.is_visible()
    assert page.evaluate(focused) == "0.1"
    page.keyboard.press("Delete")
    settled(page)
    assert not box.is_checked()
    assert value(part(page, "0.1")) > 0
    assert page.evaluate(focused) == "0.1"
    box.check()
    settled(page)
    assert part(page, "0.1").get_attribute("data-off") is not None, "and it follows the other ones"


def test_a_switch_of_the_overview_asks_for_a_prediction_first(opened):
    page = opened()
    tab(page, "Overview")
    page.get_by_label("I predict first").check()
    part(page, "0.n").press("Delete")
    settled(page)
    assert not page.locator(".lm-map").is_visible()
    assert page.evaluate("document.activeElement.textContent") == "less likely"
    page.keyboard.press("Enter")
    assert part(page, "0.n").get_attribute("data-off") is not None
    assert page.locator(".lm-map").is_visible()


def test_a_card_leads_to_the_view_of_its_part(opened):
    page = opened()
    for place, under, then in (
        ("1.2", "Heads", "Layer 1, head 2"),
        ("0.n", "Numbers", "blocks.0.feedforward.neurons at position 4"),
        ("1.b", "Lens", "after block 1"),
    ):
        tab(page, "Overview")
        part(page, place).click()
        page.get_by_role("button", name=f"See it under {under}").click()
        settled(page)
        assert then in page.get_by_role("tabpanel", name=under).inner_text()
        assert page.evaluate("document.activeElement.textContent") == under
        tab(page, "Overview")
        assert part(page, place).get_attribute("aria-expanded") == "true", "it is as it was left"
        part(page, place).click()
        assert page.locator(".lm-card").count() == 0


def test_a_head_shows_at_which_tokens_it_looks(opened, shown):
    page, model = opened(), shown[0].model
    tab(page, "Overview")
    with torch.no_grad(), capture(model, "blocks.0.attention.pattern") as seen:
        model(torch.tensor([TOKENS]))
    right = seen["blocks.0.attention.pattern"][0, 1, 4].sqrt().numpy()
    shares = (
        "nodes => nodes.filter(n => !n.hidden).map(n => +n.style.getPropertyValue('--lm-share'))"
    )
    tokens = page.locator(".lm-token")
    assert not any(tokens.evaluate_all(shares))
    part(page, "0.1").hover()
    assert np.allclose(tokens.evaluate_all(shares), right[::-1], atol=6e-4)
    page.mouse.move(2, 2)
    assert not any(tokens.evaluate_all(shares))
    assert tokens.locator("visible=true").all_inner_texts() == [WORDS[t] for t in TOKENS][::-1]


def test_a_next_token_is_appended_where_the_text_ends(opened, shown):
    page = opened()
    tab(page, "Overview")
    first = page.locator(".lm-next").first
    word = first.locator("bdi").inner_text()
    first.click()
    settled(page)
    assert page.locator("textarea").input_value() == f"the cat saw dogs and {word}"
    assert f"Position 5, after “{word}”" in readout(page)
    page.locator(".lm-strip button").nth(1).click()
    settled(page)
    assert first.get_attribute("aria-disabled") == "true"
    first.click(force=True)
    settled(page)
    assert page.locator("textarea").input_value() == f"the cat saw dogs and {word}"


def test_only_what_has_changed_is_painted_and_only_where_it_is_seen(opened):
    page = opened(
        before="window.painted = 0; const put = CanvasRenderingContext2D.prototype.putImageData;"
        "CanvasRenderingContext2D.prototype.putImageData = function (...all) "
        "{ painted += 1; put.apply(this, all); };"
    )
    tab(page, "Overview")
    assert page.evaluate("painted") == 2 * (3 + 1)
    page.evaluate("window.painted = 0")
    off(page, "layer 1, network")
    assert page.evaluate("painted") == 0, "what it has computed is only not added"
    off(page, "layer 0, head 1")
    assert page.evaluate("painted") == 3 + 2, "both networks, and the heads that come after"
    tab(page, "Next token")
    page.evaluate("window.painted = 0")
    type_in(page, "dogs saw")
    assert page.evaluate("painted") == 0


def test_an_address_brings_the_overview_back(opened):
    page = opened()
    tab(page, "Overview")
    part(page, "1.0").click()
    page.get_by_role("button", name="Switch off head 1.0").click()
    settled(page)
    page.get_by_role("button", name="Share").click()
    address = page.get_by_label("Address of this state").first.input_value()
    other = opened(hash=address[address.index("#") :])
    settled(other)
    assert part(other, "1.0").get_attribute("data-off") is not None
    assert other.get_by_role("group", name="Head 1.0", exact=True).is_visible()


def test_on_paper_an_open_overview_is_printed_and_light(opened):
    page = opened(theme="dark")
    tab(page, "Overview")
    part(page, "0.0").click()
    page.emulate_media(media="print")
    page.locator(".lm-live[data-theme=light]").wait_for()
    assert page.locator(".lm-map").is_visible()
    assert page.locator(".lm-readout").is_visible()
    for hidden in (".lm-static img", "textarea", ".lm-off", ".lm-tabs", ".lm-card button"):
        assert not page.locator(hidden).first.is_visible(), hidden
    page.emulate_media(media="screen")
    page.locator(".lm-live[data-theme=dark]").wait_for()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".lm-live").get_attribute("data-theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".lm-live").get_attribute("data-theme") == "dark"
    tab(page, "Lens")
    page.emulate_media(media="print")
    assert page.locator(".lm-static img").is_visible()


def problems(page):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    small = page.locator(".lm-live :is(button, select, summary, label)").evaluate_all(
        "nodes => nodes.filter(n => n.offsetParent && Math.min(n.offsetWidth, n.offsetHeight) < 24)"
        ".map(n => n.outerHTML.slice(0, 90))"
    )
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [
        *((v["id"], [n["target"] for n in v["nodes"]]) for v in found),
        *small,
        *([over] if over > 0 else []),
    ]


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_accessible_wide_and_narrow_with_parts_off_and_a_card(opened, width, theme):
    page = opened(width=width, theme=theme)
    tab(page, "Overview")
    off(page, "layer 0, head 1")
    off(page, "layer 1, network")
    part(page, "0.n").click()
    settled(page)
    assert problems(page) == []
    across = page.locator(".lm-map.lm-across").count()
    assert across == (width > 360), "from left to right where there is room"
    card, block = page.locator(".lm-card").bounding_box(), part(page, "1.0").bounding_box()
    if across:
        assert card["y"] > block["y"] + block["height"], "the card stands under the picture"
    else:
        assert card["y"] + card["height"] < block["y"], "the card stands under its block"
    page.get_by_label("In its place", exact=True).select_option("mean")
    off(page, "layer 1, whole block")
    assert problems(page) == []
    part(page, "0.n").click()
    last = page.locator(".lm-next:visible").last.bounding_box()
    note = page.locator(".lm-overview .lm-note").last.bounding_box()
    assert last["y"] + last["height"] <= note["y"], "the likeliest tokens have room"


def test_turning_a_telephone_lays_it_out_anew(opened):
    page = opened(width=360)
    tab(page, "Overview")
    assert page.locator(".lm-map.lm-across").count() == 0
    part(page, "1.1").focus()
    page.set_viewport_size({"width": 900, "height": 400})
    page.locator(".lm-map.lm-across").wait_for()
    assert page.evaluate("document.activeElement.dataset.place") == "1.1"
    assert part(page, "1.1").get_attribute("data-share")


@pytest.mark.parametrize(
    "changes", [{"n_layers": 5, "n_heads": 12}, {"placement": "post"}, {"norm": "none"}]
)
def test_other_models_scroll_in_their_own_box(opened, changes, tmp_path, shown):
    bench = live(model_of(CONFIG.replace(**changes)), ["the cat saw dogs and"], tokens=WORDS)
    vars(bench)["static"] = shown[0].static
    path = bench.save(tmp_path / "other.html")
    for width in (360, 1000):
        page = opened(path=path, width=width)
        tab(page, "Overview")
        assert problems(page) == []
        agrees(page, bench.model, 4)
        config = bench.model.config
        norms = 2 * config.n_layers + (config.placement == "pre")
        assert page.locator(".lm-norm").count() == (0 if config.norm == "none" else norms)
