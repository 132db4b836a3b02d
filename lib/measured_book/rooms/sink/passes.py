"""Passes through a decoder of which something is changed on the way: masks, one state, single heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.positions import Rotation
from torch import Tensor
from torch.nn import functional as F

Bias = Float[Tensor, "query key"]
Biases = Callable[[int], Bias | None]
"""Block, from 0 -> what is added to its scores."""


def no_bias(block: int) -> None:
    """Nothing is added to the scores of any block."""


def onward(
    model: Decoder,
    state: Float[Tensor, "text position d_model"],
    *,
    start: int = 0,
    biases: Biases = no_bias,
    kept: list[Tensor] | None = None,
) -> Float[Tensor, "text position d_model"]:
    """The stream after the last block, from the stream before one of them.

    Args:
        model: a decoder with rotary positions.
        state: the stream before block `start`.
        start: the first block that runs, from 0.
        biases: what is added to the scores of each block.
        kept: takes the stream before each block that runs, and the result.
    """
    places = torch.arange(state.shape[1]).expand(state.shape[:2])
    rotation = None if model.rotary is None else model.rotary(places)
    for number in range(start, len(model.blocks)):
        if kept is not None:
            kept.append(state)
        state = model.blocks[number](
            state, causal=True, rotation=rotation, score_bias=biases(number)
        )
    if kept is not None:
        kept.append(state)
    return state


def embedded(
    model: Decoder, tokens: Int[Tensor, "text position"]
) -> Float[Tensor, "text position d_model"]:
    """The stream before the first block."""
    state: Tensor = model.embed(tokens, model.resolve_positions(tokens))[0]
    return state


def states(
    model: Decoder, tokens: Int[Tensor, "text position"], *, biases: Biases = no_bias
) -> Float[Tensor, "state text position d_model"]:
    """The stream before each block and after the last one."""
    kept: list[Tensor] = []
    onward(model, embedded(model, tokens), biases=biases, kept=kept)
    return torch.stack(kept)


def loss(
    model: Decoder,
    state: Float[Tensor, "text position d_model"],
    tokens: Int[Tensor, "text position"],
    *,
    since: int,
) -> float:
    """Nats a token, mean over the targets from one position on.

    Args:
        model: whose final norm and unembedding read the state.
        state: the stream after the last block.
        tokens: that were read; each is the target of the one before it.
        since: position of the first target, from 0.
    """
    logits = model.unembed(state[:, since - 1 : -1])
    return float(F.cross_entropy(logits.flatten(0, 1), tokens[:, since:].flatten()))


def forbidding(key: int, length: int) -> Bias:
    """No later position sees one key."""
    bias = torch.zeros(length, length)
    bias[key + 1 :, key] = -torch.inf
    return bias


def alone(place: int, length: int) -> Bias:
    """One position sees nothing but itself."""
    bias = torch.zeros(length, length)
    bias[place, :place] = -torch.inf
    return bias


def windowed(window: int, sinks: int, length: int) -> Bias:
    """Each position sees the last so many keys, its own included, and so many from the beginning."""
    query, key = torch.arange(length)[:, None], torch.arange(length)[None]
    seen = (key > query - window) | (key < sinks)
    return torch.zeros(length, length).masked_fill(~seen, -torch.inf)


def from_block(bias: Bias, first: int) -> Biases:
    """A bias on the scores of one block, from 0, and of all that come after it."""
    return lambda block: bias if block >= first else None


def without(
    model: Decoder, heads: Sequence[tuple[int, int]]
) -> Mapping[str, Callable[[Tensor], Tensor]]:
    """What `intervene` is given so that some heads write nothing.

    Args:
        model: of the heads.
        heads: block and head of each, from 0.
    """
    of_block: dict[int, list[int]] = {}
    for block, head in heads:
        of_block.setdefault(block, []).append(head)
    return {
        f"blocks.{block}.attention.mixed": partial(_silenced, of) for block, of in of_block.items()
    }


def _silenced(heads: list[int], mixed: Float[Tensor, "text head position d_head"]) -> Tensor:
    changed = mixed.clone()
    changed[:, heads] = 0
    return changed


@contextmanager
def silent(model: Decoder, heads: Sequence[tuple[int, int]]) -> Iterator[None]:
    """Some heads write nothing while the block lasts."""
    with intervene(model, without(model, heads)):
        yield


@contextmanager
def renumbered(model: Decoder, window: int) -> Iterator[None]:
    """Queries beyond a window see the first key at the distance of the window, whatever their own position is.

    Args:
        model: a decoder with rotary positions.
        window: the distance.
    """
    assert model.rotary is not None
    turn = model.rotary(torch.tensor([[window]]))
    changes: dict[str, Callable[[Tensor], Tensor]] = {}
    for number, block in enumerate(model.blocks):
        seen: dict[str, Tensor] = {}
        name = f"blocks.{number}.attention"
        attention: Any = block.attention
        changes[f"{name}.queries"] = partial(_noted, seen, "queries")
        changes[f"{name}.keys"] = partial(_noted, seen, "keys")
        changes[f"{name}.scores"] = partial(_moved, seen, turn, window, attention.scale)
    with intervene(model, changes):
        yield


def _noted(seen: dict[str, Tensor], name: str, value: Tensor) -> Tensor:
    seen[name] = value
    return value


def _moved(
    seen: dict[str, Tensor], turn: Rotation, window: int, scale: float | None, scores: Tensor
) -> Tensor:
    """Scores whose first column, behind the window, is that of a key just before it."""
    queries, key = seen["queries"][:, :, window:], seen["keys"][:, :, :1]
    key = key.repeat_interleave(queries.shape[1] // key.shape[1], dim=1)
    turned = torch.cat(
        [turn.apply(queries[:, :, i : i + 1]) for i in range(queries.shape[2])], dim=2
    )
    scale = queries.shape[-1] ** -0.5 if scale is None else scale
    new = scores.clone()
    new[:, :, window:, 0] = (turned * key).sum(-1) * scale
    return new
