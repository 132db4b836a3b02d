"""What a model is told about positions while it learns: preparations for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.positions import (
    LearnedPositions,
    RotaryPositions,
    sinusoidal_encoding,
)
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.stacked import CannotStackError

Model = Decoder | Encoder


def third(d: int, name: Literal["fastest", "middle", "slowest"]) -> slice:
    """The dimensions of the fastest, middle or slowest third of the pairs (the middle takes the rest).

    >>> third(64, "fastest"), third(64, "slowest")
    (slice(0, 20, None), slice(44, 64, None))
    """
    width = d // 6 * 2
    return {
        "fastest": slice(0, width),
        "middle": slice(width, d - width),
        "slowest": slice(d - width, d),
    }[name]


@dataclass(frozen=True)
class RandomTable:
    """The table of learned positions stays as it was drawn."""

    def __call__(self, model: Model) -> None:
        """Freeze the table. Raises ValueError when the model has no learned positions."""
        _table(model).requires_grad_(False)


@dataclass(frozen=True)
class Band:
    """Sinusoidal positions with a third of their frequencies, the rest zero.

    For a model with learned positions, whose table is replaced and frozen.
    """

    name: Literal["fastest", "middle", "slowest"]

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Write the band into the table and freeze it. Raises ValueError when there is no table."""
        table = _table(model)
        kept = third(table.shape[1], self.name)
        full = sinusoidal_encoding(len(table), table.shape[1]).to(table)
        table.zero_()
        table[:, kept] = full[:, kept]
        table.requires_grad_(False)


@dataclass(frozen=True)
class WithoutAttention:
    """Attention writes nothing, so each position is on its own."""

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Set the output projections of all attention layers to zero and freeze them."""
        for name, parameter in model.named_parameters():
            if ".attention.output." in name:
                parameter.zero_()
                parameter.requires_grad_(False)


@dataclass(frozen=True)
class RandomPositions:
    """Every sequence is put at positions drawn at random, in order, from 0 to `longest` - 1.

    So a model that is trained on short sequences meets positions, and distances, of long ones (Ruoss et al.
    2023). What it loses is the meaning of a distance: two tokens apart may be two positions apart, or twenty.
    Works with every scheme. Positions are drawn in training and in use; in use always from the same seed, so
    that equal calls give equal answers. A call that says where its tokens stand is left as it is.

    Attributes:
        longest: number of positions to draw from, the longest sequence that the model can read.
    """

    longest: int

    def __call__(self, model: Model) -> None:
        """Let the model draw its positions from now on."""
        model.register_forward_pre_hook(_Draw(self.longest), with_kwargs=True)


def random_positions(
    batch: int, n: int, *, longest: int, generator: torch.Generator | None = None
) -> Int[Tensor, "batch position"]:
    """For each row `n` different positions below `longest`, drawn with equal chances and put in order.

    Args:
        batch: number of rows.
        n: positions a row.
        longest: how many there are to choose from.
        generator: where the numbers come from; PyTorch's own when not given.

    Raises:
        ValueError: when more positions are asked for than there are.

    >>> random_positions(2, 3, longest=3)
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """
    if n > longest:
        raise ValueError(
            f"{n} positions are asked for and only {longest} are there to draw from; "
            "make RandomPositions with a larger longest"
        )
    chances = torch.rand(batch, longest, generator=generator)
    return chances.topk(n, dim=1).indices.sort(dim=1).values


class _Draw:
    """Hands a model the positions of its tokens before each call."""

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def __call__(self, model: nn.Module, args: Any, given: dict[str, Any]) -> Any:
        if given.get("positions") is not None:
            return None
        tokens: Tensor = args[0]
        generator = None if model.training else make_generator(0, "positions")
        try:
            drawn = random_positions(*tokens.shape, longest=self.longest, generator=generator)
        except RuntimeError as error:  # inside of vmap nothing can be drawn
            raise CannotStackError("a stack cannot draw the positions of its members") from error
        return args, {**given, "positions": drawn.to(tokens.device)}


@dataclass(frozen=True)
class PartialRotary:
    """Rotary positions for some dimensions of each head alone; the others are compared unturned.

    The first dimensions turn, at the frequencies of a head of their number, as in GPT-J and GPT-NeoX.
    Neighbours are paired.

    Attributes:
        share: of a head's dimensions that turn, above 0 and at most 1; they must come in pairs.
    """

    share: float

    def __call__(self, model: Model) -> None:
        """Replace the model's rotary angles.

        Raises:
            ValueError: when the model has no rotary positions, pairs halves, or the share gives no whole
                number of pairs.
        """
        own = _rotary(model)
        width = self.share * own.d_head
        if own.pairing != "interleaved" or width % 2 or not 2 <= width <= own.d_head:
            raise ValueError(
                "expected interleaved pairs, and a share of the head's dimensions that is an even number of "
                f"them, got {own.pairing} pairs and {self.share} of {own.d_head}"
            )
        turned = RotaryPositions(own.d_head, base=own.base, turned=int(width))
        model.rotary = turned.to(own.like.device)


@dataclass(frozen=True)
class RotaryInBlocks:
    """Rotary positions in some blocks alone; the others compare queries and keys unturned.

    Attributes:
        blocks: numbers of the blocks that turn, counted from 0.
    """

    blocks: tuple[int, ...]

    def __call__(self, model: Model) -> None:
        """Let the attention of the other blocks do without, from now on.

        Raises:
            ValueError: when the model has no rotary positions, or no such block.
        """
        _rotary(model)
        if any(not 0 <= i < len(model.blocks) for i in self.blocks):
            raise ValueError(f"expected blocks 0 to {len(model.blocks) - 1}, got {self.blocks}")
        for i, block in enumerate(model.blocks):
            if i not in self.blocks:
                attention: Any = block.attention
                attention.register_forward_pre_hook(_unturned, with_kwargs=True)


def _unturned(attention: nn.Module, args: Any, given: dict[str, Any]) -> Any:
    return args, {**given, "rotation": None}


def _rotary(model: Model) -> RotaryPositions:
    if model.rotary is None:
        raise ValueError(
            f"expected a model with rotary positions, got {model.config.positions}; "
            "make it from a config with positions='rotary'"
        )
    return model.rotary


def _table(model: Model) -> nn.Parameter:
    if not isinstance(model.positions, LearnedPositions):
        raise ValueError(
            f"expected a model with learned positions, got {model.config.positions}; "
            "make it from a config with positions='learned'"
        )
    return model.positions.table
