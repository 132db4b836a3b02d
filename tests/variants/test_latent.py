"""Latent attention against keys and values made by hand, itself absorbed, and what it contains."""

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.positions import rotation
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.stacked import train_stacked
from measured_transformer.variants.latent import Latent, LatentAttention
from torch.nn import functional as F


def layer(rank=6, d_rotary=0, heads=2, d_head=4, bias=True):
    torch.manual_seed(0)
    old = MultiHeadAttention(heads * d_head, heads, bias=bias)
    return LatentAttention(old, rank=rank, d_rotary=d_rotary).double()


def stream(n=5, width=8):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, n, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
def test_without_positions_it_is_attention_on_keys_and_values_made_from_the_latent(causal):
    part, x = layer(), stream()
    latent = part.down(x)
    queries, keys, values = (
        each.unflatten(-1, (2, 4)).transpose(1, 2)
        for each in (part.query(x), latent @ part.up_key.weight.T, latent @ part.up_value.weight.T)
    )
    mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
    expected = part.output(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(part(x, causal=causal), expected)


@pytest.mark.parametrize("d_rotary", [0, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
def test_absorbed_is_the_same_function(d_rotary, causal, pairing):
    part, x = layer(d_rotary=d_rotary), stream()
    turns = rotation(5, 4, dtype=torch.float64, pairing=pairing) if d_rotary else None
    made = part(x, causal=causal, rotation=turns)
    absorbed = part.absorbed(x, causal=causal, rotation=turns)
    torch.testing.assert_close(absorbed, made, rtol=0, atol=1e-12)
    with torch.no_grad():
        part.up_key.weight.copy_(part.up_key.weight.roll(4, 0))
    assert (part.absorbed(x, causal=causal, rotation=turns) - made).abs().max() > 1e-4


def test_grouped_queries_are_a_special_case():
    torch.manual_seed(2)
    grouped = MultiHeadAttention(16, 4, n_kv_heads=2, bias=False).double()
    part = LatentAttention(MultiHeadAttention(16, 4, bias=False), rank=16).double()
    with torch.no_grad():
        part.query.weight.copy_(grouped.query.weight)
        part.output.weight.copy_(grouped.output.weight)
        part.down.weight.copy_(torch.cat((grouped.key.weight, grouped.value.weight)))
        part.up_key.weight.zero_()
        part.up_value.weight.zero_()
        for head in range(4):
            rows, group = slice(4 * head, 4 * head + 4), head // 2
            part.up_key.weight[rows, 4 * group : 4 * group + 4] = torch.eye(4).double()
            part.up_value.weight[rows, 8 + 4 * group : 12 + 4 * group] = torch.eye(4).double()
    x = stream(width=16)
    torch.testing.assert_close(part(x, causal=True), grouped(x, causal=True))


def test_only_distances_count_in_what_is_turned():
    part = layer(d_rotary=2)
    x = stream(n=6)
    near = part(x, rotation=rotation(6, 4, dtype=torch.float64))
    far = part(x, rotation=rotation(torch.arange(6) + 90, 4, dtype=torch.float64))
    torch.testing.assert_close(near, far)
    turned = part(x, rotation=rotation(2 * torch.arange(6), 4, dtype=torch.float64))
    assert (near - turned).abs().max() > 1e-4


def test_angles_are_those_of_a_narrower_head():
    wide, narrow = (rotation(9, width, dtype=torch.float64) for width in (8, 4))
    torch.testing.assert_close(wide.cos[:, ::2], narrow.cos)


def test_nobody_looks_ahead():
    part, x = layer(d_rotary=2), stream()
    turns = rotation(5, 4, dtype=torch.float64)
    later = x.clone()
    later[:, 3:] += 1
    before, after = (part(each, causal=True, rotation=turns) for each in (x, later))
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert (before[:, 3:] - after[:, 3:]).abs().min() > 0


def test_what_it_refuses(unhooked):
    old = MultiHeadAttention(8, 2)
    with pytest.raises(ValueError, match="expected a positive rank, got 0"):
        LatentAttention(old, rank=0)
    for wrong in (1, 3, 6, -2):
        with pytest.raises(ValueError, match=f"divide d_head=4, got {wrong}"):
            LatentAttention(old, rank=2, d_rotary=wrong)
    part, x = layer(), stream()
    with pytest.raises(ValueError, match="got d_rotary=0"):
        part(x, rotation=rotation(5, 4))
    with pytest.raises(ValueError, match="got d_rotary=2"):
        layer(d_rotary=2)(x)
    with pytest.raises(ValueError, match="alone, got memory"):
        part(x, memory=x)


CONFIG = Config(vocab=6, d_model=16, n_heads=2, n_layers=2, positions="rotary")


def test_a_model_has_it_in_every_block_and_shows_its_latent():
    model = make_model(CONFIG, causal=True, seed=0)
    Latent(rank=5, d_rotary=4)(model)
    batch = Lag(6, 6, 2).batch(torch.Generator().manual_seed(0), 3)
    with capture(model, "blocks.*.attention.latent") as seen, torch.no_grad():
        model(batch.inputs)
    assert [tuple(each.shape) for each in seen.values()] == [(3, 6, 5)] * 2


def test_equal_layers_are_replaced_by_equal_ones():
    one, other = layer(), layer()
    for name, weight in one.named_parameters():
        assert torch.equal(weight, other.get_parameter(name))
    torch.manual_seed(7)
    different = LatentAttention(MultiHeadAttention(8, 2), rank=6).double()
    assert not torch.equal(different.down.weight, one.down.weight)
    assert not torch.equal(one.up_key.weight, one.up_value.weight)


def test_it_trains_alone_and_stacked_alike():
    options = {"steps": 4, "learning_rate": 0.01, "batch_size": 8, "prepare": Latent(5, 4)}
    alone = train(CONFIG, Lag(6, 6, 2), seed=0, **options)
    stacked = train_stacked(CONFIG, Lag(6, 6, 2), [0, 1], **options)[0]
    torch.testing.assert_close(
        torch.tensor(alone.losses), torch.tensor(stacked.losses), rtol=1e-4, atol=1e-5
    )
    assert alone.losses[-1] < alone.losses[0]
