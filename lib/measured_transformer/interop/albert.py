"""ALBERT: blocks that share one set of weights, and embeddings narrower than the stream (Lan et al. 2020).

The tables of `bert` serve here as well: ALBERT is a BERT with other names, a map from the embeddings' width to
that of the stream, and one block that is passed through again and again. `read_albert` reads a folder that
holds such a model; it stands beside `from_huggingface`, which reads no pickled weights.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.interop.bert import Dialect, config_of
from measured_transformer.interop.checkpoint import Checkpoint, read_checkpoint
from measured_transformer.interop.family import require, whole
from measured_transformer.interop.tensors import Entry, layer, load_tensors
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.feedforward import activation_function
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.parts.part import Part
from measured_transformer.parts.positions import LearnedPositions

DIALECT = Dialect(
    name="albert",
    classes="Albert",
    prefix="albert.",
    heads=("predictions.",),
    blocks="encoder.albert_layer_groups.0.albert_layers",
    block={
        "attention.query": "attention.query",
        "attention.key": "attention.key",
        "attention.value": "attention.value",
        "attention.dense": "attention.output",
        "attention.LayerNorm": "attention_norm",
        "ffn": "feedforward.up",
        "ffn_output": "feedforward.down",
        "full_layer_layer_norm": "feedforward_norm",
    },
    mlm=(
        "predictions.dense",
        "predictions.LayerNorm",
        "predictions.decoder",
        "predictions.bias",
    ),
    defaults={
        "vocab_size": 30000,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    needed={"num_hidden_groups": 1, "inner_group_num": 1},
)
_WIDENED = "encoder.embedding_hidden_mapping_in"


@dataclass(frozen=True, kw_only=True)
class AlbertConfig(Config):
    """The config of an `Albert`.

    Attributes:
        embedding_size: width of the vectors of tokens, positions and token types.
    """

    embedding_size: int = 128


class Widened(Part):
    """LayerNorm of a narrow vector, and a map to the width of the stream."""

    def __init__(self, narrow: int, d_model: int, eps: float) -> None:
        """Draw fresh weights."""
        super().__init__()
        self.norm = LayerNorm(narrow, eps=eps)
        self.map = Linear(narrow, d_model)

    def forward(
        self, x: Float[Tensor, "batch position narrow"]
    ) -> Float[Tensor, "batch position d_model"]:
        """What enters the first block."""
        return self.map(self.norm(x))


class NarrowTokenLayer(Part):
    """The layer before the unembedding: project to the embeddings' width, activate, normalise."""

    def __init__(self, config: AlbertConfig) -> None:
        """Draw fresh weights."""
        super().__init__()
        self.activate = activation_function(config.head_activation or config.activation)
        self.dense = Linear(config.d_model, config.embedding_size)
        self.norm = LayerNorm(config.embedding_size, eps=config.norm_eps)

    def forward(
        self, x: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch position narrow"]:
        """What the unembedding reads."""
        return self.norm(self.activate(self.dense(x)))


class Albert(Encoder):
    """An encoder whose blocks are one and the same, with embeddings narrower than its stream.

    Taps and calls are those of `Encoder`; `embedding` shows the stream that enters the first block. The blocks
    are separate modules that hold the same parameters, so that each pass has taps of its own.

    >>> config = AlbertConfig(vocab=10, d_model=16, n_heads=2, head="mlm", head_bias=True, tie_embeddings=True,
    ...     positions="learned", placement="post", embedding_norm=True, token_types=2, embedding_size=8)
    >>> model = Albert(config)
    >>> model.token_embedding.weight.shape, len(model.blocks)
    (torch.Size([10, 8]), 2)
    >>> model.blocks[0].attention.query.weight is model.blocks[1].attention.query.weight
    True
    """

    def __init__(self, config: AlbertConfig) -> None:
        """Draw fresh weights."""
        super().__init__(config)
        narrow = config.embedding_size
        self.token_embedding = nn.Embedding(config.vocab, narrow)
        self.positions = LearnedPositions(config.max_length, narrow)
        self.token_type_embedding = nn.Embedding(config.token_types, narrow)
        self.embedding_norm = Widened(narrow, config.d_model, config.norm_eps)
        if self.unembedding is not None:
            self.head_layer = NarrowTokenLayer(config)  # type: ignore[assignment]
            self.unembedding = Linear(narrow, config.vocab)
            self.unembedding.weight = self.token_embedding.weight
        first = dict(self.blocks[0].named_parameters())
        for block in self.blocks[1:]:
            for name, parameter in first.items():
                place, _, last = name.rpartition(".")
                setattr(block.get_submodule(place), last, parameter)


def read_albert(folder: str | Path, *, dtype: torch.dtype = torch.float32) -> Albert:
    """The model in a folder with `config.json` and its weights, in evaluation mode.

    Weights may be safetensors, or pickled as `pytorch_model.bin`, of which nothing but tensors is unpickled.

    Args:
        folder: a local one.
        dtype: of the model's numbers.

    Raises:
        FileNotFoundError: when the folder, its config or its weights are missing.
        ValueError: when a file cannot be read, a setting asks for what is not computed here, or tensors are
            missing, surplus or misshapen.
    """
    folder = Path(folder)
    pickled = folder / "pytorch_model.bin"
    if not pickled.is_file():
        return albert_from(read_checkpoint(folder), dtype=dtype)
    try:
        settings = json.loads((folder / "config.json").read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"expected settings in {folder / 'config.json'}, got no JSON: {error}"
        ) from error
    try:
        tensors = torch.load(pickled, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"expected tensors in {pickled}, which cannot be read: {error}") from error
    named = (settings.get("architectures") or [None])[0]
    return albert_from(Checkpoint(settings, tensors, named), dtype=dtype)


@torch.no_grad()
def albert_from(checkpoint: Checkpoint, *, dtype: torch.dtype = torch.float32) -> Albert:
    """The model that a checkpoint of ALBERT describes, in evaluation mode.

    Raises:
        ValueError: as `read_albert`.
    """
    if checkpoint.config.get("model_type") != "albert":
        raise ValueError(
            f"expected a checkpoint of model_type 'albert', got {checkpoint.config.get('model_type')!r}"
        )
    tensors = _tidy(checkpoint.tensors)
    config = _config(checkpoint, tensors)
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced
        model = Albert(config).to(dtype)
    load_tensors(model, _entries(config), tensors, DIALECT.tied_names(config))
    return model.eval()


def _tidy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by their names in the table, without the pooler, which no head here reads."""
    short = {name.removeprefix(DIALECT.prefix): tensor for name, tensor in tensors.items()}
    return {
        name: tensor
        for name, tensor in short.items()
        if name != "embeddings.position_ids" and not name.startswith("pooler.")
    }


def _config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> AlbertConfig:
    """The sizes and choices of a checkpoint, of a model with its masked-token head or with none."""
    require(checkpoint.config, tie_word_embeddings=True)
    narrow = whole({"embedding_size": 128, **checkpoint.config}, "embedding_size")
    found = config_of(DIALECT, checkpoint, tensors)
    if found.head not in ("mlm", "none"):
        raise ValueError(
            f"expected a checkpoint of AlbertForMaskedLM or AlbertModel, got one of {checkpoint.architecture}"
        )
    given: dict[str, Any] = {field.name: getattr(found, field.name) for field in fields(found)}
    return AlbertConfig(**given, embedding_size=narrow)


def _entries(config: Config) -> list[Entry]:
    """Names of the tensors: those of one block stand for all."""
    rows = []
    for row in DIALECT.entries(config.replace(n_layers=1)):
        ours = tuple(name.replace("embedding_norm.", "embedding_norm.norm.") for name in row.ours)
        rows.append(Entry(row.theirs, ours))
    return [*rows, *layer(_WIDENED, "embedding_norm.map")]
