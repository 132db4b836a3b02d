"""Neurons of *Its numbers*: how many are needed, which are dead, what their values say."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.its_numbers.passages import loss, passages
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.texts import DATA, ordinary_tokens

BLOCKS = tuple(range(1, 31))
ZERO = {"half": 0.5, "three quarters": 0.75, "most": 0.9, "random": 0.5}
"""Share of the activations that are set to zero: the smallest ones, or any for `random`."""
NEURONS = "blocks.*.feedforward.neurons"
TOKENS = ("first", "other")
READ = 4096
"""Tokens that the next one is compared with."""


def smallest_to_zero(share: float) -> Change:
    """An intervention: at each token so many of a block's activations, the smallest in size, become zero."""

    def change(neurons: Float[Tensor, "text position neuron"]) -> Tensor:
        count = round(share * neurons.shape[-1])
        least = neurons.abs().topk(count, dim=-1, largest=False).indices
        return neurons.scatter(-1, least, 0.0)

    return change


def any_to_zero(share: float, generator: torch.Generator) -> Change:
    """An intervention: at each token so many of a block's activations, drawn at random, become zero."""

    def change(neurons: Float[Tensor, "text position neuron"]) -> Tensor:
        count = round(share * neurons.shape[-1])
        drawn = torch.rand(neurons.shape, generator=generator, dtype=torch.float32)
        return neurons.scatter(-1, drawn.topk(count, dim=-1).indices, 0.0)

    return change


@measurement(
    seeds=10,
    coords={"zero": tuple(ZERO)},
    tolerance={"loss": 0.05, "whole": 0.01},
    pretrained=NEEDS,
    data=DATA,
)
def sparse(seed: int) -> dict[str, Any]:
    """The loss with the smallest activations of every block at zero, by their share, and with random ones."""
    texts, model = passages(seed), smollm2().model
    found = []
    for name, share in ZERO.items():
        generator = make_generator(seed, "neurons at random")
        change = any_to_zero(share, generator) if name == "random" else smallest_to_zero(share)
        with intervene(model, {NEURONS: change}):
            found.append(loss(model, texts))
    return {"loss": ("zero", found), "whole": loss(model, texts)}


LATER_DRAWS = 9000
"""What is added to a seed of `sparse_again`, so that nobody has looked at its draw."""


@measurement(
    seeds=40, tolerance={"loss": 0.05, "whole": 0.01}, pretrained=NEEDS, data=DATA,
)  # fmt: skip
def sparse_again(seed: int) -> dict[str, float]:
    """The loss with the smallest half of every block's activations at zero, on fresh draws."""
    texts, model = passages(LATER_DRAWS + seed), smollm2().model
    with intervene(model, {NEURONS: smallest_to_zero(ZERO["half"])}):
        half = loss(model, texts)
    return {"loss": half, "whole": loss(model, texts)}


def effective(sizes: Float[Tensor, "*token neuron"]) -> Float[Tensor, "*token"]:
    """How many neurons write: the squared sum of squared lengths over the sum of their squares.

    It is k when k neurons write vectors of one length and the others nothing.

    >>> effective(torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, 0.0]])).tolist()
    [2.0, 1.0]
    """
    squares = sizes.double().square()
    return squares.sum(-1).square() / squares.square().sum(-1)


def dead(
    activations: Float[Tensor, "token neuron"], *, under: float = 0.1
) -> Float[Tensor, "neuron"]:
    """Whether each neuron's largest activation stays below a share of that of the median neuron, as 1 or 0."""
    largest = activations.abs().amax(0)
    return (largest < under * largest.median()).double()


def exceeded(
    written: Float[Tensor, "token d_model"],
    readers: Float[Tensor, "word d_model"],
    wanted: Float[Tensor, "token d_model"],
) -> float:
    """The share of words that what is written favours less than the wanted one, mean over tokens.

    Args:
        written: vectors.
        readers: of words, of which none is asked for.
        wanted: the reader of the one that is, for each vector.
    """
    own = (written * wanted).sum(-1, keepdim=True)
    return float((written @ readers.T < own).double().mean())


@measurement(
    seeds=10,
    coords={"block": BLOCKS, "token": TOKENS, "of": ("own", "other")},
    tolerance={"dead": 0.005, "writing": 20.0, "favours": 0.02, "strongest": 0.01},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def neurons(seed: int) -> dict[str, Any]:
    """By block: dead neurons, how many write at a token, what the strongest one's value favours."""
    texts, model = passages(seed, 4), smollm2().model
    with capture(model, NEURONS) as seen:
        model.stream(texts)
    readers = unembedding(model)
    words = ordinary_tokens(smollm2().tokenizer)
    drawn = torch.randperm(len(words), generator=make_generator(seed, "words that are read"))
    some = readers[words[drawn[:READ]]]
    wanted = readers[texts[:, 2:]].flatten(0, 1)
    none, number, favours, part = [], [], [], []
    for i, block in enumerate(model.blocks):
        active = seen[f"blocks.{i}.feedforward.neurons"]
        network: Any = block.feedforward
        values = network.down.weight
        none.append(float(dead(active[:, 1:].flatten(0, 1)).mean()))
        sizes = active.abs() * values.norm(dim=0)
        count = effective(sizes)
        number.append([float(count[:, 0].mean()), float(count[:, 1:].mean())])
        inner, lengths = active[:, 1:-1], sizes[:, 1:-1]
        best = lengths.argmax(-1, keepdim=True)
        part.append(float(strongest_share(lengths).mean()))
        sign = inner.gather(-1, best).sign()
        written = sign * values.T[best[..., 0]]
        of = [exceeded(w.flatten(0, 1), some, wanted) for w in (written, written.roll(1, 0))]
        favours.append(of)
    return {
        "dead": ("block", none),
        "writing": (("block", "token"), number),
        "favours": (("block", "of"), favours),
        "strongest": ("block", part),
    }


def strongest_share(sizes: Float[Tensor, "*token neuron"]) -> Float[Tensor, "*token"]:
    """The strongest neuron's share of the sum of lengths."""
    return sizes.amax(-1) / sizes.sum(-1)


def unembedding(model: Decoder) -> Float[Tensor, "word d_model"]:
    """What reads each word from the stream, with the gain of the final norm in it."""
    norm: Any = model.final_norm
    assert model.unembedding is not None
    return model.unembedding.weight * norm.weight
