r"""The square of ReLU as an activation: the one that `Config` does not have.

It has a file to itself because rates that were tuned with it stay good as long as the file does. Source: So et
al. (2021), "Primer", section 3.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import Model


def squared_relu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""$\max(0, x)^2$, entry by entry.

    >>> import torch
    >>> squared_relu(torch.tensor([-1.0, 0.5, 2.0])).tolist()
    [0.0, 0.25, 4.0]
    """
    return x.relu().square()


def with_squared_relu(model: Model) -> None:
    """Let the networks of a fresh model bend with the square of ReLU; give it to `train` as `prepare`.

    Nothing about the weights changes, so that the model starts where one with ReLU starts.

    Raises:
        ValueError: for an `EncoderDecoder`, and when the model's activation is another one than 'relu'.
    """
    if isinstance(model, EncoderDecoder):
        raise ValueError("expected a Decoder or an Encoder, got an EncoderDecoder")
    if model.config.activation != "relu":
        raise ValueError(
            f"expected a model with activation='relu', got {model.config.activation!r}"
        )
    for block in model.modules():
        if isinstance(block, Block):
            block.feedforward.bend = squared_relu
