r"""Routers of experts in training: losses that act on their scores, a fixed table in their place, and blocks.

A model whose `Config.network` is `parts.experts.Experts` has no loss but its own. `RouterLosses` adds two: the
balancing loss of Switch, and the z-loss $\frac1N \sum (\ln \sum_e e^{z_e})^2$ over N tokens, which keeps the
scores z small. `ByToken` takes away the router: the token at a position decides, by a table that nobody learns.
`ExpertsInBlocks` is the same network as `Experts`, computed for many experts at once.

Sources: Fedus, Zoph and Shazeer (2022), "Switch Transformers"; Zoph et al. (2022), "ST-MoE", for the z-loss;
Roller et al. (2021), "Hash Layers For Large Sparse Models", for the table; Gale et al. (2023), "MegaBlocks",
for blocks of tokens that have one expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.experts import Experts, MixtureOfExperts, most_likely
from measured_transformer.parts.feedforward import is_gated
from measured_transformer.training.loop import Model
from measured_transformer.variants.experts import _WithLoss, balance_loss

BLOCK = 32
"""Positions that are computed together and have the same expert."""

# Losses -------------------------------------------------------------------------------------------


def z_loss(logits: Float[Tensor, "*token expert"]) -> Float[Tensor, ""]:
    r"""Mean square of $\ln \sum_e e^{z_e}$, without its factor.

    >>> round(z_loss(torch.zeros(5, 8)).item(), 4)  # the square of ln 8
    4.3241
    """
    return logits.logsumexp(-1).square().mean()


@dataclass(frozen=True)
class RouterLosses:
    """Preparation for training: losses on the scores of every router of `parts.experts`.

    They are handed to the gradients alone: what the loop records stays the loss of the model.

    Attributes:
        balance: factor of the balancing loss of each layer; the probabilities in it are the scores over their
            sum, so that sigmoids have one too.
        z: factor of the z-loss of each layer.
        frozen: whether routers keep their initial weights. What they read is still trained.

    Raises:
        ValueError: when a factor is negative.
    """

    balance: float = 0.0
    z: float = 0.0
    frozen: bool = False

    def __post_init__(self) -> None:
        if self.balance < 0 or self.z < 0:
            raise ValueError(
                f"factors must not be negative, got balance={self.balance} and z={self.z}"
            )

    def __call__(self, model: Model) -> None:
        """Have the routers add the gradients of these losses to those of their scores.

        Raises:
            ValueError: when the model has no experts.
        """
        for layer in _layers(model):
            layer.router.weight.requires_grad_(not self.frozen)
            layer.router.register_forward_hook(_Losses(layer.settings, self))


class _Losses:
    """Lets the logits of a router through, with the gradients of further losses on the way back."""

    def __init__(self, settings: Experts, rules: RouterLosses) -> None:
        self.settings, self.rules = settings, rules

    def __call__(self, router: nn.Module, inputs: object, logits: Tensor) -> Tensor:
        if not (router.training and torch.is_grad_enabled()):
            return logits
        flat = logits.flatten(0, -2)
        scores = flat.softmax(-1) if self.settings.scores == "softmax" else flat.sigmoid()
        asked = most_likely(scores.detach(), self.settings.per_token)
        loss = self.rules.balance * balance_loss(scores / scores.sum(-1, keepdim=True), asked)
        if self.rules.z:
            loss = loss + self.rules.z * z_loss(flat)
        added: Tensor = _WithLoss.apply(logits, loss)  # type: ignore[no-untyped-call]
        return added


# A table ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByToken:
    """Preparation for training: the token at a position decides which experts it asks, by a table a layer.

    The experts of a token are those that the router, as it was drawn, scores highest for the token's vector, as
    it was drawn; they are weighted alike. Neither depends on the text, and nothing of it is trained.
    """

    def __call__(self, model: Model) -> None:
        """Put tables in the place of the routers.

        Raises:
            ValueError: when the model is no decoder, or has no experts.
        """
        if not isinstance(model, Decoder):
            raise ValueError(f"expected a Decoder, got {type(model).__name__}")
        tables = []
        for layer in _layers(model):
            scores = layer.router(model.token_embedding.weight.detach()).detach()
            tables.append(Table(most_likely(scores, layer.settings.per_token)))
            layer.router = tables[-1]  # type: ignore[assignment]
        model.register_forward_pre_hook(_Tell(tables), with_kwargs=True)


class Table(nn.Module):
    """Logits by token: zero for the experts that a token asks, and none for the others."""

    def __init__(self, asked: Tensor) -> None:
        """Keep which experts each token asks: (token, expert), true or false."""
        super().__init__()
        logits = torch.zeros(asked.shape).masked_fill(~asked, -1e4)
        self.logits = nn.Parameter(logits, requires_grad=False)
        self.tokens: Tensor | None = None

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """The logits of the tokens that the model was called with."""
        assert self.tokens is not None
        return self.logits[self.tokens]


class _Tell:
    """Tells tables which tokens a model is called with."""

    def __init__(self, tables: list[Table]) -> None:
        self.tables = tables

    def __call__(self, model: nn.Module, args: Any, given: dict[str, Any]) -> None:
        tokens = args[0] if args else given["tokens"]
        for table in self.tables:
            table.tokens = tokens


def _layers(model: Model) -> Iterator[MixtureOfExperts]:
    found = [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
    if not found:
        raise ValueError("expected a model whose network is parts.experts.Experts")
    yield from found


# Blocks -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpertsInBlocks(Experts):
    """The same as `Experts`, for plain experts without biases, computed for all experts at once.

    Positions are sorted by the expert that they ask and put into blocks, the last one of each expert filled up.
    A block is multiplied by the matrices of its expert: one product of stacked matrices for all blocks, where
    `Experts` has two products for each expert, and so the time hardly depends on how many experts there are.

    >>> from measured_transformer.models.config import Config
    >>> config = Config(vocab=5, d_model=8, n_heads=2, n_layers=1, bias=False, activation="gelu")
    >>> x = torch.randn(2, 7, 8)
    >>> outs = []
    >>> for kind in (Experts, ExpertsInBlocks):
    ...     _ = torch.manual_seed(0)
    ...     layer = kind(n_experts=4, per_token=2, width=3).make(config)
    ...     outs.append(layer(x))
    >>> bool(torch.allclose(*outs))
    True

    Raises:
        ValueError: when experts are gated or have biases.
    """

    def make(self, config: Any) -> MixtureOfExperts:
        """The module."""
        return MixtureInBlocks(
            config.d_model,
            self.neurons(config),
            self,
            activation=config.activation,
            bias=config.ffn_has_bias,
        )

    def check(self, config: Any) -> None:
        """Raise ValueError when experts are gated or have biases."""
        super().check(config)
        if is_gated(config.activation) or config.ffn_has_bias:
            raise ValueError("blocks are for experts without gate and biases")


class MixtureInBlocks(MixtureOfExperts):
    """`MixtureOfExperts` whose experts compute their positions in blocks of one shape."""

    def _by_asked(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """What the asked experts write: (token, d_model)."""
        asked = chosen.detach() != 0
        n = asked.shape[1]
        experts, tokens = asked.t().nonzero(as_tuple=True)  # by expert
        counts = asked.sum(0)
        blocks = (counts + BLOCK - 1) // BLOCK
        shift = BLOCK * (blocks.cumsum(0) - blocks) - (counts.cumsum(0) - counts)
        places = torch.arange(len(experts), device=x.device) + shift[experts]
        owners = torch.arange(n, device=x.device).repeat_interleave(blocks)
        rows = tokens.new_zeros(len(owners) * BLOCK).index_put((places,), tokens)
        given = x.index_select(0, rows).view(len(owners), BLOCK, -1)
        up = self.up.weight.view(n, self.width, -1).index_select(0, owners)
        down = self.down.weight.t().reshape(n, self.width, -1).index_select(0, owners)
        neurons = self.activate(given @ up.transpose(1, 2))
        written = (neurons @ down).flatten(0, 1).index_select(0, places)
        written = written * weights[tokens, experts].unsqueeze(-1)
        return torch.zeros_like(x).index_add(0, tokens, written.to(x.dtype))
