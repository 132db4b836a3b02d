"""Tracing and editing: against interventions by hand, real changes of weights, and derivatives."""

import copy

import pytest
import torch
from measured_transformer.analysis import fact_edits as f
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.training.loop import make_model
from torch.nn import functional as F

CONFIG = Config(
    vocab=20, d_model=8, n_layers=3, n_heads=2, d_ff=12, positions="learned", max_length=4
)
TOKENS = torch.randint(20, (6, 3), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model():
    found = make_model(CONFIG, causal=True, seed=0).eval()
    with torch.no_grad():
        found.unembedding.weight.mul_(12)  # an untrained model is unsure of everything
    return found


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- tracing --------------------------------------------------------------------------------------


def test_tracing_brings_all_back_where_all_passes(model):
    answers = torch.arange(6)
    found = f.trace(model, TOKENS, answers, subject=(0, 1), seed=0, draws=2)
    clean = model(TOKENS)[:, -1].softmax(-1).gather(1, answers[:, None])[:, 0]
    assert torch.allclose(found.clean, clean)
    assert found.effect.shape == (3, 3, 3, 6)
    behind = found.effect[f.TRACED.index("residual_post"), -1]
    assert torch.allclose(found.spoilt + behind[2], clean, atol=1e-6), (
        "the last stream is the answer"
    )
    assert behind[:2].abs().max() < 1e-4, "nothing reads the last stream elsewhere"
    spared = f.trace(model, TOKENS, answers, subject=(0, 1), seed=0, strength=0.0)
    assert torch.allclose(spared.spoilt, clean, atol=1e-4)
    assert spared.effect.abs().max() < 1e-4


def test_tracing_is_an_intervention_of_two_values(model):
    answers = torch.arange(6)
    found = f.trace(model, TOKENS, answers, subject=(0,), seed=3, draws=1)
    with capture(model) as seen:
        model(TOKENS)
    entered = seen["blocks.0.residual_pre"]
    from measured_transformer.training.seeding import make_generator

    noise = torch.randn(1, 6, 1, 8, generator=make_generator(3, "tracing"))[0]
    spoilt = entered.clone()
    spoilt[:, :1] += 3 * entered[:, :1].std() * noise

    def back(there):
        there[:, 2] = seen["blocks.1.feedforward.out"][:, 2]
        return there

    with intervene(model, {"blocks.0.residual_pre": spoilt, "blocks.1.feedforward.out": back}):
        expected = model(TOKENS)[:, -1].softmax(-1).gather(1, answers[:, None])[:, 0]
    got = found.spoilt + found.effect[f.TRACED.index("feedforward.out"), 1, 2]
    assert torch.allclose(got, expected, atol=1e-4)


# --- editing --------------------------------------------------------------------------------------


def test_finishing_from_any_block_gives_the_models_own_answer(model):
    inside = f.look_inside(model, TOKENS)
    for block in range(3):
        assert torch.allclose(f.finish(model, inside.after[block], block), model(TOKENS), atol=1e-4)
    turned = make_model(CONFIG.replace(positions="rotary"), causal=True, seed=0)
    with pytest.raises(ValueError, match="'rotary'"):
        f.finish(turned, inside.after[0], 0)


def test_what_is_added_gives_the_wanted_answers(model):
    inside, wanted = f.look_inside(model, TOKENS), torch.arange(6) + 7

    def found(**options):
        added = f.changes_for(model, inside, wanted, block=1, position=2, steps=300, **options)
        stream = inside.after[1].clone()
        stream[:, 2] += added
        with torch.no_grad():
            logits = f.finish(model, stream, 1)[:, -1]
        return added.norm(dim=1), F.cross_entropy(logits, wanted, reduction="none")

    length, losses = found(price=0.0)
    assert losses.max() <= 0.05
    assert losses.min() > 0.002, "and goes no further than it must"
    shorter, _ = found(price=0.05)
    assert (shorter <= length + 1e-6).all()
    nothing = f.changes_for(model, inside, wanted, block=2, position=1, steps=5)
    assert nothing.abs().max() == 0, "no later position reads the last block's"


def test_one_fact_is_changed_exactly_and_the_others_least():
    others, key, added = normal(30, 6, seed=1), normal(6, seed=2), normal(3, seed=3)
    s = others.T @ others
    change = f.one_fact(key, added, s)
    assert torch.allclose(change @ key, added)
    assert torch.linalg.matrix_rank(change) == 1

    def cost(of):
        return float((others @ of.T).square().sum())

    for seed in range(10):
        step = normal(3, 6, seed=20 + seed)
        step = step - torch.outer(step @ key, key) / (key @ key)  # leaves the fact alone
        assert cost(change + 1e-3 * step) > cost(change)


def test_all_at_once_is_where_the_gradient_vanishes():
    others, keys, added = normal(30, 6, seed=1), normal(4, 6, seed=2), normal(4, 3, seed=3)
    found = f.all_at_once(keys, added, others.T @ others, weight=5.0).requires_grad_()
    loss = 5 * (keys @ found.T - added).square().sum() + (others @ found.T).square().sum()
    (gradient,) = torch.autograd.grad(loss, found)
    assert gradient.abs().max() < 1e-9
    one = f.all_at_once(keys[:1], added[:1], others.T @ others, weight=1e9)
    assert torch.allclose(one, f.one_fact(keys[0], added[0], others.T @ others), atol=1e-6)


def test_the_last_of_many_edits_is_right_and_the_first_is_disturbed():
    keys, added = torch.tensor([[2.0, 1], [1, 2]]).double(), torch.tensor([[1.0], [-1]]).double()
    shortest = torch.eye(2).double()
    found = f.one_after_another(keys, added, shortest)
    assert torch.allclose(found, torch.tensor([[0.04, -0.52]]).double())
    assert (found @ keys.T).tolist() == [[pytest.approx(-0.44), pytest.approx(-1)]]
    both = f.all_at_once(keys, added, 1e-9 * shortest)
    assert torch.allclose(both, torch.tensor([[1.0, -1]]).double(), atol=1e-6)


def test_an_edit_that_is_computed_is_what_changed_weights_do(model):
    inside, change = f.look_inside(model, TOKENS), 0.3 * normal(8, 12, seed=5)
    for block in range(3):
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.blocks[block].feedforward.down.weight.add_(change)
            expected = other(TOKENS)[:, -1].argmax(-1)
        assert torch.equal(f.answers_after(model, inside, change, block), expected)
    assert not torch.equal(expected, model(TOKENS)[:, -1].argmax(-1))


def test_moments_are_those_of_real_positions(model):
    inside = f.look_inside(model, TOKENS)
    real = torch.ones(6, 3).bool()
    real[:, 2] = False
    keys = inside.neurons[1][:, :2].reshape(-1, 12).double()
    found = f.moments(inside, 1, real, ridge=0.0)
    assert torch.allclose(found, keys.T @ keys)
    lifted = f.moments(inside, 1, real, ridge=0.5) - found
    assert torch.allclose(lifted, 0.5 * found.diagonal().mean() * torch.eye(12).double())
