"""A layer as a list of operations: against the block, its taps, PyTorch's counter and closed forms."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.one_layer.measure import (
    BERT,
    ENTERS,
    KINDS,
    LLAMA,
    MIXES,
    NAMES,
    changes,
    costs,
    entries_kept,
    expected_share,
    layer_config,
    nested,
    operations,
    random_layer,
    shuffle_error,
    six_operations,
    staged,
    strips,
    toy_layer,
    trace,
)
from measured_book.rooms.one_layer.reading import moves
from measured_transformer.analysis.residual import (
    ledger,
    random_model,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.sizes import count_flops, count_parameters
from measured_transformer.parts.positions import rotation
from measured_transformer.training.loop import make_model
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

RESULTS = load_results("one_layer")
OLD = ("2017", "pre-norm")
ORDER = [2, 0, 3, 1]


def test_every_result_is_of_this_code():
    for one in measurements_of("one_layer").values():
        assert standing(one).state in HOLDS, standing(one).why


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_every_value_is_what_its_tap_shows(seed, kind):
    block, x, turned = random_layer(kind, seed)
    values = trace(block, x, turned)
    with capture(block) as seen, torch.no_grad():
        out = block(x, rotation=turned)
    last = list(values)[-1]
    torch.testing.assert_close(values[last], out, rtol=0, atol=1e-12)
    tapped = [(one.name, one.tap) for one in operations(block, turned) if one.tap is not None]
    assert len(tapped) == 12
    for name, tap in tapped:
        torch.testing.assert_close(values[name], seen[tap], rtol=0, atol=1e-12)
    order = [tap for tap in seen if tap in dict(tapped).values()]
    assert order == [tap for _, tap in tapped]


def test_todays_layer_is_the_one_of_hugging_faces_llama():
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=20,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        attn_implementation="eager",
    )
    theirs = LlamaDecoderLayer(config, 0).double().eval()
    own = layer_config("today", vocab=2, d_model=16, n_layers=1, n_heads=4, n_kv_heads=2, d_ff=20)
    block = make_model(own, causal=False, seed=0).double().eval().blocks[0]
    x = torch.randn(1, 5, 16, dtype=torch.float64, generator=torch.manual_seed(0))
    turned = rotation(5, 4, pairing="halves", dtype=torch.float64)
    pairs = {
        "self_attn.q_proj": block.attention.query,
        "self_attn.k_proj": block.attention.key,
        "self_attn.v_proj": block.attention.value,
        "self_attn.o_proj": block.attention.output,
        "mlp.gate_proj": block.feedforward.gate,
        "mlp.up_proj": block.feedforward.up,
        "mlp.down_proj": block.feedforward.down,
    }
    with torch.no_grad():
        for name, part in pairs.items():
            theirs.get_submodule(name).weight.copy_(part.weight)
        angles = LlamaRotaryEmbedding(config)(x, torch.arange(5)[None])
        expected = theirs(x, position_embeddings=angles, attention_mask=None)
    expected = expected[0] if isinstance(expected, tuple) else expected
    found = list(trace(block, x, turned).values())[-1]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # their angles are float32


@pytest.mark.parametrize("kind", OLD)
def test_pytorchs_layer_with_the_same_weights_ends_alike(kind):
    block, x, _ = toy_layer(kind)
    layer = nn.TransformerEncoderLayer(
        4, 2, 8, batch_first=True, norm_first=kind == "pre-norm", dtype=torch.float64
    ).eval()
    a, f = block.attention, block.feedforward
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(
            torch.cat([a.query.weight, a.key.weight, a.value.weight])
        )
        layer.self_attn.in_proj_bias.zero_()
        layer.self_attn.out_proj.weight.copy_(a.output.weight)
        layer.self_attn.out_proj.bias.zero_()
        layer.linear1.weight.copy_(f.up.weight)
        layer.linear1.bias.zero_()
        layer.linear2.weight.copy_(f.down.weight)
        layer.linear2.bias.zero_()
        expected = layer(x)
    found = list(trace(block, x).values())[-1]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_toy_has_halves_and_the_same_weights_in_both_placements():
    (pre, x, _), (post, same, _) = toy_layer("pre-norm"), toy_layer("2017")
    assert torch.equal(x, same)
    assert x.shape == (1, 3, 4)
    for (name, one), (_, other) in zip(
        pre.named_parameters(), post.named_parameters(), strict=True
    ):
        assert torch.equal(one, other)
        if one.ndim == 2:
            assert torch.equal(2 * one, (2 * one).round()), name
    assert list(trace(pre, x)) != list(trace(post, x))
    assert sorted(trace(pre, x)) == sorted(trace(post, x))
    today, same, turned = toy_layer("today")
    assert torch.equal(x, same)
    assert turned is not None
    weights = [parameter for parameter in today.parameters() if parameter.ndim == 2]
    assert len(weights) == 7
    assert all(torch.equal(2 * one, (2 * one).round()) for one in weights)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="got 'tomorrow'"):
        layer_config("tomorrow", vocab=2)


def test_strips_are_the_rows_of_one_token():
    block, x, _ = toy_layer("2017")
    found = strips(block, x, token=1)
    values = trace(block, x)
    assert [one.name for one in found] == list(values)
    for one in found:
        value = values[one.name][0]
        rows = value[:, 1] if value.ndim == 3 else value[None, 1]
        assert np.allclose(one.heads, rows)
        assert one.shape == tuple(value.shape)
    assert [one.name for one in found if one.mixes] == list(MIXES)
    pattern = next(one for one in found if one.name == "pattern")
    assert np.allclose([sum(head) for head in pattern.heads], 1)
    assert str(pattern).startswith("pattern    (2, 3, 3)")
    assert str(pattern).count("|") == 1
    for token in (-1, 3):
        with pytest.raises(ValueError, match=f"from 0 to 2, got {token}"):
            strips(block, x, token=token)


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_two_operations_read_other_tokens(kind):
    for seed in range(5):
        found = changes(*random_layer(kind, seed), token=0, other=2, seed=seed)
        assert [name for name, one in found.items() if one.alone > 1e-9] == list(MIXES)
        names = list(found)
        moved = [one.through_layer > 1e-9 for one in found.values()]
        assert moved == [place >= names.index("scores") for place in range(len(names))]


def test_changes_are_those_of_the_token_that_is_watched():
    block, x, _ = random_layer("pre-norm", 1)
    alone = [one.alone for one in changes(block, x, token=3, other=0).values()]
    assert any(alone)
    with pytest.raises(ValueError, match="two different tokens, got 1 twice"):
        changes(block, x, token=1, other=1)
    with torch.no_grad():  # attention that writes nothing: what is added no longer knows others
        block.attention.output.weight.zero_()
    found = changes(block, x)
    assert found["mixed"].through_layer > 1e-9
    assert found["add 1"].through_layer == 0


@pytest.mark.parametrize("kind", KINDS)
def test_all_tokens_are_treated_alike_unless_places_are_told(kind):
    block, x, turned = random_layer(kind, 2)
    assert (shuffle_error(block, x, turned, order=ORDER) > 1e-3) == (kind == "today")
    assert shuffle_error(block, x, None, order=ORDER) < 1e-12


def test_what_moves_in_some_layers_only_is_no_answer():
    mixing = RESULTS["mixing"].copy(deep=True)
    assert [name for name, _, alone in moves(mixing, "today") if alone] == list(MIXES)
    mixing["alone_0"][3, 0] = 1.0
    with pytest.raises(ValueError, match="expected queries to move in all layers or in none"):
        moves(mixing, "2017")


@pytest.mark.parametrize(
    "config",
    [
        Config(vocab=5, d_model=12, n_layers=1, n_heads=3, d_ff=20, placement="post"),
        Config(vocab=5, d_model=12, n_layers=1, n_heads=2, d_head=5, bias=False),
        Config(vocab=5, d_model=16, n_layers=1, n_heads=4, attention_bias=False, ffn_bias=True),
        layer_config("today", vocab=5, d_model=16, n_layers=1, n_heads=4, n_kv_heads=2, d_ff=20),
    ],
)
def test_costs_add_up_to_those_of_the_model_and_what_pytorch_counts(config):
    found = costs(config, length=7)
    whole = count_parameters(config, "encoder")
    norms = 2 * config.d_model * (2 if config.bias and config.norm == "layer" else 1)
    assert sum(one.parameters for one in found) == whole.attention + whole.feedforward + norms
    block = make_model(config, causal=False, seed=0).blocks[0]
    assert sum(one.parameters for one in found) == sum(p.numel() for p in block.parameters())
    flops = count_flops(config, "encoder", length=7)
    assert sum(one.flops for one in found if one.part == "attention") == flops.attention
    assert sum(one.flops for one in found if one.part == "ffn") == flops.feedforward
    with torch.no_grad(), capture(block, "*.pattern"), FlopCounterMode(display=False) as counter:
        block(torch.zeros(1, 7, config.d_model))
    assert sum(one.flops for one in found) == counter.get_total_flops()


@pytest.mark.parametrize("kind", KINDS)
def test_costs_have_the_shapes_of_the_trace(kind):
    sizes = {"n_kv_heads": 2, "d_ff": 20} if kind == "today" else {"d_ff": 20}
    config = layer_config(kind, vocab=5, d_model=16, n_layers=1, n_heads=4, **sizes)
    block = make_model(config, causal=False, seed=0).blocks[0]
    turned = rotation(5, 4) if kind == "today" else None
    values = trace(block, torch.zeros(1, 5, 16), turned)
    found = costs(config, length=5)
    assert [one.name for one in found] == [name for name in values if name != ENTERS]
    for one, operation in zip(found, operations(block, turned), strict=True):
        assert one.gives == tuple(values[one.name].shape[1:])
        assert one.takes == tuple(tuple(values[name].shape[1:]) for name in operation.reads)
        assert one.mixes == (one.name in MIXES)


def test_published_layers_have_the_sizes_that_their_papers_give():
    assert sum(one.parameters for one in costs(BERT, length=1)) == 7_087_872
    assert sum(one.parameters for one in costs(LLAMA, length=1)) == 218_112_000
    assert len(NAMES["2017"]) == len(NAMES["pre-norm"]) == 14
    assert len(NAMES["today"]) == 17


def test_unknown_forms_are_refused():
    base = Config(vocab=5, d_model=8, n_layers=1, n_heads=2)
    block = make_model(base.replace(residual=False), causal=False, seed=0).blocks[0]
    with pytest.raises(ValueError, match="expected a block with skip connections"):
        operations(block)
    with pytest.raises(ValueError, match="expected a block with skip connections"):
        costs(base.replace(residual=False), length=3)
    with pytest.raises(ValueError, match="expected a norm, got 'none'"):
        costs(base.replace(norm="none"), length=3)


def test_dropout_before_the_addition_leaves_the_embedding_alone():
    shares, means = entries_kept(0.4, layers=3, seed=0, behind=False)
    assert shares.tolist() == means.tolist() == [1.0] * 7


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_dropout_behind_the_addition_multiplies_chances_and_keeps_the_mean(rate):
    found = np.array(
        [entries_kept(rate, layers=4, seed=s, behind=True, tokens=256) for s in range(8)]
    )
    shares, means = found.mean(0)
    at = np.arange(9)
    exact = np.array([expected_share(rate, int(k)) for k in at])
    assert exact == pytest.approx((1 - rate) ** at)
    entries = 8 * 256 * 32
    assert np.abs(shares - exact).max() < 5 * np.sqrt(0.25 / entries)
    spread = np.sqrt(((1 - rate) ** -8.0 - 1) / entries)
    assert np.abs(means - 1).max() < 5 * spread
    assert np.array_equal(found[0], entries_kept(rate, layers=4, seed=0, behind=True, tokens=256))


@pytest.mark.parametrize("training", [False, True])
def test_six_operations_are_pytorchs_post_norm_layer(training):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.4, batch_first=True).double()
    layer.self_attn.dropout = layer.dropout.p = 0.0
    layer.train(training)
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    results = []
    for function in (layer, lambda x: six_operations(x, layer)):
        torch.manual_seed(1)
        with torch.no_grad():
            results.append(function(x))
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_nested_and_staged_forms_are_the_post_norm_block_and_not_the_pre_norm_one():
    model, tokens = random_model(4, placement="post", n_layers=1)
    other, _ = random_model(4, placement="pre", n_layers=1)
    states = ledger(model, tokens).states
    with torch.no_grad():
        for form in (nested, staged):
            torch.testing.assert_close(form(model.blocks[0], states[0]), states[-1])
            assert not torch.allclose(
                form(other.blocks[0], states[0]), other.blocks[0](states[0]), atol=1e-2
            )
