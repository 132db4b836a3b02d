r"""Where a norm can stand beside the placements of `Config`, and what has been proposed in its place.

Each is made to be given to `train` as its `prepare`: it changes the fresh model in place, and nothing about its
first random weights unless it says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.training.loop import Model


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


def head_norms(model: Model) -> None:
    """Normalise each head's queries and keys before they are multiplied (QK-norm, Henry et al. 2020).

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    width = model.config.head_width
    for block in _blocks(model):
        for projection in (block.attention.query, block.attention.key):
            projection.register_module("head_norm", _norm(model, width))
            projection.register_forward_hook(_by_head)


def _by_head(projection: nn.Module, inputs: object, output: Tensor) -> Tensor:
    norm: Any = projection.get_submodule("head_norm")
    normed: Tensor = norm(output.unflatten(-1, (-1, norm.weight.shape[-1])))
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


@torch.no_grad()
def scaled_branches(model: Model) -> None:
    r"""Divide the matrices that write to the stream by $\sqrt{2L}$: GPT-2's rule, whatever the other weights.

    Radford et al. (2019), section 2.3; L blocks write 2L times.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    blocks = _blocks(model)
    for block in blocks:
        for writer in (block.attention.output, block.feedforward.down):
            writer.weight.mul_((2 * len(blocks)) ** -0.5)


def gated_branches(model: Model) -> None:
    r"""Multiply each branch by a number of its own that is trained and begins at zero: $x + g F(x)$.

    SkipInit (De and Smith 2020) and ReZero (Bachlechner et al. 2021). The weights of F stay as they were drawn.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    for block in _blocks(model):
        for branch in (block.attention, block.feedforward):
            gate = nn.Parameter(torch.zeros(1, device=_device(model)))  # a stack wants an axis
            branch.register_parameter("gate_of_branch", gate)
            branch.register_forward_hook(_through_gate)


def _through_gate(branch: nn.Module, inputs: object, output: Tensor) -> Tensor:
    return dict(branch.named_parameters(recurse=False))["gate_of_branch"] * output


@torch.no_grad()
def t_fixup(model: Model) -> None:
    r"""T-Fixup (Huang et al. 2020) for a stack of L blocks: embeddings times $(9L)^{-1/4}$, branches smaller.

    The value and output matrices of attention and both matrices of the feed-forward network are multiplied by
    $0.67\, L^{-1/4}$, as the paper does in its encoder. The rest of its recipe is the config's: Xavier weights,
    no norm, no warm-up.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    blocks = _blocks(model)
    factor = 0.67 * len(blocks) ** -0.25
    _stack(model).token_embedding.weight.mul_((9 * len(blocks)) ** -0.25)
    for block in blocks:
        attention, feedforward = block.attention, block.feedforward
        for part in (attention.value, attention.output, feedforward.up, feedforward.down):
            part.weight.mul_(factor)


class DynamicTanh(nn.Module):
    r"""$\gamma \tanh(\alpha x) + \beta$, entry by entry, in place of a norm (Zhu et al. 2025).

    Nothing is computed over the entries of a vector: a vector ten times as long comes out longer, up to the
    tanh's ceiling.
    """

    def __init__(self, d_model: int, *, alpha: float = 0.5) -> None:
        """Begin with a weight of one, a bias of zero and this alpha, which is trained as well."""
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor([alpha]))  # of one axis: a stack adds another
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The squashed vectors."""
        squashed: Tensor = torch.tanh(self.alpha * x) * self.weight + self.bias
        return squashed


def tanh_norms(model: Model) -> None:
    """Put a `DynamicTanh` in the place of every norm, the last one included.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    width, device = model.config.d_model, _device(model)
    for block in _blocks(model):
        block.attention_norm = DynamicTanh(width).to(device)
        block.feedforward_norm = DynamicTanh(width).to(device)
    if model.config.has_final_norm:
        _stack(model).register_module("final_norm", DynamicTanh(width).to(device))
