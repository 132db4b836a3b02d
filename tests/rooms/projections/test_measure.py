"""Shared projections and turned ones, against cases worked out by hand and models made by hand."""

import numpy as np
import pytest
import torch
from measured_book.rooms.projections.measure import (
    ARMS,
    absorbed_moved,
    asymmetry,
    attention_parameters,
    commuting_turn,
    degrees_of_freedom,
    drawn_layer,
    drawn_scores,
    drawn_turn,
    kept_numbers,
    mutual_pairs,
    one_side_accuracy,
    reading,
    rotary_degrees_of_freedom,
    rotary_moved,
    turned,
    written_out,
)
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.positions import rotation
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, make_model, train
from measured_transformer.variants.attention import Tied, same_size
from torch.nn import functional as F

SMALL = Config(vocab=6, d_model=16, n_layers=2, n_heads=2)


@pytest.mark.parametrize(
    ("tie", "names", "different"),
    [("none", "query key value", 3), ("qk", "query key", 2), ("kv", "key value", 2),
     ("qkv", "query key value", 1)],
)  # fmt: skip
def test_ties_share_what_they_name(tie, names, different):
    model = make_model(SMALL, causal=False, seed=0)
    Tied(tie)(model)
    for block in model.blocks:
        layer = block.attention
        assert len({id(p) for p in (layer.query, layer.key, layer.value)}) == different
        if tie != "none":
            assert len({id(getattr(layer, name)) for name in names.split()}) == 1


def test_tied_models_stay_tied_in_training():
    task = Reversal(6, 4)
    run = train(SMALL, task, steps=3, learning_rate=0.01, seed=0, prepare=Tied("qk"))
    for block in run.model.blocks:
        assert torch.equal(block.attention.key.weight, block.attention.query.weight)
        assert not torch.equal(block.attention.key.weight, block.attention.value.weight)


@pytest.mark.parametrize("tie", ["none", "qk", "kv", "qkv"])
@pytest.mark.parametrize("bias", [True, False])
def test_what_is_saved_is_given_to_the_neurons(tie, bias):
    config = Config(vocab=6, d_model=32, n_layers=2, bias=bias)
    model = make_model(same_size(config, tie), causal=False, seed=0)
    Tied(tie)(model)
    sizes = [sum(p.numel() for p in m.parameters()) for m in
             (model, make_model(config, causal=False, seed=0))]  # fmt: skip
    assert abs(sizes[0] - sizes[1]) <= 2 * (2 * 32 + 1)


def test_impossible_ties(unhooked):
    with pytest.raises(ValueError, match="tie must be one of none, qk, kv, qkv, got 'vq'"):
        Tied("vq")
    grouped = make_model(SMALL.replace(n_kv_heads=1), causal=False, seed=0)
    with pytest.raises(ValueError, match="n_heads=2 and n_kv_heads=1"):
        Tied("qk")(grouped)
    Tied("kv")(grouped)


def test_shared_scores_are_symmetric_and_leave_no_mutual_pair():
    for seed in range(20):
        shared, separate = (drawn_scores(seed, shared=s) for s in (True, False))
        assert asymmetry(shared) < 1e-12
        assert mutual_pairs(shared) == 0
        assert asymmetry(separate) > 0.1
        assert mutual_pairs(separate) > 0
        assert torch.linalg.eigvalsh(shared).min() > -1e-9


def test_mutual_pairs_are_counted_once():
    scores = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -1.0, 2.0]])
    assert mutual_pairs(scores) == 1
    assert mutual_pairs(torch.zeros(4, 4)) == 0


def test_one_side_accuracy():
    assert one_side_accuracy(12) == pytest.approx(13 / 24)
    with pytest.raises(ValueError, match="got vocab=0"):
        one_side_accuracy(0)


def reversing_model(strength: float):
    """One head whose query i scores key n - 1 - i by `strength`, all others by 0; with learned positions."""
    n, vocab = 4, 6
    config = Config(vocab=vocab, d_model=16, d_head=4, n_heads=1, n_layers=1, positions="learned",
                    norm="none", bias=False, max_length=n)  # fmt: skip
    model = make_model(config, causal=False, seed=0)
    layer = model.blocks[0].attention
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.positions.table[:, :4] = torch.eye(4)
        layer.query.weight[:, :4] = 2 * strength * torch.eye(4).flip(0)
        layer.key.weight[:, :4] = torch.eye(4)
    return model, Reversal(vocab, n)


def test_reading_finds_the_partner():
    model, task = reversing_model(strength=3.0)
    found = reading(model, task, seed=0)
    others = np.exp(3) + 3
    assert found.partner == pytest.approx(np.exp(3) / others, rel=1e-5)
    assert found.own == pytest.approx(1 / others, rel=1e-5)
    assert found.unequal == pytest.approx((np.exp(3) - 1) / others, rel=1e-5)
    assert found.top_is_partner == 1.0
    assert found.most_attended == 1.0
    assert found.accuracy == evaluate(model, task, seed=0).accuracy < 0.5


def test_reading_refuses_what_it_cannot_read():
    with pytest.raises(ValueError, match="got 4 heads"):
        reading(make_model(SMALL, causal=False, seed=0), Reversal(6, 4), seed=0)
    with pytest.raises(ValueError, match="expected an even length"):
        reading(make_model(SMALL, causal=False, seed=0), Reversal(6, 5), seed=0)


def test_turns_change_weights_and_nothing_else():
    for seed in range(10):
        layer, x = drawn_layer(seed)
        a, b = drawn_turn(seed, layer.d_head), drawn_turn(seed + 50, layer.d_head)
        both = turned(layer, scores=a, values=b)
        torch.testing.assert_close(both(x), layer(x), rtol=0, atol=1e-10)
        for name in ("query", "key", "value", "output"):
            assert not torch.allclose(getattr(both, name).weight, getattr(layer, name).weight)
        for one in ({"scores": a}, {"values": b}):
            assert (turned(layer, **one, undo=False)(x) - layer(x)).abs().max() > 1e-3


def test_a_turn_does_not_touch_the_layer():
    layer, x = drawn_layer(1)
    before = layer(x)
    turned(layer, scores=drawn_turn(0, layer.d_head), undo=False)
    assert torch.equal(layer(x), before)


def test_turns_are_no_rotations():
    turn = drawn_turn(0, 4)
    singular = torch.linalg.svdvals(turn)
    assert singular.max() <= 2
    assert singular.min() >= 0.5
    assert (turn @ turn.T - torch.eye(4)).abs().max() > 0.1


def test_shared_key_heads_cannot_be_turned():
    layer = MultiHeadAttention(8, 2, n_kv_heads=1)
    with pytest.raises(ValueError, match="got 1 and 2"):
        turned(layer, scores=torch.eye(4))


def test_written_out_is_attention():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (4, 5))
    v = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(written_out(q, k, v), F.scaled_dot_product_attention(q, k, v))
    rolled = torch.arange(5).roll(1)
    torch.testing.assert_close(
        written_out(q, k, v, order=rolled), F.scaled_dot_product_attention(q, k[rolled], v)
    )


@pytest.mark.parametrize(("d", "h"), [(4, 1), (5, 2), (6, 3)])
def test_degrees_of_freedom_are_those_of_matrices_of_this_rank(d, h):
    assert degrees_of_freedom(d, h, shared=False) == 2 * d * h - h * h
    assert degrees_of_freedom(d, h, shared=True) == d * h - h * (h - 1) // 2
    with pytest.raises(ValueError, match="got 5 and 4"):
        degrees_of_freedom(4, 5, shared=True)


def test_ties_work_where_nothing_is_bidirectional():
    run = train(SMALL, Lag(6, 6, 2), steps=2, learning_rate=0.01, seed=0, prepare=Tied("qkv"))
    assert np.isfinite(run.losses).all()


def test_commuting_turns_commute_with_every_position():
    turn = commuting_turn(3, 6)
    turns = rotation(9, 6, dtype=torch.float64)
    x = torch.randn(1, 1, 9, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(turns.apply(x @ turn), turns.apply(x) @ turn)
    assert (turn @ turn.T - torch.eye(6)).abs().max() > 0.01  # no rotation: it stretches, too
    with pytest.raises(ValueError, match="even width, got 5"):
        commuting_turn(0, 5)


def test_rotary_positions_leave_only_what_commutes_free():
    for seed in range(10):
        assert rotary_moved(seed, "commuting") < 1e-12
        assert rotary_moved(seed, "rotation") > 1e-3
        assert rotary_moved(seed, "any") > 1e-3
    with pytest.raises(ValueError, match="got 'none'"):
        rotary_moved(0, "none")


@pytest.mark.parametrize(("d", "h"), [(4, 2), (6, 4), (5, 2)])
def test_directions_under_rotary_positions(d, h):
    assert rotary_degrees_of_freedom(d, h, shared=False) == 2 * d * h - h
    assert rotary_degrees_of_freedom(d, h, shared=True) == d * h - h // 2
    with pytest.raises(ValueError, match="got 6 and 4"):
        rotary_degrees_of_freedom(4, 6, shared=True)


def test_absorbed_latents_are_told_from_wrong_ones():
    for seed in range(10):
        for d_rotary in (0, 2):
            assert absorbed_moved(seed, d_rotary=d_rotary) < 1e-12
            assert absorbed_moved(seed, d_rotary=d_rotary, wrong=True) > 1e-3


def test_what_is_kept_and_what_is_learned():
    assert {arm: kept_numbers(arm) for arm in ARMS} == {
        "MHA": 128, "GQA": 64, "K = V": 64, "MQA": 32, "MLA": 32,
    }  # fmt: skip
    square = 64 * 64
    assert attention_parameters("MHA") == 4 * square
    assert attention_parameters("K = V") == attention_parameters("GQA") == 3 * square
    assert attention_parameters("MQA") == 2.5 * square
    # Queries with their turned part, output, the latent down and twice up, and the turned key.
    assert attention_parameters("MLA") == 1.5 * square + square + 3 * 24 * 64 + 8 * 64
