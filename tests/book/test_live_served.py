"""The models that the book's pages serve, beside the library: 50 sentences that no model was trained on,
also of other scripts, of one token and of as many as there is room for.

The page has nothing but the bytes that it is served: weights, kept sentences and lens come out of them.
"""

from __future__ import annotations

import base64
import re
from importlib.resources import files

import pytest
import torch
from in_page import PACKING, gap, taken
from measured_book.rooms.one_sitting.live import live_heads
from measured_book.rooms.workbench.live import live_byte_model, live_story_model
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.tasks.task import Batch
from measured_transformer.viewer.live import MAX_TOKENS, _cut

CLOSE = 1e-4
SERVED = {"bytes": live_byte_model, "stories": live_story_model, "heads": live_heads}
SENTENCES = 50
MOST = {"bytes": 1.35e6, "stories": 1.05e6, "heads": 0.3e6}
"""Bytes that a page fetches, at most."""


@pytest.fixture(scope="module")
def page(browser):
    """A page with the engine, for all models."""
    page = browser.new_page()
    engine = files("measured_transformer.viewer").joinpath("live_engine.js").read_text("utf-8")
    page.add_script_tag(content=f"{engine}\nwindow.engine = liveEngine();{PACKING}")
    page.evaluate(
        """() => {
          // Taps of a run of the model under an experiment, without the room for longer texts.
          const ran = (tokens, experiment, taps) => {
            const run = engine.forward(model, tokens, engine.changesOf(model, experiment, tokens.length));
            const upTo = (rows) => tokens.length * (rows.length / run.room);
            return taps.map((tap) => run.taps[tap].subarray(0, upTo(run.taps[tap])));
          };
          // All that is asked about a sentence: logits and a pattern, the lenses, and logits of experiments.
          window.asked = ([tokens, pattern, depth, lenses, experiments]) => {
            const run = engine.forward(model, tokens);
            const whole = { changes: [], switches: [] };
            return handed([...ran(tokens, {}, ["logits", pattern]),
              ...lenses.map((tuned) => engine.lens(model, run, whole, depth, tuned)),
              ...experiments.flatMap((experiment) => ran(tokens, experiment, ["logits"]))]);
          };
        }"""
    )
    yield page
    page.close()


@pytest.fixture(scope="module", params=SERVED)
def served(request, page):
    """The name of a live model, the model, and a page that has unpacked it."""
    bench = SERVED[request.param]()
    page.evaluate(
        """([told, text]) => {
          window.model = engine.unpack(told, Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer);
        }""",
        [bench._data["packed"], base64.b64encode(bench.packed).decode()],
    )
    return request.param, bench, page


TYPED = (
    "a", "\u00e9", "\U0001f600", " ", "\x00\x1f\x7f",
    "\u65e5\u672c\u8a9e \u0438 \u0440\u0443\u0441\u0441\u043a\u0438\u0439",
    "\u0645\u0631\u062d\u0628\u0627 e\u0301\u200d",
    "na\u00efve \u2014 \u201cx\u201d \u2026 " * 9,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 9,
    "The end of the list. " * 20,
)  # fmt: skip
"""What readers may type, of one token and of more than there is room for; of it what the model knows."""


def sentences(bench):
    """Kept sentences of which none is given whole, so that lengths differ, and what readers type."""
    data = bench._data
    flat = data["merges"]
    merges = flat and list(zip(flat[::2], flat[1::2], strict=True))
    cut = (_cut(text, data["cut"], data["words"], merges)[-MAX_TOKENS:] for text in TYPED)
    typed = [tokens for tokens in cut if tokens]
    assert {len(tokens) for tokens in typed} >= {1, MAX_TOKENS}
    kept = bench.kept[: SENTENCES - len(typed)]
    return [*(row[: 4 + i % 45].tolist() for i, row in enumerate(kept)), *typed]


@torch.no_grad()
def test_logits_patterns_lenses_ablations_and_patches(served):
    _, bench, page = served
    model = bench.model
    last = model.config.n_layers - 1
    pattern, stream = f"blocks.{last}.attention.pattern", f"blocks.{last - 1}.residual_post"
    lenses = [False, *([True] if bench.lens else [])]
    worst = dict.fromkeys(("logits", "pattern", "lens", "ablation", "patch"), 0.0)
    rows = sentences(bench)
    assert len(rows) == SENTENCES
    for i, tokens in enumerate(rows):
        given, n = torch.tensor([tokens]), len(tokens)
        other, head = rows[(i + 1) % SENTENCES], i % model.config.n_heads
        place = min(n, len(other)) - 1
        cut = {"off": [f"0.{head}", "1.n"], "instead": "mean"}
        patch = {"tokens": other, "tap": stream, "head": None, "position": place, "row": place}
        found = page.evaluate(
            "(given) => asked(given)", [tokens, pattern, last, lenses, [cut, {"patch": patch}]]
        )
        logits, looked, *read, without, patched = taken(found)
        with capture(model, pattern, stream) as seen:
            worst["logits"] = max(worst["logits"], gap(logits, model(given)[0]))
        looked = looked.reshape(n, model.config.n_heads, -1)[..., :n]
        worst["pattern"] = max(worst["pattern"], gap(looked, seen[pattern][0].transpose(0, 1)))
        for tuned, one in zip(lenses, read, strict=True):
            states = seen[stream]
            if tuned:
                states = states + states @ bench.lens.weight[last] + bench.lens.bias[last]
            worst["lens"] = max(worst["lens"], gap(one, model.unembed(states)[0]))
        kept = bench.kept[:, :n]
        reference = Batch(kept, kept, torch.ones_like(kept, dtype=torch.bool))
        parts = [Component("blocks.0.attention.mixed", head), Component("blocks.1.feedforward.out")]
        with ablated(model, parts, "mean", reference=reference):
            worst["ablation"] = max(worst["ablation"], gap(without, model(given)[0]))
        with capture(model, stream) as seen:
            model(torch.tensor([other]))
        with intervene(model, {stream: at(seen[stream][:, [place]], positions=place)}):
            worst["patch"] = max(worst["patch"], gap(patched, model(given)[0]))
    assert max(worst.values()) < CLOSE, worst


def test_sampling_with_a_seed_gives_the_library_s_tokens(served):
    _, bench, page = served
    for seed in (0, 7):
        for tokens in sentences(bench)[:3]:
            strategy = Sampling(torch.Generator().manual_seed(seed), temperature=0.8, top_p=0.9)
            wanted = generate(bench.model, [tokens], max_new_tokens=24, strategy=strategy).tokens[0]
            found = page.evaluate(
                "([tokens, sampling]) => engine.sample(model, { tokens, sampling, count: 24 })",
                [tokens, {"seed": seed, "temperature": 0.8, "topP": 0.9}],
            )
            assert found == wanted.tolist()


def test_texts_are_cut_in_the_page_as_in_the_library(served):
    name, bench, page = served
    if name != "stories":
        pytest.skip("bytes and characters need no merges")
    from measured_book.rooms.workbench.stories import encoded, told

    texts = [*(told(4_000_000 + i) for i in range(60)), "Zürich, naïve — “x” 42\r\n\tend", ""]
    found = page.evaluate(
        """([merges, texts]) => {
          const { encode, decode } = engine.pieces(merges);
          return texts.map((text) => [encode(text), decode(encode(text))]);
        }""",
        [bench._data["merges"], texts],
    )
    assert [tokens for tokens, _ in found] == [encoded(text) for text in texts]
    assert [back for _, back in found] == texts


def test_what_a_page_fetches_is_small(served):
    name, bench, _ = served
    assert len(base64.b64encode(bench.packed)) < MOST[name]
    data = {key: value for key, value in bench._data.items() if key != "packed"}
    assert len(re.sub(r"\s", "", str(data))) < 80_000, "names and merges stand in the page itself"
