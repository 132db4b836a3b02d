"""Spikes of a loss, signals that might warn of them, and what a warning is worth.

A signal is one number a step, known once the step is done: an alarm at step t warns of a spike at t + 1 or
later. What a model shows beyond its loss and gradient is written down while it trains, by `Recorder`, into a
tensor that `Recorded` gives to the model, so that it is kept with the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from measured_transformer.internals.capture import capture
from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import Model, Run, Step, predict
from measured_transformer.training.seeding import make_generator

SIGNALS = ("loss", "gradient", "update", "surprise", "score", "log_z")
"""What is known of a step:

- the training loss, in nats, and the length of the gradient before clipping;
- the update: root mean square of what the weights moved by, in units of the learning rate;
- the surprise: root mean square of the gradient's entries, each divided by the root of Adam's own average of
  squares; 1 while the average is right (Wortsman et al. 2023, "Stable and low-precision training for
  large-scale vision-language models", call it RMS);
- the largest attention score, and the mean absolute logarithm of the softmax's denominator over the logits,
  both after the update, on a batch that stays the same.
"""
_WATCHED = SIGNALS[2:]


@dataclass(frozen=True)
class Recorded:
    """Preparation for training: a model with room for what a `Recorder` sees.

    Attributes:
        steps: how many steps there is room for.
        prepare: what else is done to the fresh model, before.
    """

    steps: int
    prepare: Callable[[Model], None] | None = None

    def __call__(self, model: Model) -> None:
        """Prepare the model, then give it a tensor of zeros, one row a step."""
        if self.prepare is not None:
            self.prepare(model)
        model.register_buffer("recorded", torch.zeros(self.steps, len(_WATCHED)))


@dataclass(frozen=True)
class Recorder:
    """A hook for `train` that writes down what `SIGNALS` lists, into a model that was `Recorded`.

    Attributes:
        task: from which the batch is drawn that scores and logits are looked at on.
        beta2: Adam's, for the second average.
        seed, size: of that batch.
    """

    task: Task
    beta2: float = 0.98
    seed: int = 0
    size: int = 32

    @torch.no_grad()
    def __call__(self, step: Step) -> bool:
        """Write one row; never ends the training."""
        model = step.model
        room = model.get_buffer("recorded")
        weights = [weight for weight in model.parameters() if weight.grad is not None]
        state: dict[str, Any] = vars(model).setdefault("recorder_state", {})
        if not state:
            batch = self.task.batch(make_generator(self.seed, "recorder"), self.size)
            zeros = [torch.zeros_like(weight) for weight in weights]
            state |= {"batch": batch.to(room.device), "second": zeros, "before": None}
        squares = [weight.grad.square() for weight in weights if weight.grad is not None]
        for average, square in zip(state["second"], squares, strict=True):
            average.lerp_(square, 1 - self.beta2)
        age = 1 - self.beta2**step.number
        ratios = [
            s * age / v.clamp(min=1e-30) for s, v in zip(squares, state["second"], strict=True)
        ]
        surprise = _flat(ratios).mean().sqrt()
        now, before = _flat(weights), state["before"]
        moved = torch.zeros(()) if before is None else (now - before).square().mean().sqrt()
        state["before"] = now
        with capture(model, "*.attention.scores") as seen:
            logits = predict(model, state["batch"])
        score = torch.stack([scores.abs().amax() for scores in seen.values()]).amax()
        log_z = logits.logsumexp(-1).abs().mean()
        row = (moved / step.rate, surprise, score, log_z)
        room[step.number - 1] = torch.stack([value.to(room) for value in row])
        if step.number == len(room):
            del model.recorder_state  # what is kept of the model needs none of this
        return False


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def signals_of(run: Run) -> dict[str, Float[ndarray, "step"]]:
    """All `SIGNALS` of a run that was recorded, one value a step."""
    watched = run.model.get_buffer("recorded").double().numpy()[: len(run.losses)]
    found = dict(zip(_WATCHED, watched.T, strict=True))
    return {"loss": run.losses, "gradient": run.gradient_norms, **found}


# Spikes -------------------------------------------------------------------------------------------


def jumps(values: Float[ndarray, "step"], *, window: int = 20) -> Float[ndarray, "step"]:
    """The height of each value above the median of the `window` values before it; NaN for the first ones.

    >>> jumps(np.array([1.0, 3.0, 2.0, 7.0]), window=3)
    array([nan, nan, nan,  5.])
    """
    found = np.full(len(values), np.nan)
    for step in range(window, len(values)):
        found[step] = values[step] - np.median(values[step - window : step])
    return found


def solved_before(
    losses: Float[ndarray, "step"], *, level: float = 0.05, window: int = 20
) -> Bool[ndarray, "step"]:
    """Return whether the median loss of the `window` steps before each step lies below a level."""
    return np.array(
        [
            t >= window and float(np.median(losses[t - window : t])) < level
            for t in range(len(losses))
        ]
    )


def spike_onsets(
    losses: Float[ndarray, "step"],
    *,
    rise: float = 0.2,
    level: float = 0.05,
    window: int = 20,
    apart: int = 30,
) -> list[int]:
    """The steps at which a model that has learned its task begins to unlearn it.

    The loss lies `rise` nats above the median of the `window` steps before, and that median below `level`.
    Within `apart` steps of one onset no other is counted.
    """
    ready, above = solved_before(losses, level=level, window=window), jumps(losses, window=window)
    onsets: list[int] = []
    for step in np.flatnonzero(ready & (np.nan_to_num(above) > rise)):
        if not onsets or step - onsets[-1] > apart:
            onsets.append(int(step))
    return onsets


@dataclass(frozen=True)
class Worth:
    """The record of an alarm in one run.

    Attributes:
        spikes: how many there were.
        leads: of each spike that was warned of, how many steps before it the first alarm came.
        false_alarms: alarms in calm times; those within the window after another are the same alarm.
        calm: steps of calm: the task is solved, no spike comes within the window and none was within 30 steps.
    """

    spikes: int
    leads: tuple[int, ...]
    false_alarms: int
    calm: int


def worth(
    alarm: Bool[ndarray, "step"],
    onsets: Sequence[int],
    solved: Bool[ndarray, "step"],
    *,
    within: int = 10,
    after: int = 30,
) -> Worth:
    """Count which spikes an alarm warns of, and how often it is false.

    Args:
        alarm: whether it sounds at each step.
        onsets: the steps at which spikes begin.
        solved: whether each step counts at all, see `solved_before`.
        within: how many steps before a spike an alarm counts as a warning; the step of the spike does not.
        after: how many steps after a spike are nobody's fault.

    >>> alarm = np.array([True, False, False, True, False, False])
    >>> worth(alarm, [4], np.ones(6, dtype=bool), within=2, after=1)
    Worth(spikes=1, leads=(1,), false_alarms=1, calm=2)
    """
    leads = []
    for onset in onsets:
        first = max(onset - within, 0)
        heard = np.flatnonzero(alarm[first:onset])
        if len(heard):
            leads.append(int(onset - first - heard[0]))
    calm = solved.copy()
    for onset in onsets:
        calm[max(onset - within, 0) : onset + after + 1] = False
    false_alarms, last = 0, -within - 1
    for step in np.flatnonzero(alarm & calm):
        if step - last > within:
            false_alarms += 1
            last = int(step)
    return Worth(len(onsets), tuple(leads), false_alarms, int(calm.sum()))
