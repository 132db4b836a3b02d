"""Attention is the sum of its heads; what one head misses; circuits and pairs of heads that are known."""

import numpy as np
import pytest
import torch
from measured_book.rooms.heads import measure
from measured_book.rooms.heads.algebra import (
    CHECKS,
    as_torch,
    best_numbers,
    concatenated,
    drawn_attention,
    heads_of,
    parameters,
)
from measured_book.rooms.heads.paths import PATHS, PairEffects, pair_effects, patched, right
from measured_book.rooms.heads.single_head import (
    map_values,
    on_a_circle,
    on_a_line,
    one_head_misses,
    two_maps,
)
from measured_transformer.analysis.handmade import composed_model, heads_model, induction_model
from measured_transformer.analysis.induction import prefix_matching_score, previous_token_score
from measured_transformer.internals.capture import capture
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import predict


@torch.no_grad()
@pytest.mark.parametrize("wide", [False, True])
def test_concatenation_and_sum_are_attention(wide):
    for seed in range(10):
        attention, x = drawn_attention(seed, wide=wide)
        assert attention.d_model == attention.d_head * (1 if wide else attention.n_heads)
        torch.testing.assert_close(concatenated(attention, x), attention(x))
        outputs, blocks = heads_of(attention, x)
        assert outputs.shape == (attention.n_heads, *x.shape[:2], attention.d_head)
        torch.testing.assert_close((outputs @ blocks[:, None]).sum(0), attention(x))
    assert drawn_attention(0, d_head=3)[0].d_head == 3
    first, again = drawn_attention(1, bias=True), drawn_attention(1, bias=True)
    assert torch.equal(first[0](first[1]), again[0](again[1]))
    assert first[0].output.bias.abs().min() > 0


@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
def test_pytorchs_attention_with_the_same_weights_is_the_same(bias):
    attention, x = drawn_attention(3, bias=bias)
    theirs, _ = as_torch(attention)(x, x, x, need_weights=False)
    torch.testing.assert_close(theirs, attention(x))
    with pytest.raises(ValueError, match="d_head=4, d_model=4"):
        as_torch(MultiHeadAttention(4, 2, d_head=4))


def test_numbers_reach_what_is_a_combination_with_numbers(unhooked):
    torch.manual_seed(0)
    outputs = torch.randn(3, 2, 4, 5).double()
    total = torch.einsum("h,hbpd->bpd", torch.tensor([2.0, -1.0, 0.5]).double(), outputs)
    assert best_numbers(outputs, total) < 1e-12
    other = torch.randn(2, 4, 5).double()
    share = best_numbers(outputs, other)
    columns = outputs.flatten(1).T.numpy()
    fitted = columns @ np.linalg.pinv(columns) @ other.flatten().numpy()
    assert share == pytest.approx(
        np.linalg.norm(other.flatten().numpy() - fitted) / other.norm().item()
    )
    with pytest.raises(ValueError, match=r"\(2, 4, 5\) for \(2, 4, 6\)"):
        best_numbers(outputs, torch.zeros(2, 4, 6).double())


def test_a_map_needs_as_many_heads_as_it_has_values():
    torch.manual_seed(0)
    patterns, forms = torch.rand(3, 4, 5).double(), torch.randn(3, 2, 2).double()
    for heads in (1, 2, 3):
        values = map_values(patterns[:heads], forms[:heads])
        assert int((values > 1e-10).sum()) == heads
    same_place = map_values(patterns[:1].expand(2, -1, -1), forms[:2])
    assert int((same_place > 1e-10).sum()) == 1, "one pattern is one head, whatever it carries"


@torch.no_grad()
def test_two_heads_reach_two_maps_and_the_best_head_misses_what_it_must():
    for seed in range(5):
        found = two_maps(seed)
        reached = found.attention(found.x)[0, 3:]
        torch.testing.assert_close(reached, found.target, rtol=0, atol=1e-10)
        # The maps over places do not overlap, so only the two matrices matter.
        blocks = found.attention.output.weight.T.unflatten(0, (2, -1)).flatten(1)
        most, least = torch.linalg.svdvals(blocks)
        expected = least / (most**2 + least**2).sqrt()
        assert found.bound == pytest.approx(expected.item())
        assert found.one_head >= found.bound - 1e-12


def test_the_best_head_is_the_best_of_all_weights_on_the_two_places():
    drawn = [torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(s)) for s in range(8)]
    signs = set()
    for forms in (each.double() for each in drawn):
        a = torch.linspace(0, 1, 2001, dtype=torch.float64)
        blends = a[:, None] * forms[0].flatten() + (1 - a)[:, None] * forms[1].flatten()
        caught = blends.square().sum(1) / (a.square() + (1 - a).square())
        best = (1 - caught.max() / forms.square().sum()).sqrt().item()
        assert one_head_misses(forms) == pytest.approx(best, abs=1e-4)
        signs.add(bool((forms[0] * forms[1]).sum() > 0))
    assert signs == {True, False}, "draws of both kinds"


def test_a_head_one_wide_points_at_two_keys_and_one_two_wide_at_all():
    queries, keys = torch.linspace(-50, 50, 101), torch.tensor([0.3, -1.0, 0.9, 2.0])
    assert set(on_a_line(queries, keys).argmax(-1).tolist()) - {0} == {1, 3}
    angles = 2 * torch.pi * torch.arange(16).double() / 16
    weights = on_a_circle(angles, keys=16, sharpness=80.0)
    assert weights.argmax(-1).tolist() == list(range(16))
    torch.testing.assert_close(weights.sum(-1), torch.ones(16).double())


def test_pairs_that_do_the_same_hide_one_another():
    task = Reversal(vocab=6, length=6)
    batch = task.batch(torch.Generator().manual_seed(0), 64)
    model = heads_model(["mirror", "self"], vocab=6, length=6, read=0)
    effects = pair_effects(model, batch)
    assert effects.heads.tolist() == [[0, 0], [0, 1]]
    assert effects.same_layer.tolist() == [True]
    assert effects.single[0] > 0.5
    assert effects.single[1] == pytest.approx(0, abs=1e-12)
    assert effects.share(effects.same_layer) == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="no joint effect"):
        effects.share(~effects.same_layer)


def test_an_induction_pair_is_all_interaction():
    task = Induction(vocab=8, length=14, shortest=3, longest=6)
    batch = task.batch(torch.Generator().manual_seed(0), 64)
    effects = pair_effects(induction_model(vocab=8, length=14), batch)
    assert effects.heads.tolist() == [[0, 0], [1, 0]]
    assert effects.same_layer.tolist() == [False]
    # Without the second head nothing is read from the first: removing both is removing the second.
    assert effects.joint[0] == pytest.approx(effects.single[1])
    assert effects.interaction[0] == pytest.approx(-effects.single[0])
    assert effects.share(~effects.same_layer) > 0.1


def test_shares_add_sizes_before_they_divide():
    effects = PairEffects(
        heads=np.array([[0, 0], [0, 1], [1, 0]]),
        pairs=np.array([[0, 1], [0, 2], [1, 2]]),
        single=np.array([1.0, 2.0, 4.0]),
        joint=np.array([3.0, 4.0, 8.0]),
    )
    assert effects.interaction.tolist() == [0.0, -1.0, 2.0]
    assert effects.same_layer.tolist() == [True, False, False]
    assert effects.share(~effects.same_layer) == pytest.approx(3 / 12)


def looks(model, tokens):
    with capture(model, "*.pattern") as seen:
        model(tokens)
    return [pattern.double() for pattern in seen.values()]


@torch.no_grad()
def test_scores_find_the_heads_of_the_induction_pair():
    batch = Induction(vocab=8, length=14, shortest=3, longest=6).batch(
        torch.Generator().manual_seed(0), 16
    )
    first, second = looks(induction_model(vocab=8, length=14), batch.inputs)
    assert previous_token_score(first).item() == pytest.approx(1, abs=1e-6)
    assert prefix_matching_score(second, batch.inputs).item() == pytest.approx(1, abs=1e-6)
    assert previous_token_score(second).item() < 0.5
    assert prefix_matching_score(first, batch.inputs).item() < 0.5


@torch.no_grad()
@pytest.mark.parametrize("by", ["q", "k", "v"])
def test_only_the_path_over_which_heads_compose_matters(by):
    batch = Induction(vocab=8, length=14, shortest=3, longest=6).batch(
        torch.Generator().manual_seed(0), 32
    )
    model = composed_model(by, vocab=8, length=14)
    whole = predict(model, batch)
    for path in PATHS:
        change = (patched(model, batch, path) - whole)[batch.scored].abs().max().item()
        if path in (by, "all"):
            assert change > 0.5
        else:
            assert change < 1e-9
    if by == "k":
        assert right(whole, batch) == 1
        assert right(patched(model, batch, "k"), batch) < 0.5
    with pytest.raises(ValueError, match="got 1 and 32"):
        patched(heads_model(["self"], vocab=8, length=14), batch, "q")


def test_all_identities_hold_and_all_controls_fail():
    found = measure.drawn.function(0)
    error = dict(zip(CHECKS, np.array(found["error"][1]), strict=True))
    control = dict(zip(CHECKS, np.abs(found["control"][1]), strict=True))
    assert min(each.min() for each in control.values()) > 1e-3
    assert error.pop("printed").min() > 0.1, "the transposed row of blocks is another matrix"
    assert max(each.max() for each in error.values()) < 1e-9
    for name, kept in (("writes", 0), ("form", 0), ("two_patterns", 2), ("one_pattern", 1)):
        assert set(found[name][1]) == {kept}
    assert min(found["all_writes"][1]) > 0
    assert found["printed_exists"] == 0


def test_more_heads_are_narrower_heads():
    assert parameters(12, 3) == parameters(12, 1) == 4 * 12 * 12
    assert parameters(12, 3, 5) == 4 * 3 * 12 * 5
