"""Where the parameters and the operations of published models are, counted from their configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from measured_transformer.analysis.cost import Operations
from measured_transformer.models.config import Config
from measured_transformer.models.sizes import Count, count_parameters

from measured_book.measuring import measurement

_GPT: dict[str, Any] = {"positions": "learned", "max_length": 1024, "activation": "gelu_tanh"}
_GATED: dict[str, Any] = {
    "positions": "rotary",
    "norm": "rms",
    "activation": "swiglu",
    "bias": False,
}
MODELS: Mapping[str, Config] = {
    "BERT-base": Config(
        vocab=30522, d_model=768, n_layers=12, n_heads=12, d_ff=3072, max_length=512,
        positions="learned", placement="post", token_types=2, embedding_norm=True, pooler=True,
        head="none", embedding_scale=1.0,
    ),
    "GPT-2": Config(vocab=50257, d_model=768, n_layers=12, n_heads=12, tie_embeddings=True, **_GPT),
    "LLaMA 7B": Config(vocab=32000, d_model=4096, n_layers=32, n_heads=32, d_ff=11008, **_GATED),
    "Mistral 7B": Config(
        vocab=32000, d_model=4096, n_layers=32, n_heads=32, n_kv_heads=8, d_ff=14336, **_GATED
    ),
    "Llama 3 8B": Config(
        vocab=128256, d_model=4096, n_layers=32, n_heads=32, n_kv_heads=8, d_ff=14336, **_GATED
    ),
    "Llama 3 70B": Config(
        vocab=128256, d_model=8192, n_layers=80, n_heads=64, n_kv_heads=8, d_ff=28672, **_GATED
    ),
    "Gemma 2 9B": Config(
        vocab=256000, d_model=3584, n_layers=42, n_heads=16, n_kv_heads=8, d_head=256, d_ff=14336,
        tie_embeddings=True, **{**_GATED, "activation": "geglu_tanh"},
    ),
    "Qwen3 8B": Config(
        vocab=151936, d_model=4096, n_layers=36, n_heads=32, n_kv_heads=8, d_head=128, d_ff=12288,
        **_GATED,
    ),
    "SmolLM2 135M": Config(
        vocab=49152, d_model=576, n_layers=30, n_heads=9, n_kv_heads=3, d_ff=1536,
        tie_embeddings=True, **_GATED,
    ),
}  # fmt: skip
"""Published models by name, from their papers and the settings published with their weights.

BERT is counted with its pooler and without the layer that predicts masked words. Of the norms those on queries
and keys (Qwen3) and behind sublayers (Gemma 2) are not counted: they are a few thousand numbers a layer.
"""
LENGTHS = ("quarter", "equal", "four")
"""Tokens, in units of the width of the stream, at which operations are counted."""


def count(name: str) -> Count:
    """The parameters of a published model, part by part."""
    config = MODELS[name]
    return count_parameters(config, "encoder" if config.pooler else "decoder")


def rule_of_twelve(name: str) -> float:
    r"""What $12 L d^2$ says, over the parameters of attention and networks; $L$ blocks of width $d$."""
    c, counts = MODELS[name], count(name)
    return 12 * c.n_layers * c.d_model**2 / (counts.attention + counts.feedforward)


def crossing(name: str) -> float:
    """Tokens at which scores and mixing of all pairs take as many operations as all else in the blocks."""
    c, counts = MODELS[name], count(name)
    return (counts.attention + counts.feedforward) / (2 * c.n_layers * c.n_heads * c.head_width)


@measurement(seeds=1, coords={"model": tuple(MODELS), "length": LENGTHS})
def counted(seed: int) -> dict[str, Any]:
    """Parameters of published models by part, in millions, and the network's share of a layer's operations."""
    counts = [count(name) for name in MODELS]

    def millions(of: Any) -> tuple[str, list[float]]:
        return "model", [float(of(one)) / 1e6 for one in counts]

    return {
        "attention": millions(lambda c: c.attention),
        "network": millions(lambda c: c.feedforward),
        "rest": millions(lambda c: c.total - c.attention - c.feedforward),
        "embedding": millions(lambda c: c.embedding + c.positions),
        "head": millions(lambda c: c.head),
        "total": millions(lambda c: c.total),
        "ratio": ("model", [c.feedforward / c.attention for c in counts]),
        "share": ("model", [c.feedforward / c.total for c in counts]),
        "wider": ("model", [c.neurons / c.d_model for c in MODELS.values()]),
        "rule": ("model", [rule_of_twelve(name) for name in MODELS]),
        "crossing": ("model", [crossing(name) for name in MODELS]),
        "work": ("length", [1 - Operations(n, 256).share for n in (64, 256, 1024)]),
    }
