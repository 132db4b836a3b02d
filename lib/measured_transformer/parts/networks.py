"""Which network stands in a block: `Config.network` holds one of these descriptions.

A kind of network is a frozen dataclass derived from `Network`: it makes the module and counts what is in it.
`Plain` is the usual one; `parts.experts.Experts` asks a few of many. One of one's own is one more class:

>>> from dataclasses import dataclass
>>> from measured_transformer.models.config import Config
>>> from measured_transformer.models.decoder import Decoder
>>> @dataclass(frozen=True)
... class Narrow(Plain):
...     def width(self, config):
...         return config.d_model // 2
>>> Decoder(Config(vocab=10, d_model=16, network=Narrow())).blocks[0].feedforward.up.out_features
8
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from measured_transformer.parts.feedforward import FeedForward, is_gated


@dataclass(frozen=True)
class Network:
    """A kind of network. The arguments called `config` are a `models.config.Config`."""

    def make(self, config: Any) -> nn.Module:
        """The module: (batch, position, d_model) to what is added to the stream, of the same shape."""
        raise NotImplementedError

    def parameters(self, config: Any) -> int:
        """The number of its parameters."""
        raise NotImplementedError

    def products(self, config: Any) -> int:
        """Multiplications in matrix products for one position."""
        raise NotImplementedError

    def check(self, config: Any) -> None:
        """Raise ValueError when the description does not fit the config."""


@dataclass(frozen=True)
class Plain(Network):
    """One `FeedForward`, the same for every position, with the config's width, activation and biases."""

    def width(self, config: Any) -> int:
        """Number of neurons."""
        return int(config.neurons)

    def make(self, config: Any) -> FeedForward:
        """The module."""
        return FeedForward(
            config.d_model,
            self.width(config),
            activation=config.activation,
            bias=config.ffn_has_bias,
            wide=config.wide_stream,
        )

    def parameters(self, config: Any) -> int:
        """The number of its parameters."""
        return network_parameters(config, self.width(config))

    def products(self, config: Any) -> int:
        """Multiplications in matrix products for one position."""
        return network_products(config, self.width(config))


PLAIN = Plain()
"""The usual network."""


def network_products(config: Any, width: int) -> int:
    """Multiplications that a `FeedForward` of such a width takes for one position."""
    return (3 if is_gated(config.activation) else 2) * int(config.d_model) * width


def network_parameters(config: Any, width: int) -> int:
    """The number of parameters of a `FeedForward` of such a width."""
    inner = 2 if is_gated(config.activation) else 1
    biases = (inner * width + config.d_model) * config.ffn_has_bias
    return network_products(config, width) + int(biases)
