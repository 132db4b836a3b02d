"""Models that are built and trained without one kind of their pieces: the arms of a comparison."""

from __future__ import annotations

from measured_transformer.models.config import Config
from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import Model
from measured_transformer.training.tuning import Arm
from measured_transformer.variants.substitutes import Silent

PIECES = ("attention", "positions", "skip", "norm", "ffn")
"""What is left out, one kind at a time, in every layer: `skip` stands for the residual connections."""


def without_attention(model: Model) -> None:
    """Put a `Silent` in the place of every attention: no position learns of another.

    Made to be given to `train` as its `prepare`.

    Raises:
        ValueError: for an `EncoderDecoder`, or a model without residual connections, of which nothing
            would be left.
    """
    for block in _blocks(model):
        block.attention = Silent()  # type: ignore[assignment]


def without_ffn(model: Model) -> None:
    """Put a `Silent` in the place of every feed-forward network.

    Made to be given to `train` as its `prepare`.

    Raises:
        ValueError: as `without_attention`.
    """
    for block in _blocks(model):
        block.feedforward = Silent()  # type: ignore[assignment]


def piece_arms(whole: Config) -> dict[str, Arm]:
    """The whole model, the model without each of `PIECES`, and, as `both`, without norms and skip connections.

    Args:
        whole: with all its pieces.

    Raises:
        ValueError: when the config lacks a piece already.

    >>> arms = piece_arms(Config(vocab=6))
    >>> list(arms)
    ['whole', 'attention', 'positions', 'skip', 'norm', 'ffn', 'both']
    >>> arms["positions"].config.positions
    'none'
    """
    if whole.norm == "none" or whole.positions == "none" or not whole.residual:
        raise ValueError(
            "expected a config with norms, positions and residual connections, got "
            f"norm={whole.norm!r}, positions={whole.positions!r} and residual={whole.residual}"
        )
    return {
        "whole": Arm(whole),
        "attention": Arm(whole, {"prepare": without_attention}),
        "positions": Arm(whole.replace(positions="none")),
        "skip": Arm(whole.replace(residual=False)),
        "norm": Arm(whole.replace(norm="none")),
        "ffn": Arm(whole, {"prepare": without_ffn}),
        "both": Arm(whole.replace(norm="none", residual=False)),
    }


def _blocks(model: Model) -> list[Block]:
    if not isinstance(model, Stack):
        raise ValueError(f"expected an Encoder or a Decoder, got an {type(model).__name__}")
    if not model.config.residual:
        raise ValueError(
            "expected a model with residual connections: without them a layer whose sublayer is silent "
            "passes nothing on"
        )
    return [block for block in model.blocks if isinstance(block, Block)]
