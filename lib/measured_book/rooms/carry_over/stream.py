"""The stream: how it grows, what is written to it, how it is normed, and what breaks when it is changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.bench import mean_cosine, outsized
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.drawn import (
    ARMS,
    BLOCKS,
    STATES,
    WRITERS,
    gains,
    model_of,
    texts,
    unembedding,
)
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import token_losses
from measured_book.smollm2.texts import DATA

READ, LENGTH = 2, 24
"""Texts of each kind, and their length."""
CHANGES = ("largest to zero", "largest to its mean", "others to zero")
LARGEST = 20.0
"""Nats that a loss counts as when it is larger, or no number: frozen norms let a stream grow without bound."""
OTHERS = 2
"""Entries, drawn at random, that are set to zero one at a time."""
MIDDLE = 15
"""After this block the largest entry is looked for."""


@measurement(
    seeds=10,
    coords={
        "arm": ARMS,
        "where": ("first", "others"),
        "state": STATES,
        "block": BLOCKS,
        "writer": WRITERS,
        "norm": tuple(range(61)),
        "change": (*CHANGES, "shuffled", "later"),
        "attention": ("on", "off"),
    },
    tolerance={"extreme": 20.0, "tampered": 0.05, "frozen": 0.05, "positions": 0.05, "size": 1.0},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def stream(seed: int) -> dict[str, Any]:
    """How large the stream is, what blocks write to it, and what happens when it is changed."""
    tokens, model = texts(seed, READ, LENGTH), smollm2().model
    accounts = {arm: Account(model_of(arm), tokens) for arm in ARMS}
    trained = accounts["trained"]
    plain = float(token_losses(model, trained.states[-1], tokens).double().mean())
    order = torch.randperm(LENGTH, generator=make_generator(seed, "order")).expand_as(tokens)
    moved = [order, (torch.arange(LENGTH) + 1000).expand_as(tokens)]
    with intervene(model, {"blocks.*.attention.out": 0.0}):
        silenced = states_of(model, tokens)
    contextual = [kept_alike(states, tokens) for states in (trained.states, silenced)]
    size = torch.stack([one.states.norm(dim=-1).mean(1) for one in accounts.values()])
    wheres = [size[..., 0], size[..., 1:].mean(-1)]
    rms = trained.states.double().square().mean((1, 3)).sqrt()  # (state, position)
    ranges = [rms[:, :1], rms[:, 1:].mean(1, keepdim=True)]
    groups = torch.arange(len(tokens)).repeat_interleave(LENGTH - 1)
    return {
        "size": (("arm", "where", "state"), torch.stack(wheres, 1).numpy()),
        "length": (("writer", "block"), trained.lengths().numpy()),
        "written": (
            ("arm", "writer", "block"),
            torch.stack([one.ratios() for one in accounts.values()]).numpy(),
        ),
        "kept": (
            ("arm", "block"),
            torch.stack([one.cosines() for one in accounts.values()]).numpy(),
        ),
        "range": (("where",), [float((r.max() / r.min()).log10()) for r in ranges]),
        "extreme": (("state",), outsized(trained.states).flatten(1).amax(1).numpy()),
        "cosine": (
            ("arm", "state"),
            [
                [mean_cosine(x[:, 1:].flatten(0, 1), groups) for x in one.states]
                for one in accounts.values()
            ],
        ),
        "opposed": trained.opposed(),
        "variation": (("norm",), trained.variation().numpy()),
        "frozen": trained.loss_frozen() - plain,
        "tampered": (
            ("change",),
            [*tampered(model, tokens, trained.states, seed, plain), 0.0, 0.0],
        ),
        "positions": (
            ("change",),
            [0.0] * len(CHANGES) + [loss(model, tokens, positions=one) - plain for one in moved],
        ),
        "contextual": (("attention", "block"), torch.stack(contextual).numpy()),
        "loss": plain,
    }


def states_of(
    model: Decoder, tokens: Int[Tensor, "text position"]
) -> Float[Tensor, "state text position d_model"]:
    """The stream before the first block and after each."""
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(len(model.blocks)))]
    with capture(model, *names) as seen:
        model.stream(tokens)
    return torch.stack([seen[name] for name in names])


def loss(
    model: Decoder,
    tokens: Int[Tensor, "text position"],
    *,
    positions: Int[Tensor, "text position"] | None = None,
) -> float:
    """Nats a token, mean over all tokens after the first."""
    state = model.stream(tokens, positions=positions)
    return float(token_losses(model, state, tokens).double().mean())


class Account:
    """What one pass left: states, writes and divisors; the first token is left out of all means."""

    def __init__(self, model: Decoder, tokens: Int[Tensor, "text position"]) -> None:
        """Run the model once."""
        self.model, self.tokens = model, tokens
        blocks = range(len(model.blocks))
        self.norms = [
            f"blocks.{i}.{part}_norm.scale" for i in blocks for part in ("attention", "feedforward")
        ]
        with capture(
            model,
            "embedding",
            "blocks.*.attention.out",
            "blocks.*.feedforward.out",
            "blocks.*.residual_mid",
            "blocks.*.residual_post",
            *self.norms,
        ) as seen:
            model.stream(tokens)
        self.states = torch.stack(
            [seen["embedding"], *(seen[f"blocks.{i}.residual_post"] for i in blocks)]
        )
        self.middles = torch.stack([seen[f"blocks.{i}.residual_mid"] for i in blocks])
        self.writes = torch.stack(
            [
                torch.stack([seen[f"blocks.{i}.{part}.out"] for i in blocks])
                for part in ("attention", "feedforward")
            ]
        )
        last = (self.states[-1].square().mean(-1, keepdim=True) + model.config.norm_eps).sqrt()
        self.scales = torch.stack([*(seen[name] for name in self.norms), last])

    def lengths(self) -> Float[Tensor, "writer block"]:
        """Mean length of what attention and network write."""
        return self.writes[:, :, :, 1:].norm(dim=-1).double().mean((-2, -1))

    def ratios(self) -> Float[Tensor, "writer block"]:
        """The same over the length of the stream that it is added to."""
        entered = torch.stack([self.states[:-1], self.middles])
        found = self.writes.norm(dim=-1) / entered.norm(dim=-1)
        return found[..., 1:].double().mean((-2, -1))

    def cosines(self) -> Float[Tensor, "block"]:
        """Between the stream before and after a block."""
        found = F.cosine_similarity(self.states[:-1], self.states[1:], dim=-1)
        return found[..., 1:].double().mean((-2, -1))

    def opposed(self) -> float:
        """Share of the pairs of blocks whose centred writes point against one another."""
        writes = self.states.diff(dim=0)[:, :, 1:].flatten(1, 2).double()
        units = F.normalize(writes - writes.mean(1, keepdim=True), dim=-1)
        cosines = torch.einsum("ipd,jpd->ij", units, units) / units.shape[1]
        above = torch.triu_indices(len(units), len(units), offset=1)
        return float((cosines[above[0], above[1]] < 0).double().mean())

    def variation(self) -> Float[Tensor, "norm"]:
        """Each norm's coefficient of variation: deviation of the divisor over the tokens, over its mean."""
        found = self.scales[:, :, 1:, 0].flatten(1).double()
        return found.std(1, correction=0) / found.mean(1)

    def loss_frozen(self) -> float:
        """The loss when each norm divides every token but the first by its mean divisor."""

        def frozen(mean: Tensor) -> Callable[[Tensor], Tensor]:
            def change(scale: Tensor) -> Tensor:
                scale[:, 1:] = mean
                return scale

            return change

        changes = {
            name: frozen(scale[:, 1:].mean())
            for name, scale in zip(self.norms, self.scales[:-1], strict=True)
        }
        with intervene(self.model, changes):
            state = self.model.stream(self.tokens)
        divisor = self.scales[-1].clone()
        divisor[:, 1:] = divisor[:, 1:].mean()
        normed = state / divisor * gains(self.model)
        logits = (normed[:, :-1] @ unembedding(self.model).T).flatten(0, 1)
        found = float(F.cross_entropy(logits, self.tokens[:, 1:].flatten()).double())
        return min(found, LARGEST) if math.isfinite(found) else LARGEST


def kept_alike(
    states: Float[Tensor, "state text position d_model"], tokens: Int[Tensor, "text position"]
) -> Float[Tensor, "block"]:
    """Change, in each block, of the cosine of one token's vectors in two texts, less that of random pairs."""
    own = tokens[:, 1:].flatten()
    row = torch.arange(len(tokens)).repeat_interleave(tokens.shape[1] - 1)
    apart = row[:, None] != row
    same = apart & (own[:, None] == own)
    found = []
    for x in states:
        units = F.normalize(x[:, 1:].flatten(0, 1).double(), dim=-1)
        cosines = units @ units.T
        found.append(cosines[same].mean() - cosines[apart].mean())
    return torch.stack(found).diff()


def tampered(
    model: Decoder,
    tokens: Int[Tensor, "text position"],
    states: Float[Tensor, "state text position d_model"],
    seed: int,
    plain: float,
) -> list[float]:
    """By how much the loss rises when one entry of the first token is overwritten after blocks 1 to 29."""
    first = states[1:-1, :, 0]  # (block, text, d_model)
    entry = int(states[MIDDLE, :, 0].abs().mean(0).argmax())

    def rise(entry: int, values: Float[Tensor, "block"]) -> float:
        def change(value: Tensor) -> Callable[[Tensor], Tensor]:
            def changed(x: Tensor) -> Tensor:
                x[:, 0, entry] = value
                return x

            return changed

        with intervene(
            model, {f"blocks.{i}.residual_post": change(v) for i, v in enumerate(values)}
        ):
            return loss(model, tokens) - plain

    zeros = torch.zeros(len(first))
    drawn = torch.randperm(first.shape[-1], generator=make_generator(seed, "entries")).tolist()
    others = [rise(i, zeros) for i in [i for i in drawn if i != entry][:OTHERS]]
    return [
        rise(entry, zeros),
        rise(entry, first[..., entry].mean(1)),
        sum(others) / OTHERS,
    ]
