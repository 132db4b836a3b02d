"""What a model keeps between the calls that continue one batch of sequences."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.models.places import Places
from measured_transformer.parts.cache import KeyValues


class KeyValueCache:
    """The keys and values of every layer, and where the tokens stand that they belong to.

    Make one with `model.make_cache()` and hand it to every call of the model, together with the tokens that
    come next, one or many. It belongs to one batch; start a new one for another.

    Attributes:
        layers: of self-attention, one for each block.
        cross_layers: of cross-attention; empty where a model has none.
        places: positions and padding of the tokens so far; None before the first call.
        memory: the encoder's final state, kept by an `EncoderDecoder`.
    """

    def __init__(self, n_layers: int, *, cross_attention: bool = False, capacity: int = 0) -> None:
        """Make an empty cache with room for `capacity` positions at first."""
        self.layers = tuple(KeyValues(capacity) for _ in range(n_layers))
        self.cross_layers = tuple(KeyValues() for _ in range(n_layers if cross_attention else 0))
        self.places: Places | None = None
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
        """Forget what an interrupted call has left in some layers, so that the next can take its place."""
        held = 0 if self.places is None else self.places.keys.shape[-1]
        for layer in self.layers:
            layer.cut(held)
        if not held:
            for layer in self.cross_layers:
                layer.cut(0)

    def select(self, rows: Int[Tensor, "batch"]) -> None:
        """Keep these rows of the batch, in this order; a row may come more than once (beam search)."""
        for layer in (*self.layers, *self.cross_layers):
            layer.select(rows)
        if self.memory is not None:
            self.memory = self.memory[rows]
        if self.places is not None and self.places.keys.ndim == 2:
            real = None if self.places.real is None else self.places.real[rows]
            queries, keys = self.places.queries[rows], self.places.keys[rows]
            self.places = replace(self.places, queries=queries, keys=keys, real=real)
