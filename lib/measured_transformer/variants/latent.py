r"""Multi-head latent attention: keys and values of all heads are made from one short vector, which is kept.

$c_j = x_j W_{DKV}$ is the latent. Head h reads its keys and values off it, $k_j = c_j W_{UK}^h$ and
$v_j = c_j W_{UV}^h$. As a rotation would stand between $W_{UK}$ and the query, a second, narrow key tells the
place: $r_j$ is turned by its position and shared by all heads, whose queries have as many further entries.

Source: DeepSeek-AI (2024), "DeepSeek-V2", section 2.1, without its compression of queries and without the norm
on the latent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
    causal_mask,
    fused_attention,
)
from measured_transformer.parts.block import Block
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model
from measured_transformer.training.seeding import seeded


class LatentAttention(nn.Module):
    """Multi-head latent attention in the place of `MultiHeadAttention`, with the same output projection.

    A token leaves behind `rank + d_rotary` numbers, whatever the number of heads.

    Taps: `latent` (batch position rank) and `out` (batch position d_model).
    """

    def __init__(self, old: MultiHeadAttention, *, rank: int, d_rotary: int = 0) -> None:
        """Draw fresh projections by Xavier's rule, as wide as those of the sublayer that is replaced.

        Equal sublayers are replaced by equal ones: the seed of the draw comes from the weights replaced.

        Args:
            old: gives its sizes and its output projection.
            rank: numbers of the latent.
            d_rotary: width of the key that is turned, an even divisor of the width of a head; 0: there is none.

        Raises:
            ValueError: when the rank is not positive or `d_rotary` does not fit.
        """
        super().__init__()
        if rank < 1:
            raise ValueError(f"expected a positive rank, got {rank}")
        if d_rotary < 0 or d_rotary % 2 or (d_rotary and old.d_head % d_rotary):
            raise ValueError(
                f"expected d_rotary to be even and to divide d_head={old.d_head}, got {d_rotary}"
            )
        bias = old.output.bias is not None
        self.n_heads, self.d_head = old.n_heads, old.d_head
        self.rank, self.d_rotary = rank, d_rotary
        width = self.n_heads * self.d_head
        self.query = Linear(old.d_model, self.n_heads * (self.d_head + d_rotary), bias=bias)
        self.down = Linear(old.d_model, rank, bias=bias)
        self.up_key = Linear(rank, width, bias=False)
        self.up_value = Linear(rank, width, bias=False)
        self.rotary_key = Linear(old.d_model, d_rotary, bias=bias) if d_rotary else None
        with seeded(_seed_of(old.query.weight)):
            for layer in (self.query, self.down, self.up_key, self.up_value, self.rotary_key):
                if layer is not None:
                    nn.init.xavier_uniform_(layer.weight)
                    if layer.bias is not None:
                        nn.init.zeros_(layer.bias)
        self.output = old.output
        self.latent, self.out = Tap(), Tap()

    def forward(
        self,
        x: Float[Tensor, "batch position d_model"],
        *,
        causal: bool = False,
        rotation: Rotation | None = None,
        **other: Any,
    ) -> Float[Tensor, "batch position d_model"]:
        """What the sublayer writes to the stream, with keys and values of every head made from the latent.

        Raises:
            ValueError: when there is a rotation and no key to be turned or the reverse, or anything else is
                given that attention can take.
        """
        asking, turned_asking, turned_key = self._asked(x, rotation, other)
        latent = self.latent(self.down(x))
        keys, values = (
            layer(latent).unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)
            for layer in (self.up_key, self.up_value)
        )
        if turned_key is not None and turned_asking is not None:
            asking = torch.cat((asking, turned_asking), -1)
            keys = torch.cat((keys, turned_key.expand_as(turned_asking)), -1)
        # The kernel takes values as wide as keys: what is missing is filled with zeros and cut off again.
        mixed = fused_attention(asking, keys, _widened(values, keys.shape[-1]), causal=causal)
        return self.out(self.output(mixed[..., : self.d_head].transpose(1, 2).flatten(2)))

    def absorbed(
        self,
        x: Float[Tensor, "batch position d_model"],
        *,
        causal: bool = False,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "batch position d_model"]:
        r"""The same from the latents alone: no key and no value of any head is ever made.

        $q\,(c\,W_{UK})^\top = (q\,W_{UK}^\top)\,c^\top$: what makes the keys goes to the query. Weights mix
        latents, and what makes the values comes after the mixture. All heads have the same key and value, c.

        Raises:
            ValueError: as `forward`.
        """
        asking, turned_asking, turned_key = self._asked(x, rotation, {})
        latent = self.down(x)[:, None].expand(-1, self.n_heads, -1, -1)  # one for all heads
        by_head = self.up_key.weight.unflatten(0, (self.n_heads, self.d_head))
        scale = (self.d_head + self.d_rotary) ** -0.5
        scores = attention_scores(
            torch.einsum("bhqe,her->bhqr", asking, by_head), latent, scale=scale
        )
        if turned_key is not None and turned_asking is not None:
            scores = scores + attention_scores(
                turned_asking, turned_key.expand_as(turned_asking), scale=scale
            )
        mask = causal_mask(x.shape[1], device=x.device) if causal else None
        mixed = attend(attention_pattern(scores, mask=mask), latent)
        by_head = self.up_value.weight.unflatten(0, (self.n_heads, self.d_head))
        values = torch.einsum("bhqr,her->bhqe", mixed, by_head)
        written: Tensor = self.output(values.transpose(1, 2).flatten(2))
        return written

    def _asked(
        self, x: Tensor, rotation: Rotation | None, other: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Queries, and where there is a rotation the turned part of queries and the turned key."""
        if given := [name for name, value in other.items() if value is not None]:
            raise ValueError(f"latent attention takes the stream alone, got {', '.join(given)}")
        if (rotation is None) != (self.rotary_key is None):
            raise ValueError(
                f"expected a rotation where there is a key to be turned, got d_rotary={self.d_rotary}"
            )
        queries = self.query(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        if rotation is None or self.rotary_key is None:
            return queries, None, None
        every = self.d_head // self.d_rotary  # of so many pairs one: the angles of a narrower head
        narrow = Rotation(rotation.cos[..., ::every], rotation.sin[..., ::every], rotation.pairing)
        asking, turning = queries.split((self.d_head, self.d_rotary), -1)
        return asking, narrow.apply(turning), narrow.apply(self.rotary_key(x)[:, None])


@dataclass(frozen=True)
class Latent:
    """Preparation for training: latent attention in the place of all self-attention of a decoder or encoder.

    Attributes:
        rank, d_rotary: see `LatentAttention`.
    """

    rank: int
    d_rotary: int = 0

    def __call__(self, model: Model) -> None:
        """Replace the attention sublayers of the model.

        Raises:
            ValueError: when the model is an encoder-decoder, or the numbers do not fit its heads.
        """
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder or an Encoder, got an EncoderDecoder")
        for block in model.blocks:
            assert isinstance(block, Block)
            block.attention = LatentAttention(  # type: ignore[assignment]
                block.attention, rank=self.rank, d_rotary=self.d_rotary
            )


def _seed_of(weight: Tensor) -> int:
    """A number that follows from the bits of some weights."""
    bits = weight.detach().float().flatten()[:64].contiguous().view(torch.int32)
    return int(bits.long().sum()) % 2**31


def _widened(values: Tensor, width: int) -> Tensor:
    return nn.functional.pad(values, (0, width - values.shape[-1]))
