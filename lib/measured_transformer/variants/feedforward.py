r"""Replacements for the feed-forward network: none at all, or one with squared ReLU.

What is given the tokens as bits instead of looking them up stands here too: without networks, that is what a
model of attention alone is compared on. Source of the square of ReLU: So et al. (2021), "Primer", section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import is_gated
from measured_transformer.training.loop import Model
from measured_transformer.variants.substitutes import Silent


@dataclass(frozen=True)
class FixedEmbeddings:
    """A preparation for training: take the networks out, give the tokens as bits, or both.

    Attributes:
        network: whether the blocks keep their feed-forward networks, with their norms.
        bits: of a token's number; 0 leaves the learned table of token vectors. Otherwise the vector of a token
            is fixed: a sum of as many directions, each added where its bit is set and subtracted where not. The
            directions are orthogonal and have mean zero, so that a LayerNorm multiplies all tokens by the same
            number: up to the first sublayer's own work, all is linear in the bits.

    >>> from measured_transformer.models.encoder import Encoder
    >>> model = Encoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
    >>> FixedEmbeddings(network=False)(model)
    >>> [name for name, _ in model.blocks[0].feedforward.named_parameters()]
    []

    Raises:
        ValueError: when the number of bits is negative.
    """

    network: bool = True
    bits: int = 0

    def __post_init__(self) -> None:
        if self.bits < 0:
            raise ValueError(f"expected a number of bits, 0 for none, got {self.bits}")

    def __call__(self, model: Model) -> None:
        """Change the fresh model in place.

        Raises:
            ValueError: when the vocabulary has not one token for each combination of bits, the stream is too
                narrow for so many directions, or the model is an encoder-decoder.
        """
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder or an Encoder, got an EncoderDecoder")
        if not self.network:
            for block in model.modules():
                if isinstance(block, Block):
                    block.feedforward = Silent()  # type: ignore[assignment]
                    block.feedforward_norm = nn.Identity()
        if self.bits:
            table = model.token_embedding.weight
            table.requires_grad_(False).copy_(bit_vectors(self.bits, model.config))


def bit_vectors(bits: int, config: Config) -> Float[Tensor, "vocab d_model"]:
    """The vectors that `FixedEmbeddings` fixes, of length 1: the same for every model of a width.

    Raises:
        ValueError: when the vocabulary is not 2^bits, or the stream is not wider than there are bits.
    """
    if config.vocab != 2**bits or config.d_model <= bits:
        raise ValueError(
            f"{bits} bits need a vocabulary of {2**bits} and a stream wider than {bits}, got "
            f"vocab={config.vocab} and d_model={config.d_model}"
        )
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(config.d_model, bits, generator=generator, dtype=torch.float64)
    directions = torch.linalg.qr(drawn - drawn.mean(0))[0].T / bits**0.5
    set_bits = (torch.arange(config.vocab)[:, None] >> torch.arange(bits)) & 1
    return ((2.0 * set_bits - 1.0).to(directions) @ directions).float()


def without_network(config: Config) -> dict[str, Config]:
    """Two configs without networks that have nearly as many parameters as `config` has with them.

    Keys: 'heads', with more heads of the same width in each layer, and 'layers', with more layers. A network of
    four times the width of the stream has twice the weights of attention, so both have three times as many.

    Raises:
        ValueError: when the network is not four times as wide as the stream, or has a gate.
    """
    if config.neurons != 4 * config.d_model or is_gated(config.activation):
        raise ValueError(
            "expected a network without a gate, four times as wide as the stream, got "
            f"{config.neurons} neurons, d_model={config.d_model} and activation={config.activation!r}"
        )
    return {
        "heads": config.replace(n_heads=3 * config.n_heads, d_head=config.head_width),
        "layers": config.replace(n_layers=3 * config.n_layers),
    }


def squared_relu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""$\max(0, x)^2$, entry by entry.

    >>> import torch
    >>> squared_relu(torch.tensor([-1.0, 0.5, 2.0])).tolist()
    [0.0, 0.25, 4.0]
    """
    return x.relu().square()


def with_squared_relu(model: Model) -> None:
    """Give the networks of a fresh model the squared ReLU; pass it to `train` as `prepare`.

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
            block.feedforward.activate = squared_relu
