r"""How initial weights and learning rates follow the width: the standard way, and the maximal update (muP).

Width is `d_model`, and the number of heads stays the same, so that heads and feed-forward networks become wider
with it. Both ways are told relative to a base width, where they are the same model with the same learning
rates. With $m$ for the width over the base width, $n$ for the number of inputs of a matrix, and Adam with a
learning rate $\eta$:

- embedding: standard deviation 1 and rate $\eta$ in both ways;
- hidden: $1/\sqrt n$ in both ways; rate $\eta$ in the standard way, $\eta / m$ with the maximal update;
- unembedding: $1/\sqrt n$ and $\eta$ in the standard way, $1/\sqrt{m n}$ and $\eta / m$ in the other.

'hidden' are all matrices of the blocks; those that write to the stream are divided by $\sqrt{2L}$ in
addition, in both ways. Norms have a weight of one and the rate $\eta$.
Scores are multiplied by $1/\sqrt{d_{head}}$ in the standard way and by that over $\sqrt m$ in the other, so
by a constant over $d_{head}$.

Yang and Hu (2021), "Tensor Programs IV"; Yang et al. (2021), "Tensor Programs V", table 3 and definition 4.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import Model

WidthRule = Literal["standard", "maximal-update"]
"""How a model is scaled with its width, see the module."""
_DRAWN = 0.02
"""Standard deviation of the normal weights that the config 'gpt2' draws."""


class Scale(NamedTuple):
    """How a matrix of weights begins, and how fast it moves.

    Attributes:
        deviation: standard deviation of its initial entries, whose mean is zero.
        rate: what Adam's learning rate is multiplied by for it.
    """

    deviation: float
    rate: float


def width_scales(
    d_model: int, base: int, rule: WidthRule, *, d_ff: int, n_layers: int
) -> dict[str, Scale]:
    """The scale of each matrix of a decoder, by the end of its name.

    >>> scales = width_scales(64, 16, "maximal-update", d_ff=256, n_layers=2)
    >>> scales["attention.query"], scales["unembedding"]
    (Scale(deviation=0.125, rate=0.25), Scale(deviation=0.0625, rate=0.25))

    Raises:
        ValueError: when a size is not positive, or there is no such rule.
    """
    if min(d_model, base, d_ff, n_layers) < 1:
        raise ValueError(f"expected positive sizes, got {(d_model, base, d_ff, n_layers)}")
    if rule not in get_args(WidthRule):
        raise ValueError(f"rule must be one of {', '.join(get_args(WidthRule))}, got {rule!r}")
    m = d_model / base if rule == "maximal-update" else 1.0
    write = 1 / math.sqrt(2 * n_layers)
    inside = Scale(d_model**-0.5, 1 / m)
    return {
        "token_embedding": Scale(1.0, 1.0),
        "attention.query": inside,
        "attention.key": inside,
        "attention.value": inside,
        "attention.output": Scale(write * d_model**-0.5, 1 / m),
        "feedforward.up": inside,
        "feedforward.down": Scale(write * d_ff**-0.5, 1 / m),
        "unembedding": Scale((m * d_model) ** -0.5, 1 / m),
    }


@dataclass(frozen=True)
class ScaledByWidth:
    r"""Preparation for training: a decoder whose weights and learning rates follow its width by a rule.

    An optimiser with one learning rate is enough. A matrix $W$ that should move at $r \eta$ is kept as
    $W / r$, and its output is multiplied by $r$: Adam moves what is kept by $\eta$ whatever the gradient's
    size, and so $W$ by $r \eta$. This is exact when Adam's epsilon is zero or too small to matter, and when
    gradients are not clipped by their common length. (A forward hook multiplies. Whoever asks for
    the tap `head_outputs` gets them without the factor.)

    Attributes:
        rule: 'standard' or 'maximal-update'.
        base: the width at which both rules are the same.
        kept_whole: True to keep matrices as they are and multiply nothing: then the learning rates must come
            from `parameter_groups`.

    Raises:
        ValueError: when the base is not positive, or there is no such rule.
    """

    rule: WidthRule
    base: int
    kept_whole: bool = False

    def __post_init__(self) -> None:
        width_scales(self.base, self.base, self.rule, d_ff=1, n_layers=1)

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Scale the freshly drawn weights of the model, and have outputs multiplied.

        Raises:
            ValueError: for a model that is no `Decoder`, was not drawn by the config 'gpt2', has biases, gates,
                tied or learned embeddings of positions, or fewer key-value heads than heads.
        """
        decoder = _checked(model)
        config = decoder.config
        drawn_write = _DRAWN / math.sqrt(2 * config.n_layers)
        for name, part, scale in _matrices(decoder, self.rule, self.base):
            drawn = drawn_write if name in ("attention.output", "feedforward.down") else _DRAWN
            kept = 1.0 if self.kept_whole else scale.rate
            part.get_parameter("weight").mul_(scale.deviation / kept / drawn)
            if kept != 1:
                part.register_forward_hook(_Multiplied(kept))
        m = config.d_model / self.base if self.rule == "maximal-update" else 1.0
        for block in decoder.blocks:
            assert isinstance(block, Block)
            block.attention.scale = 1 / math.sqrt(config.head_width * m)

    def parameter_groups(
        self, model: Decoder, learning_rate: float
    ) -> list[dict[str, list[nn.Parameter] | float]]:
        """What to give to `torch.optim.Adam` for a model that is kept whole: each group with its own rate."""
        groups: dict[float, list[nn.Parameter]] = {}
        rates = {
            id(part.get_parameter("weight")): scale.rate
            for _, part, scale in _matrices(model, self.rule, self.base)
        }
        for parameter in model.parameters():
            groups.setdefault(rates.get(id(parameter), 1.0), []).append(parameter)
        return [{"params": found, "lr": rate * learning_rate} for rate, found in groups.items()]


@dataclass(frozen=True)
class _Multiplied:
    by: float

    def __call__(self, part: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return output * self.by


def _matrices(model: Decoder, rule: WidthRule, base: int) -> list[tuple[str, nn.Module, Scale]]:
    """Every matrix of a decoder: the end of its name, what holds it, and its scale."""
    config = model.config
    scales = width_scales(config.d_model, base, rule, d_ff=config.neurons, n_layers=config.n_layers)
    return [
        (end, part, scale)
        for name, part in model.named_modules()
        for end, scale in scales.items()
        if name.endswith(end)
    ]


def _checked(model: Model) -> Decoder:
    if not isinstance(model, Decoder):
        raise ValueError(f"expected a Decoder, got an {type(model).__name__}")
    config = model.config
    if config.initialisation != "gpt2":
        raise ValueError(f"expected initialisation='gpt2', got {config.initialisation!r}")
    plain = not (config.bias or config.tie_embeddings or config.head_bias or config.token_types)
    inside = config.positions in ("sinusoidal", "rotary", "none") and config.head == "linear"
    heads = (
        config.kv_heads == config.n_heads and config.n_heads * config.head_width == config.d_model
    )
    if not (plain and inside and heads) or any(
        block.feedforward.gate is not None for block in model.blocks if isinstance(block, Block)
    ):
        raise ValueError(
            "expected a decoder without biases, gates, tied or learned embeddings of positions and shared "
            f"keys, whose heads are d_model / n_heads wide; got {config}"
        )
    return model
