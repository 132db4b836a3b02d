r"""Traces a fact through a model of many blocks, and edits its answer there.

*Tracing* (Meng et al. 2022): spoil the subject by noise, put back one clean value, and see how much of the
right answer's probability returns.

*Editing* at a block and a position: find what must be added to the stream there for the new answer, by gradient
descent, fact by fact; then a change $\Delta$ of the network's second matrix that adds it. With the activations
$a$ of the fact, and $r$ to be added, one wants $\Delta a = r$ and $\Delta a' \approx 0$ for all other
activations $a'$, whose second moments are $S = \sum a' a'^\top$:

- one fact, exactly: $\Delta = r\,(S^{-1} a)^\top / (a^\top S^{-1} a)$ (ROME, Meng et al. 2022);
- many, by least squares: $\Delta = w R A^\top (S + w A A^\top)^{-1}$, where activations and what is to be added
  are the columns of $A$ and $R$ (MEMIT, Meng et al. 2023, in one block).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.places import Places, select, select_one
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.block import Block
from measured_transformer.training.seeding import make_generator

# Tracing -------------------------------------------------------------------------------------------

TRACED = ("residual_post", "attention.out", "feedforward.out")
"""What is put back: the stream behind a block, what its attention wrote, what its network wrote."""


@dataclass(frozen=True)
class Traced:
    """Probability of the right answer, by the value that is put back into a spoilt run.

    Attributes:
        clean: with nothing spoilt, for each question.
        spoilt: with the subject spoilt and nothing put back, mean over draws of the noise.
        effect: how much higher than `spoilt` it is with one value put back, in the order of `TRACED`.
    """

    clean: Float[Tensor, "question"]
    spoilt: Float[Tensor, "question"]
    effect: Float[Tensor, "value block position question"]


@torch.no_grad()
def trace(
    model: Decoder,
    tokens: Int[Tensor, "question position"],
    answers: Int[Tensor, "question"],
    *,
    subject: Places,
    seed: int,
    strength: float = 3.0,
    draws: int = 4,
) -> Traced:
    """Causal tracing: spoil the subject, put back one value at a time.

    Args:
        model: pre-norm.
        tokens: questions of one length, the answer follows the last token.
        answers: the right ones.
        subject: positions whose vectors get noise as they enter the first block, see `places.select`.
        seed: of the noise.
        strength: standard deviation of the noise, in units of that of the entries of these vectors.
        draws: of the noise, for each question.

    Raises:
        ValueError: when the subject lies outside, or there is not one answer for each question.
    """
    blocks = model.config.n_layers
    with capture(model) as seen:
        clean = _probability(model(tokens), answers)
    entered = seen["blocks.0.residual_pre"]
    noise = torch.zeros(draws, *entered.shape)
    noisy = select("positions of the subject", subject, tokens.shape[1])
    there = entered[:, noisy]
    drawn = torch.randn(draws, *there.shape, generator=make_generator(seed, "tracing"))
    noise[:, :, noisy] = strength * there.std() * drawn
    many, right = tokens.repeat(draws, 1), answers.repeat(draws)

    def probability() -> Float[Tensor, "question"]:
        return _probability(model(many), right).view(draws, -1).mean(0)

    effect = torch.zeros(len(TRACED), blocks, tokens.shape[1], len(tokens))
    with intervene(model, {"blocks.0.residual_pre": lambda x: x + noise.flatten(0, 1)}):
        spoilt = probability()
        for i, what in enumerate(TRACED):
            for block in range(blocks):
                tap = f"blocks.{block}.{what}"
                for position in range(tokens.shape[1]):
                    back = seen[tap][:, [position]].repeat(draws, 1, 1)
                    with intervene(model, {tap: at(back, positions=position)}):
                        effect[i, block, position] = probability() - spoilt
    return Traced(clean, spoilt, effect)


def _probability(
    logits: Float[Tensor, "question position vocab"], answers: Int[Tensor, "question"]
) -> Float[Tensor, "question"]:
    return answer_logit(-1, answers)(logits.softmax(-1))


# Editing -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inside:
    """The activations of each block for some questions.

    Attributes:
        neurons: activations of each block's network.
        after: the stream behind each block.
    """

    neurons: Float[Tensor, "block question position d_ff"]
    after: Float[Tensor, "block question position d_model"]

    def __getitem__(self, rows: Tensor | slice) -> Inside:
        """The same for some of the questions."""
        return Inside(self.neurons[:, rows], self.after[:, rows])


@torch.no_grad()
def look_inside(model: Decoder, tokens: Int[Tensor, "question position"]) -> Inside:
    """Capture the networks' activations and the stream after each block."""
    with capture(model, "blocks.*.feedforward.neurons", "blocks.*.residual_post") as seen:
        model(tokens)
    blocks = range(model.config.n_layers)
    return Inside(
        torch.stack([seen[f"blocks.{i}.feedforward.neurons"] for i in blocks]),
        torch.stack([seen[f"blocks.{i}.residual_post"] for i in blocks]),
    )


def finish(
    model: Decoder, stream: Float[Tensor, "question position d_model"], block: int
) -> Float[Tensor, "question position vocab"]:
    """The model's logits when this is the stream after a block.

    Raises:
        ValueError: when positions enter attention, which this leaves out, or there is no such block.
    """
    if model.config.positions not in ("learned", "sinusoidal", "none"):
        raise ValueError(
            f"expected positions that are added or none, got {model.config.positions!r}"
        )
    block = select_one("block", block, len(model.blocks))
    for later in list(model.blocks)[block + 1 :]:
        stream = cast(Block, later)(stream, causal=True)
    return model.unembed(stream)


def changes_for(
    model: Decoder,
    inside: Inside,
    wanted: Int[Tensor, "question"],
    *,
    block: int,
    position: int,
    steps: int = 60,
    learning_rate: float = 0.1,
    price: float = 0.01,
    enough: float = 0.05,
) -> Float[Tensor, "question d_model"]:
    """The change of the stream after a block, at a position, that gives each question another answer.

    Adam, from zero, on the cross-entropy of the wanted answer plus `price` times the squared length; a question
    whose cross-entropy is down to `enough` is left as it is, as ROME does.

    Args:
        model: is not changed.
        inside: of the questions, the answer follows the last position.
        wanted: the new answers.
        block, position: where to add.
        steps, learning_rate, price, enough: see above; cross-entropy in nats.

    Raises:
        ValueError: when there is no such block or position, or not one answer for each question.
    """
    block = select_one("block", block, len(inside.after))
    stream = inside.after[block]
    if wanted.shape != stream.shape[:1]:
        raise ValueError(
            f"expected one wanted answer for each of {len(stream)} questions, got {len(wanted)}"
        )
    added = torch.zeros(len(wanted), 1, stream.shape[-1], requires_grad=True)
    here = torch.zeros(stream.shape[1], 1)
    here[select_one("position", position, len(here))] = 1
    updates = torch.optim.Adam([added], lr=learning_rate)
    reached = torch.zeros(len(wanted), dtype=torch.bool)
    for _ in range(steps):
        before = added.detach().clone()
        with torch.enable_grad():
            logits = finish(model, stream + added * here, block)[:, -1]
            losses = F.cross_entropy(logits, wanted, reduction="none")
            (added.grad,) = torch.autograd.grad(losses.sum() + price * added.square().sum(), added)
        reached |= losses.detach() <= enough
        if bool(reached.all()):
            break
        updates.step()
        with torch.no_grad():
            added[reached] = before[reached]
    return added.detach()[:, 0]


def moments(
    inside: Inside, block: int, real: Bool[Tensor, "question position"], *, ridge: float = 1e-3
) -> Float[Tensor, "d_ff d_ff"]:
    """Second moments of a network's activations, summed over real positions, in float64.

    Args:
        inside: of the questions that should keep their answers.
        block: which network.
        real: which positions hold a token.
        ridge: share of the mean diagonal entry that is added to the diagonal, for neurons that never fire.
    """
    keys = inside.neurons[block][real].double()
    found = keys.T @ keys
    return found + ridge * found.diagonal().mean() * torch.eye(len(found), dtype=torch.float64)


def one_fact(
    activations: Float[Tensor, "d_ff"],
    added: Float[Tensor, "d_model"],
    others: Float[Tensor, "d_ff d_ff"],
) -> Float[Tensor, "d_model d_ff"]:
    """The change of the second matrix that adds this for one fact and disturbs the others least (ROME)."""
    read = torch.linalg.solve(others, activations.double())
    return torch.outer(added.double(), read / (read @ activations.double()))


def all_at_once(
    activations: Float[Tensor, "fact d_ff"],
    added: Float[Tensor, "fact d_model"],
    others: Float[Tensor, "d_ff d_ff"],
    *,
    weight: float = 10.0,
) -> Float[Tensor, "d_model d_ff"]:
    """The change of the second matrix for many facts by least squares, as MEMIT's in a single block.

    It makes the sum of squares over the other activations, and `weight` times that of what is missing or too
    much for the facts, as small as possible.
    """
    a, r = activations.double(), added.double()
    return torch.linalg.solve(others + weight * a.T @ a, weight * a.T @ r).T


def one_after_another(
    activations: Float[Tensor, "fact d_ff"],
    added: Float[Tensor, "fact d_model"],
    others: Float[Tensor, "d_ff d_ff"],
) -> Float[Tensor, "d_model d_ff"]:
    """The sum of changes by `one_fact`, each to what its fact still lacks when its turn comes."""
    a, r = activations.double(), added.double()
    total = torch.zeros(r.shape[1], a.shape[1], dtype=torch.float64)
    for mine, wanted in zip(a, r, strict=True):
        total = total + one_fact(mine, wanted - total @ mine, others)
    return total


@torch.no_grad()
def answers_after(
    model: Decoder, inside: Inside, change: Float[Tensor, "d_model d_ff"], block: int
) -> Int[Tensor, "question"]:
    """The answers at the last position after this change of the second matrix of a block's network."""
    moved = inside.neurons[block] @ change.to(inside.neurons).T
    return finish(model, inside.after[block] + moved, block)[:, -1].argmax(-1)
