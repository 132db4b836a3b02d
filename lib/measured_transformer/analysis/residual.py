r"""The residual stream: what each sublayer writes, how large it is, and what is lost without it.

A *state* is the stream at one place: `states[0]` is the embedding, and one state follows each sublayer
(attention, feed-forward, attention, ...), so a model of L blocks has 2L writes and 2L + 1 states. A *write*
is what a sublayer hands to the addition. "Inside the Transformer everything is a sum of writes" is the view
of Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.analysis.states import of_positions
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.capture import capture
from measured_transformer.internals.places import Places
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import Stack
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator


@dataclass(frozen=True)
class Ledger:
    """The account of one forward pass.

    Attributes:
        names: of the sublayers, in order: `blocks.0.attention`, `blocks.0.feedforward`, ...
        states: the stream before the first sublayer and after each one.
        writes: what each sublayer hands to the addition.
    """

    names: tuple[str, ...]
    states: Float[Tensor, "state batch position d_model"]
    writes: Float[Tensor, "sublayer batch position d_model"]

    @property
    def blocks(self) -> Float[Tensor, "block_state batch position d_model"]:
        """The embedding and the stream after each whole block."""
        return self.states[::2]

    def step_errors(self) -> Float[Tensor, "sublayer"]:
        """Largest entry of |state after - state before - write|, for each sublayer."""
        return (self.states.diff(dim=0) - self.writes).abs().flatten(1).amax(1)

    def sum_error(self) -> float:
        """Largest entry of |last state - embedding - sum of all writes|."""
        return float((self.states[-1] - self.states[0] - self.writes.sum(0)).abs().max())


@takes_text("tokens")
@torch.no_grad()
def ledger(model: Stack, tokens: Int[Tensor, "batch position"]) -> Ledger:
    """Run the model and keep every state of the stream and every write."""
    names = tuple(
        f"blocks.{i}.{part}"
        for i in range(model.config.n_layers)
        for part in ("attention", "feedforward")
    )
    with capture(model, "embedding", "*.out", "*.residual_mid", "*.residual_post") as seen:
        model(tokens)
    after = [
        seen[f"blocks.{i}.{tap}"]
        for i in range(model.config.n_layers)
        for tap in ("residual_mid", "residual_post")
    ]
    return Ledger(
        names,
        torch.stack([seen["embedding"], *after]),
        model.config.residual_scale * torch.stack([seen[f"{name}.out"] for name in names]),
    )


def mean_norm(x: Float[Tensor, "... d_model"]) -> float:
    """Length of the vectors, averaged over everything but their own axis."""
    return float(x.norm(dim=-1).mean())


def stream_norms(
    states: Float[Tensor, "state batch position d_model"], *, positions: Places | None = None
) -> Float[np.ndarray, "state"]:
    """Mean length of the stream at each state.

    Args:
        states: of the stream.
        positions: which the mean is over; all when None. In large models the state of the first token is many
            times as long as all others and decides the mean: `slice(1, None)` leaves it out.

    Raises:
        ValueError: when a position lies outside.
    """
    return _numpy(of_positions(states, positions).norm(dim=-1).mean(dim=(1, 2)))


def write_ratios(
    account: Ledger, *, positions: Places | None = None
) -> Float[np.ndarray, "sublayer"]:
    """Mean length of each write, divided by the mean length of the stream that it is added to.

    Args:
        account: of a forward pass.
        positions: as for `stream_norms`.

    Raises:
        ValueError: when a position lies outside.
    """
    written = of_positions(account.writes, positions).norm(dim=-1).mean(dim=(1, 2))
    return _numpy(written) / stream_norms(account.states, positions=positions)[:-1]


def write_cosines(
    account: Ledger, *, positions: Places | None = None
) -> Float[np.ndarray, "sublayer"]:
    """Mean cosine between each write and the stream it is added to; negative: it erases.

    Args:
        account: of a forward pass.
        positions: as for `stream_norms`.

    Raises:
        ValueError: when a position lies outside.
    """
    writes, states = (of_positions(x, positions) for x in (account.writes, account.states[:-1]))
    return _numpy(F.cosine_similarity(writes, states, dim=-1).mean(dim=(1, 2)))


def token_spread(
    states: Float[Tensor, "state batch position d_model"], *, positions: Places | None = None
) -> Float[np.ndarray, "state"]:
    """Share of the stream's size that differs between the tokens of a sequence.

    The root of sum |x_i - mean|^2 / sum |x_i|^2 over the positions i of a sequence, averaged over
    sequences: about 1 for tokens without anything in common, 0 when all positions hold the same vector.

    Args:
        states: of the stream.
        positions: as for `stream_norms`; mean and sums are over these alone.

    Raises:
        ValueError: when a position lies outside.
    """
    states = of_positions(states, positions)
    apart = (states - states.mean(dim=2, keepdim=True)).square().sum(dim=(2, 3))
    return _numpy((apart / states.square().sum(dim=(2, 3))).sqrt().mean(dim=1))


def random_model(
    seed: int, *, causal: bool = False, **changes: Any
) -> tuple[Decoder | Encoder, Int[Tensor, "batch position"]]:
    """A float64 model of random size with random weights, norms and biases too, and tokens for it.

    For identities that must hold whatever the sizes are.

    Args:
        seed: of the sizes, the weights and the tokens.
        causal: a `Decoder` rather than an `Encoder`.
        changes: fields of the `Config` to set.
    """
    sizes = random.Random(seed)
    heads = sizes.choice([1, 2, 4])
    config = Config(
        vocab=11,
        d_model=8 * sizes.randint(1, 3),
        n_heads=heads,
        n_layers=sizes.randint(1, 4),
    ).replace(**changes)
    model = make_model(config, causal=causal, seed=seed).double().eval()
    draws = make_generator(seed, "random model")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                noise = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
                parameter.add_(0.3 * noise)
    tokens = torch.randint(11, (2, sizes.randint(2, 8)), generator=draws)
    return model, tokens


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()
