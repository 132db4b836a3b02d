"""A Transformer and an LSTM of equal size on recall over a distance, trained by one and the same loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from measured_transformer.evidence.profile import Profile
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.task import Task
from measured_transformer.training.device import cpu_threads
from measured_transformer.training.loop import clip_gradients
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.training.tuning import search_losses

Kind = Literal["transformer", "lstm"]
"""What reads: a decoder with attention, or a recurrent network."""


class Recurrent(nn.Module):
    """A language model with one LSTM (Hochreiter and Schmidhuber 1997) where a decoder has its blocks.

    Embedding, final norm and unembedding are like the decoder's; one linear map leads from the state to the
    width of the stream. Biases of forget gates start at `forget` (Gers et al. 2000; Jozefowicz et al. 2015).
    """

    def __init__(self, vocab: int, *, d_model: int, d_state: int, forget: float = 1.0) -> None:
        """Draw fresh weights; PyTorch's for the LSTM."""
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.lstm = nn.LSTM(d_model, d_state, batch_first=True)
        self.output = nn.Linear(d_state, d_model, bias=False)
        self.norm = LayerNorm(d_model)
        self.unembedding = nn.Linear(d_model, vocab, bias=False)
        with torch.no_grad():
            gate = slice(d_state, 2 * d_state)  # PyTorch's order: input, forget, cell, output
            self.lstm.get_parameter("bias_ih_l0")[gate] = forget
            self.lstm.get_parameter("bias_hh_l0")[gate] = 0.0

    def forward(
        self, tokens: Int[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position vocab"]:
        """Logits of the next token at each position."""
        logits: Tensor = self.read(self.embedding(tokens))
        return logits

    def read(
        self, embedded: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch position vocab"]:
        """The same from embedded tokens on."""
        states, _ = self.lstm(embedded)
        logits: Tensor = self.unembedding(self.norm(self.output(states)))
        return logits


@dataclass(frozen=True)
class Sizes:
    """What both kinds have in common.

    Attributes:
        d_model: width of embedding and unembedding, and of the Transformer's stream.
        n_layers, n_heads: of the Transformer, which has rotary positions.
        forget: first bias of the LSTM's forget gates.
    """

    d_model: int = 32
    n_layers: int = 2
    n_heads: int = 2
    forget: float = 1.0


def make_reader(kind: Kind, vocab: int, sizes: Sizes, *, seed: int) -> Decoder | Recurrent:
    """A fresh model of either kind; the LSTM's state is as wide as equal numbers of weights allow.

    >>> models = [make_reader(kind, 10, Sizes(), seed=0) for kind in ("transformer", "lstm")]
    >>> large, small = (sum(w.numel() for w in model.parameters()) for model in models)
    >>> abs(large - small) / large < 0.02
    True
    """
    d = sizes.d_model
    config = Config(
        vocab=vocab,
        d_model=d,
        n_layers=sizes.n_layers,
        n_heads=sizes.n_heads,
        positions="rotary",
    )
    with seeded(seed):
        decoder = Decoder(config)
        if kind == "transformer":
            return decoder
    weights = sum(w.numel() for w in decoder.parameters())
    rest = weights - 2 * vocab * d - 2 * d  # embedding, unembedding and final norm are alike
    # 4 s (d + s) + 8 s + s d = rest, solved for the width s of the state
    b = 5 * d + 8
    state = round((-b + math.sqrt(b * b + 16 * rest)) / 8)
    with seeded(seed):
        return Recurrent(vocab, d_model=d, d_state=state, forget=sizes.forget)


@dataclass(frozen=True)
class Learnt:
    """One training on recall over several distances.

    Attributes:
        model: as it stood after the last step.
        steps: when it was scored.
        accuracies: share of right answers then, a row for each distance.
    """

    model: Decoder | Recurrent
    steps: Int[ndarray, "look"]
    accuracies: Float[ndarray, "distance look"]

    def steps_to(self, level: float) -> Float[ndarray, "distance"]:
        """For each distance the last step at which the level was not reached, the first look at least."""
        found = [self.steps[0]] * len(self.accuracies)
        for i, row in enumerate(self.accuracies):
            below = np.flatnonzero(row < level)
            if below.size:
                found[i] = self.steps[below[-1]]
        return np.array(found, dtype=np.float64)


def learn(
    kind: Kind,
    tasks: Sequence[Task],
    sizes: Sizes,
    *,
    steps: int,
    learning_rate: float,
    seed: int,
    rows: int = 16,
    every: int = 20,
    clip: float = 1.0,
) -> Learnt:
    """Train one model; each batch is of one of the tasks, drawn evenly.

    Both kinds see the same batches in the same order and have the same optimiser (Adam) and clipping.

    Args:
        kind, sizes: of the model.
        tasks: the distances, otherwise alike.
        steps, learning_rate, rows: of the training.
        seed: of weights and batches.
        every: after how many steps to score, on sequences held out.
        clip: largest length of the whole gradient.
    """
    model = make_reader(kind, tasks[0].vocab, sizes, seed=seed)
    parameters = list(model.parameters())
    updates = torch.optim.Adam(parameters, lr=learning_rate, betas=(0.9, 0.98), fused=True)
    batches, order = make_generator(seed, "training"), make_generator(seed, "distances")
    which = torch.randint(len(tasks), (steps,), generator=order).tolist()
    looked, found = [], []
    with cpu_threads(1):
        for step in range(steps):
            batch = tasks[which[step]].batch(batches, rows)
            loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
            updates.zero_grad(set_to_none=True)
            loss.backward()
            clip_gradients(parameters, clip)
            updates.step()
            if (step + 1) % every == 0:
                looked.append(step + 1)
                found.append([accuracy(model, task, seed=seed) for task in tasks])
    return Learnt(model.eval(), np.array(looked), np.array(found).T)


@torch.no_grad()
def accuracy(model: Decoder | Recurrent, task: Task, *, seed: int, rows: int = 64) -> float:
    """Share of right answers on sequences held out."""
    batch = task.batch(make_generator(seed, "evaluation"), rows)
    right = model(batch.inputs).argmax(-1) == batch.targets
    return float(right[batch.scored].double().mean())


def tuned_rate(
    name: str,
    kind: Kind,
    tasks: Sequence[Task],
    sizes: Sizes,
    *,
    rates: Sequence[float],
    profile: Profile,
    steps: int,
    rows: int = 16,
) -> tuple[float, dict[float, list[float]]]:
    """The rate with the best mean accuracy in the second half of training, on tuning seeds, and all means.

    The mean is over the distances too. What was chosen is kept as a record, and used again while nothing that
    it depends on has changed.
    """
    seeds = profile.seeds(quick=2, full=2, stream="tuning")
    grid = sorted(rates)
    asked = {
        "kind": kind,
        "tasks": list(tasks),
        "sizes": sizes,
        "rates": grid,
        "seeds": seeds,
        "steps": steps,
        "rows": rows,
    }

    def lost(rate: float, seed: int) -> float:
        run = learn(kind, tasks, sizes, steps=steps, learning_rate=rate, seed=seed, rows=rows)
        return -_second_half(run)

    found = search_losses(name, asked, [tasks[0], learn], lost, rates=grid, seeds=seeds)
    best = min(grid, key=lambda rate: math.fsum(found[rate]))
    return best, {rate: [-value for value in values] for rate, values in found.items()}


def _second_half(run: Learnt) -> float:
    return float(run.accuracies[:, len(run.steps) // 2 :].mean())


def influence(
    kind: Kind, sizes: Sizes, distances: Sequence[int], *, vocab: int, seed: int, rows: int = 8
) -> Float[ndarray, "distance"]:
    """How strongly a fresh model's last logits depend on a token so many places back, on random tokens.

    Length of the gradient of one logit with respect to that token's embedding, averaged over rows; a logit
    drawn at random for each row.
    """
    model = make_reader(kind, vocab, sizes, seed=seed)
    n = max(distances) + 1
    generator = make_generator(seed, "influence")
    tokens = torch.randint(vocab, (rows, n), generator=generator)
    if isinstance(model, Recurrent):
        embedded = model.embedding(tokens).detach().requires_grad_()
        logits = model.read(embedded)
    else:
        with capture(model, "embedding", gradients=True) as seen:
            logits = model(tokens)
        embedded = seen["embedding"]
    chosen = torch.randint(vocab, (rows,), generator=generator)
    logits[torch.arange(rows), -1, chosen].sum().backward()
    assert embedded.grad is not None
    lengths = embedded.grad.norm(dim=-1).mean(0)
    found: ndarray = lengths[[n - 1 - k for k in distances]].double().numpy()
    return found
