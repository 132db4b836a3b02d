"""Values of a reference set stand in exactly where they are put, and draws can be repeated."""

import pytest
import torch
from measured_transformer.analysis.ablation import Component, ablated, heads
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.handmade import heads_model, reversal_model
from measured_transformer.analysis.patching import patched
from measured_transformer.analysis.references import part_of, replaced, replacements, seen_on
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.capture import capture
from measured_transformer.interop.sides import SourceSide, TargetSide
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import make_model

HEAD = Component("blocks.1.attention.mixed", 1)
STREAM = Component("blocks.0.residual_post")


def drawn(seed=3, rows=4):
    model, _ = random_model(seed, causal=True, n_layers=2, n_heads=2, d_model=16)
    draws = torch.Generator().manual_seed(seed)
    own, other = (torch.randint(11, (rows, 5), generator=draws) for _ in range(2))
    return model, own, other


def as_batch(tokens):
    return Batch(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool))


@torch.no_grad()
@pytest.mark.parametrize("how", ["zero", "mean"])
def test_zero_and_mean_are_those_of_ablated(how):
    model, own, other = drawn()
    values = replacements(model, own, [HEAD, STREAM], how, reference=other)
    with ablated(model, [HEAD, STREAM], how, reference=as_batch(other)):
        expected = model(own)
    with replaced(model, [HEAD, STREAM], values):
        assert torch.equal(model(own), expected)
    assert not model(own).allclose(expected)


@torch.no_grad()
def test_a_draw_is_that_of_ablated_in_the_same_order_and_can_be_repeated():
    model, own, other = drawn()
    order = torch.randint(4, (4,), generator=torch.Generator().manual_seed(7))
    with ablated(model, [HEAD], "resample", reference=as_batch(other), order=order):
        expected = model(own)
    for _ in range(2):
        values = replacements(
            model,
            own,
            [HEAD],
            "resample",
            reference=other,
            generator=torch.Generator().manual_seed(7),
        )
        with replaced(model, [HEAD], values):
            assert torch.equal(model(own), expected)


@torch.no_grad()
def test_one_sequence_gives_all_values_unless_drawn_apart():
    model, _, other = drawn(rows=40)
    seen = seen_on(model, other, [HEAD, STREAM])
    together = seen.drawn(40, torch.Generator().manual_seed(1))
    apart = seen.drawn(40, torch.Generator().manual_seed(1), apart=True)

    def rows(found, tap):
        each = found[tap].flatten(1)[:, None] == seen.values[tap].flatten(1)[None]
        return each.all(-1)

    same = rows(together, HEAD.tap) & rows(together, STREAM.tap)
    assert bool(same.any(1).all())
    own = rows(apart, HEAD.tap) & rows(apart, STREAM.tap)
    assert bool(rows(apart, STREAM.tap).any(1).all())
    assert own.any(1).sum() < 20


@torch.no_grad()
def test_drawing_the_one_other_sequence_is_patching():
    model, own, other = drawn()
    target = answer_logit(-1, own[:, 0])
    values = seen_on(model, other, [HEAD]).values
    for positions in (None, -1, [0, 2], slice(1, 4)):
        with replaced(model, [HEAD], values, positions=positions):
            found = target(model(own))
        assert torch.equal(found, patched(model, own, other, [HEAD], target, positions=positions))


@torch.no_grad()
def test_a_mean_over_positions_stands_in_at_any_of_them():
    model, own, other = drawn()
    seen = seen_on(model, other, [STREAM])
    usual = seen.mean(over_positions=True)
    assert torch.allclose(usual[STREAM.tap][0, 0], seen.values[STREAM.tap].mean((0, 1)))
    with replaced(model, [STREAM], usual, positions=[1]), capture(model, STREAM.tap) as got:
        model(own[:, :3])
    assert torch.allclose(got[STREAM.tap][:, 1], usual[STREAM.tap][0, 0].expand(4, -1))
    with capture(model, STREAM.tap) as plain:
        model(own[:, :3])
    assert torch.equal(got[STREAM.tap][:, [0, 2]], plain[STREAM.tap][:, [0, 2]])
    pattern = seen_on(model, other, [Component("blocks.0.attention.pattern")])
    with pytest.raises(ValueError, match="would mix queries"):
        pattern.mean(over_positions=True)


@torch.no_grad()
def test_the_three_ways_tell_apart_what_they_should():
    # The head writes the token of the mirrored place: its logit is 1 as it is, 0 under zero, the token's share
    # under mean, and under resample 1 where the drawn sequence has it there and else 0.
    model = reversal_model(vocab=4, length=3)
    own = torch.tensor([[2, 0, 1], [3, 1, 1], [0, 0, 0]])
    other = torch.tensor([[2, 3, 3], [2, 1, 1], [0, 1, 1], [3, 0, 0]])
    target, order = answer_logit(-1, own[:, 0]), torch.Generator().manual_seed(5)
    rows = torch.randint(4, (3,), generator=torch.Generator().manual_seed(5))
    expected = {
        "zero": [0.0, 0.0, 0.0],
        "mean": [0.5, 0.25, 0.25],
        "resample": (other[rows, 0] == own[:, 0]).double().tolist(),
    }
    assert torch.allclose(target(model(own)), torch.ones(3).double())
    for how, wanted in expected.items():
        values = replacements(model, own, heads(model), how, reference=other, generator=order)
        with replaced(model, heads(model), values):
            assert target(model(own)).tolist() == pytest.approx(wanted)


@torch.no_grad()
def test_both_sides_of_an_encoder_decoder():
    config = Config(vocab=7, d_model=8, n_heads=2, n_layers=1)
    whole = make_model(config, causal=True, source=True, seed=0).double().eval()
    read, written = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    other = torch.tensor([[3, 3, 1], [6, 5, 0]])
    before = whole(read, written)
    for side, tokens, name in (
        (TargetSide(whole, read), written, "blocks.0.cross_attention.mixed"),
        (SourceSide(whole, written), read, "writer.blocks.0.cross_attention.keys"),
    ):
        part = Component(name, 1)
        values = seen_on(side, other[:, : tokens.shape[1]], [part]).mean()
        with replaced(side, [part], values), capture(side, name) as seen:
            assert not side(tokens).allclose(before)
        assert torch.allclose(seen[name][:, 1], values[name][:, 1])


def test_a_part_is_what_the_same_selector_changes():
    value = torch.randn(2, 3, 4, 5)
    assert torch.equal(part_of(value, head=1, positions=[0, -1]), value[:, [1]][:, :, [0, 3]])
    assert torch.equal(part_of(value[:, 0], positions=2), value[:, 0, [2]])


def test_errors_say_what_is_missing(unhooked):
    model = heads_model(["mirror"], vocab=4, length=3)
    tokens, part = torch.tensor([[0, 1, 2]]), heads(model)
    with pytest.raises(ValueError, match="zero, mean, resample"):
        replacements(model, tokens, part, "even")
    for how in ("mean", "resample"):
        with pytest.raises(ValueError, match="give a reference"):
            replacements(model, tokens, part, how)
    with pytest.raises(ValueError, match="give a generator"):
        replacements(model, tokens, part, "resample", reference=tokens)
    with pytest.raises(ValueError, match="at least one component"):
        seen_on(model, tokens, [])
    values = seen_on(model, tokens[:, :2], part).mean()
    with (
        pytest.raises(ValueError, match="chosen part's shape"),
        replaced(model, part, values),
    ):
        model(tokens)
    with (
        pytest.raises(KeyError, match="no value is given for embedding"),
        replaced(model, [Component("embedding")], values),
    ):
        pass
