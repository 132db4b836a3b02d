"""The weights of a `Decoder` in the GPT in one file, `models.bare`."""

from __future__ import annotations

import torch

from measured_transformer.interop.proof import prove_same
from measured_transformer.models.bare import BareGPT, FeedForward
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.feedforward import activation_function


def from_decoder(decoder: Decoder) -> BareGPT:
    """A bare GPT with a decoder's weights.

    Raises:
        ValueError: when the decoder has what a bare GPT has not, or a preparation has changed what it computes,
            such as by a narrower mask.

    >>> import torch
    >>> from measured_transformer.models.config import Config
    >>> config = Config(vocab=10, d_model=16, n_layers=2, n_heads=4, positions="rotary")
    >>> from_decoder(Decoder(config))(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 10])
    """
    c = decoder.config
    gpt = BareGPT(c.vocab, c.d_model, c.n_layers, c.n_heads)
    weights = decoder.state_dict()
    same = {"placement": "pre", "residual": True, "attention_scale": None, "logit_scale": 1.0}
    places = {"positions": "rotary", "rotary_base": 10000.0, "rotary_pairing": "interleaved"}
    shapes, own = ({n: w.shape for n, w in each.items()} for each in (weights, gpt.state_dict()))
    if shapes != own or c != c.replace(**same, **places, norm_eps=1e-5):
        raise ValueError(f"expected a decoder with no other parts than BareGPT, got {c}")
    gpt.to(decoder.token_embedding.weight).load_state_dict(weights)
    gpt.embedding_scale = decoder.embedding_scale
    for part in gpt.modules():
        if isinstance(part, FeedForward):
            part.activate = activation_function(c.activation)
    with torch.random.fork_rng(devices=[]):
        plain = Decoder(c)
    prove_same(decoder, gpt.eval(), parts=plain)
    return gpt
