"""The keys and values of one attention layer, kept from one call to the next.

A decoder that continues a sequence needs the keys and values of all earlier positions, but not to compute
them again: they do not depend on what comes later (Shazeer 2019, "Fast Transformer Decoding", section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KeyValues:
    """Keys and values of the positions so far, in buffers that grow by doubling.

    Writing in place is for inference. Where gradients are recorded, each call makes new buffers instead, so
    that gradients reach the earlier positions as well.

    Attributes:
        length: number of positions held.
        keys, values: (batch, head, key, d_head), of key-value heads, the keys after any rotation. Latent
            attention keeps latents and turned keys in their places, see `parts.latent`.
        joined: queries, keys and values by one product, from `MultiHeadAttention.join_projections`; set by
            those who decode with weights that stay as they are.

    >>> past = KeyValues()
    >>> keys, values = past.extend(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
    >>> keys, values = past.extend(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4))
    >>> past.length, tuple(keys.shape)
    (4, (1, 2, 4, 4))
    """

    def __init__(self, capacity: int = 0) -> None:
        """Make an empty cache with room for `capacity` positions at first.

        Raises:
            ValueError: when the capacity is negative.
        """
        if capacity < 0:
            raise ValueError(f"capacity must not be negative, got {capacity}")
        self.capacity, self.length = capacity, 0
        self.joined: Callable[[Tensor], Sequence[Tensor]] | None = None
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def keys(self) -> Float[Tensor, "batch head key d_head"]:
        """All keys so far. Raises ValueError when there are none."""
        return _held(self._keys)[:, :, : self.length]

    @property
    def values(self) -> Float[Tensor, "batch head key d_head"]:
        """All values so far. Raises ValueError when there are none."""
        return _held(self._values)[:, :, : self.length]

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values held: 2 · batch · head · key · d_head · bytes of a number.

        Less with latent attention: batch · key · (rank + d_rotary) · bytes of a number.
        """
        return _bytes(self.keys) + _bytes(self.values) if self.length else 0

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the buffers, room for later positions included."""
        return sum(_bytes(one) for one in (self._keys, self._values) if one is not None)

    def extend(
        self,
        keys: Float[Tensor, "batch head new d_head"],
        values: Float[Tensor, "batch head new d_value"],
    ) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_value"]]:
        """Add those of the next positions and return all so far.

        The result of an earlier call stays what it was: new positions are written behind it.

        Raises:
            ValueError: when batch, heads or width are others than before.
        """
        of_new = keys.shape
        if self._keys is not None and self.length:
            batch, heads, _, d_head = self._keys.shape
            expected = (batch, heads, of_new[2], d_head)
            if of_new != expected:
                raise ValueError(
                    f"this cache expects (batch, head, new, d_head) = {expected}, got "
                    f"{tuple(of_new)}; a cache belongs to one batch of one model"
                )
        self._keys = held_keys = self._extended(self._keys, keys)
        self._values = held_values = self._extended(self._values, values)
        self.length = length = self.length + of_new[2]
        return held_keys[:, :, :length], held_values[:, :, :length]

    def crop(self, length: int) -> None:
        """Keep only the first `length` positions, where there are more."""
        self.length = min(self.length, length)
        if not self.length:
            self._keys = self._values = None

    def reorder(self, rows: Int[Tensor, "batch"]) -> None:
        """Keep these rows of the batch, in this order; a row may come more than once (beam search)."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[rows], self._values[rows]

    def _extended(self, held: Tensor | None, new: Tensor) -> Tensor:
        if torch.is_grad_enabled() and (
            new.requires_grad or (held is not None and held.requires_grad)
        ):
            return new if held is None else torch.cat((held[:, :, : self.length], new), dim=2)
        needed = self.length + new.shape[2]
        if held is None or held.shape[2] < needed:
            batch, heads, _, d_head = new.shape
            room = max(self.capacity, needed if held is None else 2 * held.shape[2], needed)
            grown = new.new_empty(batch, heads, room, d_head)
            if held is not None:
                grown[:, :, : self.length] = held[:, :, : self.length]
            held = grown
        held[:, :, self.length : needed] = new
        return held


def _bytes(held: Tensor) -> int:
    return held.numel() * held.element_size()


def _held(buffer: Tensor | None) -> Tensor:
    if buffer is None:
        raise ValueError("this cache is empty: extend it before reading keys or values")
    return buffer
