"""Training one model from one seed, and scoring it. No framework: read it from top to bottom."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, overload
from uuid import uuid4

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.provenance import CodeUnknownError, digest
from measured_transformer.tasks.task import Batch, Part, SourceTask, SplitTask, Task, held_out
from measured_transformer.training.arguments import (
    check_seed,
    check_task,
    check_training,
    rate_at,
)
from measured_transformer.training.checkpoints import read_checkpoint, write_checkpoint
from measured_transformer.training.device import find_device, settled
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.preparing import Preparation, prepare_model
from measured_transformer.training.schedules import Constant, Schedule
from measured_transformer.training.seeding import derived_seed, make_generator, seeded

Model = Decoder | Encoder | EncoderDecoder
Optimiser = Literal["AdamW", "Adam", "RAdam", "SGD"]
_CONSTANT = Constant()
_WARNED: set[type] = set()  # kinds of tasks of which nothing is held out, and it was said


@dataclass(frozen=True)
class Run:
    """One training from one seed.

    Attributes:
        model: as it stood after the last step, on the CPU and in evaluation mode.
        losses: training loss of every step, in nats per scored position, label smoothing included.
        seed: what weights and batches were drawn from.
        diverged: whether the loss or a weight stopped being a finite number; training ended there.
        rates: learning rate of every step.
        gradient_norms: length of the whole gradient of every step, before clipping; NaN where the loss was
            not finite, so that none was computed.
        evaluated: number of steps that had been taken at each evaluation on the way.
        evaluation_losses: cross-entropy then, in nats per scored position, on the sequences of `evaluate`.
        evaluation_accuracies: share of right answers then.
    """

    model: Model
    losses: Float[ndarray, "step"]
    seed: int
    diverged: bool
    rates: Float[ndarray, "step"]
    gradient_norms: Float[ndarray, "step"]
    evaluated: Int[ndarray, "evaluation"]
    evaluation_losses: Float[ndarray, "evaluation"]
    evaluation_accuracies: Float[ndarray, "evaluation"]


@dataclass(frozen=True)
class Score:
    """The scores of a model on sequences of a stream of their own.

    Attributes:
        loss: cross-entropy in nats per scored position.
        accuracy: share of scored positions whose most likely answer is right.
        exact: share of sequences all of whose scored positions are right.
        loss_by_position: cross-entropy at each position (NaN where nothing is scored).
        part: which part of the task's items they are; 'validation' and 'test' are held out. None where the task
            does not divide its items: nothing is held out then, and training may have met the same sequences.
    """

    loss: float
    accuracy: float
    exact: float
    loss_by_position: Float[ndarray, "position"]
    part: Part | None = None


@dataclass
class History:
    """The record of a training so far: the growing arrays of a `Run`."""

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)
    evaluation_losses: list[float] = field(default_factory=list)
    evaluation_accuracies: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """The argument of a hook that runs after each training step.

    Attributes:
        number: of steps that have been taken, 1 after the first.
        model: as it stands now, in training mode; a hook that changes its mode puts it back.
        losses: training loss of every step so far, the last one that of this step.
        rate: learning rate of this step.
        gradient_norm: length of the whole gradient, before clipping; NaN where the loss was not finite.
    """

    number: int
    model: Model
    losses: Sequence[float]
    rate: float
    gradient_norm: float

    @property
    def loss(self) -> float:
        """Training loss of this step, in nats per scored position."""
        return self.losses[-1]


AfterStep = Callable[[Step], bool | None]
"""Looks at a training after each step; where it returns True, the training ends there."""


@overload
def make_model(config: Config, *, causal: bool, seed: int) -> Decoder | Encoder: ...
@overload
def make_model(config: Config, *, causal: bool, source: bool, seed: int) -> Model: ...
def make_model(config: Config, *, causal: bool, source: bool = False, seed: int) -> Model:
    """A model with fresh weights from this seed.

    An `EncoderDecoder` where there is a source to read; else a `Decoder` when causal and an `Encoder` when not.
    """
    kind = EncoderDecoder if source else Decoder if causal else Encoder
    with seeded(seed):
        return kind(config)


def predict(model: Model, batch: Batch) -> Float[Tensor, "batch position vocab"]:
    """The model's logits for a batch, padding and source taken into account.

    Raises:
        ValueError: when an `EncoderDecoder` gets a batch without a source.
    """
    if isinstance(model, EncoderDecoder):
        if batch.source is None:
            raise ValueError("an EncoderDecoder needs batches with a source; the task makes none")
        return model(
            batch.source,
            batch.inputs,
            source_padding_mask=batch.source_padding_mask,
            target_padding_mask=batch.padding_mask,
        )
    return model(batch.inputs, padding_mask=batch.padding_mask)


def train(
    config: Config,
    task: Task,
    *,
    steps: int,
    learning_rate: float,
    seed: int,
    schedule: Schedule = _CONSTANT,
    batch_size: int = 64,
    optimiser: Optimiser = "AdamW",
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    clip: float | None = 1.0,
    label_smoothing: float = 0.0,
    evaluate_every: int | None = None,
    prepare: Preparation | None = None,
    after_step: AfterStep | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 100,
    progress: bool = False,
    threads: int | None = 1,
) -> Run:
    """Train a fresh model on fresh batches.

    The same seed gives the same run: on a CPU bit for bit, whatever else runs and however many cores there
    are; on an accelerator as far as its kernels are deterministic. Training computes on the device that
    `device.find_device` finds; the finished model is on the CPU.

    Args:
        config: the model; its vocabulary must hold the task's.
        task: what to learn; a task with a source gets an `EncoderDecoder`, else a causal one a `Decoder` and
            any other an `Encoder`.
        steps: number of batches.
        learning_rate: what the schedule's factor is multiplied with, so the largest rate for most schedules.
        seed: of the weights, of dropout and of the batches, each with a generator of its own.
        schedule: factor of the learning rate at each step, from 0 on, never negative; see `schedules`.
        batch_size: sequences per step.
        optimiser: 'AdamW' (weight decay apart from the gradient; without decay the same as 'Adam'), 'Adam',
            'RAdam' or 'SGD', as PyTorch has them.
        betas, eps, weight_decay: of the optimiser; 'SGD' takes the first beta for its momentum.
        clip: largest norm of the whole gradient, above 0; none when None.
        label_smoothing: share of the answer spread over the whole vocabulary, see `losses.cross_entropy`.
        evaluate_every: after how many steps to score the model as `evaluate` does, always on the same sequences
            (of validation, where the task has that part); None for never. Evaluations change nothing in the
            training.
        prepare: called with the fresh model, still on the CPU, to fix or replace some of its weights, and with
            `seed`, where it has a parameter of this name; parameters that no longer require a gradient stay
            as they are.
        after_step: called with a `Step` after each step and its evaluation; returns True to end the training
            there. It may look at the model, but draws no random numbers of PyTorch's own generator, from
            which dropout comes. Where training goes on from a checkpoint, it is asked again about the last
            step that was taken.
        checkpoint: a file to which the whole state is saved (safetensors, in one piece) every
            `checkpoint_every` steps and at the end. Where it exists already, training goes on from there,
            as if it had never been interrupted.
        checkpoint_every: see there.
        progress: whether to show a progress bar.
        threads: number of the CPU's threads, which rounding depends on: with more than one, runs are equal
            only among machines with the same number. None leaves it as it is.

    Raises:
        ValueError: when an argument is of another kind than it should be, the vocabulary is too small, the
            model has no head or a number is out of range; at the step where the schedule is negative; when the
            checkpoint belongs to another training, or has taken more steps than are asked for.
    """
    given = {
        "seed": seed,
        "schedule": schedule,
        "prepare": prepare,
        "after_step": after_step,
        "checkpoint": checkpoint,
        "steps": steps,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "optimiser": optimiser,
        "betas": betas,
        "eps": eps,
        "weight_decay": weight_decay,
        "clip": clip,
        "label_smoothing": label_smoothing,
        "evaluate_every": evaluate_every,
        "checkpoint_every": checkpoint_every,
        "threads": threads,
    }
    check_training(config, task, given)
    seed = int(seed)  # of NumPy's numbers, too
    device = find_device()
    source = isinstance(task, SourceTask)
    model = make_model(config, causal=task.causal, source=source, seed=seed).train()
    prepare_model(model, prepare, seed)
    model.to(device)
    parameters = list(model.parameters())
    updates = _optimiser(optimiser, parameters, learning_rate, betas, eps, weight_decay)
    batches, history = make_generator(seed, "training"), History()
    key = ""
    if checkpoint is not None:
        settings = (learning_rate, schedule, batch_size, optimiser, betas, eps, weight_decay, clip)
        asked = (
            config,
            task,
            seed,
            settings,
            label_smoothing,
            evaluate_every,
            prepare,
            after_step,
            threads,
        )
        try:
            key = digest(train, config, task, schedule, prepare, after_step, settings=asked)
        except (CodeUnknownError, ValueError):
            key = uuid4().hex  # nobody can tell whether another call is the same training
    with (
        settled(device, threads),
        seeded(derived_seed(seed, "dropout")),
    ):
        if checkpoint is not None:
            read_checkpoint(checkpoint, key, model, updates, batches, history)
        first = len(history.losses)
        if first > steps:
            raise ValueError(
                f"{checkpoint} has taken {first} steps, more than steps={steps}: name another file to train "
                "for fewer"
            )
        numbers = range(first, steps)
        ended = _ends(after_step, model, history)
        for step in tqdm(numbers, initial=first, total=steps) if progress else numbers:
            if ended or (history.losses and not math.isfinite(history.losses[-1])):
                break
            batch = task.batch(batches, batch_size).to(device)
            rate = rate_at(learning_rate, schedule, step)
            loss = cross_entropy(
                predict(model, batch), batch.targets, batch.scored, label_smoothing=label_smoothing
            )
            norm = math.nan
            if math.isfinite(cost := loss.item()):
                updates.zero_grad(set_to_none=True)
                loss.backward()
                norm = clip_gradients(parameters, clip)
                for group in updates.param_groups:
                    group["lr"] = rate
                updates.step()
            history.losses.append(cost)
            history.rates.append(rate)
            history.gradient_norms.append(norm)
            if evaluate_every is not None and (step + 1) % evaluate_every == 0:
                score = evaluate(model, task, seed=seed)
                history.evaluated.append(step + 1)
                history.evaluation_losses.append(score.loss)
                history.evaluation_accuracies.append(score.accuracy)
            ended = _ends(after_step, model, history)
            last = ended or step + 1 == steps
            if checkpoint is not None and (last or (step + 1) % checkpoint_every == 0):
                write_checkpoint(checkpoint, key, model, updates, batches, history)
    return finished(model, history, seed)


def _ends(after_step: AfterStep | None, model: Model, history: History) -> bool:
    """Return whether the hook, if any, ends the training after this step."""
    if after_step is None or not history.losses:
        return False
    step = Step(
        len(history.losses),
        model,
        history.losses,
        history.rates[-1],
        history.gradient_norms[-1],
    )
    return bool(after_step(step))


def finished(model: Model, history: History, seed: int) -> Run:
    """The `Run` of a finished training; its weights show whether the last step diverged.

    The model is brought back to the CPU, where it is looked at.
    """
    model.to("cpu")
    finite = all(bool(p.isfinite().all()) for p in model.parameters())
    return Run(
        model.eval(),
        np.array(history.losses, dtype=np.float64),
        seed,
        diverged=not (finite and all(map(math.isfinite, history.losses))),
        rates=np.array(history.rates, dtype=np.float64),
        gradient_norms=np.array(history.gradient_norms, dtype=np.float64),
        evaluated=np.array(history.evaluated, dtype=np.int64),
        evaluation_losses=np.array(history.evaluation_losses, dtype=np.float64),
        evaluation_accuracies=np.array(history.evaluation_accuracies, dtype=np.float64),
    )


def clip_gradients(parameters: list[nn.Parameter], clip: float | None) -> float:
    """Scale the whole gradient down to length `clip` if it is longer; returns its original length."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if clip is not None:
        nn.utils.clip_grads_with_norm_(parameters, clip, norm)
    return norm.item()


@torch.no_grad()
def evaluate(
    model: Model,
    task: Task,
    *,
    seed: int,
    size: int = 256,
    length: int | None = None,
    part: Part | None = None,
) -> Score:
    """Score a model on sequences held out, where the task has such, else on sequences that are drawn anew.

    They come from a stream of their own. A task that divides its items (`tasks.task.SplitTask`) is scored on
    those of validation. Of any other nothing is held out: the score says so by ``part=None``. That does no harm
    where each sequence is made from a rule, out of so many that training meets next to none of them. It
    misleads where they are drawn from data that are kept; so a task of your own that has no parts is warned
    about, unless it says by an attribute ``endless = True`` that it is of the first kind.

    Args:
        model: put into evaluation mode for this, and back.
        task: what it was trained on.
        seed: of the sequences.
        size: number of sequences.
        length: of each; the task's own when not given.
        part: of a task that divides its items; when not given, `task.part`, but validation for training.

    Raises:
        ValueError: when the model is no model or the task makes no batches; when a part is asked for of a task
            that does not divide its items, or there is no such part; when a number is out of range.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(
            "model must be a Decoder, an Encoder or an EncoderDecoder, such as `model` of what train gives, "
            f"got {type(model).__name__}"
        )
    check_task(task)
    check_seed(seed)
    seed = int(seed)
    asked: Part | None = None
    if isinstance(task, SplitTask):
        asked = part if part is not None else task.part if task.part != "train" else "validation"
        task = held_out(task, asked)
    elif part is not None:
        raise ValueError(
            f"{type(task).__name__} does not divide its items, so it has no part {part!r}: nothing of it is "
            "held out"
        )
    else:
        _warn_of_no_parts(task)
    device = next(model.parameters()).device
    training = model.training
    batch = task.batch(make_generator(seed, "evaluation"), size, length=length).to(device)
    try:
        logits = predict(model.eval(), batch)
    finally:
        model.train(training)
    loss = F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")
    right = logits.argmax(-1) == batch.targets
    by_position = (loss * batch.scored).sum(0) / batch.scored.sum(0)
    return Score(
        loss=loss[batch.scored].mean().item(),
        accuracy=right[batch.scored].float().mean().item(),
        exact=(right | ~batch.scored).all(1).float().mean().item(),
        loss_by_position=by_position.double().cpu().numpy(),
        part=asked,
    )


def _warn_of_no_parts(task: Task) -> None:
    """Warn once of each kind of task that may keep data and holds none of it out."""
    kind = type(task)
    own = kind.__module__.startswith("measured_")  # made from rules, all that have no parts
    if own or getattr(task, "endless", False) or kind in _WARNED:
        return
    _WARNED.add(kind)
    warnings.warn(
        f"{kind.__name__} does not divide its items, so nothing is held out: what is scored is drawn anew, and "
        "training may have met it. Give the task a `part` (see tasks.task.SplitTask) where it draws from data "
        "that are kept, or `endless = True` where it makes each sequence from a rule",
        stacklevel=3,
    )


def _optimiser(
    name: Optimiser,
    parameters: list[nn.Parameter],
    rate: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    # Fused: one pass over all weights, and on a CPU a fifth of a small model's step saved.
    if name == "SGD":
        return torch.optim.SGD(
            parameters, lr=rate, momentum=betas[0], weight_decay=weight_decay, fused=True
        )
    if name == "RAdam":
        return torch.optim.RAdam(
            parameters, lr=rate, betas=betas, eps=eps, weight_decay=weight_decay, foreach=True
        )
    kind = torch.optim.AdamW if name == "AdamW" else torch.optim.Adam
    return kind(parameters, lr=rate, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
