"""Finding heads by the book's detectors, and running a model without some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.induction import prefix_matching_score, previous_token_score
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from torch import Tensor

from measured_book.smollm2.controls import Head, matched_heads
from measured_book.smollm2.sweeps import begin, heads_of

CHOSEN, SETS = 5, 3
"""Heads of each kind that are taken, and random sets that each is compared with."""
OF_A_KIND = 0.2
"""A head with either score above this is in no random set."""


@dataclass(frozen=True)
class Found:
    """The heads of a model by two scores.

    Attributes:
        prefix: weight on the token behind an earlier copy of the query's token.
        previous: weight on the token before.
        induction, before: the heads with the highest prefix-matching and previous-token scores.
        for_induction, for_before: random sets matched to each by the length of what they write.
    """

    prefix: Float[Tensor, "block head"]
    previous: Float[Tensor, "block head"]
    induction: list[Head]
    before: list[Head]
    for_induction: list[list[Head]]
    for_before: list[list[Head]]


def scores(
    model: Decoder, tokens: Int[Tensor, "text position"]
) -> tuple[Float[Tensor, "block head"], Float[Tensor, "block head"]]:
    """The prefix-matching and the previous-token score of every head."""
    with torch.no_grad(), capture(model, "blocks.*.attention.pattern") as seen:
        model.stream(tokens)
    patterns = [seen[f"blocks.{i}.attention.pattern"] for i in range(len(model.blocks))]
    return (
        torch.stack([prefix_matching_score(one, tokens) for one in patterns]),
        torch.stack([previous_token_score(one) for one in patterns]),
    )


def top(values: Float[Tensor, "block head"], count: int) -> list[Head]:
    """The heads with the largest values, largest first."""
    width = values.shape[1]
    return [divmod(place, width) for place in values.flatten().topk(count).indices.tolist()]


def find(
    model: Decoder, tokens: Int[Tensor, "text position"], seed: int, *, count: int = CHOSEN
) -> Found:
    """The heads of both kinds in a model, and random sets to compare them with.

    Args:
        model: a decoder.
        tokens: strings in which something comes twice.
        seed: of the random sets.
        count: heads of each kind.

    Raises:
        ValueError: when no token comes twice, or too few heads are of neither kind.
    """
    prefix, previous = scores(model, tokens)
    induction, before = top(prefix, count), top(previous, count)
    either = (torch.maximum(prefix, previous) > OF_A_KIND).nonzero().tolist()
    exclude = {*induction, *before, *((block, head) for block, head in either)}
    norms = begin(tokens, model=model).write_norms()
    return Found(
        prefix,
        previous,
        induction,
        before,
        matched_heads(norms, induction, SETS, seed, exclude=exclude),
        matched_heads(norms, before, SETS, seed, exclude=exclude),
    )


@contextmanager
def silent(model: Decoder, heads: Sequence[Head]) -> Iterator[None]:
    """Let a model run with some heads handing on nothing, inside a `with` block."""
    changes = {
        f"blocks.{block}.attention.mixed": at(0.0, heads=which)
        for block, which in heads_of(heads).items()
    }
    with intervene(model, changes):
        yield


def repeats_a_pair(tokens: Int[Tensor, "text position"]) -> Bool[Tensor, "text target"]:
    """Whether each token after the first one has stood behind the same token earlier in its text.

    >>> repeats_a_pair(torch.tensor([[0, 1, 2, 3, 1, 2]])).tolist()
    [[False, False, False, False, True]]
    """
    pairs = torch.stack((tokens[:, :-1], tokens[:, 1:]), dim=-1)
    same = (pairs[:, :, None] == pairs[:, None]).all(-1)
    return same.tril(-1).any(-1)
