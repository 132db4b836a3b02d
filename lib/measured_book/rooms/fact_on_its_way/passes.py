"""Prompts of a draw as one batch, and runs of it in which one state, write or view is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from measured_transformer.internals.intervene import intervene
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.rooms.fact_on_its_way.facts import RELATIONS, WORDINGS, facts
from measured_book.smollm2.model import smollm2
from measured_book.smollm2.sweeps import Sweep, begin

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
    """Prompts side by side, filled up at the right, where no token before sees it.

    Attributes:
        asked: what each row asks for.
        tokens: the prompts.
        swapped: the same with the other subject.
        subject, last: where the subject and the last token of each prompt stand.
        right, wrong: the two answers.
    """

    asked: tuple[Asked, ...]
    tokens: Int[Tensor, "row position"]
    swapped: Int[Tensor, "row position"]
    subject: Int[Tensor, "row"]
    last: Int[Tensor, "row"]
    right: Int[Tensor, "row"]
    wrong: Int[Tensor, "row"]

    @property
    def rows(self) -> Int[Tensor, "row"]:
        """The rows' numbers."""
        return torch.arange(len(self.asked))

    def gap(self, state: Float[Tensor, "row position d_model"]) -> Float[Tensor, "row"]:
        """Logit of the right answer minus that of the other one, from a state at the last token."""
        logits = smollm2().model.unembed(state[self.rows, self.last][:, None])[:, 0]
        return logits[self.rows, self.right] - logits[self.rows, self.wrong]


def batch_of(asked: Sequence[Asked]) -> Batch:
    """The batch that asks for these facts.

    Raises:
        ValueError: when a subject or an answer is not one token.
    """
    known = smollm2().tokenizer
    rows = [known.encode(one.prompt()) for one in asked]
    length = max(len(row) for row in rows)
    tokens = torch.tensor([row + [row[-1]] * (length - len(row)) for row in rows])
    names = [known.token(f" {one.subject}") for one in asked]
    subject = torch.tensor(
        [
            max(place for place, number in enumerate(row) if number == name)
            for row, name in zip(rows, names, strict=True)
        ]
    )
    swapped = tokens.clone()
    swapped[torch.arange(len(rows)), subject] = torch.tensor(
        [known.token(f" {one.other}") for one in asked]
    )
    return Batch(
        tuple(asked),
        tokens,
        swapped,
        subject,
        torch.tensor([len(row) - 1 for row in rows]),
        torch.tensor([known.token(f" {one.right}") for one in asked]),
        torch.tensor([known.token(f" {one.wrong}") for one in asked]),
    )


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
    batch, model = batch_of(asked), smollm2().model
    state = model.stream(batch.tokens)
    logits = model.unembed(state[batch.rows, batch.last][:, None])[:, 0]
    found = []
    for row, one in zip(logits, asked, strict=True):
        every = {answer for half in (False, True) for _, answer in facts(one.relation, judge=half)}
        answers = [smollm2().tokenizer.token(f" {answer}") for answer in sorted(every)]
        found.append(bool(row[answers].max() == row[smollm2().tokenizer.token(f" {one.right}")]))
    return found


def draw_facts(
    seed: int, number: int, *, judge: bool = True, relations: Iterable[str] = RELATIONS
) -> tuple[Batch, float]:
    """So many facts of each relation that the model knows, and the share of those asked for that it knows."""
    asked = [one for name in relations for one in candidates(seed, name, judge=judge)]
    knows = known(asked)
    kept: dict[str, list[Asked]] = {}
    for one, yes in zip(asked, knows, strict=True):
        if yes:
            kept.setdefault(one.relation, []).append(one)
    chosen = [one for some in kept.values() for one in some[:number]]
    return batch_of(chosen), sum(knows) / len(knows)


@torch.no_grad()
def blurred(batch: Batch, sweep: Sweep, seed: int) -> Float[Tensor, "state row position d_model"]:
    """The stream before each block and after the last one, when noise lies on the subject's embedding."""
    width = NOISE * float(smollm2().model.token_embedding.weight.std())
    chance = make_generator(seed, "noise on the subject")
    state = sweep.states[0].clone()
    noise = torch.randn(len(state), state.shape[-1], generator=chance, dtype=torch.float32)
    state[batch.rows, batch.subject] += width * noise
    states = [state]
    for number in range(sweep.blocks):
        states.append(sweep.run(number, states[-1]))
    return torch.stack(states)


def put_back(
    batch: Batch,
    sweep: Sweep,
    base: Float[Tensor, "state row position d_model"],
    before: int,
    place: Int[Tensor, "row"],
) -> Float[Tensor, "row"]:
    """The logit difference when the state at one place, before one block, is that of the whole run."""
    state = base[before].clone()
    state[batch.rows, place] = sweep.states[before][batch.rows, place]
    return batch.gap(sweep.onward(before, state))


def placed(
    rows: Int[Tensor, "row"], place: Int[Tensor, "row"], new: Tensor, value: Tensor
) -> Tensor:
    """A write in which one place of each row is another one's."""
    changed = value.clone()
    changed[rows, place] = new
    return changed


def networks_back(
    batch: Batch,
    sweep: Sweep,
    base: Float[Tensor, "state row position d_model"],
    writes: dict[str, Tensor],
    blocks: Sequence[int],
    place: Int[Tensor, "row"],
) -> Float[Tensor, "row"]:
    """The logit difference when networks of some blocks write at one place what they wrote in the whole run."""
    changes: dict[str, Callable[[Tensor], Tensor]] = {}
    for number in blocks:
        name = f"blocks.{number}.feedforward.out"
        changes[name] = partial(placed, batch.rows, place, writes[name][batch.rows, place])
    with intervene(sweep.model, changes):
        return batch.gap(sweep.onward(blocks[0], base[blocks[0]]))


def hidden(
    batch: Batch, sweep: Sweep, blocks: Sequence[int], place: Int[Tensor, "row"]
) -> Float[Tensor, "row"]:
    """The logit difference when the last token does not see one place in some blocks."""

    def hide(scores: Tensor) -> Tensor:
        changed = scores.clone()
        changed[batch.rows, :, batch.last, place] = -torch.inf
        return changed

    with intervene(sweep.model, {f"blocks.{i}.attention.scores": hide for i in blocks}):
        return batch.gap(sweep.onward(blocks[0]))


def edit(
    batch: Batch, sweep: Sweep, block: int, write: Float[Tensor, "row d_model"], steps: int = 5
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, "row"]]:
    """The vector that turns the answer, added to a network's write at the subject, and the difference then.

    Each vector is as long as the write; each step turns it along the gradient.
    """
    length = write.norm(dim=-1, keepdim=True)
    vector = torch.zeros_like(write)
    how = sweep._how[1]
    for _ in range(steps):
        vector.requires_grad_(True)
        with torch.enable_grad(), intervene(sweep.model, {_out(block): _adding(batch, vector)}):
            state = sweep.states[block]
            for number in range(block, sweep.blocks):
                state = sweep.model.blocks[number](state, causal=True, **how[number])
            (slope,) = torch.autograd.grad(batch.gap(state).sum(), vector)
        vector = vector.detach() / length - F.normalize(slope, dim=-1)
        vector = F.normalize(vector, dim=-1) * length
    with torch.no_grad(), intervene(sweep.model, {_out(block): _adding(batch, vector)}):
        return vector, batch.gap(sweep.onward(block))


def _out(block: int) -> str:
    return f"blocks.{block}.feedforward.out"


def _adding(batch: Batch, vector: Tensor) -> Callable[[Tensor], Tensor]:
    def add(value: Tensor) -> Tensor:
        here = torch.zeros(value.shape[:2], dtype=torch.bool)
        here[batch.rows, batch.subject] = True
        return value + here[..., None] * vector[:, None]

    return add


@torch.no_grad()
def rewritten(
    batch: Batch,
    block: int,
    key: Float[Tensor, "neuron"],
    vector: Float[Tensor, "d_model"],
) -> Float[Tensor, "row"]:
    """The logit differences after a change of rank one of a network's matrix: a key brings a vector."""
    seen: dict[str, Tensor] = {}

    def keep(neurons: Tensor) -> Tensor:
        seen["neurons"] = neurons
        return neurons

    def add(value: Tensor) -> Tensor:
        share = seen["neurons"] @ key / (key @ key)
        return value + share[..., None] * vector

    model = smollm2().model
    with intervene(model, {f"blocks.{block}.feedforward.neurons": keep, _out(block): add}):
        return batch.gap(model.stream(batch.tokens))


def whole(batch: Batch) -> tuple[Sweep, Float[Tensor, "row"], Sweep, Float[Tensor, "row"]]:
    """The run of a batch and of that with the other subjects, and both logit differences."""
    clean, other = begin(batch.tokens), begin(batch.swapped)
    return clean, batch.gap(clean.states[-1]), other, batch.gap(other.states[-1])
