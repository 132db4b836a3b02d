"""What the chapter on pieces measures: models that are built without one, and models that lose one later.

Leaving a piece *out* and taking it *away* answer two questions. A model that is built without attention has its
whole training to find another way; one that loses its attention after training has none. The first asks whether
a task needs the piece, the second whether this trained model leans on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.analysis.ablation import loss as mean_loss
from measured_transformer.analysis.residual import ledger
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.internals.names import taps
from measured_transformer.models.config import Config
from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.tasks.opened_text import OpenedText, characters
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, evaluate, make_model, predict
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.component_ablation import PIECES, piece_arms
from numpy import ndarray
from torch import Tensor

from measured_book.measuring import Search, Trained, grid, job, only, tuned, tuning_seeds
from measured_book.measuring.readings import Scores, asked_rate

# What is the best without attention? --------------------------------------------------------------


def no_attention_floor(task: Task) -> float:
    """Smallest expected loss, in nats, of a model whose positions never look at one another.

    Each position knows its own token and its own number, and nothing else. In reversal the middle position
    of an odd length knows its answer; every other answer is drawn without regard to it. In associative recall
    no key tells its value. In text the token before is all there is, and at the first position not even that.

    Raises:
        ValueError: for another task.

    >>> round(no_attention_floor(Reversal(vocab=6, length=6)), 3)
    1.792
    """
    match task:
        case Reversal():
            return (1 - task.length % 2 / task.length) * float(np.log(task.vocab))
        case AssociativeRecall():
            return task.blind_loss()
        case OpenedText():
            tokens = characters(task.part)
            first = entropy(torch.bincount(tokens))
            return (first + (task.length - 1) * bigram_loss(tokens, task.vocab)) / task.length
    raise ValueError(
        f"expected Reversal, AssociativeRecall or OpenedText, got {type(task).__name__}: its loss is not known"
    )


def entropy(counts: Int[Tensor, "token"]) -> float:
    """Entropy of shares given as counts, in nats.

    >>> round(entropy(torch.tensor([2, 2, 0])), 4)
    0.6931
    """
    shares = counts.double() / counts.sum()
    return float(-torch.xlogy(shares, shares).sum())


def bigram_loss(tokens: Int[Tensor, "token"], vocab: int) -> float:
    """Conditional entropy of a token given the one before it, in nats, by the counts of this text.

    No predictor that sees one token at a time does better on this very text.

    Raises:
        ValueError: for fewer than two tokens.

    >>> bigram_loss(torch.tensor([0, 1, 0, 1, 0]), 2)
    0.0
    """
    if len(tokens) < 2:
        raise ValueError(f"expected at least two tokens, got {len(tokens)}")
    pairs = torch.bincount(tokens[:-1] * vocab + tokens[1:], minlength=vocab**2)
    before = pairs.view(vocab, vocab).sum(1)
    return max(0.0, entropy(pairs) - entropy(before))


# Taken away after training ------------------------------------------------------------------------


@contextmanager
def mean_ablated(model: Model, piece: str, reference: Batch) -> Iterator[None]:
    """Replace what one kind of piece contributes by its mean over other sequences, in all blocks.

    The mean is taken position by position, in the whole model: what a piece contributes whatever the sequence
    is stays, and what it says about this sequence is gone. For attention and networks that is their write, for
    norms the standard deviation that they divide by, for skip connections the stream that passes a sublayer.
    What positions add is the same for every sequence; it is averaged over the positions instead.

    Args:
        model: a pre-norm encoder or decoder with all its pieces, whose positions are added to the embedding; is
            changed only while the block runs.
        piece: one of `PIECES`.
        reference: the other sequences, as long as those in the block.

    Raises:
        ValueError: when there is no such piece, or the model is of another kind.
    """
    if not isinstance(model, Stack) or not model.config.residual:
        raise ValueError("expected an Encoder or a Decoder with residual connections")
    if model.config.placement != "pre" or model.positions is None:
        raise ValueError(
            "expected a pre-norm model whose positions are added to the embedding, got placement="
            f"{model.config.placement!r} and positions={model.config.positions!r}"
        )
    ends = {"attention": "attention.out", "ffn": "feedforward.out", "norm": "norm.scale"}
    if piece in ends:
        parts = [Component(name) for name in taps(model) if name.endswith(ends[piece])]
        with ablated(model, parts, "mean", reference=reference):
            yield
    elif piece == "positions":
        added = added_positions(model, reference.inputs)
        with intervene(model, {"embedding": lambda x: x + (added.mean(0) - added).to(x)}):
            yield
    elif piece == "skip":
        with intervene(model, _without_what_passes(model, reference)):
            yield
    else:
        raise ValueError(f"piece must be one of {', '.join(PIECES)}; got {piece!r}")


@torch.no_grad()
def added_positions(
    model: Stack, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "position d_model"]:
    """What a model adds to the embeddings of its tokens, position by position."""
    with capture(model, "embedding") as seen:
        model(tokens)
    found: Tensor = (seen["embedding"] - model.embedding_scale * model.token_embedding(tokens))[0]
    return found


def _without_what_passes(model: Model, reference: Batch) -> dict[str, Change]:
    """After each sublayer: its write, and the mean of the stream that passes it."""
    passing = {"attention": "residual_pre", "feedforward": "residual_mid"}
    after = {"attention": "residual_mid", "feedforward": "residual_post"}
    with capture(model, "*.residual_pre", "*.residual_mid") as seen, torch.no_grad():
        predict(model, reference)
    writes: dict[str, Tensor] = {}

    def keep(name: str) -> Change:
        def change(write: Tensor) -> Tensor:
            writes[name] = write
            return write

        return change

    def join(name: str, mean: Tensor) -> Change:
        return lambda _: writes[name] + mean.to(writes[name])

    changes: dict[str, Change] = {}
    for i in range(model.config.n_layers):
        for part, entry in passing.items():
            name = f"blocks.{i}.{part}"
            changes[f"{name}.out"] = keep(name)
            mean = seen[f"blocks.{i}.{entry}"].mean(0)
            changes[f"blocks.{i}.{after[part]}"] = join(name, mean)
    return changes


def rises_when_taken(model: Model, batch: Batch, reference: Batch) -> Float[ndarray, "piece"]:
    """The rise of a trained model's loss, in nats, when each of `PIECES` is replaced as in `mean_ablated`."""
    whole = mean_loss(model, batch)
    found = []
    for piece in PIECES:
        with mean_ablated(model, piece, reference):
            found.append(mean_loss(model, batch) - whole)
    return np.array(found)


# Left out for good --------------------------------------------------------------------------------

REVERSAL = Reversal(vocab=12, length=12)
TASKS: Mapping[str, Task] = {
    "reversal": REVERSAL,
    "recall": AssociativeRecall(pairs=2, queries=2, keys=4, values=4),
    "text": OpenedText(32),
}
HELD_OUT: Mapping[str, Task] = {**TASKS, "text": OpenedText(32, "validation")}
"""What losses are measured on: other sequences, and for text another part of it."""
ARMS = ("whole", *PIECES)
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
STEPS: Mapping[str, int] = {"reversal": 300, "recall": 300, "text": 500}
TUNING_SEEDS: Mapping[str, int] = {"reversal": 2, "recall": 5, "text": 1}
"""Recall is solved all at once or not at all, so that a rate has to prove itself on more seeds."""
LATER = 500
"""What is added to the seeds of recall, whose earlier ones had been looked at when this was found."""
BINS = 25
"""Into how many equal stretches a curve of training losses is averaged."""


def size_of(task: str) -> Config:
    """The whole model for a task: four pre-norm blocks, width 32 for the puzzles and 48 for text."""
    width = 48 if task == "text" else 32
    vocab = TASKS[task].vocab
    return Config(vocab=vocab, d_model=width, n_layers=4, n_heads=4, activation="relu")


def trained(task: str, arm: str, seed: int) -> Job:
    """One model on one task with all its pieces or without one, at the learning rate that suits it."""
    side, steps = piece_arms(size_of(task))[arm], STEPS[task]
    schedule = WarmupCosine(warmup=steps // 10, steps=steps)
    options: dict[str, Any] = {"batch_size": 16, "schedule": schedule, **side.options}
    seeds = tuning_seeds(TUNING_SEEDS[task])
    search = Search(f"pieces-{task}-{arm}", side.config, TASKS[task], RATES, seeds, steps, options)
    rate = tuned(search)
    return job(side.config, TASKS[task], seed, steps=steps, learning_rate=rate, **options)


def left_out(one: Trained) -> dict[str, Any]:
    """Loss on held-out sequences, the training curve, and the learning rate."""
    held_out = HELD_OUT[one.labels["task"]]
    return {
        "loss": evaluate(one.model, held_out, seed=one.seed, size=512).loss,
        "curve": ("stretch", np.asarray(one.run.losses).reshape(BINS, -1).mean(1)),
        **asked_rate(one),
    }


def lost_later(one: Trained) -> dict[str, Any]:
    """What the whole model pays when it loses a piece."""
    batch, reference = (
        HELD_OUT[one.labels["task"]].batch(make_generator(one.seed, stream), 256)
        for stream in ("evaluation", "reference")
    )
    return {"taken": ("piece", rises_when_taken(one.model, batch, reference))}


READ = (left_out, only(lost_later, arm="whole"))
COORDS = {"piece": PIECES, "stretch": tuple(range(BINS))}
TOLERANCE = {"loss": 0.5, "curve": 0.5, "taken": 2.0, "rate": 0.0}
PUZZLES = ("reversal", "recall")


@grid(axes={"task": PUZZLES, "arm": ARMS}, coords=COORDS, seeds=10, read=READ, tolerance=TOLERANCE)
def puzzles(seed: int, task: str, arm: str) -> Job:
    """Reversal and recall by four blocks that lack one kind of piece: losses, curves, pieces lost later."""
    return trained(task, arm, seed + (LATER if task == "recall" else 0))


@grid(axes={"task": ("text",), "arm": ARMS}, coords=COORDS, seeds=6, read=READ, tolerance=TOLERANCE)
def text(seed: int, task: str, arm: str) -> Job:
    """Text by four blocks that lack one kind of piece: losses, curves, pieces lost later."""
    return trained(task, arm, seed)


HANDICAPS = ("no final norm", "quiet final norm")
QUIET = 0.25
"""What the gains of a final norm begin with in one arm, in place of 1."""


@torch.no_grad()
def quiet_final_norm(model: Model) -> None:
    """Preparation for training: the final norm begins with small gains, so first predictions are unsure."""
    assert isinstance(model, Stack)
    norm: Any = model.final_norm
    norm.weight.fill_(QUIET)


@grid(axes={"arm": HANDICAPS}, seeds=6, read=[Scores(HELD_OUT["text"], 512, ("loss",)), asked_rate])
def handicaps(seed: int, arm: str) -> Job:
    """Text by four blocks with all norms but the final one, and with a final norm that begins small."""
    whole, steps = size_of("text"), STEPS["text"]
    config = whole.replace(final_norm=False) if arm == "no final norm" else whole
    options: dict[str, Any] = {
        "batch_size": 16,
        "schedule": WarmupCosine(warmup=steps // 10, steps=steps),
        **({} if arm == "no final norm" else {"prepare": quiet_final_norm}),
    }
    name = f"pieces-text-{arm.replace(' ', '-')}"
    seeds = tuning_seeds(TUNING_SEEDS["text"])
    rate = tuned(Search(name, config, TASKS["text"], RATES, seeds, steps, options))
    return job(config, TASKS["text"], seed, steps=steps, learning_rate=rate, **options)


# Width and the size of writes ---------------------------------------------------------------------


def parameter_ratio(model: Stack) -> float:
    """Parameters of a block's feed-forward network over those of its attention, biases included.

    Raises:
        ValueError: when the layers are no blocks.
    """
    block = model.blocks[0]
    if not isinstance(block, Block):
        raise ValueError(
            f"expected a model of blocks, got {type(block).__name__} as its first layer"
        )
    network, attention = (
        sum(weight.numel() for weight in one.parameters())
        for one in (block.feedforward, block.attention)
    )
    return network / attention


def log_writes(
    model: Stack, tokens: Int[Tensor, "batch position"]
) -> tuple[Float[ndarray, "block"], Float[ndarray, "block"]]:
    """Logarithm of the mean length of what attention writes, and of what the feed-forward network writes."""
    lengths = (
        ledger(model, tokens).writes.norm(dim=-1).mean(dim=(1, 2)).log().double().cpu().numpy()
    )
    return lengths[::2], lengths[1::2]


WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Neurons for each entry of the stream."""
WIDTH_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
STATES = ("untrained", "trained")


def two_blocks(width: float) -> Config:
    """Two pre-norm blocks of width 64, the case study's design, with networks of another width."""
    return Config(vocab=12, placement="pre", activation="relu", d_ff=int(64 * width))


def written(one: Trained) -> dict[str, Any]:
    """Logarithm of the network's write over attention's, before and after training; ratio of parameters."""
    tokens = REVERSAL.batch(make_generator(one.seed, "evaluation"), 64).inputs
    fresh = make_model(one.job.config, causal=False, seed=one.seed)

    def ratio(model: Any) -> float:
        attention, network = log_writes(model.eval(), tokens)
        return float((network - attention).mean())

    ratios = ("state", [ratio(fresh), ratio(one.model)])
    return {"ratio": ratios, "parameters": parameter_ratio(fresh)}


@grid(
    axes={"width": WIDTHS},
    coords={"state": STATES, "width": WIDTHS},
    seeds=10,
    read=[written, Scores(names=("loss",)), asked_rate],
    tolerance={"ratio": 0.5, "loss": 0.5, "rate": 0.0, "parameters": 1e-9},
)
def writes(seed: int, width: float) -> Job:
    """Logarithm of the network's write over attention's, mean of two blocks, by the network's width."""
    config, options = two_blocks(width), {"batch_size": 16}
    arm, seeds = f"pieces-width-{width:g}", tuning_seeds(2)
    rate = tuned(Search(arm, config, REVERSAL, WIDTH_RATES, seeds, 300, options))
    return job(config, REVERSAL, seed, steps=300, learning_rate=rate, **options)
