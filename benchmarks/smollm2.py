"""A language model that people use: SmolLM2 with 135 million weights, in each library that has such a model.

One text at a time, as in a session of research: reading a prompt, writing on from it, and reading while every
value is kept. Weights are fresh, the sizes are those of the published model (Allal et al. 2025, "SmolLM2").
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from measured_transformer import Config, Decoder
from torch import nn

from benchmarks.contenders import Contender, Gpt2, Ours, OursFastest, TransformerLens
from benchmarks.measure import Workload
from benchmarks.workloads import precision


@dataclass(frozen=True)
class LanguageModel:
    """The sizes of a model of Llama's kind: RMSNorm, SwiGLU, rotary positions, shared keys and values.

    Attributes:
        width: of the residual stream.
        layers: blocks.
        heads, kv_heads: attention heads of a block, and those of keys and values.
        neurons: of a block's network.
        vocab: different tokens; the unembedding is the embedding.
        base: of the rotary angles.
        length: tokens that are read at once.
        prompt, new: tokens that decoding begins with, and that it adds.
        batch: texts.
        device: 'cpu' (float32) or 'cuda' (autocast to bfloat16).
    """

    width: int = 576
    layers: int = 30
    heads: int = 9
    kv_heads: int = 3
    neurons: int = 1536
    vocab: int = 49152
    base: float = 100_000.0
    length: int = 256
    prompt: int = 16
    new: int = 32
    batch: int = 1
    device: str = "cpu"


SMOLLM2 = LanguageModel()
"""SmolLM2-135M."""


class _OfLanguageModel(Contender):
    """A contender whose sizes are those of a language model, and whose weights are not zero."""

    size: LanguageModel  # type: ignore[assignment]

    def __init__(self, size: LanguageModel) -> None:
        super().__init__(size)  # type: ignore[arg-type]
        with torch.no_grad():
            for weight in self.model.parameters():
                if weight.ndim > 1:
                    weight.normal_(std=0.02)


class OurLanguageModel(_OfLanguageModel, Ours):
    """`measured_transformer.Decoder`."""

    def build(self) -> nn.Module:
        s = self.size
        return Decoder(
            Config(
                vocab=s.vocab,
                d_model=s.width,
                n_layers=s.layers,
                n_heads=s.heads,
                n_kv_heads=s.kv_heads,
                d_ff=s.neurons,
                max_length=2048,
                positions="rotary",
                rotary_pairing="halves",
                rotary_base=s.base,
                norm="rms",
                activation="swiglu",
                bias=False,
                tie_embeddings=True,
                initialisation="gpt2",
            )
        )


class OurLanguageModelFastest(OurLanguageModel, OursFastest):
    """The same in `linear_kernel("fastest")`."""


class Llama(_OfLanguageModel, Gpt2):
    """Llama of `transformers`, with its kernel for fused attention; SmolLM2 is of this class there."""

    name = "transformers Llama"

    def build(self) -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        s = self.size
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=s.vocab,
                hidden_size=s.width,
                intermediate_size=s.neurons,
                num_hidden_layers=s.layers,
                num_attention_heads=s.heads,
                num_key_value_heads=s.kv_heads,
                max_position_embeddings=2048,
                rope_parameters={"rope_type": "default", "rope_theta": s.base},
                tie_word_embeddings=True,
                attn_implementation="sdpa",
                bos_token_id=None,
                eos_token_id=None,
            )
        )


class LensedLanguageModel(_OfLanguageModel, TransformerLens):
    """`transformer_lens.HookedTransformer`; its unembedding is a matrix of its own."""

    def build(self) -> nn.Module:
        from transformer_lens import HookedTransformer, HookedTransformerConfig

        s = self.size
        return HookedTransformer(
            HookedTransformerConfig(
                n_layers=s.layers,
                d_model=s.width,
                d_head=s.width // s.heads,
                n_heads=s.heads,
                n_key_value_heads=s.kv_heads,
                d_mlp=s.neurons,
                n_ctx=2 * s.length,
                d_vocab=s.vocab,
                act_fn="silu",
                gated_mlp=True,
                normalization_type="RMS",
                positional_embedding_type="rotary",
                rotary_dim=s.width // s.heads,
                rotary_base=s.base,
                final_rms=True,
                device=s.device,
                default_prepend_bos=False,
            )
        )


LANGUAGE_MODELS: tuple[type[_OfLanguageModel], ...] = (
    OurLanguageModel,
    OurLanguageModelFastest,
    Llama,
    LensedLanguageModel,
)


DOINGS = ("prompt", "decoding", "everything")
"""Reading a prompt up to the first new token; writing on from a short one; reading while all is kept."""


def doing(contender: _OfLanguageModel, what: str) -> Workload:
    """One of `DOINGS`, without gradients."""
    s = contender.size
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(s.vocab, (s.batch, s.length), generator=generator).to(s.device)
    contender.model.eval()

    def work() -> None:
        with torch.inference_mode(), precision(contender):
            if what == "prompt":
                contender.decode(text, 1)
            elif what == "decoding":
                contender.decode(text[:, : s.prompt], s.new)
            else:
                contender.capture(text, True)

    return work
