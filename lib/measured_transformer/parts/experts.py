r"""A mixture of experts: many networks side by side, of which each position asks a few.

A router gives each position a score for every expert, $p = \text{softmax}(x W_r)$. The k best are asked, and
what they answer is weighted by the scores and added up, $\sum_{e \in \text{top } k} g_e \text{FFN}_e(x)$.
Where the weights are `normalised`, they are a softmax over the asked experts alone: it is the same whether that
is taken of their logits (gpt-oss) or the softmax over all is divided by the sum of what was asked (Mixtral).

Every expert computes only the positions that ask it. As soon as somebody looks at neurons, or a transform of
`torch.func` is at work, whose shapes cannot depend on the data, all are computed for all positions, and
multiplied by zero where they were not asked. Both are the same function.

Sources: Shazeer et al. (2017), "Outrageously Large Neural Networks"; Jiang et al. (2024), "Mixtral of Experts";
Dai et al. (2024), "DeepSeekMoE", for shared experts; DeepSeek-AI (2024), "DeepSeek-V2" and "DeepSeek-V3", for
groups and the bias of the choice; OpenAI (2025), "gpt-oss-120b & gpt-oss-20b Model Card", for the clamped gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from measured_transformer.parts.feedforward import (
    Activation,
    FeedForward,
    activation_function,
    is_gated,
)
from measured_transformer.parts.kernels.linear import Linear, linear
from measured_transformer.parts.networks import Network, network_parameters, network_products
from measured_transformer.parts.tap import Tap


@dataclass(frozen=True)
class Clamp:
    r"""gpt-oss's gate: $(u + 1)\, g\, \sigma(\text{slope} \cdot g)$ with both held within a limit.

    Attributes:
        limit: the gate g is at most this, u lies between minus and plus this.
        slope: factor under the sigmoid.

    >>> Clamp(limit=2.0, slope=1.0)(torch.tensor([9.0]), torch.tensor([9.0]))
    tensor([5.2848])
    """

    limit: float = 7.0
    slope: float = 1.702

    def __call__(self, gate: Float[Tensor, "..."], up: Float[Tensor, "..."]) -> Tensor:
        """The neurons, from the gate before its activation and what it stands on."""
        gate = gate.clamp(max=self.limit)
        up = up.clamp(min=-self.limit, max=self.limit)
        return (up + 1) * gate * (self.slope * gate).sigmoid()


@dataclass(frozen=True)
class Experts(Network):
    """A mixture of experts in the place of the network, for `Config.network`.

    Attributes:
        n_experts: how many there are to choose from.
        per_token: how many of them each position asks.
        width: neurons of each; `d_ff` of the config when None.
        shared_width: neurons of one more network that every position uses; 0: there is none.
        shared_gate: whether what that one writes is multiplied by a sigmoid of the position (Qwen 2).
        scores: 'softmax' over all experts, or the 'sigmoid' of each by itself (DeepSeek-V3).
        normalised: whether the weights of the asked experts are divided by their sum.
        weight_scale: factor on those weights.
        router_bias: whether the router has a bias.
        choice_bias: whether the choice goes by the scores plus a number for each expert, which is not trained
            by gradients and has no part in the weights.
        groups, asked_groups: the experts, in order, form so many groups, and those of the best groups alone
            can be asked.
        group_best: a group is as good as the sum of its so many best scores.
        clamp: holds gate and neurons within a limit; for gated activations, whose function it replaces.

    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> config = Config(vocab=10, d_model=16, network=Experts(n_experts=8, per_token=2, width=24))
    >>> Decoder(config).blocks[0].feedforward.router.weight.shape
    torch.Size([8, 16])
    """

    n_experts: int
    per_token: int
    width: int | None = None
    shared_width: int = 0
    shared_gate: bool = False
    scores: Literal["softmax", "sigmoid"] = "softmax"
    normalised: bool = False
    weight_scale: float = 1.0
    router_bias: bool = False
    choice_bias: bool = False
    groups: int = 1
    asked_groups: int = 1
    group_best: int = 1
    clamp: Clamp | None = None

    def __post_init__(self) -> None:
        """Check sizes and choices.

        Raises:
            ValueError: when a size is not positive, more is asked than there is, or a choice is unknown.
        """
        sizes = ("n_experts", "per_token", "groups", "asked_groups", "group_best", "shared_width")
        for name in (*sizes, *(("width",) if self.width is not None else ())):
            value, least = getattr(self, name), 0 if name == "shared_width" else 1
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise ValueError(f"{name} must be a whole number from {least} on, got {value!r}")
        for name in ("shared_gate", "normalised", "router_bias", "choice_bias"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if isinstance(self.weight_scale, bool) or not isinstance(self.weight_scale, Real):
            raise ValueError(f"weight_scale must be a number, got {self.weight_scale!r}")
        if self.scores not in ("softmax", "sigmoid"):
            raise ValueError(f"scores must be 'softmax' or 'sigmoid', got {self.scores!r}")
        if self.clamp is not None and not isinstance(self.clamp, Clamp):
            raise ValueError(f"clamp must be a Clamp or None, got {type(self.clamp).__name__}")
        if self.n_experts % self.groups:
            raise ValueError(
                f"groups must divide n_experts={self.n_experts}, got groups={self.groups}"
            )
        each = self.n_experts // self.groups
        if self.asked_groups > self.groups or self.group_best > each:
            raise ValueError(
                f"expected at most {self.groups} asked_groups and a group_best of at most {each}, got "
                f"asked_groups={self.asked_groups} and group_best={self.group_best}"
            )
        if self.per_token > each * self.asked_groups:
            raise ValueError(
                f"per_token must be at most {each * self.asked_groups}, the number of experts that can be "
                f"asked, got {self.per_token}"
            )
        if self.shared_gate and not self.shared_width:
            raise ValueError("shared_gate needs a shared network, got shared_width=0")

    def neurons(self, config: Any) -> int:
        """Neurons of each expert."""
        return int(config.neurons) if self.width is None else self.width

    def make(self, config: Any) -> MixtureOfExperts:
        """The module."""
        return MixtureOfExperts(
            config.d_model,
            self.neurons(config),
            self,
            activation=config.activation,
            bias=config.ffn_has_bias,
        )

    def parameters(self, config: Any) -> int:
        """The number of its parameters."""
        router = config.d_model + self.router_bias + self.choice_bias
        count = self.n_experts * (router + network_parameters(config, self.neurons(config)))
        if self.shared_width:
            count += network_parameters(config, self.shared_width)
        return int(count + config.d_model * self.shared_gate)

    def products(self, config: Any) -> int:
        """Multiplications in matrix products for one position, of the experts that it asks."""
        asked = self.per_token * network_products(config, self.neurons(config))
        shared = network_products(config, self.shared_width) if self.shared_width else 0
        return int(asked + shared + config.d_model * (self.n_experts + self.shared_gate))

    def check(self, config: Any) -> None:
        """Raise ValueError when there is a clamp and no gate."""
        if self.clamp is not None and not is_gated(config.activation):
            raise ValueError(f"clamp is for gated activations, got {config.activation!r}")


class MixtureOfExperts(nn.Module):
    """Experts and their router, with a network that every position uses where there is one.

    The weights of all experts lie side by side, as those of one wide network: rows `e * width` to
    `(e + 1) * width` of `up.weight` and `gate.weight`, and these columns of `down.weight`, belong to expert e.
    `down_bias` (expert, d_model) holds the biases of what each expert writes.

    Taps: `probabilities` (batch position expert; what the router gives each), `chosen` (batch position expert;
    1 where an expert is asked, else 0), `pre_activation` and `neurons` (batch position neuron, expert after
    expert; of gated forms the gate before its activation, and the neurons times the weight of their expert)
    and `out` (batch position d_model); those of the network that all use under `shared`.
    """

    def __init__(
        self,
        d_model: int,
        width: int,
        settings: Experts,
        *,
        activation: Activation = "swiglu",
        bias: bool = False,
    ) -> None:
        """Make router and experts.

        Args:
            d_model: width of the stream.
            width: neurons of an expert.
            settings: numbers and rules.
            activation, bias: of each expert, as in `FeedForward`.

        Raises:
            ValueError: when the activation is another one or a width is not positive.
        """
        super().__init__()
        if d_model < 1 or width < 1:
            raise ValueError(f"widths must be positive, got d_model={d_model} and width={width}")
        self.activate = activation_function(activation)
        self.activation, self.width, self.settings = activation, width, settings
        n = settings.n_experts
        self.router = Linear(d_model, n, bias=settings.router_bias)
        self.choice_bias = (
            nn.Parameter(torch.zeros(n), requires_grad=False) if settings.choice_bias else None
        )
        self.up = Linear(d_model, n * width, bias=bias)
        self.gate = Linear(d_model, n * width, bias=bias) if is_gated(activation) else None
        self.down = Linear(n * width, d_model, bias=False)
        self.down_bias = nn.Parameter(torch.zeros(n, d_model)) if bias else None
        self.shared: FeedForward | None = None
        if settings.shared_width:
            self.shared = FeedForward(
                d_model, settings.shared_width, activation=activation, bias=bias
            )
        self.shared_gate = Linear(d_model, 1, bias=False) if settings.shared_gate else None
        self.probabilities, self.chosen = Tap(), Tap()
        self.pre_activation, self.neurons, self.out = Tap(), Tap(), Tap()

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """What the network adds to the stream: (batch, position, d_model).

        Raises:
            ValueError: when the width is another than `d_model`.
        """
        if x.shape[-1] != self.up.in_features:
            raise ValueError(
                f"x must have width d_model={self.up.in_features}, got shape {tuple(x.shape)}"
            )
        chosen, weights = self.route(x)
        whole = self.neurons.watched or self.pre_activation.watched or _is_transformed()
        if whole:
            written = self._by_all(x, weights)
        else:
            flat = (one.flatten(0, 1) for one in (x, chosen, weights))
            written = self._by_asked(*flat).view_as(x)
        if self.shared is not None:
            shared = self.shared(x)
            if self.shared_gate is not None:
                shared = self.shared_gate(x).sigmoid() * shared
            written = written + shared
        return self.out(written)

    def route(
        self, x: Float[Tensor, "batch position d_model"]
    ) -> tuple[Float[Tensor, "batch position expert"], Float[Tensor, "batch position expert"]]:
        """Which experts each position asks (1, else 0), and the weight of what they answer (else 0)."""
        rules, logits = self.settings, self.router(x)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        scores = logits.softmax(-1) if rules.scores == "softmax" else logits.sigmoid()
        scores = self.probabilities(scores)
        chosen = self.chosen(self._asked(scores.detach()).to(scores.dtype))
        weights = scores * chosen
        if rules.normalised:
            least = torch.finfo(weights.dtype).tiny  # where nothing was asked the weights stay zero
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=least)
        return chosen, (rules.weight_scale * weights).to(x.dtype)

    def split(self, name: str, parameter: Tensor) -> tuple[Tensor, ...]:
        """The matrices of the single experts in the weight of a projection; other parameters as they are."""
        axis = {"up": 0, "gate": 0, "down": 1}.get(name)
        return (parameter,) if axis is None else parameter.split(self.width, dim=axis)

    def _asked(self, scores: Tensor) -> Tensor:
        rules = self.settings
        ranked = scores if self.choice_bias is None else scores + self.choice_bias
        if rules.asked_groups < rules.groups:
            by_group = ranked.unflatten(-1, (rules.groups, -1))
            best = by_group.topk(rules.group_best, dim=-1).values.sum(-1)
            open_groups = most_likely(best, rules.asked_groups).unsqueeze(-1).expand_as(by_group)
            ranked = ranked.masked_fill(~open_groups.flatten(-2), -torch.inf)
        return most_likely(ranked, rules.per_token)

    def _activated(self, gate: Tensor | None, up: Tensor) -> Tensor:
        if gate is None:
            return self.activate(self.pre_activation(up))
        gate = self.pre_activation(gate)
        clamp = self.settings.clamp
        return self.activate(gate) * up if clamp is None else clamp(gate, up)

    def _by_all(self, x: Tensor, weights: Tensor) -> Tensor:
        """What all experts write to all positions, those that were not asked with weight zero."""
        neurons = self._activated(None if self.gate is None else self.gate(x), self.up(x))
        by_neuron = weights.repeat_interleave(self.width, dim=-1)
        written: Tensor = self.down(self.neurons(neurons * by_neuron))
        return written if self.down_bias is None else written + weights @ self.down_bias

    def _by_asked(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The same, each expert computing only the positions that ask it: (token, d_model)."""
        written = torch.zeros_like(x)
        asked = chosen.detach() != 0
        for e in asked.any(0).nonzero().flatten().tolist():
            tokens = asked[:, e].nonzero().flatten()
            rows = slice(e * self.width, (e + 1) * self.width)
            up, gate = (
                None
                if layer is None
                else linear(
                    x[tokens], layer.weight[rows], None if layer.bias is None else layer.bias[rows]
                )
                for layer in (self.up, self.gate)
            )
            assert up is not None
            bias = None if self.down_bias is None else self.down_bias[e]
            answer = linear(self._activated(gate, up), self.down.weight[:, rows], bias)
            written.index_add_(0, tokens, (answer * weights[tokens, e, None]).to(x.dtype))
        return written


def most_likely(scores: Float[Tensor, "*token expert"], k: int) -> Bool[Tensor, "*token expert"]:
    """Which experts each token asks: those of its k largest scores.

    Raises:
        ValueError: unless k is between 1 and the number of experts.

    >>> most_likely(torch.tensor([[0.1, 0.7, 0.2]]), 2).tolist()
    [[False, True, True]]
    """
    experts = scores.shape[-1]
    if not 1 <= k <= experts:
        raise ValueError(f"expected k between 1 and the number of experts, {experts}, got {k}")
    numbers = torch.arange(experts, device=scores.device)
    places = scores.topk(k, dim=-1).indices
    return (places.unsqueeze(-1) == numbers).any(-2)


def _is_transformed() -> bool:
    """Whether shapes must not depend on data: within `torch.func.vmap` and the like, or while compiling."""
    within = torch._C._functorch.peek_interpreter_stack() is not None
    return within or torch.compiler.is_compiling()
