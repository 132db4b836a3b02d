"""Acts on gradients between the loss and the step: records them, equalises them, or compensates by rates.

Each is given to `train` as its `prepare`. All of them hang on the weights of one model, which a stack of models
does not have: give `trains_alone` as the hook after each step, so that none is trained as a part of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn
from torch.nn.utils import parametrize

from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import Model, Step, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.norms import _blocks, _device, _stack


def trains_alone(step: Step) -> None:
    """A hook without effect, except that a model with a hook is trained alone and not in a stack."""


@dataclass(frozen=True)
class Watched:
    """Records the length of each parameter's gradient at some steps of a training.

    The lengths are those of the loss's gradient, before any clipping. They become a buffer of the model,
    so that a stored run has them; `gradient_lengths` reads it.

    Attributes:
        at: the steps, counted from 0 for the gradient of the fresh model.
        variant: another preparation, which comes first.
    """

    at: tuple[int, ...]
    variant: Callable[[Model], None] | None = None

    def __call__(self, model: Model) -> None:
        """Attach the watch.

        Raises:
            ValueError: for an `EncoderDecoder`.
        """
        if self.variant is not None:
            self.variant(model)
        weights = [weight for _, weight in _trained(model)]
        lengths = torch.full((len(self.at), len(weights)), math.nan, device=_device(model))
        model.register_buffer("gradient_lengths", lengths)
        model.register_buffer("gradient_steps", torch.tensor(self.at, device=_device(model)))
        step = 0

        def look(_: Tensor) -> None:
            nonlocal step
            if step in self.at:
                found = [math.nan if w.grad is None else float(w.grad.norm()) for w in weights]
                # the model's own buffer, which may have been moved since
                row = torch.tensor(found, device=_device(model))
                model.get_buffer("gradient_lengths")[self.at.index(step)] = row
            step += 1

        _when_all_are_there(model, look)


def gradient_lengths(model: Model) -> dict[str, Float[ndarray, "at"]]:
    """The record of `Watched`: the length of each parameter's gradient at each of the steps.

    Raises:
        ValueError: when the model was not trained with `Watched`.
    """
    if "gradient_lengths" not in dict(model.named_buffers()):
        raise ValueError("expected a model trained with prepare=Watched(...), got one without")
    values = model.get_buffer("gradient_lengths").double().cpu().numpy()
    return {name: values[:, i] for i, (name, _) in enumerate(_trained(model))}


def _trained(model: Model) -> list[tuple[str, Tensor]]:
    return [(name, w) for name, w in model.named_parameters() if w.requires_grad]


def _when_all_are_there(model: Model, act: Callable[[Tensor], None]) -> None:
    """Act once per step, when all gradients have arrived; the embedding's comes last."""
    _stack(model).token_embedding.weight.register_post_accumulate_grad_hook(act)


def equal_gradients(model: Model) -> None:
    """Before each step, scale the gradients of each block so that all blocks' are equally long.

    Each block's gradient gets the geometric mean of the blocks' lengths; directions inside of a block, and the
    gradients of embedding, unembedding and final norm, stay as they are.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """

    def equalise(_: Tensor) -> None:
        found = [
            [w.grad for w in block.parameters() if w.grad is not None] for block in _blocks(model)
        ]
        lengths = [float(nn.utils.get_total_norm(gradients)) for gradients in found]
        if min(lengths) > 0 and all(map(math.isfinite, lengths)):
            mean = math.exp(math.fsum(map(math.log, lengths)) / len(lengths))
            for gradients, length in zip(found, lengths, strict=True):
                for gradient in gradients:
                    gradient.mul_(mean / length)

    _when_all_are_there(model, equalise)


def equal_by_kind(model: Model) -> None:
    """Before each step, make the gradient of every weight and bias as long in one block as in all others.

    The query weights of all blocks get the geometric mean of their lengths, so do the key weights, and so on
    for each parameter of a block by its name. `equal_gradients` is coarser: it leaves the lengths
    *within* a block as they stand to one another. A parameter whose gradient is zero in some block stays.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    named = [dict(block.named_parameters()) for block in _blocks(model)]

    def equalise(_: Tensor) -> None:
        for name in named[0]:
            found = [block[name].grad for block in named]
            gradients = [gradient for gradient in found if gradient is not None]
            lengths = [float(gradient.norm()) for gradient in gradients]
            if min(lengths) > 0 and all(map(math.isfinite, lengths)):
                mean = math.exp(math.fsum(map(math.log, lengths)) / len(lengths))
                for gradient, length in zip(gradients, lengths, strict=True):
                    gradient.mul_(mean / length)

    _when_all_are_there(model, equalise)


@dataclass(frozen=True)
class EqualRates:
    """Give each block a learning rate of its own, the larger the smaller its gradients are at the start.

    A block's rate is the common one times the geometric mean of the blocks' gradient lengths over its own,
    measured on the fresh model. Each weight W becomes c V with V trained in its place, whose steps then
    count c-fold.

    Attributes:
        task: what the gradients are measured on.
        size: number of sequences.
    """

    task: Task
    size: int = 64

    def __call__(self, model: Model) -> None:
        """Replace the weights of the blocks.

        Raises:
            ValueError: for an `EncoderDecoder`.
        """
        batch = self.task.batch(make_generator(0, "rates"), self.size).to(_device(model))
        weights = [w for block in _blocks(model) for w in block.parameters()]
        with torch.enable_grad():
            loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
            gradients = iter(torch.autograd.grad(loss, weights))
        lengths = [
            float(nn.utils.get_total_norm([next(gradients) for _ in block.parameters()]))
            for block in _blocks(model)
        ]
        mean = math.exp(math.fsum(map(math.log, lengths)) / len(lengths))
        for block, length in zip(_blocks(model), lengths, strict=True):
            owners = [
                (module, name)
                for module in block.modules()
                for name, _ in module.named_parameters(recurse=False)
            ]
            for module, name in owners:
                parametrize.register_parametrization(module, name, _Times(mean / length))


class _Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, weight: Tensor) -> Tensor:
        return self.factor * weight

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight / self.factor
