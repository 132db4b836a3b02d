"""The models that the book's pages serve, beside the library: 50 sentences that no model was trained on.

What the library computes with is what the page has: weights, kept sentences and lens come out of the served
bytes, and nothing else is given to it.
"""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from measured_book.rooms.one_sitting.live import live_heads
from measured_book.rooms.workbench.live import live_byte_model, live_story_model
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.tasks.task import Batch

CLOSE = 1e-4
SERVED = {"bytes": live_byte_model, "stories": live_story_model, "heads": live_heads}
SENTENCES = 50
MOST = {"bytes": 1.45e6, "stories": 2e6, "heads": 0.5e6}
"""Bytes that a page fetches, at most."""


@pytest.fixture(scope="module", params=SERVED)
def served(request, browser):
    """A live model, its weights' script as a page has it, and a page that has unpacked them."""
    bench = SERVED[request.param]()
    soup = BeautifulSoup(bench.html, "html.parser")
    text = soup.select_one(".lm-weights").string.strip()
    page = browser.new_page()
    engine = files("measured_transformer.viewer").joinpath("live_engine.js").read_text("utf-8")
    page.add_script_tag(content=f"{engine}\nwindow.engine = liveEngine();")
    page.evaluate(
        """([told, text]) => {
          window.model = engine.unpack(told, Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer);
          window.ran = (tokens, experiment, taps) => {
            const run = engine.forward(model, tokens, engine.changesOf(model, experiment, tokens.length));
            const upTo = (rows) => tokens.length * (rows.length / run.room);
            return taps.map((tap) => Array.from(run.taps[tap].subarray(0, upTo(run.taps[tap]))));
          };
        }""",
        [bench._data["packed"], text],
    )
    yield request.param, bench, page, text
    page.close()


def sentences(bench):
    """Kept sentences of which none is given whole, so that lengths differ."""
    return [row[: 4 + i % 45].tolist() for i, row in enumerate(bench.kept[:SENTENCES])]


def ran(page, tokens, taps, **experiment):
    told = {"off": [], "instead": "zero", "donor": 0, "patch": None, "steer": None, "switches": []}
    found = page.evaluate(
        "([tokens, experiment, taps]) => ran(tokens, experiment, taps)",
        [tokens, told | experiment, taps],
    )
    return [np.array(each, np.float64) for each in found]


def gap(found, wanted):
    return float(np.abs(found.reshape(wanted.shape) - wanted.double().numpy()).max())


@torch.no_grad()
def test_logits_patterns_lenses_ablations_and_patches(served):
    _, bench, page, _ = served
    model = bench.model
    last = model.config.n_layers - 1
    pattern, stream = f"blocks.{last}.attention.pattern", f"blocks.{last - 1}.residual_post"
    worst = dict.fromkeys(("logits", "pattern", "lens", "ablation", "patch"), 0.0)
    rows = sentences(bench)
    assert len(rows) == SENTENCES
    for i, tokens in enumerate(rows):
        given, n = torch.tensor([tokens]), len(tokens)
        with capture(model, pattern, stream) as seen:
            logits = model(given)[0]
        found, looked = ran(page, tokens, ["logits", pattern])
        worst["logits"] = max(worst["logits"], gap(found, logits))
        looked = looked.reshape(n, model.config.n_heads, -1)[..., :n]
        worst["pattern"] = max(worst["pattern"], gap(looked, seen[pattern][0].transpose(0, 1)))
        for tuned in [False, *([True] if bench.lens else [])]:
            states = seen[stream]
            if tuned:
                states = states + states @ bench.lens.weight[last] + bench.lens.bias[last]
            read = page.evaluate(
                """([tokens, depth, tuned]) => {
                  const run = engine.forward(model, tokens);
                  return Array.from(engine.lens(model, run, { changes: [], switches: [] }, depth, tuned));
                }""",
                [tokens, last, tuned],
            )
            worst["lens"] = max(worst["lens"], gap(np.array(read), model.unembed(states)[0]))
        head = i % model.config.n_heads
        cut = bench.kept[:, :n]
        reference = Batch(cut, cut, torch.ones_like(cut, dtype=torch.bool))
        parts = [Component("blocks.0.attention.mixed", head), Component("blocks.1.feedforward.out")]
        with ablated(model, parts, "mean", reference=reference):
            wanted = model(given)[0]
        found = ran(page, tokens, ["logits"], off=[f"0.{head}", "1.n"], instead="mean")[0]
        worst["ablation"] = max(worst["ablation"], gap(found, wanted))
        other, place = rows[(i + 1) % SENTENCES], min(n, len(rows[(i + 1) % SENTENCES])) - 1
        with capture(model, stream) as seen:
            model(torch.tensor([other]))
        with intervene(model, {stream: at(seen[stream][:, [place]], positions=place)}):
            wanted = model(given)[0]
        told = {"tokens": other, "tap": stream, "head": None, "position": place, "row": place}
        worst["patch"] = max(
            worst["patch"], gap(ran(page, tokens, ["logits"], patch=told)[0], wanted)
        )
    assert max(worst.values()) < CLOSE, worst


def test_sampling_with_a_seed_gives_the_library_s_tokens(served):
    _, bench, page, _ = served
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
    name, bench, page, _ = served
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
    name, bench, _, text = served
    assert len(text) < MOST[name]
    data = {key: value for key, value in bench._data.items() if key != "packed"}
    assert len(re.sub(r"\s", "", str(data))) < 80_000, "names and merges stand in the page itself"
