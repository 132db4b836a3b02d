"""Patching moves exactly what it says, and path patching tells by which of three paths heads work together."""

import pytest
import torch
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.attribution import answer_logit, logit_difference
from measured_transformer.analysis.handmade import composed_model
from measured_transformer.analysis.patching import (
    patched,
    patching_map,
    path_patched,
    restored_tokens,
)
from measured_transformer.analysis.residual import random_model

FIRST = Component("blocks.0.attention.mixed", 0)
PATHS = {"queries": "q", "keys": "k", "values": "v"}


def drawn(seed=3):
    model, _ = random_model(seed, causal=True, n_layers=3, n_heads=2, d_model=16)
    draws = torch.Generator().manual_seed(seed)
    clean, other = (torch.randint(11, (2, 5), generator=draws) for _ in range(2))
    return model, clean, other, answer_logit(-1, clean[:, 0])


@torch.no_grad()
def test_everything_patched_is_the_other_run_and_itself_patched_is_nothing():
    model, clean, other, target = drawn()
    whole = [Component("embedding")]
    assert patched(model, clean, other, whole, target).allclose(target(model(other)))
    assert patched(model, clean, clean, whole, target).allclose(target(model(clean)))
    last = [Component("blocks.2.residual_post")]
    one = patched(model, clean, other, last, target, positions=-1)
    assert one.allclose(target(model(other)))  # the logits are read there
    rest = patched(model, clean, other, last, target, positions=slice(0, 4))
    assert rest.allclose(target(model(clean)))
    some = patched(model, clean, other, last, target, positions=[0, -1])
    assert some.allclose(target(model(other)))


@torch.no_grad()
def test_one_head_and_one_position_are_changed_alone():
    model, clean, other, target = drawn()
    both = [Component("blocks.1.attention.mixed", head) for head in (0, 1)]
    tap = [Component("blocks.1.attention.mixed")]
    assert patched(model, clean, other, both, target).allclose(
        patched(model, clean, other, tap, target)
    )
    here = patched(model, clean, other, both[:1], target, positions=4)
    assert not here.allclose(target(model(clean)))


@torch.no_grad()
def test_restoring_is_patching_the_clean_embedding_of_one_position():
    model, clean, other, target = drawn()
    found = restored_tokens(model, clean, other, target)
    for position in range(5):
        one = patched(model, other, clean, [Component("embedding")], target, positions=position)
        assert found[:, position].allclose(one - target(model(other)))


@torch.no_grad()
@pytest.mark.parametrize("by", PATHS.values())
def test_the_path_is_the_one_that_the_circuit_was_made_with(by):
    model = composed_model(by, vocab=6, length=8)
    clean = torch.tensor([[0, 5, 3, 1, 5]]) if by == "k" else torch.tensor([[0, 4, 3, 5, 1]])
    answer = model(clean).argmax(-1)[:, -1]
    target = answer_logit(-1, answer)
    changed = {"k": 1, "q": 3, "v": 2}[by]
    other = clean.clone()
    other[0, changed] = 2
    found = {
        name: path_patched(
            model, clean, other, FIRST, [Component(f"blocks.1.attention.{name}", 0)], target
        )
        for name in PATHS
    }
    before = target(model(clean))
    for name, own in PATHS.items():
        assert (before - found[name]).abs() > 0.2 if own == by else found[name].allclose(before)
    direct = path_patched(model, clean, other, FIRST, [Component("blocks.1.residual_post")], target)
    assert direct.allclose(before)


@torch.no_grad()
def test_a_head_of_the_last_block_acts_over_the_direct_path_and_its_network():
    model, clean, other, target = drawn()
    sender = Component("blocks.2.attention.mixed", 1)
    end = [Component("blocks.2.residual_post")]
    whole = patched(model, clean, other, [sender], target)
    through = path_patched(model, clean, other, sender, end, target, through_networks=True)
    direct = path_patched(model, clean, other, sender, end, target)
    assert through.allclose(whole)
    assert not direct.allclose(whole)


@torch.no_grad()
@pytest.mark.parametrize("read_at", [None, [-2, -1]])
@pytest.mark.parametrize("at_once", [1, 3, 16])
@pytest.mark.parametrize("by", ["position", "head"])
def test_a_map_is_patching_one_place_after_the_other(by, at_once, read_at):
    model, into, source, target = drawn()
    name = "attention.mixed" if by == "head" else "residual_mid"
    found = patching_map(
        model,
        into,
        source,
        target,
        pattern=f"blocks.*.{name}",
        by=by,
        at_once=at_once,
        read_at=read_at,
    )
    assert found.shape == (3, 2 if by == "head" else 5, 2)
    for layer, row in enumerate(found):
        for place, one in enumerate(row):
            head, positions = (place, None) if by == "head" else (None, place)
            part = Component(f"blocks.{layer}.{name}", head)
            torch.testing.assert_close(
                one, patched(model, into, source, part, target, positions=positions)
            )


@torch.no_grad()
def test_a_map_of_positions_within_heads():
    model, into, source, target = drawn()
    found = patching_map(model, into, source, target, pattern="blocks.1.attention.values")
    for place, one in enumerate(found[0]):
        part = Component("blocks.1.attention.values")
        torch.testing.assert_close(one, patched(model, into, source, part, target, positions=place))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"by": "head"}, ValueError, "have no heads, but the shape .2, 5, 16."),
        ({"by": "layer"}, ValueError, "by must be 'position' or 'head', got 'layer'"),
        ({"at_once": 0}, ValueError, "at_once must be a positive whole number, got 0"),
        ({"pattern": "blocks.*.attention.*", "by": "head"}, ValueError, "have no heads"),
        ({"pattern": "block.*"}, KeyError, "block"),
        ({"source": torch.zeros(1, 5, dtype=torch.int64)}, ValueError, "must have one shape"),
    ],
)
def test_what_cannot_be_mapped_is_refused(changes, error, message):
    model, into, source, target = drawn()
    given = {"into": into, "source": source, "target": target, **changes}
    with pytest.raises(error, match=message):
        patching_map(model, **given)


def test_a_difference_of_logits_is_that_of_two_answers():
    logits = torch.randn(3, 4, 7)
    right, wrong = torch.tensor([1, 2, 3]), torch.tensor([0, 5, 6])
    expected = answer_logit(-1, right)(logits) - answer_logit(-1, wrong)(logits)
    assert logit_difference(-1, right, wrong)(logits).equal(expected)
    assert logit_difference(-1, right.tolist(), wrong.numpy())(logits).equal(expected)
    one = logit_difference(2, 4, wrong)(logits)
    assert one.equal(logits[:, 2, 4] - logits[range(3), 2, wrong])
    for bad, message in (([1, 2], "one answer for each of 3"), (7, "below vocab=7")):
        with pytest.raises(ValueError, match=message):
            logit_difference(-1, bad, 0)(logits)
