"""Small live cells in a browser: they begin with what the library computes, and follow their levers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.sizes import count_flops, count_parameters
from measured_transformer.parts.attention import causal_mask, window_mask
from measured_transformer.parts.positions import Rotation, rotation, sinusoidal_encoding
from measured_transformer.training.schedules import InverseSquareRoot, WarmupCosine, WarmupLinear
from measured_transformer.viewer.live_lever import kinds, live_lever

KINDS = list(kinds())


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """All levers on one page, each with the first one's drawing: the book prints every lever's own."""
    levers = [live_lever(kind) for kind in KINDS]
    for other in levers[1:]:
        vars(other)["static"] = levers[0].static
    path = levers[0].save(tmp_path_factory.mktemp("levers") / "levers.html")
    more = "".join(each.html for each in levers[1:])
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
    """A new page; whatever it complains about is written down."""
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    return page


@pytest.fixture
def opened(browser, usual, page_file):
    usual_page, complaints = usual
    complaints.clear()
    contexts = []

    def open_page(width=1000, theme="light", **more):
        if (width, theme, more) == (1000, "light", {}):
            page = usual_page
            page.emulate_media(media="screen")
        else:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=theme, **more
            )
            contexts.append(context)
            page = watched(context, complaints)
        page.goto(page_file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def cell(page, kind):
    return page.locator(".live-model").nth(KINDS.index(kind))


def moved(page, kind, **levers):
    """Set levers by their names, and give what is drawn."""
    box = cell(page, kind)
    for label, value in levers.items():
        control = box.get_by_label(label.replace("_", " "), exact=True)
        if control.evaluate("each => each.type") == "checkbox":
            control.set_checked(value)
        elif control.evaluate("each => each.tagName") == "SELECT":
            control.select_option(value)
        else:
            control.fill(str(value))
    return box.evaluate("each => each.seen"), box.locator(".lm-readout").inner_text()


def values(seen):
    """Name -> what is drawn, whatever the chart."""
    if "cells" in seen:
        return {"allowed": np.array(seen["cells"])}
    return {name: np.array(each) for name, each in seen.get("series") or seen["arrows"]}


def test_each_begins_with_what_the_library_computes(opened):
    page = opened()
    for kind in KINDS:
        found = values(cell(page, kind).evaluate("each => each.seen"))
        wanted = live_lever(kind).seen
        assert found.keys() == wanted.keys(), kind
        for name in wanted:
            assert np.allclose(found[name], wanted[name], atol=1e-6), (kind, name)


def test_softmax_at_another_temperature(opened):
    seen, words = moved(opened(), "softmax", Temperature=0.5, Score_of_b=3)
    right = (torch.tensor([2.0, 3.0, 0.0, -1.0], dtype=torch.float64) / 0.5).softmax(-1)
    assert np.allclose(values(seen)["weight"], right)
    entropy = -float((right * right.log()).sum())
    assert words.startswith(f"b gets {right[1]:.2f}; entropy {entropy:.2f} nats")


def test_sinusoids_keep_their_similarity_when_both_move(opened):
    page = opened()
    curve = values(moved(page, "sinusoids", Position=20)[0])["similarity"]
    seen, words = moved(page, "sinusoids", Position=3, Offset=-2)
    assert np.allclose(values(seen)["similarity"], curve)
    table = sinusoidal_encoding(4, 64).double()
    assert f"positions 3 and 1 have similarity {float(table[3] @ table[1]) / 32:.2f}" in words


def test_rotation_scores_depend_on_the_offset(opened):
    page = opened()
    words = [
        moved(page, "rotation", Position_of_the_query=q, Position_of_the_key=k)[1]
        for q, k in ((9, 6), (19, 16), (9, 8))
    ]
    assert words[0] == words[1] != words[2]
    turned: Rotation = rotation(20, 2)
    angle = math.radians(20)
    x = torch.tensor([[1.0, 0.0]]).expand(20, 2)
    assert turned.apply(x[None, None]).shape == (1, 1, 20, 2)
    assert f"score {math.cos(3 * angle):.2f}" in words[0]


def test_masks_combine_and_an_empty_row_is_told(opened):
    page = opened()
    seen, words = moved(page, "mask", Keys_that_a_query_sees_at_most=3, Padded_tokens_at_the_end=2)
    right = causal_mask(8) & window_mask(8, window=3)
    right[:, 6:] = False
    assert np.array_equal(values(seen)["allowed"], right.int().numpy())
    assert words.startswith(f"{int(right.sum())} of 64 pairs are allowed.")
    _, words = moved(
        page, "mask", Keys_that_a_query_sees_at_most=1, Padded_tokens_at_the_end=1, Nobody_looks_ahead=False
    )  # fmt: skip
    assert "One query sees nothing" in words


def test_norms_are_blind_to_what_they_are_blind_to(opened):
    page = opened()
    for norm, shifted in (("layer", True), ("rms", False)):
        first = values(moved(page, "norm", Norm=norm, Add_to_all_entries=0)[0])["after"]
        found, _ = moved(page, "norm", Add_to_all_entries=2, Multiply_all_entries_by=1)
        assert np.allclose(values(found)["after"], first, atol=1e-4) == shifted
        x = torch.tensor([1.0, 2.0, 0.5, -1.0]) + 2
        own = torch.nn.functional.layer_norm if norm == "layer" else torch.nn.functional.rms_norm
        assert np.allclose(values(found)["after"], own(x, (4,), eps=1e-5), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "made"), [("cosine", WarmupCosine), ("linear", WarmupLinear), ("root", None)]
)
def test_schedules_are_the_library_s(opened, name, made):
    seen, words = moved(
        opened(), "schedule", Schedule=name, Look_at_step=150, **{"Steps of warm-up": 57}
    )
    rate = InverseSquareRoot(57) if made is None else made(57, 200)
    right = [rate(step) for step in range(200)]
    assert np.allclose(values(seen)["share of the highest rate"], right)
    assert f"the rate is {right[150]:.2f} of its highest" in words


def test_a_cache_takes_what_its_numbers_take(opened):
    seen, words = moved(
        opened(), "cache", Tokens_read_and_written=2000, Heads_of_keys_and_values=3, A_number_takes="4"
    )  # fmt: skip
    assert np.allclose(
        values(seen)["megabytes"], np.array([3, 12, 1]) * 2 * 2000 * 12 * 64 * 4 / 1e6
    )
    assert words.startswith("2 × 2,000 × 12 × 3 × 64 numbers take")  # noqa: RUF001


def test_parameters_and_operations_are_those_that_the_library_counts(opened):
    seen, words = moved(
        opened(), "count", Width_of_the_stream=576, Blocks=30, Heads_of_queries=9,
        Heads_of_keys_and_values=3, Width_of_a_head=64, Neurons_of_a_network=1536,
        Tokens_in_the_vocabulary=49152, One_matrix_embeds_and_unembeds=True, Tokens_read_at_once=512,
    )  # fmt: skip
    config = Config(
        vocab=49152, d_model=576, n_layers=30, n_heads=9, n_kv_heads=3, d_ff=1536, norm="rms",
        positions="rotary", activation="swiglu", bias=False, tie_embeddings=True,
    )  # fmt: skip
    held, done = count_parameters(config, "decoder"), count_flops(config, "decoder", length=512)
    assert held.total == 134_515_008, "as published"
    found = values(seen)
    wanted = np.array([held.attention, held.feedforward, held.embedding + held.head]) / held.total
    assert np.allclose(found["share of the parameters"], wanted)
    wanted = np.array([done.attention, done.feedforward, done.head]) / done.total
    assert np.allclose(found["share of the operations"], wanted)
    assert words.startswith("134.52 million parameters; the networks have 3.0 times those")
    assert f"takes {done.total / 1e9:.2f} billion operations" in words
    _, words = moved(opened(), "count", Networks_have_a_gate=False, Heads_of_queries=30)
    assert words.endswith("But 30 heads of queries cannot share 8 heads of keys and values evenly.")


def test_a_key_moves_a_lever_and_what_is_seen_is_said(opened):
    page = opened()
    lever = cell(page, "softmax").get_by_label("Temperature", exact=True)
    lever.focus()
    page.keyboard.press("ArrowRight")
    assert lever.get_attribute("aria-valuetext") == "1.10"
    page.wait_for_timeout(600)
    said = cell(page, "softmax").get_by_role("status").text_content()
    assert said == cell(page, "softmax").locator(".lm-readout").inner_text()
    assert cell(page, "softmax").get_by_role("img").get_attribute("aria-label") == said


SEEN = "JSON.stringify([box.seen, box.querySelector('.lm-live').innerText])"
FOCUS = f"""(box, at) => {{
  const lever = box.querySelectorAll(".lm-levers :is(input, select)")[at];
  lever.focus();
  const back = lever.type === "range" ? lever.value === lever.max : lever.selectedIndex > 0;
  const keys = {{ checkbox: "Space", range: back ? "ArrowLeft" : "ArrowRight" }};
  return [keys[lever.type] || (back ? "ArrowUp" : "ArrowDown"), {SEEN}];
}}"""


def test_every_lever_of_every_cell_obeys_a_key(opened):
    page = opened()
    count = 0
    for kind in KINDS:
        box = cell(page, kind)
        for at in range(box.locator(".lm-levers :is(input, select)").count()):
            key, before = box.evaluate(FOCUS, at)
            page.keyboard.press(key)
            assert box.evaluate(f"box => {SEEN}") != before, (kind, at)
            count += 1
    assert count > 30


@pytest.mark.parametrize(("width", "theme"), [(1000, "light"), (360, "dark")])
def test_accessible_and_never_wider_than_the_screen(opened, width, theme):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(width=width, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(v["id"], [n["target"] for n in v["nodes"]]) for v in found] == []
    small = page.locator(".lm-live :is(input, select)").evaluate_all(
        "nodes => nodes.filter(n => n.type !== 'checkbox' && n.offsetHeight < 24).length"
    )
    assert small == 0  # WCAG 2.5.8


def test_without_scripts_and_on_paper_the_drawing_stays(opened):
    page = opened(java_script_enabled=False)
    assert page.locator(".lm-static img").first.is_visible()
    page = opened()
    assert not page.locator(".lm-static img").first.is_visible()
    page.emulate_media(media="print")
    assert page.locator(".lm-static img").first.is_visible()
    assert not page.locator(".lm-live").first.is_visible()


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        ("levers", {}, "expected one of softmax"),
        ("mask", {"m": 3}, "among n, window, padding; got m"),
        ("softmax", {"scores": (1.0,)}, "two to six scores"),
        ("norm", {"norm": "batch"}, "norm as one of layer, rms"),
        ("schedule", {"schedule": "step"}, "schedule as one of cosine"),
        ("schedule", {"warmup": 300}, "a warm-up shorter than 200"),
        ("count", {"groups": 5}, "share evenly, got 32 heads and 5 groups"),
    ],
)
def test_what_does_not_fit_is_refused(kind, options, why):
    with pytest.raises(ValueError, match=why):
        live_lever(kind, **options)
