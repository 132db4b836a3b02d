"""The parts of a Transformer: attention, positions, norms, the feed-forward network, and the block of them.

Parts take flat arguments and know no config, so each can be used by itself. The mathematics is a pure
function; the weights live in a module beside it, which sends what it computes through taps.

>>> import torch
>>> from measured_transformer.parts.attention import MultiHeadAttention
>>> from measured_transformer.parts.attention import attention_pattern, causal_mask
>>> attention_pattern(torch.zeros(3, 3), mask=causal_mask(3))   # equal scores
tensor([[1.0000, 0.0000, 0.0000],
        [0.5000, 0.5000, 0.0000],
        [0.3333, 0.3333, 0.3333]])
>>> attention = MultiHeadAttention(d_model=16, n_heads=4)
>>> attention(torch.randn(2, 5, 16), causal=True).shape
torch.Size([2, 5, 16])
"""
