"""Networks and attention: against PyTorch's attention, forced patterns, drawn logits and captured means."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from measured_transformer.analysis.ablation import loss
from measured_transformer.analysis.handmade import heads_model, induction_model
from measured_transformer.chapters.network_or_attention import measure as n
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.modular import ModularAddition
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, make_model, train
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.substitutes import FixedPattern, Instead, network_made_up
from torch.nn import functional as F

CONFIG = Config(vocab=6, d_model=12, n_heads=3, n_layers=2, positions="learned", max_length=5)
TOKENS = torch.tensor([[0, 3, 2, 5, 1], [4, 4, 0, 1, 2]])


def made(config=CONFIG, *, causal=False, source=False, **instead):
    model = make_model(config, causal=causal, source=source, seed=0)
    Instead(**instead)(model)
    return model


def number(model):
    return sum(p.numel() for p in model.parameters())


# --- in the place of a sublayer -------------------------------------------------------------------


def test_nothing_asked_for_changes_nothing():
    fresh, prepared = make_model(CONFIG, causal=False, seed=0), made()
    assert torch.equal(fresh(TOKENS), prepared(TOKENS))


def test_a_linear_network_adds_and_scales():
    model = made(network="linear").double()
    network = model.blocks[1].feedforward
    x, y = torch.randn(2, 1, 4, 12, dtype=torch.float64, generator=make_generator(0, "inputs"))
    with torch.no_grad():
        zero = network(torch.zeros_like(x))
        mixed = network(2 * x - 3 * y) - zero
        assert torch.allclose(mixed, 2 * (network(x) - zero) - 3 * (network(y) - zero))
        bent = made().double().blocks[1].feedforward
        assert not torch.allclose(bent(-x) - bent(0 * x), -(bent(x) - bent(0 * x)))
    assert number(model) == number(made())


@pytest.mark.parametrize("causal", [False, True])
def test_without_attention_a_position_sees_itself_alone(causal):
    model = made(causal=causal, attention="none")
    other = TOKENS.clone()
    other[:, 0] = (other[:, 0] + 1) % 6
    changed = (model(TOKENS) - model(other)).abs().amax(-1)
    assert (changed[:, 1:] == 0).all()
    assert (changed[:, 0] > 0).all()


def test_without_networks_only_attention_writes():
    model = made(network="none")
    with capture(model, "*.residual_mid", "*.residual_post") as seen:
        model(TOKENS)
    for i in range(2):
        assert torch.equal(seen[f"blocks.{i}.residual_mid"], seen[f"blocks.{i}.residual_post"])


@pytest.mark.parametrize("causal", [False, True])
def test_a_fixed_pattern_is_attention_with_that_pattern(causal):
    fresh = make_model(CONFIG, causal=causal, seed=0)
    model = made(causal=causal, attention="fixed")
    tables = torch.randn(2, 3, 5, 5, generator=make_generator(1, "tables"))
    with torch.no_grad():
        for block, table in zip(model.blocks, tables, strict=True):
            block.attention.scores.copy_(table)
    allowed = torch.ones(5, 5).tril() if causal else torch.ones(5, 5)
    patterns = [t.exp() * allowed / (t.exp() * allowed).sum(-1, keepdim=True) for t in tables]
    forced = {
        f"blocks.{i}.attention.pattern": (lambda now, own=p: own.expand_as(now))
        for i, p in enumerate(patterns)
    }
    with intervene(fresh, forced):
        expected = fresh(TOKENS)
    assert torch.allclose(model(TOKENS), expected, atol=1e-5)
    short = model.blocks[0].attention.pattern(3, causal=causal)
    assert torch.allclose(short.sum(-1), torch.ones(3, 3))


def test_patterns_are_learned_and_runs_are_the_same_again():
    task = Reversal(6, 5)
    runs = [
        train(CONFIG, task, steps=20, learning_rate=0.01, seed=0, prepare=Instead(attention="fixed"))
        for _ in range(2)
    ]  # fmt: skip
    assert np.array_equal(runs[0].losses, runs[1].losses)
    assert runs[0].model.blocks[0].attention.scores.abs().max() > 0.01


def test_what_cannot_be_is_refused(unhooked):
    with pytest.raises(ValueError, match="network must be one of whole, linear, none"):
        Instead(network="straight")
    with pytest.raises(ValueError, match="attention must be one of"):
        Instead(attention="some")
    with pytest.raises(ValueError, match="EncoderDecoder"):
        made(source=True, network="none")
    with pytest.raises(ValueError, match="gate"):
        made(CONFIG.replace(activation="swiglu"), network="linear")
    attention = MultiHeadAttention(12, 3)
    with pytest.raises(ValueError, match="n_heads must divide"):
        FixedPattern(attention.value, attention.output, n_heads=5, length=4)
    model = made(attention="fixed", config=CONFIG.replace(max_length=4, positions="sinusoidal"))
    with pytest.raises(ValueError, match="reach 4 positions, got 5"):
        model(TOKENS)
    with pytest.raises(ValueError, match="no padding"):
        made(attention="fixed")(TOKENS, padding_mask=torch.ones_like(TOKENS, dtype=torch.bool))
    with pytest.raises(ValueError, match="no whole number of neurons"):
        network_made_up(CONFIG.replace(n_heads=1, d_head=1, activation="swiglu"))


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d_model", "n_heads"), [(16, 2), (32, 4)])
def test_what_stays_makes_up_for_what_goes(d_model, n_heads):
    config = CONFIG.replace(d_model=d_model, n_heads=n_heads)
    arms = n.compared(config)
    found = {name: n.budget(arm) for name, arm in arms.items()}
    per_block = {name: one.attention + one.network for name, one in found.items()}
    for name in ("linear", "heads", "neurons"):
        assert per_block[name] == pytest.approx(per_block["whole"], rel=0.01)
    assert found["whole"].attention == 4 * d_model**2 + 4 * d_model
    assert found["whole"].network == 8 * d_model**2 + 5 * d_model
    assert found["removed"].network == found["heads"].network == found["neurons"].attention == 0
    assert [name for name, one in found.items() if one.bends] == ["whole", "neurons", "fixed"]
    for name, arm in arms.items():
        assert found[name].model == number(made(arm.config, **vars(arm.options["prepare"])))


# --- by hand --------------------------------------------------------------------------------------


def test_two_heads_are_torch_attention_and_tell_different_bits():
    found = n.two_heads(8.0)
    values = found.bits.double()[:, None, :, None]
    for score, expected in ((8.0, found.looks), (0.0, found.mean)):
        query = torch.full((4, 1, 1, 1), score, dtype=torch.float64)
        by_torch = F.scaled_dot_product_attention(query, values, values, scale=1.0)
        assert torch.allclose(by_torch.flatten(), expected)
    truth = (found.bits[:, 0] ^ found.bits[:, 1]).double()
    assert (found.out - truth).abs().max() < 1e-3
    assert torch.allclose(found.weights.sum(1), torch.ones(4).double())
    # one over one plus e to the score is what the wrong bit keeps
    assert found.looks[1] == pytest.approx(1 / (1 + math.exp(-8)))
    assert (n.two_heads(0.0).out == 0).all(), "without a preference there is nothing to tell"


@pytest.mark.parametrize("modulus", [2, 5, 8])
def test_sums_are_no_better_than_guessing(modulus):
    found = n.best_additive(modulus, seed=3)
    assert found.loss == pytest.approx(math.log(modulus), abs=1e-12)
    assert found.largest < 1e-5
    assert n.best_additive(modulus, seed=3, product=True).loss < 1e-6


def test_no_additive_logits_do_better_by_chance():
    generator = make_generator(0, "drawn logits")
    a, b = torch.cartesian_prod(torch.arange(4), torch.arange(4)).T
    best = n.best_additive(4, seed=0).loss
    for scale in torch.logspace(-6, 1, 50, dtype=torch.float64):
        f, g = scale * torch.randn(2, 4, 4, dtype=torch.float64, generator=generator)
        assert F.cross_entropy(f[a] + g[b], (a + b) % 4) >= best - 1e-12
    with pytest.raises(ValueError, match="at least 2"):
        n.best_additive(1, seed=0)


# --- taken away -----------------------------------------------------------------------------------


def fresh_on(task):
    """A model with large random weights, sequences held out, and those that means are taken over."""
    length = task.length if task.causal else 5
    config = CONFIG.replace(vocab=task.vocab, max_length=length)
    model = make_model(config, causal=task.causal, seed=1).double()
    with torch.no_grad():
        for parameter in model.blocks.parameters():
            parameter.mul_(2)
    unseen = replace(task, part="validation") if task.causal else task
    batches = (
        unseen.batch(make_generator(4, "evaluation"), 40),
        task.batch(make_generator(4, "reference"), 40),
    )
    return model, *batches


@pytest.mark.parametrize("task", [Reversal(6, 5), ModularAddition(7, 0.6)], ids=["all", "split"])
def test_replacing_by_the_mean_is_done_for_one_block_at_a_time(task):
    model, batch, reference = fresh_on(task)
    found = n.replaced(model, task, seed=4, size=40)
    with capture(model, "blocks.*.out") as seen:
        model(reference.inputs)
    means = {name: value.mean(0) for name, value in seen.items()}
    whole = loss(model, batch)

    def without(*names):
        with intervene(model, {k: (lambda now, m=means[k]: m.expand_as(now)) for k in names}):
            return loss(model, batch) - whole

    for i in range(2):
        assert found.network[i] == pytest.approx(without(f"blocks.{i}.feedforward.out"))
        assert found.attention[i] == pytest.approx(without(f"blocks.{i}.attention.out"))
    networks = [f"blocks.{i}.feedforward.out" for i in range(2)]
    assert found.networks == pytest.approx(without(*networks))
    assert found.attentions == pytest.approx(
        without(*(name.replace("feedforward", "attention") for name in networks))
    )
    assert abs(found.networks) > 1e-3


def test_a_model_by_hand_lives_by_its_attention():
    task = Reversal(5, 4)
    model = heads_model(["mirror"], vocab=5, length=4)
    found = n.replaced(model, task, seed=0)
    assert found.network == pytest.approx([0.0])
    # the mean over sequences says nothing about the one at hand: what is left is a guess among five
    left = math.log(5) - evaluate(model, task, seed=0).loss
    assert found.attention[0] == pytest.approx(left, abs=0.02)
    assert left > 0.5


@pytest.mark.parametrize("task", [Reversal(6, 5), ModularAddition(7, 0.6)], ids=["all", "split"])
def test_frozen_heads_keep_the_mean_of_their_patterns(task):
    model, batch, reference = fresh_on(task)
    with capture(model, "*.pattern") as seen:
        model(reference.inputs)
    means = {name: pattern.mean(0) for name, pattern in seen.items()}
    held = {name: (lambda now, own=p: own.expand_as(now)) for name, p in means.items()}
    with intervene(model, held):
        right = model(batch.inputs).argmax(-1) == batch.targets
    expected = float(right[batch.scored].double().mean())
    assert n.accuracy_frozen(model, task, seed=4, size=40) == pytest.approx(expected)


def test_a_head_that_looks_at_fixed_places_may_be_frozen_and_one_that_asks_may_not():
    task = Reversal(5, 4)
    model = heads_model(["mirror"], vocab=5, length=4)
    assert n.accuracy_frozen(model, task, seed=0) == evaluate(model, task, seed=0).accuracy == 1
    asking, repeats = induction_model(vocab=8, length=12), Induction(8, 12, shortest=3, longest=4)
    whole = evaluate(asking, repeats, seed=0).accuracy
    assert n.accuracy_frozen(asking, repeats, seed=0) < whole - 0.1


def test_rises_are_paired_by_seed():
    assert n.rises([2.0, 1.0], [1.0, 3.0]).tolist() == [1.0, -2.0]
    with pytest.raises(ValueError, match="one loss a seed"):
        n.rises([1.0, 2.0], [1.0])
