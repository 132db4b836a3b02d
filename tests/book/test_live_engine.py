"""The engine of a live model in Chromium, beside the library: everything that it computes within 1e-4."""

from __future__ import annotations

import base64
import random
from contextlib import ExitStack
from functools import partial
from importlib.resources import files

import numpy as np
import pytest
import torch
from in_page import PACKING, gap, taken
from measured_transformer import Config, Decoder
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.analysis.lens import TunedLens, lens_logits
from measured_transformer.analysis.steering import SteeringVector, steer
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.names import taps
from measured_transformer.parts.norms import LayerNorm, PlainLayerNorm
from measured_transformer.tasks.byte_pairs import decode, encode, learn_merges
from measured_transformer.tasks.task import Batch
from measured_transformer.viewer.live_weights import in_eight_bits, pack, rounded

CLOSE = 1e-4
BASE = Config(vocab=24, d_model=32, n_layers=2, n_heads=4, positions="rotary")
# Of each choice that the engine knows at least one; sizes that are no multiple of four as well.
CONFIGS = {
    "rotary": BASE,
    "halves": BASE.replace(rotary_pairing="halves", rotary_share=0.5, norm="rms", bias=False),
    "groups": BASE.replace(n_kv_heads=2, activation="swiglu", norm="rms", norm_offset=1.0, d_ff=30),
    "sinusoidal": BASE.replace(positions="sinusoidal", placement="post", activation="relu"),
    "learned": BASE.replace(positions="learned", initialisation="gpt2", activation="gelu_tanh"),
    "alibi": BASE.replace(positions="alibi", n_heads=3, d_head=6, norm="layer_plain", tie_embeddings=True),
    "none": BASE.replace(positions="none", norm="none", activation="silu", head_bias=True),
    "eight bits": BASE.replace(tie_embeddings=True, d_model=24, d_ff=90),
    "others": BASE.replace(
        vocab=23, positions="sinusoidal_halves", activation="geglu", attention_scale=0.2, logit_scale=0.7
    ),
}  # fmt: skip
LENGTH, ROOM, SENTENCES = 16, 40, 50


def made(name):
    """A model of random weights, also in its norms and biases."""
    torch.manual_seed(sorted(CONFIGS).index(name))
    model = Decoder(CONFIGS[name]).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return rounded(model, bits_of(name))


def bits_of(name):
    return 8 if name == "eight bits" else 16


def lens_of(model):
    """A lens of random maps, as half precision holds them; the last one does nothing."""
    torch.manual_seed(3)
    depths, width = model.config.n_layers + 1, model.config.d_model
    weight, bias = 0.1 * torch.randn(depths, width, width), torch.randn(depths, width)
    weight[-1], bias[-1] = 0, 0
    return TunedLens(weight.half().float(), bias.half().float(), (np.zeros(depths),) * 2)


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page()
    engine = files("measured_transformer.viewer").joinpath("live_engine.js").read_text("utf-8")
    start = "window.engine = liveEngine(); window.models = {};"
    page.add_script_tag(content=f"{engine}\n{start}{PACKING}")
    page.evaluate(
        """() => {
          window.unpacked = ([name, told, text]) => {
            const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
            models[name] = engine.unpack(told, bytes.buffer);
          };
          // What a tap has passed under an experiment, and the logits.
          window.run = ([name, tokens, experiment, wanted]) => {
            const model = models[name];
            const how = engine.changesOf(model, experiment, tokens.length);
            const run = engine.forward(model, tokens, how);
            const width = (tap) => run.taps[tap].length / run.room;
            return handed(wanted.map((tap) => run.taps[tap].subarray(0, tokens.length * width(tap))));
          };
        }"""
    )
    yield page
    page.close()


@pytest.fixture(scope="module")
def models(page):
    """Each model, its kept sentences, and random sentences; the page has unpacked the model."""
    found = {}
    for name, config in CONFIGS.items():
        model = made(name)
        generator = torch.Generator().manual_seed(7)
        kept = torch.randint(config.vocab, (6, LENGTH), generator=generator)
        told, packed = pack(model, kept, ROOM, bits=bits_of(name), lens=lens_of(model))
        page.evaluate("(given) => unpacked(given)", [name, told, base64.b64encode(packed).decode()])
        found[name] = (model, kept)
    return found


def sentences(count, vocab, seed=0, longest=LENGTH):
    drawn = random.Random(seed)
    return [
        [drawn.randrange(vocab) for _ in range(drawn.randint(2, longest))] for _ in range(count)
    ]


def experiment(**given):
    return {
        "off": [],
        "instead": "zero",
        "donor": 0,
        "patch": None,
        "steer": None,
        "switches": [],
    } | given


def ran(page, name, tokens, told, wanted=("logits",)):
    return taken(page.evaluate("(given) => run(given)", [name, tokens, told, list(wanted)]))


def rows(value):
    """A tap's value as the engine has it: (position, head, width), without the batch."""
    value = value[0]
    return (value.transpose(0, 1) if value.ndim == 3 else value).flatten(1).numpy()


@torch.no_grad()
def logits_of(model, tokens):
    return model(torch.tensor([tokens]))[0].numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_every_tap_of_random_sentences(page, models, name):
    model, _ = models[name]
    names = page.evaluate("(name) => engine.tapNames(models[name])", name)
    assert set(names) == set(taps(model)), "the page knows the library's taps, by its names"
    for i, tokens in enumerate(
        sentences(SENTENCES if name in ("rotary", "eight bits") else 6, model.config.vocab)
    ):
        with torch.no_grad(), capture(model) as seen:
            model(torch.tensor([tokens]))
        asked = [each for each in names if not each.endswith("head_outputs")]
        if i > 5:  # enough of those that take long to send
            asked = ["blocks.0.attention.pattern", "blocks.1.attention.pattern", "logits"]
        found = dict(zip(asked, ran(page, name, tokens, experiment(), asked), strict=True))
        for tap, value in found.items():
            wanted = rows(seen[tap])
            if tap.endswith(("scores", "pattern")):  # the page has room for more keys
                value = value.reshape(len(tokens), model.config.n_heads, ROOM)[..., : len(tokens)]
                if tap.endswith("scores"):  # compared where anybody looks
                    seen_by = np.tri(len(tokens), dtype=bool)[:, None]
                    value = np.where(seen_by, value, 0)
                    wanted = np.where(seen_by, wanted.reshape(value.shape), 0)
            assert gap(value, wanted) < CLOSE, tap


def test_the_lens_reads_each_depth(page, models):
    for name in ("rotary", "sinusoidal", "none", "others"):
        model, _ = models[name]
        for tokens in sentences(8, model.config.vocab, seed=1):
            wanted = lens_logits(model, torch.tensor([tokens]))[:, 0].numpy()
            found = page.evaluate(
                """([name, tokens]) => {
                  const model = models[name];
                  const run = engine.forward(model, tokens);
                  const read = (depth) => engine.lens(model, run, { changes: [], switches: [] }, depth);
                  return Array.from({ length: model.L + 1 }, (_, depth) =>
                    Array.from(read(depth).subarray(0, tokens.length * model.V)));
                }""",
                [name, tokens],
            )
            assert gap(np.array(found), wanted) < CLOSE


@torch.no_grad()
def test_the_tuned_lens_reads_each_depth_also_of_a_changed_model(page, models):
    for name in ("rotary", "sinusoidal", "eight bits"):
        model, _ = models[name]
        lens = lens_of(model)
        for i, tokens in enumerate(sentences(8, model.config.vocab, seed=1)):
            off = ["0.1"] * (i % 2)
            with ablated(model, components(off), "zero"), capture(model, *STREAM) as seen:
                model(torch.tensor([tokens]))
            states = torch.stack([seen[each] for each in STREAM])
            wanted = torch.stack([model.unembed(each[0]) for each in lens.translated(states)])
            asked = sorted(random.Random(i).sample(range(len(tokens)), (len(tokens) + 1) // 2))
            found = page.evaluate(
                """([name, tokens, experiment, asked]) => {
                  const model = models[name];
                  const how = engine.changesOf(model, experiment, tokens.length);
                  const run = engine.forward(model, tokens, how);
                  return Array.from({ length: model.L + 1 }, (_, depth) =>
                    Array.from(engine.lens(model, run, how, depth, true, asked)));
                }""",
                [name, tokens, experiment(off=off), asked],
            )
            assert gap(np.array(found), wanted[:, asked].numpy()) < CLOSE
    plain = lens_logits(model, torch.tensor([tokens]))[:-1, 0]
    assert (plain - wanted[:-1]).abs().max() > 0.1, "the maps do something"


STREAM = ("embedding", "blocks.0.residual_post", "blocks.1.residual_post")
OFF = (["0.1"], ["1.n"], ["0.b"], ["0.0", "0.3", "1.2", "1.n"])


def components(off):
    found = []
    for layer, what in (place.split(".") for place in off):
        block = f"blocks.{layer}"
        if what == "b":
            found += [Component(f"{block}.attention.out"), Component(f"{block}.feedforward.out")]
        elif what == "n":
            found.append(Component(f"{block}.feedforward.out"))
        else:
            found.append(Component(f"{block}.attention.mixed", int(what)))
    return found


@pytest.mark.parametrize("instead", ["zero", "mean", "resample"])
def test_ablations_of_any_set(page, models, instead):
    for name in ("rotary", "groups", "sinusoidal", "eight bits"):
        model, kept = models[name]
        for i, tokens in enumerate(sentences(8, model.config.vocab, seed=2)):
            off, donor = OFF[i % len(OFF)], i % len(kept)
            reference = kept[[donor]] if instead == "resample" else kept
            cut = reference[:, : len(tokens)]
            batch = Batch(cut, cut, torch.ones_like(cut, dtype=torch.bool))
            order = torch.tensor([0]) if instead == "resample" else None
            given = {} if instead == "zero" else {"reference": batch, "order": order}
            with ablated(model, components(off), instead, **given):
                wanted = logits_of(model, tokens)
            told = experiment(off=off, instead=instead, donor=donor)
            assert gap(ran(page, name, tokens, told)[0], wanted) < CLOSE
            assert np.abs(wanted - logits_of(model, tokens)).max() > 0.01, "something has changed"


@pytest.mark.parametrize("instead", ["zero", "mean", "resample"])
def test_each_part_by_itself(page, models, instead):
    """Likeliest token, probability, distance and cost, of every head and network, for a page."""
    for name in ("groups", "sinusoidal"):
        model, kept = models[name]
        (tokens,) = sentences(1, model.config.vocab, seed=9)
        position, donor = len(tokens) // 2, 3
        told = experiment(off=["0.1"], instead=instead, donor=donor)
        found = page.evaluate(
            """([name, tokens, experiment, position]) =>
              engine.look(models[name], { tokens, experiment, position, want: ["each"] }).each""",
            [name, tokens, told, position],
        )
        places = [f"{layer}.{what}" for layer in range(2) for what in [*range(4), "n"]]
        assert [each["place"] for each in found] == places
        cut = (kept[[donor]] if instead == "resample" else kept)[:, : len(tokens)]
        batch = Batch(cut, cut, torch.ones_like(cut, dtype=torch.bool))
        order = torch.tensor([0]) if instead == "resample" else None
        given = {} if instead == "zero" else {"reference": batch, "order": order}
        before = torch.tensor(logits_of(model, tokens)).double().log_softmax(-1)
        after = torch.tensor(tokens[1:])[:, None]
        for each in found:
            with ablated(model, components([each["place"]]), instead, **given):
                left = torch.tensor(logits_of(model, tokens)).double().log_softmax(-1)
            moved_by = (before.exp() * (before - left))[position].sum()
            cost = (before[:-1] - left[:-1]).gather(-1, after).mean()
            assert each["token"] == int(left[position].argmax())
            assert each["chance"] == pytest.approx(float(left[position].exp().max()), abs=CLOSE)
            assert each["moved"] == pytest.approx(float(moved_by), abs=CLOSE)
            assert each["cost"] == pytest.approx(float(cost), abs=CLOSE)


@torch.no_grad()
def at_a_glance(model, tokens, position):
    """What an overview tells, by the library: a dict for each block, and what each depth reads."""
    with capture(model) as seen:
        model(torch.tensor([tokens]))

    def length(tap):
        return seen[tap][0, ..., position, :].norm(dim=-1)

    blocks, depths = [], [seen["embedding"]]
    for layer in range(model.config.n_layers):
        block = f"blocks.{layer}"
        before, middle = length(f"{block}.residual_pre"), length(f"{block}.residual_mid")
        heads, attention = (length(f"{block}.attention.{tap}") for tap in ("head_outputs", "out"))
        network = length(f"{block}.feedforward.out")
        lengths = torch.stack([*heads, attention, network])
        beside = torch.stack([before] * (len(heads) + 1) + [middle])
        depths.append(seen[f"{block}.residual_post"])
        blocks.append(
            {
                "stream": torch.stack([before, length(f"{block}.residual_post")]),
                "length": lengths,
                "share": lengths / beside,
                "neurons": seen[f"{block}.feedforward.neurons"][0, position],
                "pattern": seen[f"{block}.attention.pattern"][0],
            }
        )
    read = torch.stack([model.unembed(each)[0, position].softmax(-1) for each in depths])
    return length("embedding"), blocks, read.max(-1)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_overview_tells_what_each_part_writes_and_each_depth_reads(page, models, name):
    """Of the whole model, with parts off, and with what a head adds patched from a second sentence."""
    model, _ = models[name]
    tokens, other = [3, 1, 9, 4, 9, 2], [8, 5, 1, 7, 7, 3]
    tap = "blocks.1.attention.head_outputs"
    with torch.no_grad(), capture(model, tap) as second:
        model(torch.tensor([other]))
    patch = {"tokens": other, "tap": tap, "head": 1, "position": None, "row": None}
    off = ["0.1", "1.n"]
    for position, told, change in (
        (5, experiment(), ExitStack()),
        (3, experiment(off=off), ablated(model, components(off), "zero")),
        (4, experiment(patch=patch), intervene(model, {tap: at(second[tap][:, [1]], heads=[1])})),
    ):
        overview, patterns = page.evaluate(
            """([name, tokens, experiment, position]) => {
              const asked = { tokens, experiment, position, want: ["overview"] };
              const { overview, patterns } = engine.look(models[name], asked);
              const told = overview[overview.length - 1];
              for (const block of told.blocks) block.neurons = Array.from(block.neurons);
              return [told, patterns.map((heads) => heads.map((one) => Array.from(one)))];
            }""",
            [name, tokens, told, position],
        )
        with change:
            embedding, blocks, read = at_a_glance(model, tokens, position)
        assert overview["embedding"] == pytest.approx(float(embedding), abs=CLOSE)
        assert [token for token, _ in overview["depths"]] == read.indices.tolist()
        assert gap(np.array([chance for _, chance in overview["depths"]]), read.values) < CLOSE
        for found, looked, right in zip(overview["blocks"], patterns, blocks, strict=True):
            parts = [*found["heads"], found["attention"], found["network"]]
            for key in ("length", "share"):
                assert gap(np.array([part[key] for part in parts]), right[key]) < CLOSE
            assert gap(np.array([found["before"], found["after"]]), right["stream"]) < CLOSE
            assert gap(np.array(found["neurons"]), right["neurons"]) < CLOSE
            assert gap(np.array(looked).reshape(right["pattern"].shape), right["pattern"]) < CLOSE


@torch.no_grad()
def patched(model, tokens, other, tap, head, position, row):
    with capture(model, tap) as seen:
        model(torch.tensor([other]))
    value = seen[tap]
    place = slice(0, min(len(tokens), len(other))) if position is None else position
    taken = place if position is None else [row]
    if value.ndim == 4:
        value = value[:, slice(None) if head is None else [head], taken]
    else:
        value, head = value[:, taken], None
    with intervene(model, {tap: at(value, heads=head, positions=place)}):
        return logits_of(model, tokens)


@pytest.mark.parametrize("name", ["rotary", "groups", "sinusoidal", "eight bits"])
def test_patches_from_a_second_sentence_at_any_tap_and_position(page, models, name):
    model, _ = models[name]
    drawn = random.Random(3)
    changed = 0
    for tap in taps(model):
        tokens, other = sentences(2, model.config.vocab, seed=drawn.random(), longest=LENGTH)
        if tap.endswith(("scores", "pattern")):
            other = [drawn.randrange(model.config.vocab) for _ in tokens]
        heads = page.evaluate("([name, tap]) => engine.headsAt(models[name], tap)", [name, tap])
        for position in (None, drawn.randrange(len(tokens))):
            head = drawn.choice([None, drawn.randrange(heads)]) if heads > 1 else None
            row = None if position is None else drawn.randrange(len(other))
            if tap.endswith(("scores", "pattern")):
                row = position
            wanted = patched(model, tokens, other, tap, head, position, row)
            patch = {"tokens": other, "tap": tap, "head": head, "position": position, "row": row}
            assert gap(ran(page, name, tokens, experiment(patch=patch))[0], wanted) < CLOSE, (
                tap,
                patch,
            )
            changed += np.abs(wanted - logits_of(model, tokens)).max() > 1e-3
    assert changed > len(taps(model)), "most patches do something"


def test_steering(page, models):
    for name in ("rotary", "learned"):
        model, _ = models[name]
        for i, tokens in enumerate(sentences(6, model.config.vocab, seed=4)):
            towards, away = sentences(2, model.config.vocab, seed=i)
            depth, dose = i % (model.config.n_layers + 1), [-2.0, 0.5, 3.0][i % 3]
            tap = f"blocks.{depth - 1}.residual_post" if depth else "embedding"
            ends = []
            for text in (towards, away):
                with torch.no_grad(), capture(model, tap) as seen:
                    model(torch.tensor([text]))
                ends.append(seen[tap][0, -1])
            with steer(model, SteeringVector(Component(tap), ends[0] - ends[1]), dose):
                wanted = logits_of(model, tokens)
            told = {"towards": towards, "away": away, "depth": depth, "dose": dose}
            assert gap(ran(page, name, tokens, experiment(steer=told))[0], wanted) < CLOSE


def without_mean(norm, x):
    y = x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * getattr(norm, "weight", 1.0)
    return y if getattr(norm, "bias", None) is None else y + norm.bias


@torch.no_grad()
def by_other_rules(model, tokens, switches, monkeypatch):
    tokens = torch.tensor([tokens])
    with monkeypatch.context() as patch:
        if "mask" in switches:
            patch.setattr(model, "causal", False)
        if "scale" in switches:
            for block in model.blocks:
                patch.setattr(block.attention, "scale", 1.0)
        if "mean" in switches:
            for part in model.modules():
                if isinstance(part, LayerNorm | PlainLayerNorm):
                    patch.setattr(part, "forward", partial(without_mean, part))
        given = {"positions": torch.zeros_like(tokens)} if "positions" in switches else {}
        return model(tokens, **given)[0].numpy()


@pytest.mark.parametrize(
    "switches", [["positions"], ["scale"], ["mean"], ["mask"], ["mask", "positions", "scale"]]
)
def test_switches(page, models, switches, monkeypatch):
    for name in ("rotary", "sinusoidal", "learned", "alibi"):
        model, _ = models[name]
        for tokens in sentences(4, model.config.vocab, seed=5):
            wanted = by_other_rules(model, tokens, switches, monkeypatch)
            assert gap(ran(page, name, tokens, experiment(switches=switches))[0], wanted) < CLOSE
    assert np.abs(wanted - logits_of(model, tokens)).max() > 1e-3


def test_what_lies_below_a_change_is_taken_from_the_whole_model(page, models):
    """What is looked at in a changed model is what it computes alone."""
    model, _ = models["rotary"]
    texts = [[1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 7, 3, 4, 5], [1, 7]]
    for off in (["1.1"], ["1.n"], ["0.2", "1.0"]):
        for tokens in texts:
            found = page.evaluate(
                """([tokens, experiment]) => {
                  const model = models.rotary;
                  engine.look(model, { tokens, experiment, want: ["ledger", "heads"] });
                  return Array.from(model.then.taps.logits.subarray(0, tokens.length * model.V));
                }""",
                [tokens, experiment(off=off)],
            )
            with ablated(model, components(off), "zero"):
                wanted = logits_of(model, tokens)
            assert gap(np.array(found), wanted) < CLOSE


def test_a_run_goes_on_from_what_it_knows(page, models):
    """A text that changes somewhere gives what it gives anew; what stands before is not computed again."""
    found = page.evaluate(
        """() => {
          const model = models.rotary;
          const how = engine.changesOf(model, { off: ["1.1"], instead: "mean", switches: [] }, 8);
          const run = engine.newRun(model.room);
          const texts = [[1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 9, 4, 5, 6], [1, 2], [1, 2, 3, 9, 9, 9, 9]];
          return texts.map((tokens) => {
            engine.forward(model, tokens, how, run);
            const fresh = engine.forward(model, tokens, how);
            let most = 0;
            for (let i = 0; i < tokens.length * model.V; i += 1) {
              most = Math.max(most, Math.abs(run.taps.logits[i] - fresh.taps.logits[i]));
            }
            return [run.from, most];
          });
        }"""
    )
    assert [start for start, _ in found] == [0, 4, 2, 2, 2]
    assert max(most for _, most in found) < 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.7},
        {"topK": 5},
        {"topP": 0.6},
        {"temperature": 1.5, "topK": 9, "topP": 0.8},
    ],
)
@pytest.mark.parametrize("which", ["rotary", "eight bits"])
def test_sampling_with_a_seed_gives_the_library_s_tokens(page, models, options, which):
    names = {"temperature": "temperature", "topK": "top_k", "topP": "top_p"}
    model, _ = models[which]
    for seed in (0, 1, 2**32 - 1):
        for tokens in sentences(3, model.config.vocab, seed=seed):
            strategy = Sampling(
                torch.Generator().manual_seed(seed),
                **{names[key]: value for key, value in options.items()},
            )
            wanted = (
                generate(model, [tokens], max_new_tokens=20, strategy=strategy).tokens[0].tolist()
            )
            found = page.evaluate(
                "([which, tokens, sampling]) => engine.sample(models[which], { tokens, sampling, count: 20 })",
                [which, tokens, {"seed": seed, **options}],
            )
            assert found == wanted


def test_kept_sentences_cost_and_move_by_what_the_library_says(page, models):
    """And the second time, when the streams below the change are known, the same; past the end, the last."""
    for instead in ("zero", "mean", "resample"):
        model, kept = models["rotary"]
        told = experiment(off=["1.0", "1.3"], instead=instead)
        batch = Batch(kept, kept, torch.ones_like(kept, dtype=torch.bool))
        cost, likely = [], []
        for changes in (None, instead):
            with ExitStack() as stack, torch.no_grad():
                if changes:
                    stack.enter_context(
                        ablated(model, components(told["off"]), changes, reference=batch)
                    )
                logits = model(kept).log_softmax(-1)
            likely.append(logits.double())
            logits = logits[:, :-1]
            cost.append(-logits.gather(-1, kept[:, 1:, None]).mean((1, 2)))
        for position in (3, LENGTH - 2, LENGTH - 2, LENGTH + 5):
            found = page.evaluate(
                "([experiment, position]) => "
                "engine.luck(models.rotary, { experiment, from: 0, to: 6, position })",
                [told, position],
            )
            assert np.allclose(
                [each["cost"] for each in found], (cost[1] - cost[0]).numpy(), atol=CLOSE
            )
            at = min(position, LENGTH - 1)
            moved_by = (likely[0].exp() * (likely[0] - likely[1])).sum(-1)[:, at]
            assert np.allclose([each["moved"] for each in found], moved_by.numpy(), atol=CLOSE)


@torch.no_grad()
def test_the_ledger_adds_up_and_value_weighted_patterns_are_lengths(page, models):
    model, _ = models["rotary"]
    tokens = sentences(1, model.config.vocab, seed=8, longest=9)[0]
    names = ["*.head_outputs", "*.values", "*.pattern", "*.feedforward.out"]
    with capture(model, *names) as seen:
        logits = model(torch.tensor([tokens]))[0]
    position, token = len(tokens) - 1, 3
    found, weighted = page.evaluate(
        """([tokens, position, token]) => {
          const model = models.rotary;
          const run = engine.forward(model, tokens);
          const whole = { changes: [], switches: [] };
          const weighted = Array.from(engine.patternOf(model, run, 1, 2, true));
          return [engine.ledger(model, run, whole, position, token), weighted];
        }""",
        [tokens, position, token],
    )
    lengths = {part["name"]: part["length"] for part in found["parts"]}
    for layer in range(2):
        written = seen[f"blocks.{layer}.attention.head_outputs"][0, :, position].norm(dim=-1)
        assert np.allclose([lengths[f"{layer}.{head}"] for head in range(4)], written, atol=CLOSE)
    pushes = sum(part["push"] for part in found["parts"])
    bias = model.final_norm.bias @ (
        model.unembedding.weight[token] - model.unembedding.weight.mean(0)
    )
    wanted = float(logits[position, token] - logits[position].mean() - bias)
    assert abs(pushes - wanted) < CLOSE
    assert abs(found["stream"]["push"] - wanted) < CLOSE
    of_head = model.blocks[1].attention.output.weight[:, 16:24]
    made_of = (seen["blocks.1.attention.values"][0, 2] @ of_head.T).norm(dim=-1)
    assert (
        gap(np.array(weighted), (seen["blocks.1.attention.pattern"][0, 2] * made_of).numpy())
        < CLOSE
    )


def test_eight_bits_give_the_page_exactly_the_library_s_weights(page, models):
    model, _ = models["eight bits"]
    for name, weight in model.state_dict().items():
        found = page.evaluate("(name) => Array.from(models['eight bits'].weights[name])", name)
        assert np.array_equal(np.array(found, np.float32), weight.flatten().numpy()), name
    codes, scales = in_eight_bits(model.token_embedding.weight)
    assert codes.abs().amax(1).tolist() == [127] * model.config.vocab
    assert torch.equal((codes * scales[:, None]).float(), model.token_embedding.weight)


TYPED = (
    "", " ", "   two  blanks ", "Once there was a cat.", "don\u2019t \u201cquote\u201d",
    "a\nb\r\n\tc \x0bd\x0ce",
    "caf\u00e9 \u00a0 nb\u00a0sp", "\u65e5\u672c\u8a9e \U0001f600",
    "x=1;y==22 3.14 -7", "_snake_case CamelCase",
    "aaaa aaaaa", "lowest lower low", "\x00\x1f\x7f\x85\ufeff\u2028", "?!?! ...\u2026", "tom\u0301",
)  # fmt: skip


def test_vectors_and_plain_loops_give_the_same(page, models):
    """Where a page may have no WebAssembly, what it computes stays."""
    found = page.evaluate(
        """([told, text, tokens]) => {
          const bytes = () => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
          const { Memory } = WebAssembly;
          const run = (model) => engine.forward(model, tokens).taps.logits;
          const fast = engine.unpack(told, bytes());
          WebAssembly.Memory = class { constructor() { throw new Error("forbidden"); } };
          const plain = engine.unpack(told, bytes());
          WebAssembly.Memory = Memory;
          const kernel = (model) => engine.kernels.has(model.weights["unembedding.weight"].buffer);
          const [one, other] = [run(fast), run(plain)];
          return [kernel(fast), kernel(plain), Math.max(...one.map((x, i) => Math.abs(x - other[i])))];
        }""",
        [*_told(models["eight bits"]), [1, 2, 3, 4, 5]],
    )
    assert found[:2] == [True, False]
    assert found[2] < 1e-5


def _told(of):
    model, kept = of
    told, packed = pack(model, kept, ROOM, bits=8, lens=lens_of(model))
    return told, base64.b64encode(packed).decode()


def test_pieces_are_cut_as_the_library_cuts_them(page):
    """Any text, also letters of several bytes and blanks of every kind."""
    text = ("Once upon a time, the lower tower was low. 12 and 122 aaaa bbbb " * 3).encode()
    merges = learn_merges(text + " ".join(TYPED).encode() * 2, 120)
    drawn = random.Random(0)
    letters = (
        " \t\n\r\x0b\x0c\x1c\x85\xa0abcdeowrt019_.,\u00e9\u00df\u2019\u65e5\U0001f600\x00\ufeff"
    )
    texts = [
        *TYPED,
        *("".join(drawn.choices(letters, k=drawn.randint(1, 40))) for _ in range(400)),
    ]
    found = page.evaluate(
        """([merges, texts]) => {
          const { encode, decode } = engine.pieces(merges);
          return texts.map((text) => [encode(text), decode(encode(text))]);
        }""",
        [[side for pair in merges for side in pair], texts],
    )
    for text, (tokens, back) in zip(texts, found, strict=True):
        assert tokens == encode(text.encode(), merges), repr(text)
        assert back == text
        assert decode(tokens, merges).decode() == text
    assert any(token > 300 for tokens, _ in found for token in tokens)


def test_weights_that_do_not_arrive_whole_are_refused(page, models):
    model, kept = models["rotary"]
    told, packed = pack(model, kept, ROOM)
    spoilt = bytearray(packed)
    spoilt[1000] ^= 1
    for wrong in (bytes(spoilt), packed[:-4]):
        message = page.evaluate(
            """(given) => {
              try { unpacked(given); return "taken"; } catch (error) { return error.message; }
            }""",
            ["spoilt", told, base64.b64encode(wrong).decode()],
        )
        assert "did not arrive whole" in message


def test_what_does_not_fit_is_a_sentence(page, models):
    def patch(tokens, tap, position):
        return experiment(patch={"tokens": tokens, "tap": tap, "head": None, "position": position})

    cases = [
        (
            experiment(off=["0.0"], instead="mean"),
            [1] * (LENGTH + 1),
            "known for the first 16 tokens",
        ),
        (patch([], "embedding", None), [1, 2], "is empty"),
        (patch([1], "embedding", 5), [1, 2], "no position 5"),
        (patch([1], "blocks.0.attention.pattern", 0), [1, 2], "2 tokens too"),
        (
            experiment(steer={"towards": [], "away": [1], "depth": 0, "dose": 1}),
            [1, 2],
            "lead towards",
        ),
    ]
    for told, tokens, why in cases:
        message = page.evaluate(
            """([tokens, experiment]) => {
              try {
                engine.look(models.rotary, { tokens, experiment });
                return "";
              } catch (error) { return error.message; }
            }""",
            [tokens, told],
        )
        assert why in message
