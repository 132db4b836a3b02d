"""The base of all models: embedding, a stack of blocks, a final norm, and the initialisation of weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.checks import check_cache, check_token_types, check_tokens
from measured_transformer.models.config import Config
from measured_transformer.models.token_positions import TokenPositions, find_positions
from measured_transformer.parts.attention_schemes import MULTI_HEAD
from measured_transformer.parts.block import Block
from measured_transformer.parts.experts import MixtureOfExperts
from measured_transformer.parts.norms import make_norm
from measured_transformer.parts.part import Part
from measured_transformer.parts.position_schemes import SCHEMES
from measured_transformer.parts.positions import RotaryPositions, Rotation
from measured_transformer.parts.tap import Tap

_WRITERS = ("attention.output.weight", "feedforward.down.weight", "feedforward.shared.down.weight")


class Stack(Part):
    """One residual stream: its parts, and the steps of a pass (positions, embedding, blocks, final norm).

    A model is wired from these steps in its own `forward`. An `EncoderDecoder` holds two stacks. A `Decoder`
    and an `Encoder` are one stack with a head: their parts have names without a prefix
    (`blocks.0.attention.query.weight`), in checkpoints and for taps, which a stack held as an attribute
    would not give them.

    Taps: `embedding` (batch position d_model), the stream before the first block: tokens plus, where the
    scheme adds them, positions; those of each block under `blocks.{i}`; `final_norm.scale`; `final_state`
    (batch position d_model), the stream after the final norm.
    """

    def __init__(
        self,
        config: Config,
        *,
        causal: bool,
        n_layers: int | None = None,
        cross_attention: bool = False,
    ) -> None:
        """Make embedding, blocks and final norm.

        Args:
            config: sizes and choices.
            causal: whether no position sees a later one.
            n_layers: number of blocks; `config.n_layers` when not given.
            cross_attention: whether the blocks read a memory as well.
        """
        super().__init__()
        self.config, self.causal = config, causal
        self.token_embedding = nn.Embedding(config.vocab, config.d_model)
        self.embedding_scale = config.embedding_factor
        scheme = SCHEMES[config.positions]
        self.positions: nn.Module | None = None if scheme.added is None else scheme.added(config)
        self.rotary: RotaryPositions | None = (
            None if scheme.turned is None else scheme.turned(config)
        )
        self.relative: nn.Module | None = (
            None if scheme.bias is None else scheme.bias(config, causal)
        )
        self.token_type_embedding = (
            nn.Embedding(config.token_types, config.d_model) if config.token_types else None
        )
        self.embedding_norm = _norm(config) if config.embedding_norm else nn.Identity()
        self.embedding_dropout = nn.Dropout(config.dropout)
        self.embedding = Tap()
        configs = [
            config.of_layer(i) for i in range(config.n_layers if n_layers is None else n_layers)
        ]
        self.blocks = nn.ModuleList(
            make_block(one, cross_attention=cross_attention) for one in configs
        )
        self.layer_rotary, self._rotary_of = _layer_rotary(config, configs)
        self.final_norm = _norm(config) if config.has_final_norm else nn.Identity()
        self.final_state = Tap()

    def resolve_positions(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        token_types: Int[Tensor, "..."] | None = None,
        cache: KeyValueCache | None = None,
    ) -> TokenPositions:
        """First step of a pass: check the inputs and resolve the positions of the tokens.

        Args and errors: as for `stream`.
        """
        self._check(tokens, token_types, cache)
        if cache is not None:
            cache.drop_unfinished()
        return find_positions(
            tokens,
            padding_mask=padding_mask,
            positions=positions,
            earlier=None if cache is None else cache.positions,
        )

    def embed(
        self,
        tokens: Int[Tensor, "batch position"],
        positions: TokenPositions,
        token_types: Int[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "batch position d_model"], Rotation | None, Tensor | None]:
        """Second step: what the first block reads, and the rotation and score bias of the positions."""
        x = self.token_embedding(tokens)
        if self.embedding_scale != 1:
            x = self.embedding_scale * x
        if self.positions is not None:
            x = x + _look_up(self.positions, positions)
        if self.token_type_embedding is not None:
            types = torch.zeros_like(tokens) if token_types is None else token_types
            x = x + self.token_type_embedding(types)
        x = self.embedding_dropout(self.embedding_norm(x))
        if self.config.wide_stream and x.dtype == torch.float16:
            x = x.float()
        x = self.embedding(x)
        rotation = None if self.rotary is None else _look_up(self.rotary, positions)
        return x, rotation, self._score_bias(positions)

    def run_blocks(
        self,
        x: Float[Tensor, "batch position d_model"],
        positions: TokenPositions,
        rotation: Rotation | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        *,
        memory: Float[Tensor, "batch memory d_model"] | None = None,
        memory_padding_mask: Bool[Tensor, "batch memory"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch position d_model"]:
        """Third step: the stream after the last block; a cache then holds these positions as well."""
        rotations = self._rotations(positions, rotation)
        for i, block in enumerate(self.blocks):
            x = block(
                x,
                memory,
                causal=self.causal,
                padding_mask=positions.padding_mask,
                memory_padding_mask=memory_padding_mask,
                rotation=rotations[i],
                score_bias=score_bias,
                cache=None if cache is None else cache.layers[i],
                cross_cache=None if cache is None or memory is None else cache.cross_layers[i],
            )
        if cache is not None:
            cache.positions = positions
        return x

    def apply_final_norm(
        self, x: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch position d_model"]:
        """Fourth step: the final state, which is the stream after the final norm where there is one."""
        state = self.final_norm(x)
        if self.config.wide_stream:
            state = state.to(self.token_embedding.weight.dtype)
        return self.final_state(state)

    def stream(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        token_types: Int[Tensor, "..."] | None = None,
        memory: Float[Tensor, "batch memory d_model"] | None = None,
        memory_padding_mask: Bool[Tensor, "batch memory"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch position d_model"]:
        """The first three steps: the residual stream after the last block, before the final norm.

        Args:
            tokens: token numbers below `config.vocab`.
            padding_mask: (batch, position), True for real tokens, False for padding. A token's position is
                the number of real tokens before it.
            positions: (batch, position), the tokens' positions, where they should be others.
            token_types: (batch, position), each token's type below `config.token_types`; all 0 when None.
            memory, memory_padding_mask: what cross-attention reads, and where its tokens are real.
            cache: what earlier calls left of the same sequences, which these tokens continue.

        Raises:
            ValueError: when tokens are not whole numbers of shape (batch, position), lie outside the
                vocabulary, or are more than learned positions reach; when another argument does not fit.
        """
        resolved = self.resolve_positions(
            tokens,
            padding_mask=padding_mask,
            positions=positions,
            token_types=token_types,
            cache=cache,
        )
        x, rotation, score_bias = self.embed(tokens, resolved, token_types)
        return self.run_blocks(
            x,
            resolved,
            rotation,
            score_bias,
            memory=memory,
            memory_padding_mask=memory_padding_mask,
            cache=cache,
        )

    def make_cache(self, capacity: int = 0) -> KeyValueCache:
        """An empty cache for this stack, with room for `capacity` positions at first."""
        crossed = any(block.cross_attention is not None for block in self.blocks)
        return KeyValueCache(len(self.blocks), cross_attention=crossed, capacity=capacity)

    def _score_bias(self, positions: TokenPositions) -> Tensor | None:
        if self.relative is None:
            return None
        bias: Tensor = self.relative(positions.queries, positions.keys)
        return bias

    def _rotations(
        self, positions: TokenPositions, rotation: Rotation | None
    ) -> list[Rotation | None]:
        """The rotation of each block: the one given, where the block has no angles of its own."""
        if not self._rotary_of:
            return [rotation] * len(self.blocks)
        own = {name: _look_up(table, positions) for name, table in self.layer_rotary.items()}
        return [{"": rotation, "none": None, **own}[name] for name in self._rotary_of]

    def _check(
        self, tokens: Tensor, token_types: Tensor | None, cache: KeyValueCache | None
    ) -> None:
        check_tokens(tokens, self.config)
        if token_types is not None:
            check_token_types(token_types, tokens, self.config)
        if cache is not None:
            check_cache(cache, causal=self.causal, n_blocks=len(self.blocks))


def make_block(config: Config, *, cross_attention: bool = False) -> Block:
    """One block with the sizes and choices of the config."""
    return Block(
        config.attention.make(config, rotated=SCHEMES[config.positions].turned is not None),
        config.network.make(config),
        _norm(config) if config.attention_norm else nn.Identity(),
        nn.Identity() if config.shared_norm else _norm(config),
        cross_attention=MULTI_HEAD.make(config) if cross_attention else None,
        cross_attention_norm=_norm(config) if cross_attention else None,
        placement=config.placement,
        residual=config.residual,
        dropout=config.dropout,
        written_norms=[_norm(config) for _ in range(2)] if config.placement == "sandwich" else (),
        parallel=config.parallel,
        shared_norm=config.shared_norm,
        residual_scale=config.residual_scale,
        wide=config.wide_stream,
    )


@torch.no_grad()
def initialise(model: nn.Module, config: Config) -> None:
    """Draw all weights anew from PyTorch's generator, as `config.initialisation` says; biases are zero."""
    for name, parameter in model.named_parameters():
        path = name.split(".")
        if "norm" in name:
            offset = (
                0.0 if path[-2] == "norm" else config.norm_offset
            )  # the layer before an unembedding
            parameter.fill_(1.0 - offset if path[-1] == "weight" else 0.0)
        elif path[-1] in ("bias", "sinks", "down_bias", "choice_bias"):
            parameter.zero_()
        elif config.initialisation == "gpt2":
            writes = name.endswith(_WRITERS)
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.n_layers if writes else 1))
        elif "positions" in path or "token_type_embedding" in path:
            nn.init.normal_(parameter, std=math.sqrt(0.5))  # the size of a sinusoidal entry
        elif {"token_embedding", "unembedding", "relative"} & set(path):
            nn.init.normal_(parameter, std=config.d_model**-0.5)
        else:
            for matrix in _matrices(model, name, parameter):
                nn.init.xavier_uniform_(matrix)


def _matrices(model: nn.Module, name: str, parameter: Tensor) -> tuple[Tensor, ...]:
    """The matrices in a parameter: those of the single experts, or the whole."""
    layer = name.split(".")[:-1]
    owner = model.get_submodule(".".join(layer[:-1]))
    return (
        owner.split(layer[-1], parameter) if isinstance(owner, MixtureOfExperts) else (parameter,)
    )


def _norm(config: Config) -> nn.Module:
    return make_norm(
        config.norm,
        config.d_model,
        eps=config.norm_eps,
        bias=config.norm_has_bias,
        offset=config.norm_offset,
    )


def _layer_rotary(config: Config, configs: list[Config]) -> tuple[nn.ModuleDict, list[str]]:
    """The rotary angles that single blocks have otherwise, and the name of each block's.

    The names are empty for the stack's own angles and 'none' for no rotation; there are none where all blocks
    turn alike.
    """
    names, tables = [], nn.ModuleDict()
    known: dict[tuple[Any, ...], str] = {_angles_of(config): ""}
    for one in configs:
        turned = SCHEMES[one.positions].turned
        if turned is None:
            names.append("none" if SCHEMES[config.positions].turned else "")
            continue
        name = known.setdefault(_angles_of(one), str(len(known)))
        if name and name not in tables:
            tables[name] = turned(one)
        names.append(name)
    return tables, names if any(names) else []


def _angles_of(config: Config) -> tuple[Any, ...]:
    return config.rotary_base, config.rotary_share, config.rotary_scaling, config.turned_width


def _look_up(table: nn.Module, positions: TokenPositions) -> Any:
    if positions.queries.ndim == 1:
        n, length = positions.queries.shape[0], positions.keys.shape[0]
        return table(n, offset=length - n)
    return table(positions.queries, below=positions.below)
