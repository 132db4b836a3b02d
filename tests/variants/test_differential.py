"""Differential attention against its formula, written out, and against ordinary attention."""

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.variants.differential import DifferentialAttention, differential_weights


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 8, generator=generator), torch.randn(2, 5, 8, generator=generator)


def test_it_is_the_difference_of_two_heads(inputs):
    torch.manual_seed(1)
    layer, (x, memory) = DifferentialAttention(8, balance=0.3), inputs
    maps = []
    for half in (slice(0, 4), slice(4, 8)):
        queries, keys = x @ layer.query.weight[half].T, memory @ layer.key.weight[half].T
        maps.append((queries @ keys.transpose(1, 2) / 2).softmax(-1))
    expected = (maps[0] - 0.3 * maps[1]) @ (memory @ layer.value.weight.T) @ layer.output.weight.T
    assert torch.allclose(layer(x, memory), expected, atol=1e-6)


def test_rows_sum_to_what_the_balance_leaves(inputs):
    layer, (x, memory) = DifferentialAttention(8, balance=0.8), inputs
    with capture(layer, "pattern") as seen:
        layer(x, memory)
    assert torch.allclose(seen["pattern"].sum(-1), torch.tensor(0.2), atol=1e-6)


def test_what_is_hidden_has_no_weight(inputs):
    layer, (x, memory) = DifferentialAttention(8), inputs
    seen = torch.tensor([[True, True, False, True, False], [True] * 5])
    out = layer(x, memory, padding_mask=seen)
    assert torch.allclose(out[0], layer(x[:1], memory[:1, [0, 1, 3]])[0], atol=1e-6)


def test_without_the_second_softmax_it_is_one_head_with_half_the_keys():
    generator = torch.Generator().manual_seed(2)
    layer, x = DifferentialAttention(8, balance=0.0), torch.randn(2, 4, 8, generator=generator)
    head = MultiHeadAttention(8, 1, bias=False, scale=0.5)
    with torch.no_grad():
        for own, other in ((head.query, layer.query), (head.key, layer.key)):
            own.weight.zero_()
            own.weight[:4] = other.weight[:4]
        head.value.weight.copy_(layer.value.weight)
        head.output.weight.copy_(layer.output.weight)
    assert torch.allclose(layer(x, x), head(x), atol=1e-6)


def test_it_has_the_weights_of_attention_of_that_width_and_one_more():
    count = sum(weight.numel() for weight in DifferentialAttention(8).parameters())
    assert count == 1 + sum(w.numel() for w in MultiHeadAttention(8, 2, bias=False).parameters())


def test_weights_may_be_negative_and_odd_widths_are_refused():
    scores = torch.tensor([[[0.0, 0.0]], [[9.0, 0.0]]])
    assert differential_weights(scores, 1.0)[0, 0] < 0
    with pytest.raises(ValueError, match=r"even width.*got 7"):
        DifferentialAttention(7)
