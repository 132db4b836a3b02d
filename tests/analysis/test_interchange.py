"""Interchange tells the parts that hold a variable of a handmade model's algorithm from those that do not."""

import math

import pytest
import torch
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.handmade import Layout, composed_model, heads_model
from measured_transformer.analysis.interchange import Aligned, interchange_accuracy, interchanged
from measured_transformer.analysis.patching import patched
from measured_transformer.analysis.residual import random_model
from measured_transformer.interop.sides import SourceSide, TargetSide
from measured_transformer.models.config import Config
from measured_transformer.training.loop import make_model

NOTE = Component("blocks.0.attention.mixed", 0)
ROWS, LENGTH = 40, 6


def drawn(seed=0, vocab=9):
    """Sequences of different tokens."""
    draws = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(vocab, generator=draws)[:LENGTH] for _ in range(ROWS)])


def test_a_virtual_head_notes_the_token_and_the_note_at_one_place_decides():
    # The algorithm: note[p] = token[p - 1]; answer[p] = note[p - 1].
    model = composed_model("v", vocab=9, length=LENGTH)
    base, source = drawn(0), drawn(1)
    notes = Aligned((NOTE,), positions=-2)
    found = interchange_accuracy(model, base, [(notes, source)], source[:, -3])
    assert found.accuracy == found.accuracy_where_it_has_to_change == 1.0
    assert found.to_change == pytest.approx(float((source[:, -3] != base[:, -3]).double().mean()))
    for elsewhere in (-1, -3):
        other = Aligned((NOTE,), positions=elsewhere)
        found = interchange_accuracy(model, base, [(other, source)], source[:, -3])
        assert found.accuracy_where_it_has_to_change == 0.0
    moved = Aligned((NOTE,), positions=-2, source_positions=-1)
    assert interchange_accuracy(model, base, [(moved, source)], source[:, -2]).accuracy == 1.0


def test_an_induction_pair_with_all_notes_of_another_sequence():
    # The algorithm: note[p] = token[p - 1]; the answer is the token at the place whose note is the last token.
    model = composed_model("k", vocab=9, length=LENGTH)
    base, source = drawn(0), drawn(1)
    source[:, 2] = base[
        :, -1
    ]  # so that exactly one note of the source is the last token of the base
    later = source[:, :2], source[:, 3:-1]
    for part in later:
        part[part == base[:, -1:]] = 9 - 1
    expected = base[:, 3].clone()
    clear = ((source[:, :-1] == base[:, -1:]).sum(1) == 1) & (source[:, 2] == base[:, -1])
    base, source, expected = base[clear], source[clear], expected[clear]
    assert len(base) > 10
    found = interchange_accuracy(model, base, [(Aligned((NOTE,)), source)], expected)
    assert found.accuracy == 1.0
    assert found.to_change > 0.5


def test_several_variables_from_several_sources_and_a_subspace_of_the_stream():
    layout = Layout(9, LENGTH, 2)
    model = heads_model(["previous", "first"], vocab=9, length=LENGTH, causal=True, read=1)
    with torch.no_grad():  # the answer: what stood first counts, and what stood before counts twice
        model.unembedding.weight[:, layout.note(0)] = 2 * torch.eye(9).double()
    base, one, two = drawn(0), drawn(1), drawn(2)
    before, first = (Aligned((Component(NOTE.tap, head),), positions=-1) for head in (0, 1))
    logits = interchanged(model, base, [(before, one), (first, two)])[:, -1]
    expected = 2 * torch.eye(9)[one[:, -2]] + torch.eye(9)[two[:, 0]]
    torch.testing.assert_close(logits, expected.double())
    # The token's part of the stream alone, from another place of the source: the place stays the base's.
    directions = torch.eye(layout.width)[:, layout.token]
    token = Aligned((Component("embedding"),), -2, source_positions=0, subspace=directions)
    assert interchange_accuracy(model, base, [(token, one)], one[:, 0]).accuracy == 1.0
    turned = torch.linalg.qr(torch.randn(9, 9, generator=torch.Generator().manual_seed(0))).Q
    again = Aligned((Component("embedding"),), -2, 0, directions @ turned)
    torch.testing.assert_close(
        interchanged(model, base, [(again, one)]),
        interchanged(model, base, [(token, one)]),
        rtol=0,
        atol=1e-5,
    )
    place = Aligned((Component("embedding"),), -2, 0, torch.eye(layout.width)[:, layout.place])
    found = interchange_accuracy(model, base, [(place, one)], one[:, 0])
    assert found.accuracy_where_it_has_to_change < 0.5


@torch.no_grad()
def test_the_whole_value_is_patching_and_all_directions_are_the_whole_value():
    model, _ = random_model(3, causal=False, n_layers=2, n_heads=2, d_model=16)
    base, source = torch.randint(11, (2, 3, 5), generator=torch.Generator().manual_seed(3))
    target = answer_logit(-1, base[:, 0])
    part = Component("blocks.1.attention.mixed", 1)
    for positions in (None, [0, 3]):
        expected = patched(model, base, source, [part], target, positions=positions)
        found = interchanged(model, base, [(Aligned((part,), positions), source)])
        torch.testing.assert_close(target(found), expected)
        whole = Aligned((part,), positions, subspace=torch.eye(8))
        torch.testing.assert_close(target(interchanged(model, base, [(whole, source)])), expected)
    nothing = Aligned((part,), subspace=torch.zeros(8, 0))
    torch.testing.assert_close(interchanged(model, base, [(nothing, source)]), model(base))


def test_both_sides_of_an_encoder_decoder():
    config = Config(vocab=7, d_model=8, n_heads=2, n_layers=1)
    whole = make_model(config, causal=True, source=True, seed=0).double().eval()
    read, written = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    for side, base, source in (
        (TargetSide(whole, read), written, torch.tensor([[6, 0]])),
        (SourceSide(whole, written), read, torch.tensor([[3, 5, 1]])),
    ):
        found = interchanged(side, base, [(Aligned((Component("embedding"),)), source)])
        torch.testing.assert_close(found, side(source))


def test_errors_and_scores_without_a_change(unhooked):
    model, base = composed_model("v", vocab=9, length=LENGTH), drawn()
    found = interchange_accuracy(model, base, [(Aligned((NOTE,)), base)], base[:, -3])
    assert found.accuracy == 1.0
    assert math.isnan(found.accuracy_where_it_has_to_change)
    with pytest.raises(ValueError, match="at least one variable"):
        interchanged(model, base, [])
    with pytest.raises(ValueError, match="as many rows and positions"):
        interchanged(model, base, [(Aligned((NOTE,), [1, 2], [3]), base)])
    with pytest.raises(ValueError, match="as many rows and positions"):
        interchanged(model, base, [(Aligned((NOTE,)), base[:1])])
    for directions, told in ((torch.ones(9, 2), "not orthonormal"), (torch.eye(4), "height 9")):
        with pytest.raises(ValueError, match=told):
            interchanged(model, base, [(Aligned((NOTE,), subspace=directions), base)])
