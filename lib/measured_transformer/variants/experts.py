r"""A feed-forward layer of experts: many small networks, of which each token uses a few.

A router gives each token a probability for every expert, $p = \text{softmax}(x W_r)$. The `k` most likely ones
are asked, and what they answer is weighted by the router and added up, $\sum_{e \in \text{top } k} g_e
\text{FFN}_e(x)$. So a token pays for k experts, whatever their number.

Here **every expert is computed for every token**, and multiplied by zero where it was not asked. A weight on
a whole expert is a weight on each of its neurons, so the layer is one wide network whose neurons are switched
on in groups. That gives the values and gradients of a layer that computes only what was asked (a sparse kernel
gathers each expert's tokens first), its shapes do not depend on the data, and so it trains in stacks of models
too. It does not save the time: what a sparse kernel would take is counted by `operations`.

Sources: Shazeer et al. (2017), "Outrageously Large Neural Networks"; Lepikhin et al. (2020), "GShard"; Fedus,
Zoph and Shazeer (2022), "Switch Transformers", for k = 1, capacity and the balancing loss; Jiang et al. (2024),
"Mixtral of Experts"; Dai et al. (2024), "DeepSeekMoE", for shared experts; Wang et al. (2024), "Auxiliary-Loss-
Free Load Balancing Strategy for Mixture-of-Experts", for the biases; DeepSeek-AI (2024), "DeepSeek-V3", for
scores that are sigmoids.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.block import Block
from measured_transformer.parts.experts import most_likely
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model
from measured_transformer.training.seeding import seeded

# Routing ------------------------------------------------------------------------------------------


def capacity(tokens: int, experts: int, k: int, factor: float) -> int:
    """How many tokens an expert takes of a batch: `factor` times its even share, rounded up.

    Raises:
        ValueError: when the factor is not positive.

    >>> capacity(tokens=12, experts=4, k=1, factor=1.25)
    4
    """
    if not factor > 0:
        raise ValueError(f"expected a positive capacity factor, got {factor}")
    return math.ceil(round(factor * k * tokens / experts, 9))


def within_capacity(
    chosen: Bool[Tensor, "token expert"], places: int
) -> Bool[Tensor, "token expert"]:
    """Which of the asked experts still have a place: each serves the first `places` tokens that ask it.

    >>> within_capacity(torch.tensor([[True, False], [True, False], [False, True]]), 1).tolist()
    [[True, False], [False, False], [False, True]]
    """
    return chosen & (chosen.long().cumsum(0) <= places)


def balance_loss(
    probabilities: Float[Tensor, "token expert"], chosen: Bool[Tensor, "token expert"]
) -> Float[Tensor, ""]:
    r"""The balancing loss of Switch, $E \sum_e f_e P_e$, without its factor alpha: 1 when all is even.

    $f_e$ is the share of all assignments that went to expert e, $P_e$ the mean probability that the router gave
    it. Only $P_e$ has a gradient. At the other end, all tokens with certainty to one expert, it is E.

    Raises:
        ValueError: when nothing was chosen.

    >>> even = torch.full((4, 2), 0.5)
    >>> balance_loss(even, torch.tensor([[True, False], [False, True]] * 2)).item()
    1.0
    """
    share = chosen.to(probabilities.dtype).mean(0)
    share = share / share.sum()
    return probabilities.shape[-1] * (share * probabilities.mean(0)).sum()


# The layer ----------------------------------------------------------------------------------------


class _WithLoss(torch.autograd.Function):
    """Lets a tensor through unchanged, and adds the gradient of a further loss on the way back.

    So the loop needs not know of that loss, and what it records stays the cross-entropy.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, loss: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(True)
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (loss,) = ctx.saved_tensors
        return gradients[0], torch.ones_like(loss)


class Experts(nn.Module):
    """Experts in the place of one `FeedForward`, with its activation.

    Taps: `probabilities` and `chosen` (batch position expert; the latter 1 where an expert was asked *and* had
    a place), `pre_activation` and `neurons` (batch position neuron, expert after expert, the shared ones last)
    and `out` (batch position d_model).
    """

    def __init__(self, old: FeedForward, routed: Routed) -> None:
        """Draw experts and a router by Xavier's rule, each expert as a network of its own width would be.

        Equal networks are replaced by equal layers: the seed of the draw comes from the weights replaced.

        Args:
            old: gives the width of the stream, the activation, and whether there are biases. The bias of what
                is written is one for all experts.
            routed: sizes and rules.
        """
        super().__init__()
        d_model, bias = old.up.in_features, old.up.bias is not None
        self.routed = routed
        self.activate = old.activate
        neurons = (routed.experts + routed.shared) * routed.width
        self.router = Linear(d_model, routed.experts, bias=False)
        self.up = Linear(d_model, neurons, bias=bias)
        self.gate = None if old.gate is None else Linear(d_model, neurons, bias=bias)
        self.down = Linear(neurons, d_model, bias=bias)
        bound = math.sqrt(6 / (d_model + routed.width))
        with seeded(_seed_of(old.up.weight)):
            nn.init.xavier_uniform_(self.router.weight)
            for layer in (self.up, self.gate, self.down):
                if layer is not None:
                    nn.init.uniform_(layer.weight, -bound, bound)
                    if layer.bias is not None:
                        nn.init.zeros_(layer.bias)
        self.router.weight.requires_grad_(not routed.frozen)
        self.push = nn.Parameter(torch.zeros(routed.experts), requires_grad=False)
        self.probabilities, self.chosen = Tap(), Tap()
        self.pre_activation, self.neurons, self.out = Tap(), Tap(), Tap()

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """What the layer adds to the stream: (batch, position, d_model).

        In training it also hands the gradient of the balancing loss to the router, or moves the biases, if it
        was made to. With a capacity, what a token gets depends on the tokens before it in the batch.
        """
        rules = self.routed
        probabilities = self.probabilities(self.router(x).softmax(-1))
        flat = probabilities.flatten(0, 1)
        asked = most_likely(flat.detach() + self.push, rules.active)
        served = asked
        if rules.capacity_factor is not None:
            places = capacity(len(flat), rules.experts, rules.active, rules.capacity_factor)
            served = within_capacity(asked, places)
        served = self.chosen(served.to(x.dtype).view_as(probabilities))
        weights = probabilities * asked.view_as(probabilities)
        if rules.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = (weights * served).repeat_interleave(rules.width, dim=-1)
        if rules.shared:
            always = torch.ones_like(weights[..., :1]).expand(*x.shape[:-1], -1)
            weights = torch.cat(
                [weights, always.repeat_interleave(rules.shared * rules.width, -1)], -1
            )
        if self.gate is None:
            neurons = self.activate(self.pre_activation(self.up(x)))
        else:
            neurons = self.activate(self.pre_activation(self.gate(x))) * self.up(x)
        written = self.down(self.neurons(neurons * weights))
        if self.training and torch.is_grad_enabled():
            if rules.balance:
                loss = rules.balance * balance_loss(flat, asked)
                written = _WithLoss.apply(written, loss)  # type: ignore[no-untyped-call]
            if rules.push:
                self._move(asked)
        return self.out(written)

    @torch.no_grad()
    def _move(self, asked: Bool[Tensor, "token expert"]) -> None:
        """Raise the bias of experts that are asked too seldom and lower that of the others."""
        load = asked.to(self.push.dtype).mean(0)
        self.push.add_(self.routed.push * (load.mean() - load).sign())


@dataclass(frozen=True)
class Routed:
    """Preparation for training: experts in the place of every feed-forward network.

    Attributes:
        experts: how many there are to choose from.
        width: neurons of each.
        active: how many of them a token asks, k.
        shared: how many further experts every token uses, unweighted and unasked (DeepSeekMoE).
        normalised: whether the weights of the asked experts are divided by their sum, so that they add up to
            one (Mixtral); with one active expert the router would then have no gradient.
        balance: alpha, the factor of the balancing loss of each layer.
        push: how far the biases of choosing move in a training step, which keep the load even without a loss
            (Wang et al., 2024). They decide who is asked and never the weights.
        capacity_factor: places of an expert in a batch, in units of its even share; None for as many as ask.
        frozen: whether the router keeps its initial weights.

    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> model = Decoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
    >>> Routed(experts=4, width=16)(model)
    >>> model.blocks[0].feedforward.router.weight.shape
    torch.Size([4, 8])

    Raises:
        ValueError: when a size or a factor does not fit, or a router could not learn: `normalised` with one
            active expert, unless it is frozen.
    """

    experts: int
    width: int
    active: int = 1
    shared: int = 0
    normalised: bool = False
    balance: float = 0.0
    push: float = 0.0
    capacity_factor: float | None = None
    frozen: bool = False

    def __post_init__(self) -> None:
        if min(self.experts, self.width) < 1 or self.shared < 0:
            raise ValueError(
                "expected at least one expert of at least one neuron and no negative number of shared ones, "
                f"got experts={self.experts}, width={self.width} and shared={self.shared}"
            )
        if not 1 <= self.active <= self.experts:
            raise ValueError(
                f"expected active between 1 and {self.experts} experts, got {self.active}"
            )
        if self.capacity_factor is not None and not self.capacity_factor > 0:
            raise ValueError(f"expected a positive capacity_factor, got {self.capacity_factor}")
        if self.balance < 0 or self.push < 0:
            raise ValueError(
                f"factors must not be negative, got balance={self.balance} and push={self.push}"
            )
        if self.normalised and self.active == 1 < self.experts and not self.frozen:
            raise ValueError(
                "with one active expert a normalised weight is 1, and the router has no gradient"
            )

    def __call__(self, model: Model) -> None:
        """Replace the networks of the model.

        Raises:
            ValueError: when the model is an encoder-decoder.
        """
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder or an Encoder, got an EncoderDecoder")
        for block in model.blocks:
            assert isinstance(block, Block)
            block.feedforward = Experts(block.feedforward, self)  # type: ignore[assignment]


@dataclass(frozen=True)
class SigmoidRouted(Routed):
    r"""The same with scores that are sigmoids, each for itself, as DeepSeek-V3 has them (2024).

    Probabilities are sigmoids divided by their sum, $p_e = \sigma(x w_e) / \sum_{e'} \sigma(x w_{e'})$. Where
    weights are `normalised`, each asked expert is weighted by its sigmoid over the sum of those asked.

    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> model = Decoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
    >>> SigmoidRouted(experts=4, width=16)(model)
    >>> router = model.blocks[0].feedforward.router
    >>> bool((router(torch.ones(1, 8)) < 0).all())
    True
    """

    def __call__(self, model: Model) -> None:
        """Replace the networks of the model, as `Routed` does."""
        super().__call__(model)
        assert not isinstance(model, EncoderDecoder)
        for block in model.blocks:
            layer = block.feedforward
            assert isinstance(layer, Experts)
            layer.router.register_forward_hook(_log_sigmoid)


def _log_sigmoid(router: nn.Module, inputs: object, output: Tensor) -> Tensor:
    """Logarithms of sigmoids: their softmax is the sigmoids over their sum."""
    return nn.functional.logsigmoid(output)


def operations(
    d_model: int,
    width: int,
    *,
    experts: int = 1,
    active: int = 1,
    shared: int = 0,
    gated: bool = False,
    dense: bool = False,
) -> int:
    """Operations of a token in the forward pass: two for a multiplication and its addition, matrices alone.

    With one expert there is no router, and the layer is a plain network.

    Args:
        d_model: width of the stream.
        width: neurons of an expert.
        experts, active, shared, gated: see `Routed`; a gate is a third matrix.
        dense: when every expert is computed, as `Experts` does it; otherwise by a sparse kernel.

    >>> operations(8, 32), operations(8, 32, experts=16), operations(8, 32, experts=16, dense=True)
    (1024, 1280, 16640)
    """
    used = (experts if dense else active) + shared
    router = 2 * d_model * experts if experts > 1 else 0
    return used * 2 * (3 if gated else 2) * d_model * width + router


def _seed_of(weight: Tensor) -> int:
    """A number that follows from the bits of some weights."""
    bits = weight.detach().float().flatten()[:64].contiguous().view(torch.int32)
    return int(bits.long().sum()) % 2**31
