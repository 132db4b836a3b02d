r"""Where a norm can stand: the placements that `Config` does not have, and a watch on the gradients.

Each is made to be given to `train` as its `prepare`: it changes the fresh model in place, or what is done to
it in training, and nothing about its first random weights unless it says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn
from torch.nn.utils import parametrize

from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import stream

KINDS = ("query", "key", "value", "output", "up", "down", "norm")
"""The types of a block's parameters, as `by_kind` tells them apart; biases count with their matrix."""


def sandwich(model: Model) -> None:
    """Give every branch a second norm, on what it writes: x + Norm(F(Norm(x))) in a pre-norm model.

    The placement of CogView ("sandwich-LN", Ding et al. 2021) and of Gemma 2.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    for block in _blocks(model):
        for branch in (block.attention, block.feedforward):
            branch.register_module("written_norm", _norm(model, model.config.d_model))
            branch.register_forward_hook(_through_written_norm)


def _through_written_norm(branch: nn.Module, inputs: object, output: Tensor) -> Tensor:
    normed: Tensor = branch.get_submodule("written_norm")(output)
    return normed


def query_key_norms(model: Model) -> None:
    """Normalise each head's queries and keys before they are multiplied (QK-norm, Henry et al. 2020).

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    for block in _blocks(model):
        for projection in (block.attention.query, block.attention.key):
            projection.register_module("head_norm", _norm(model, model.config.head_width))
            projection.register_forward_hook(_through_head_norm)


def _through_head_norm(projection: nn.Module, inputs: object, output: Tensor) -> Tensor:
    norm = projection.get_submodule("head_norm")
    heads = output.unflatten(-1, (-1, len(norm.get_parameter("weight"))))
    normed: Tensor = norm(heads)
    return normed.flatten(-2)


@torch.no_grad()
def deep_norm(model: Model) -> None:
    r"""DeepNorm (Wang et al. 2022): $\text{LN}(\alpha x + F(x))$, with some weights of F made smaller.

    For a post-norm encoder of L blocks $\alpha = (2L)^{1/4}$, and the first values of the value, output and
    feed-forward weights are multiplied by $\beta = (8L)^{-1/4}$. A norm does not see a factor on the whole of
    its input, so the branch is divided by $\alpha$ instead.

    Raises:
        ValueError: when the model is not post-norm, and for an `EncoderDecoder`.
    """
    if model.config.placement != "post":
        raise ValueError(f"DeepNorm changes a post-norm model, got {model.config.placement!r}")
    layers = len(_blocks(model))
    alpha, beta = (2 * layers) ** 0.25, (8 * layers) ** -0.25
    for block in _blocks(model):
        attention, feedforward = block.attention, block.feedforward
        for part in (attention.value, attention.output, feedforward.up, feedforward.down):
            part.weight.mul_(beta)
        for branch in (attention, feedforward):
            branch.register_forward_hook(_Divided(alpha))


@dataclass(frozen=True)
class _Divided:
    by: float

    def __call__(self, branch: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return output / self.by


@torch.no_grad()
def zero_branches(model: Model) -> None:
    """Set every matrix that writes to the stream to zero, and its bias: each block begins by doing nothing.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    for block in _blocks(model):
        for writer in (block.attention.output, block.feedforward.down):
            for weight in writer.parameters():
                weight.zero_()


@dataclass(frozen=True)
class Watched:
    """Writes down the length of each parameter's gradient at some steps of a training.

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
    """What `Watched` wrote down: for each parameter its gradient's length at each of the steps.

    Raises:
        ValueError: when the model was not trained with `Watched`.
    """
    if "gradient_lengths" not in dict(model.named_buffers()):
        raise ValueError("expected a model trained with prepare=Watched(...), got one without")
    values = model.get_buffer("gradient_lengths").double().cpu().numpy()
    return {name: values[:, i] for i, (name, _) in enumerate(_trained(model))}


def by_block(lengths: Mapping[str, Float[ndarray, "at"]]) -> Float[ndarray, "at block"]:
    """The gradient's length in each block, all its parameters together."""
    blocks: dict[int, list[ndarray]] = {}
    for name, values in lengths.items():
        if name.startswith("blocks."):
            blocks.setdefault(int(name.split(".")[1]), []).append(values)
    return np.stack([np.sqrt(np.square(blocks[i]).sum(0)) for i in sorted(blocks)], axis=1)


def by_kind(lengths: Mapping[str, Float[ndarray, "at"]], kind: str) -> Float[ndarray, "at block"]:
    """The gradient's length in each block's parameters of one kind alone; see `KINDS`.

    Raises:
        ValueError: when there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    chosen = {name: values for name, values in lengths.items() if kind in name.split(".")[-2]}
    return by_block(chosen)


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
        batch = self.task.batch(stream(0, "rates"), self.size).to(_device(model))
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


def _when_all_are_there(model: Model, act: Callable[[Tensor], None]) -> None:
    """Act once a step, when the gradients of all weights have come: the embedding's comes last of all."""
    _stack(model).token_embedding.weight.register_post_accumulate_grad_hook(act)


def _trained(model: Model) -> list[tuple[str, Tensor]]:
    return [(name, w) for name, w in model.named_parameters() if w.requires_grad]


def _stack(model: Model) -> Stack:
    if not isinstance(model, Stack):
        raise ValueError(f"expected an Encoder or a Decoder, got an {type(model).__name__}")
    return model


def _blocks(model: Model) -> list[Block]:
    return [block for block in _stack(model).blocks if isinstance(block, Block)]


def _norm(model: Model, width: int) -> LayerNorm:
    return LayerNorm(width, eps=model.config.norm_eps).to(_device(model))


def _device(model: Model) -> torch.device:
    return _stack(model).token_embedding.weight.device
