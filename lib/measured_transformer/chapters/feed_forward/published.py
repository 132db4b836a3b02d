"""Where the parameters of published models are, counted from their configurations.

Gates: Shazeer (2020), "GLU Variants Improve Transformer".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from measured_transformer.models.config import Config
from measured_transformer.models.sizes import Count, count_parameters


@dataclass(frozen=True)
class Published:
    """A published model, and which kind of model its config describes.

    Attributes:
        config: its sizes and choices.
        kind: 'encoder' or 'decoder'.
    """

    config: Config
    kind: Any

    @property
    def count(self) -> Count:
        """Its parameters by part."""
        return count_parameters(self.config, self.kind)

    @property
    def network_over_attention(self) -> float:
        """Parameters of the networks over those of attention."""
        return self.count.feedforward / self.count.attention


def published() -> dict[str, Published]:
    """BERT-base, GPT-2 and LLaMA-7B.

    As their papers and published settings have them (Devlin et al. 2019; Radford et al. 2019; Touvron et al.
    2023). BERT is counted with its pooler and without the layer that predicts masked words.
    """
    gpt = {"positions": "learned", "max_length": 1024, "activation": "gelu_tanh"}
    llama = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
    return {
        "BERT-base": Published(
            Config(
                vocab=30522,
                d_model=768,
                n_layers=12,
                n_heads=12,
                d_ff=3072,
                max_length=512,
                positions="learned",
                placement="post",
                token_types=2,
                embedding_norm=True,
                pooler=True,
                head="none",
                embedding_scale=1.0,
            ),
            "encoder",
        ),
        "GPT-2": Published(
            Config(vocab=50257, d_model=768, n_layers=12, n_heads=12, tie_embeddings=True, **gpt),  # type: ignore[arg-type]
            "decoder",
        ),
        "LLaMA-7B": Published(
            Config(vocab=32000, d_model=4096, n_layers=32, n_heads=32, d_ff=11008, **llama),  # type: ignore[arg-type]
            "decoder",
        ),
    }


def whereabouts(count: Count) -> dict[str, int]:
    """Parameters in five groups: 'embeddings', 'attention', 'networks', 'norms' and 'head'.

    Positions count as embeddings; the head is an unembedding that is not tied, or BERT's pooler.
    """
    return {
        "embeddings": count.embedding + count.positions,
        "attention": count.attention + count.cross_attention,
        "networks": count.feedforward,
        "norms": count.norms,
        "head": count.head,
    }
