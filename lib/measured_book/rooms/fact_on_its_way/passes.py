"""Prompts of a draw as one batch, and runs of it in which one state, write or view is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.rooms.fact_on_its_way.facts import RELATIONS, WORDINGS, facts
from measured_book.rooms.fact_on_its_way.tails import Tail, begin_at
from measured_book.smollm2.model import smollm2
from measured_book.smollm2.sweeps import Sweep

TRIED = 10
"""Facts of a relation that the model is asked for, so that enough are found that it knows."""
NOISE = 3.0
"""Width of the noise on a subject, over that of the embeddings' entries."""
FLOOR = 1.0
"""Nats: the least difference by which a single fact's share is taken."""


@dataclass(frozen=True)
class Asked:
    """One fact that is asked for, and another subject of the same relation with another answer."""

    relation: str
    subject: str
    right: str
    other: str
    wrong: str
    example: tuple[str, str]
    wording: int

    def prompt(self, subject: str | None = None) -> str:
        """A solved example and the question for the subject, or for another one."""
        form = WORDINGS[self.relation][self.wording]
        known, answer = self.example
        end = "." if self.wording == 0 else ""
        solved = f"{form.format(subject=known)} {answer}{end}"
        return f"{solved}\n{form.format(subject=self.subject if subject is None else subject)}"


@dataclass(frozen=True, eq=False)
class Batch:
    """Prompts of one wording side by side; all are equally long, as subjects and answers are single tokens.

    Attributes:
        asked: what each row asks for.
        tokens: the prompts.
        swapped: the same with the other subject.
        start: where the subjects stand. `tails.begin_at` runs prompts from there on.
        right, wrong: the two answers.
    """

    asked: tuple[Asked, ...]
    tokens: Int[Tensor, "row position"]
    swapped: Int[Tensor, "row position"]
    start: int
    right: Int[Tensor, "row"]
    wrong: Int[Tensor, "row"]

    def gap(self, state: Float[Tensor, "some position d_model"]) -> Float[Tensor, "some"]:
        """Logit of the right answer minus that of the other one, after the last token.

        The state may have several times as many rows as there are prompts.
        """
        rows, copies = unembedding_rows(), len(state) // len(self.asked)
        along = (rows[self.right] - rows[self.wrong]).repeat(copies, 1)
        return (smollm2().model.apply_final_norm(state[:, -1:])[:, 0] * along).sum(-1)


def unembedding_rows() -> Float[Tensor, "vocab d_model"]:
    """What the logit of each token is a product with, behind the final norm.

    All logits of a state would take as long as eight blocks; few are asked for.
    """
    unembedding: Any = smollm2().model.unembedding
    rows: Tensor = unembedding.weight
    return rows


def batches_of(asked: Sequence[Asked]) -> list[Batch]:
    """A batch for each wording that is asked in.

    Raises:
        ValueError: when a subject or an answer is not one token, or the prompts of a wording are not alike.
    """
    of_wording = [[one for one in asked if one.wording == wording] for wording in (0, 1)]
    return [_batch_of(some) for some in of_wording if some]


def _batch_of(asked: Sequence[Asked]) -> Batch:
    lm = smollm2().tokenizer
    rows = [lm.encode(one.prompt()) for one in asked]
    names = [lm.token(f" {one.subject}") for one in asked]
    starts = {
        max(place for place, number in enumerate(row) if number == name)
        for row, name in zip(rows, names, strict=True)
    }
    if len(starts) > 1 or len({len(row) for row in rows}) > 1:
        raise ValueError(
            f"expected prompts of one length with their subjects at one place, got {asked}"
        )
    tokens, start = torch.tensor(rows), starts.pop()
    swapped = tokens.clone()
    swapped[:, start] = torch.tensor([lm.token(f" {one.other}") for one in asked])
    right, wrong = (
        torch.tensor([lm.token(f" {answer}") for answer in answers])
        for answers in ([one.right for one in asked], [one.wrong for one in asked])
    )
    return Batch(tuple(asked), tokens, swapped, start, right, wrong)


def candidates(seed: int, relation: str, *, judge: bool, tried: int = TRIED) -> list[Asked]:
    """Facts of a relation in an order that is drawn, in turn as a statement and as a question."""
    chance = make_generator(seed, f"{relation}, {'judging' if judge else 'choosing'}")

    def drawn(of: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [of[i] for i in torch.randperm(len(of), generator=chance).tolist()]

    some, examples = drawn(facts(relation, judge=judge)), drawn(facts(relation, judge=False))
    found = []
    for i, (subject, right) in enumerate(some[:tried]):
        turned = some[i + 1 :] + some[:i]
        other, wrong = next(one for one in turned if one[1] != right)
        example = next(
            one
            for one in examples
            if one[1] not in (right, wrong) and one[0] not in (subject, other)
        )
        found.append(Asked(relation, subject, right, other, wrong, example, i % 2))
    return found


@torch.no_grad()
def known(asked: Sequence[Asked]) -> list[bool]:
    """Whether the answer to each has the largest logit of all answers of its relation."""
    lm, found, rows = smollm2(), {}, unembedding_rows()
    answers = {
        name: [
            lm.tokenizer.token(f" {answer}")
            for answer in sorted(
                {one for half in (0, 1) for _, one in facts(name, judge=bool(half))}
            )
        ]
        for name in {one.relation for one in asked}
    }
    for batch in batches_of(asked):
        read = lm.model.apply_final_norm(lm.model.stream(batch.tokens)[:, -1:])[:, 0]
        for state, one, right in zip(read, batch.asked, batch.right, strict=True):
            found[one] = bool((rows[answers[one.relation]] @ state).max() <= rows[right] @ state)
    return [found[one] for one in asked]


def draw_facts(
    seed: int, number: int, *, judge: bool = True, relations: Iterable[str] = RELATIONS
) -> tuple[list[Batch], float]:
    """So many facts of each relation that the model knows, and the share of those asked for that it knows."""
    asked = [one for name in relations for one in candidates(seed, name, judge=judge)]
    knows = known(asked)
    kept: dict[str, list[Asked]] = {}
    for one, yes in zip(asked, knows, strict=True):
        if yes:
            kept.setdefault(one.relation, []).append(one)
    chosen = [one for some in kept.values() for one in some[:number]]
    return batches_of(chosen), sum(knows) / len(knows)


@torch.no_grad()
def blurred(batch: Batch, tail: Tail, seed: int) -> Float[Tensor, "state row position d_model"]:
    """The stream before each block and after the last one, when noise lies on the subject's embedding."""
    width = NOISE * float(smollm2().model.token_embedding.weight.std())
    chance = make_generator(seed, f"noise on the subject, wording {batch.asked[0].wording}")
    state = tail.states[0].clone()
    noise = torch.randn(len(state), state.shape[-1], generator=chance, dtype=torch.float32)
    state[:, 0] += width * noise
    states = [state]
    for number in range(tail.blocks):
        states.append(tail.run(number, states[-1]))
    return torch.stack(states)


def put_back(
    batch: Batch,
    tail: Tail,
    bases: Sequence[Float[Tensor, "state row position d_model"]],
    before: int,
) -> Float[Tensor, "base place row"]:
    """The logit differences when the state at the subject, or at the last token, is that of the whole run.

    Args:
        batch, tail: the prompts and their whole run.
        bases: states of other runs, each of which gets one state before one block.
        before: this block, from 0.
    """
    states = []
    for base in bases:
        for place in (0, -1):
            state = base[before].clone()
            state[:, place] = tail.states[before][:, place]
            states.append(state)
    gaps = batch.gap(tail.onward(before, torch.cat(states)))
    return gaps.view(len(bases), 2, len(batch.asked))


def networks_back(
    batch: Batch,
    tail: Tail,
    base: Float[Tensor, "state row position d_model"],
    writes: dict[str, Tensor],
    blocks: Sequence[int],
) -> Float[Tensor, "place row"]:
    """The logit differences when networks of some blocks write what they did in the whole run.

    Once at the subject and once at the last token.
    """
    rows = len(batch.asked)

    def put(own: Tensor, value: Tensor) -> Tensor:
        changed = value.clone()
        changed[:rows, 0], changed[rows:, -1] = own[:, 0], own[:, -1]
        return changed

    changes: dict[str, Change] = {
        _out(number): partial(put, writes[_out(number)]) for number in blocks
    }
    with intervene(tail.model, changes):
        return batch.gap(tail.onward(blocks[0], base[blocks[0]].repeat(2, 1, 1))).view(2, rows)


def hidden(
    batch: Batch, tail: Tail, blocks: Sequence[int], offsets: Sequence[int]
) -> Float[Tensor, "key row"]:
    """The logit differences when the last token does not see one key in some blocks.

    Args:
        batch, tail: the prompts and their whole run.
        blocks: their numbers, from 0.
        offsets: where each key stands, from the subject; each is hidden by itself.
    """
    rows = len(batch.asked)

    def hide(scores: Tensor) -> Tensor:
        changed = scores.clone()
        for i, offset in enumerate(offsets):
            changed[i * rows : (i + 1) * rows, :, -1, batch.start + offset] = -torch.inf
        return changed

    state = tail.states[blocks[0]].repeat(len(offsets), 1, 1)
    with intervene(tail.model, {f"blocks.{i}.attention.scores": hide for i in blocks}):
        return batch.gap(tail.onward(blocks[0], state)).view(len(offsets), rows)


def edit(
    batch: Batch, tail: Tail, writes: dict[str, Tensor], blocks: Sequence[int], steps: int = 5
) -> tuple[Float[Tensor, "block row d_model"], Float[Tensor, "block row"]]:
    """The vectors that turn answers, added to one network's write at the subject, and the differences then.

    Each vector is as long as the write; each step turns it along the gradient.

    Args:
        batch, tail, writes: the prompts, their whole run, and what networks wrote in it.
        blocks: the numbers of the networks, from 0, in increasing order; each is edited by itself.
        steps: of gradient ascent.
    """
    rows = len(batch.asked)
    length = torch.stack([writes[_out(block)][:, 0].norm(dim=-1) for block in blocks])[..., None]
    vectors = torch.zeros(len(blocks), rows, tail.states.shape[-1])

    def add(i: int, value: Tensor) -> Tensor:
        changed = value.clone()
        changed[i * rows : (i + 1) * rows, 0] += vectors[i]
        return changed

    def onward() -> Tensor:
        state = tail.states[blocks[0]].repeat(len(blocks), 1, 1)
        for number in range(blocks[0], tail.blocks):
            state = tail.run(number, state)
        return batch.gap(state).view(len(blocks), rows)

    changes: dict[str, Change] = {_out(block): partial(add, i) for i, block in enumerate(blocks)}
    with intervene(tail.model, changes):
        for _ in range(steps):
            vectors.requires_grad_(True)
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(onward().sum(), vectors)
            turned = vectors.detach() / length - F.normalize(slope, dim=-1)
            vectors = F.normalize(turned, dim=-1) * length
        with torch.no_grad():
            return vectors, onward()


def _out(block: int) -> str:
    return f"blocks.{block}.feedforward.out"


@torch.no_grad()
def rewritten(
    batch: Batch,
    sweep: Sweep,
    block: int,
    key: Float[Tensor, "neuron"],
    vector: Float[Tensor, "d_model"],
) -> Float[Tensor, "row"]:
    """The logit differences after a change of rank one of a network's matrix: a key brings a vector.

    The change is felt at every token of the prompts, so the sweep has to be one of whole prompts.
    """
    seen: dict[str, Tensor] = {}

    def keep(neurons: Tensor) -> Tensor:
        seen["neurons"] = neurons
        return neurons

    def add(value: Tensor) -> Tensor:
        share = seen["neurons"] @ key / (key @ key)
        return value + share[..., None] * vector

    changes = {f"blocks.{block}.feedforward.neurons": keep, _out(block): add}
    with intervene(sweep.model, changes):
        return batch.gap(sweep.onward(block))


def network_writes(tail: Tail) -> dict[str, Tensor]:
    """What every network wrote in the run."""
    names = [_out(number) for number in range(tail.blocks)]
    with capture(tail.model, *names) as seen:
        tail.onward(0)
    return {name: seen[name] for name in names}


def whole(batch: Batch) -> tuple[Tail, Float[Tensor, "row"], Tail, Float[Tensor, "row"]]:
    """The run of a batch and of that with the other subjects, and both logit differences."""
    clean, other = (begin_at(tokens, batch.start) for tokens in (batch.tokens, batch.swapped))
    return clean, batch.gap(clean.states[-1]), other, batch.gap(other.states[-1])


def share(changed: Tensor, base: Tensor, whole_gap: Tensor) -> float:
    """How much of a difference comes back: sums over facts, so that a large one counts more."""
    return float((changed - base).sum() / (whole_gap - base).sum())


def joined(parts: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The values of several batches, one behind the other on their last axis."""
    given = list(parts)
    return {name: torch.cat([one[name] for one in given], -1) for name in given[0]}
