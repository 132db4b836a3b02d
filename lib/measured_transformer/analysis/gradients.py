r"""The backward pass: the effect of residual connections on gradients.

Convention: a gradient is a row like the vector it belongs to, and a Jacobian $J$ has entries
$J_{oi} = \partial f_o / \partial x_i$, so that a gradient $g$ at the output becomes $g J$ at the input. A
*branch* is the map from the stream to what a sublayer writes (its norm included in pre-norm models).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel

from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.block import Block
from measured_transformer.tasks.task import Batch
from measured_transformer.training.losses import cross_entropy

Map = Callable[[Tensor], Tensor]


def jacobian(f: Map, x: Tensor) -> Float[Tensor, "output input"]:
    """The Jacobian of `f` at `x` as a matrix, inputs and outputs flattened."""
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be differentiated in batches
        rows = jacrev(f)(x)
    return rows.detach().reshape(-1, x.numel())


def stream_gradients(model: Decoder | Encoder, batch: Batch) -> Float[np.ndarray, "state"]:
    """Mean length, over tokens, of the loss gradient at each state of the stream, embedding first.

    The loss is the mean over the scored positions, as in training; weights get no gradient.
    """
    n_layers = model.config.n_layers
    names = [
        "embedding",
        *(
            f"blocks.{i}.{tap}"
            for i in range(n_layers)
            for tap in ("residual_mid", "residual_post")
        ),
    ]
    with torch.enable_grad(), capture(model, *names, gradients=True) as seen:
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
        gradients = torch.autograd.grad(loss, [seen[name] for name in names])
    return np.array([float(g.norm(dim=-1).mean()) for g in gradients])


def sublayers(model: Decoder | Encoder) -> list[tuple[Map, Map]]:
    r"""The two functions of each sublayer, in order: branch, and norm on the stream.

    The stream after the sublayer is norm(x + branch(x)), where the norm is the identity in pre-norm
    models, and the branch contains it there. Positions must enter at the embedding.

    Raises:
        ValueError: for rotary and ALiBi positions, and for models without residual connections.
    """
    config = model.config
    if config.positions in ("rotary", "alibi", "relative") or not config.residual:
        raise ValueError(
            "expected residual connections and positions that enter at the embedding, got "
            f"residual={config.residual} and positions={config.positions!r}"
        )
    causal = isinstance(model, Decoder)
    found: list[tuple[Map, Map]] = []
    for block in model.blocks:
        assert isinstance(block, Block)
        found += [_attention(block, causal), _feedforward(block)]
    return found


def _attention(block: Block, causal: bool) -> tuple[Map, Map]:
    if block.placement == "pre":
        return lambda x: block.attention(block.attention_norm(x), causal=causal), _same
    return lambda x: block.attention(x, causal=causal), block.attention_norm


def _feedforward(block: Block) -> tuple[Map, Map]:
    if block.placement == "pre":
        return lambda x: block.feedforward(block.feedforward_norm(x)), _same
    return block.feedforward, block.feedforward_norm


def _same(x: Tensor) -> Tensor:
    return x
