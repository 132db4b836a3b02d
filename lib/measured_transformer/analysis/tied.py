"""Models whose attention has fewer projections: queries, keys and values that share their weights.

The preparation has a file to itself because rates that were tuned with it stay good as long as it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.training.loop import Model

Tie = Literal["none", "qk", "kv", "qkv"]
"""Which projections are one: none, queries and keys, keys and values, or all three."""


@dataclass(frozen=True)
class Tied:
    """Preparation for training: the projections named are one and the same in every attention layer.

    Attributes:
        tie: 'qk', 'kv', 'qkv' or 'none'.

    >>> from measured_transformer.models.encoder import Encoder
    >>> model = Encoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
    >>> Tied("qk")(model)
    >>> model.blocks[0].attention.key is model.blocks[0].attention.query
    True

    Raises:
        ValueError: when there is no such tie.
    """

    tie: Tie

    def __post_init__(self) -> None:
        if self.tie not in get_args(Tie):
            raise ValueError(f"tie must be one of {', '.join(get_args(Tie))}, got {self.tie!r}")

    def __call__(self, model: Model) -> None:
        """Replace the projections of the model.

        Raises:
            ValueError: when queries shall share with keys of which there are fewer heads.
        """
        for layer in model.modules():
            if not isinstance(layer, MultiHeadAttention):
                continue
            if "q" in self.tie and layer.n_kv_heads != layer.n_heads:
                raise ValueError(
                    "queries can share a projection only with as many key heads, got "
                    f"n_heads={layer.n_heads} and n_kv_heads={layer.n_kv_heads}"
                )
            if self.tie in ("qk", "qkv"):
                layer.key = layer.query
            if self.tie in ("kv", "qkv"):
                layer.value = layer.key


def same_size(config: Config, tie: Tie) -> Config:
    """The config whose tied model has as many weights as the free one of `config`, as nearly as neurons allow.

    What the shared projections save is given to the feed-forward networks.

    Raises:
        ValueError: when there is no such tie.

    >>> same_size(Config(vocab=4, d_model=32), "qkv").neurons
    160
    """
    saved = {"none": 0, "qk": 1, "kv": 1, "qkv": 2}[Tied(tie).tie]
    d, inner = config.d_model, config.n_heads * config.head_width
    weights = saved * (d + config.attention_has_bias) * inner
    neuron = 2 * d + config.ffn_has_bias
    return config.but(d_ff=config.neurons + round(weights / neuron))
