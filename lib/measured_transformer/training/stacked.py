"""Trains several models of one config at once: their weights are stacked, and each step updates all of them.

Every operation has one more axis, `member`, in front. On an accelerator that a small model leaves idle, many
models then cost little more than one. The members share nothing: each has its own weights, batches, clipping
and history, and one that diverges stops without touching the others.

The sums are those of `train`, in another order: the same up to the rounding of floating-point numbers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from tqdm import tqdm

from measured_transformer.models.config import Config
from measured_transformer.models.stack import Stack
from measured_transformer.parts.tap import Tap
from measured_transformer.tasks.task import Batch, SourceTask, Task
from measured_transformer.training.arguments import rate_at
from measured_transformer.training.device import find_device, settled
from measured_transformer.training.jobs import make_jobs
from measured_transformer.training.loop import (
    History,
    Model,
    Run,
    _optimiser,
    evaluate,
    finished,
    make_model,
    predict,
)
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.preparing import Preparation, prepare_model
from measured_transformer.training.seeding import make_generator

_TENSORS = ("inputs", "targets", "scored", "padding_mask", "source", "source_padding_mask")


class CannotStackError(ValueError):
    """These models cannot be trained as a stack, only one after another."""


def train_stacked(
    config: Config, task: Task, seeds: Sequence[int], *, progress: bool = False, **options: Any
) -> list[Run]:
    """Train one model from each seed, all at once.

    Args:
        config, task: as for `train`.
        seeds: of the members.
        progress: whether to show a progress bar over the steps.
        options: as for `train`. What `prepare` makes of the members may differ in their weights alone.

    Returns:
        one `Run` a seed, in the order of the seeds.

    Raises:
        ValueError: as `train`; a `CannotStackError` when there is dropout (a stack has not the members' own
            random numbers) or a hook after each step (which looks at one model), when the members differ in
            more than the values of their weights, when somebody watches their taps, or when their batches
            differ in shape.
    """
    if not seeds:
        return []
    asked = make_jobs(config, task, seeds, options)[0].settings
    if config.dropout:
        raise CannotStackError(f"a stack cannot have dropout, got {config.dropout}")
    if asked["after_step"] is not None:
        raise CannotStackError("a stack has no model of one member for after_step to look at")
    device = find_device()
    models = [_fresh(config, task, seed, asked["prepare"], device) for seed in seeds]
    weights, buffers = _stack(models)
    losses_of = vmap(_loss(models[0], asked["label_smoothing"]))
    updates = _optimiser(
        asked["optimiser"],
        list(weights.values()),
        asked["learning_rate"],
        asked["betas"],
        asked["eps"],
        asked["weight_decay"],
    )
    generators = [make_generator(seed, "training") for seed in seeds]
    histories = [History() for _ in seeds]
    alive = set(range(len(seeds)))
    steps, every = range(asked["steps"]), asked["evaluate_every"]
    with settled(device, asked["threads"]):
        for step in tqdm(steps) if progress else steps:
            if not alive:
                break
            batches = [task.batch(one, asked["batch_size"]) for one in generators]
            rate = rate_at(asked["learning_rate"], asked["schedule"], step)
            # The fused kernels have no rule for another axis; written out, attention has one.
            with sdpa_kernel(SDPBackend.MATH):
                losses = losses_of(weights, buffers, _stacked_batch(batches, device))
                updates.zero_grad(set_to_none=True)
                losses.sum().backward()  # no term knows another: the gradient of each is its member's
            norms = _clip(weights.values(), asked["clip"])
            costs, lengths = torch.stack((losses.detach(), norms)).tolist()
            stopped = {i for i in alive if not math.isfinite(costs[i])}
            for i in stopped:
                _copy_member(weights, i, models[i])  # as it stood: this step is not taken
            for group in updates.param_groups:
                group["lr"] = rate
            updates.step()
            for i in alive:
                histories[i].losses.append(costs[i])
                histories[i].rates.append(rate)
                histories[i].gradient_norms.append(math.nan if i in stopped else lengths[i])
            if every is not None and (step + 1) % every == 0:
                for i in alive:
                    if i not in stopped:
                        _copy_member(weights, i, models[i])
                    score = evaluate(models[i], task, seed=seeds[i])
                    histories[i].evaluated.append(step + 1)
                    histories[i].evaluation_losses.append(score.loss)
                    histories[i].evaluation_accuracies.append(score.accuracy)
            alive -= stopped
    for i in alive:
        _copy_member(weights, i, models[i])
    return [finished(*each) for each in zip(models, histories, seeds, strict=True)]


class _Predictor(nn.Module):
    """A model whose forward pass takes a batch as tasks make it."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        return predict(self.model, batch)


def _fresh(
    config: Config, task: Task, seed: int, prepare: Preparation | None, device: Any
) -> Model:
    source = isinstance(task, SourceTask)
    model = make_model(config, causal=task.causal, source=source, seed=seed).train()
    prepare_model(model, prepare, seed)
    return model.to(device)


def _stack(models: Sequence[Model]) -> tuple[dict[str, nn.Parameter], dict[str, Tensor]]:
    """Weights and buffers of all members, by name, each (member, ...)."""

    def form(model: Model) -> list[tuple[Any, ...]]:
        own = [*model.named_parameters(), *model.named_buffers()]
        kinds = [(name, type(module)) for name, module in model.named_modules()]
        return [(name, t.shape, t.dtype, t.requires_grad) for name, t in own] + kinds

    first = form(models[0])
    for model in models:
        if form(model) != first:
            raise CannotStackError(
                "prepare made models of different form: only their weights may differ"
            )
        if any(isinstance(part, Tap) and part.watched for part in model.modules()):
            raise CannotStackError("prepare watches taps, and a stack has no values of one member")
    weights, buffers = stack_module_state(list(models))
    made = {n: nn.Parameter(t.detach(), requires_grad=t.requires_grad) for n, t in weights.items()}
    return made, buffers


def _loss(model: Model, label_smoothing: float) -> Callable[..., Tensor]:
    """The loss of one member as a function of its weights, buffers and batch."""
    bare = _Predictor(copy.deepcopy(model))
    for part in bare.modules():
        if isinstance(part, Stack):
            # It looks at the values of its tokens, and inside of vmap there is nothing to look at.
            part.__dict__["_check"] = lambda *_: None

    def loss(
        weights: Mapping[str, Tensor], buffers: Mapping[str, Tensor], batch: Mapping[str, Any]
    ) -> Tensor:
        given = Batch(**batch)
        state = {f"model.{name}": tensor for name, tensor in {**weights, **buffers}.items()}
        logits = functional_call(bare, state, (given,))
        return cross_entropy(logits, given.targets, given.scored, label_smoothing=label_smoothing)

    return loss


def _stacked_batch(batches: Sequence[Batch], device: torch.device) -> dict[str, Tensor]:
    found = {}
    for name in _TENSORS:
        tensors = [getattr(batch, name) for batch in batches]
        if len({None if t is None else t.shape for t in tensors}) > 1:
            raise CannotStackError(f"the members' batches have {name} of different shapes")
        if tensors[0] is not None:
            found[name] = torch.stack(tensors).to(device)
    return found


def _clip(weights: Any, clip: float | None) -> Tensor:
    """Scale each member's whole gradient to length `clip` if it is longer; returns the original lengths."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    if clip is not None:
        factors = (clip / (norms + 1e-6)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *(1 for _ in gradient.shape[1:])))
    return norms


@torch.no_grad()
def _copy_member(weights: Mapping[str, Tensor], member: int, model: Model) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name][member])
