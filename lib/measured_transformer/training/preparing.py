"""What is done to a fresh model before it is trained: `train`'s `prepare`, which may draw random numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

Model = Decoder | Encoder | EncoderDecoder


@runtime_checkable
class SeededPreparation(Protocol):
    """A preparation that draws: it is given the seed of the training, and draws from a generator of its own."""

    def __call__(self, model: Any, *, seed: int) -> None:
        """Change the model in place."""


Preparation = Callable[[Model], None] | SeededPreparation
"""A function of the fresh model; where it has a parameter named `seed`, of the training's seed as well."""


def prepare_model(model: Model, prepare: Preparation | None, seed: int) -> None:
    """Let a preparation change a fresh model.

    Args:
        model: on the CPU, with the weights that its seed gave it.
        prepare: what changes it; nothing when None.
        seed: of the training, given to a preparation that has a parameter of this name.

    >>> import torch
    >>> from measured_transformer.models.config import Config
    >>> def noisy(model, *, seed):
    ...     generator = torch.Generator().manual_seed(seed)
    ...     with torch.no_grad():
    ...         model.unembedding.weight.normal_(generator=generator)
    >>> one, other = (Decoder(Config(vocab=4, d_model=8, n_heads=2)) for _ in range(2))
    >>> prepare_model(one, noisy, 7)
    >>> prepare_model(other, noisy, 7)
    >>> bool(torch.equal(one.unembedding.weight, other.unembedding.weight))
    True
    """
    if prepare is None:
        return
    change: Any = prepare
    if takes_seed(prepare):
        change(model, seed=seed)
    else:
        change(model)


def takes_seed(prepare: Preparation) -> bool:
    """Return whether a preparation has a parameter named `seed`."""
    try:
        return "seed" in inspect.signature(prepare).parameters
    except (TypeError, ValueError):  # a function written in C tells no parameters
        return False
