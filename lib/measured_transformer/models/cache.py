"""The state that a model keeps between calls that continue one batch of sequences."""

from __future__ import annotations

import dataclasses

from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.models.token_positions import TokenPositions
from measured_transformer.parts.cache import KeyValues


class KeyValueCache:
    """The keys and values of every layer, with the positions of their tokens.

    Make one with `model.make_cache()` and hand it to every call of the model, together with the tokens that
    come next, one or many. It belongs to one batch; start a new one for another.

    Attributes:
        layers: of self-attention, one for each block.
        cross_layers: of cross-attention; empty where a model has none.
        positions: where the tokens so far stand, and which of them are padding; None before the first call.
        memory: the encoder's final state, kept by an `EncoderDecoder`.
    """

    def __init__(self, n_layers: int, *, cross_attention: bool = False, capacity: int = 0) -> None:
        """Make an empty cache with room for `capacity` positions at first."""
        self.layers = tuple(KeyValues(capacity) for _ in range(n_layers))
        self.cross_layers = tuple(KeyValues() for _ in range(n_layers if cross_attention else 0))
        self.positions: TokenPositions | None = None
        self.memory: Float[Tensor, "batch memory d_model"] | None = None

    @property
    def length(self) -> int:
        """Number of positions held, padding included."""
        return self.layers[0].length

    @property
    def bytes(self) -> int:
        """Bytes of all keys and values held.

        Self-attention: 2 · layers · batch · key-value heads · length · d_head · bytes of a number; as much
        again for cross-attention, with the memory's length.
        """
        return sum(layer.bytes for layer in (*self.layers, *self.cross_layers))

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the buffers, room for later positions included."""
        return sum(layer.reserved_bytes for layer in (*self.layers, *self.cross_layers))

    def drop_unfinished(self) -> None:
        """Drop what an interrupted call left in some layers, so that the next call can repeat it."""
        held = 0 if self.positions is None else self.positions.keys.shape[-1]
        for layer in self.layers:
            layer.crop(held)
        if not held:
            for layer in self.cross_layers:
                layer.crop(0)

    def reorder(self, rows: Int[Tensor, "batch"]) -> None:
        """Keep these rows of the batch, in this order; a row may come more than once (beam search)."""
        for layer in (*self.layers, *self.cross_layers):
            layer.reorder(rows)
        if self.memory is not None:
            self.memory = self.memory[rows]
        if self.positions is not None and self.positions.keys.ndim == 2:
            mask = self.positions.padding_mask
            queries, keys = self.positions.queries[rows], self.positions.keys[rows]
            self.positions = dataclasses.replace(
                self.positions,
                queries=queries,
                keys=keys,
                padding_mask=None if mask is None else mask[rows],
            )
