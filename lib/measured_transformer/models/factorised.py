"""An encoder with a factorised embedding and with blocks that share their weights (ALBERT; Lan et al. 2020).

Tokens, positions and token types have vectors narrower than the stream, and one map widens their sum before the
first block. Blocks can share their weights: a model of twelve blocks then has the parameters of one. ELECTRA
(Clark et al. 2020) has the first alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import initialise
from measured_transformer.parts.feedforward import Activation, activation_function
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.parts.part import Part
from measured_transformer.parts.positions import LearnedPositions


@dataclass(frozen=True, kw_only=True, repr=False)  # it is shown as a Config is
class FactorisedConfig(Config):
    """The config of a `FactorisedEncoder`: one with learned positions, LayerNorms and an `embedding_norm`.

    >>> config = FactorisedConfig(vocab=10, n_layers=4, d_embedding=16, shared_groups=2, norm="layer",
    ...     positions="learned", embedding_norm=True, head="none")
    >>> config.weights_of
    (0, 0, 2, 2)

    Attributes:
        d_embedding: width of the vectors of tokens, positions and token types.
        shared_groups: number of groups of blocks. The passes through the blocks are divided among them in their
            order, and each group has one set of weights; 0: every block has its own.
        group_layers: blocks of a group, each with weights of its own, which every pass of the group goes
            through one after the other.

    Raises:
        ValueError: as `Config`; when the positions are not learned, the embedding has no norm, the head is
            'linear', or the blocks do not make up whole groups.
    """

    d_embedding: int
    shared_groups: int = 0
    group_layers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("d_embedding", 1), ("shared_groups", 0), ("group_layers", 1)):
            self._whole(name, least=least)
        if self.positions != "learned" or self.norm != "layer" or not self.embedding_norm:
            raise ValueError(
                "a factorised embedding is for positions='learned', norm='layer' and embedding_norm=True, "
                f"got positions={self.positions!r}, norm={self.norm!r} and "
                f"embedding_norm={self.embedding_norm}"
            )
        if self.head == "linear":
            raise ValueError(
                "a factorised embedding has the head 'mlm', 'tokens', 'sequence' or 'none', got head='linear'"
            )
        if self.shared_groups and self.layers:
            raise ValueError("blocks that share their weights are all alike: layers must be empty")
        if not self.shared_groups and self.group_layers != 1:
            raise ValueError(
                f"group_layers is for shared_groups of 1 or more, got group_layers={self.group_layers}"
            )
        if self.n_layers % self.group_layers or self.shared_groups > self.passes:
            raise ValueError(
                "n_layers must be a multiple of group_layers, with a pass for each of shared_groups; got "
                f"n_layers={self.n_layers}, group_layers={self.group_layers} and "
                f"shared_groups={self.shared_groups}"
            )

    @property
    def passes(self) -> int:
        """How many times a group is passed through, all groups together."""
        return self.n_layers // self.group_layers

    def place_of(self, i: int) -> tuple[int, int]:
        """The group of block `i`, and which block of that group it is."""
        if not self.shared_groups:
            return i, 0
        turn, inner = divmod(i, self.group_layers)
        return int(turn / (self.passes / self.shared_groups)), inner

    @property
    def weights_of(self) -> tuple[int, ...]:
        """For each block the first one that has its weights."""
        places = [self.place_of(i) for i in range(self.n_layers)]
        return tuple(map(places.index, places))


class Widened(Part):
    """LayerNorm of a narrow vector, and a map to the width of the stream."""

    def __init__(self, narrow: int, d_model: int, *, eps: float, bias: bool) -> None:
        """Draw fresh weights: of the map as `torch.nn.Linear` does, without bias."""
        super().__init__()
        self.norm = LayerNorm(narrow, eps=eps, bias=bias)
        self.map = Linear(narrow, d_model)
        nn.init.zeros_(self.map.bias)

    def forward(
        self, x: Float[Tensor, "batch position narrow"]
    ) -> Float[Tensor, "batch position d_model"]:
        """What enters the first block."""
        return self.map(self.norm(x))


class NarrowTokenLayer(Part):
    """The layer before the unembedding: project to the width of the embedding, activate, normalise."""

    def __init__(
        self, d_model: int, narrow: int, *, activation: Activation, eps: float, bias: bool
    ) -> None:
        """Draw fresh weights."""
        super().__init__()
        self.activate = activation_function(activation)
        self.dense = Linear(d_model, narrow, bias=bias)
        self.norm = LayerNorm(narrow, eps=eps, bias=bias)

    def forward(
        self, x: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch position narrow"]:
        """What the unembedding reads."""
        return self.norm(self.activate(self.dense(x)))


class FactorisedEncoder(Encoder):
    """An encoder whose embedding is narrower than its stream, and whose blocks can share their weights.

    Taps and calls are those of `Encoder`; `embedding` shows the stream that enters the first block. Blocks that
    share are separate modules that hold the same parameters, so that each pass has taps of its own.

    >>> config = FactorisedConfig(vocab=10, d_model=16, n_heads=2, head="mlm", head_bias=True, d_embedding=8,
    ...     positions="learned", placement="post", embedding_norm=True, tie_embeddings=True, shared_groups=1)
    >>> model = FactorisedEncoder(config)
    >>> model.token_embedding.weight.shape, len(model.blocks)
    (torch.Size([10, 8]), 2)
    >>> model.blocks[0].attention.query.weight is model.blocks[1].attention.query.weight
    True
    """

    def __init__(self, config: FactorisedConfig) -> None:
        """Draw fresh weights. Raises ValueError when the config is none with a factorised embedding."""
        if not isinstance(config, FactorisedConfig):
            raise ValueError(f"expected a FactorisedConfig, got {type(config).__name__}")
        super().__init__(config)
        narrow, eps = config.d_embedding, config.norm_eps
        self.token_embedding = nn.Embedding(config.vocab, narrow)
        self.positions = LearnedPositions(config.max_length, narrow)
        if config.token_types:
            self.token_type_embedding = nn.Embedding(config.token_types, narrow)
        if self.unembedding is not None:
            self.head_layer = NarrowTokenLayer(  # type: ignore[assignment]
                config.d_model,
                narrow,
                activation=config.head_activation or config.activation,
                eps=eps,
                bias=config.head_layer_bias,
            )
            self.unembedding = Linear(narrow, config.vocab, bias=config.head_bias)
        initialise(self, config)
        self.embedding_norm = Widened(narrow, config.d_model, eps=eps, bias=config.norm_has_bias)
        if config.tie_embeddings and self.unembedding is not None:
            self.unembedding.weight = self.token_embedding.weight
        for block, first in zip(self.blocks, config.weights_of, strict=True):
            for name, parameter in self.blocks[first].named_parameters():
                place, _, last = name.rpartition(".")
                setattr(block.get_submodule(place), last, parameter)
