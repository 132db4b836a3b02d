"""The models that are compared: ours, and each peer's with the same sizes, as near in arithmetic as it allows.

All are causal language models with pre-norm blocks, learned positions, exact GELU, biases, no dropout and an
unembedding of their own. What a peer cannot leave out or put in stands in its docstring. A peer that is not
installed is left out of the table, and the table says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from io import StringIO

import torch
from measured_transformer import Config, Decoder, capture
from measured_transformer.inference.generate import generate
from measured_transformer.internals.names import taps
from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    """What all contenders have in common.

    Attributes:
        width: of the residual stream.
        length: tokens of a sequence.
        batch: sequences.
        vocab: different tokens.
        layers: blocks.
        heads: attention heads of a block.
        prompt: tokens that decoding begins with.
        device: 'cpu' (float32) or 'cuda' (autocast to bfloat16).
        decoding: whether the model is made for decoding.
    """

    width: int
    length: int = 256
    batch: int = 8
    vocab: int = 256
    layers: int = 4
    heads: int = 8
    prompt: int = 16
    device: str = "cpu"
    decoding: bool = False


class Contender(ABC):
    """A model and how its library would have it used.

    Attributes:
        name: what the table calls it.
        package: whose installed version is shown.
        decodes: whether it can decode with a cache.
        captures: whether it has named values to capture.
    """

    name: str
    package: str
    decodes = True
    captures = False

    def __init__(self, size: Size) -> None:
        self.size = size
        with redirect_stdout(StringIO()):  # some say where they put their weights
            self.model = self.build().to(size.device)

    @abstractmethod
    def build(self) -> nn.Module:
        """The model, with fresh weights."""

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at each position: (batch, position, vocab)."""
        return self.model(tokens)

    def decode(self, prompt: Tensor, n: int) -> Tensor:
        """The `n` tokens that greedy decoding with a cache adds to each row: (batch, n)."""
        raise TypeError(f"{self.name} has no cache to decode with")

    def capture(self, tokens: Tensor, everything: bool) -> dict[str, Tensor]:
        """A forward pass that keeps values: patterns and residual states, or all that has a name."""
        raise TypeError(f"{self.name} has no named values to keep")

    @classmethod
    def version(cls) -> str | None:
        """Of the package that is installed; None when it is not."""
        try:
            return metadata.version(cls.package)
        except metadata.PackageNotFoundError:
            return None


class Ours(Contender):
    """`measured_transformer.Decoder`."""

    name, package = "measured_transformer", "measured-transformer"
    captures = True

    def build(self) -> nn.Module:
        s = self.size
        return Decoder(
            Config(
                vocab=s.vocab,
                d_model=s.width,
                n_layers=s.layers,
                n_heads=s.heads,
                max_length=s.length,
                positions="learned",
                initialisation="gpt2",
            )
        )

    def decode(self, prompt: Tensor, n: int) -> Tensor:
        return torch.stack(generate(self.model, prompt, max_new_tokens=n).tokens)

    def capture(self, tokens: Tensor, everything: bool) -> dict[str, Tensor]:
        names = ("*.pattern", "*.residual_*")
        if everything:  # but each head's output in the stream, which the peer leaves out, too
            names = tuple(name for name in taps(self.model) if not name.endswith("head_outputs"))
        with capture(self.model, *names) as seen:
            self.model(tokens)
        return seen

    def explicit(self, tokens: Tensor) -> Tensor:
        """A forward pass with the softmax written out, of which nothing is kept."""
        with capture(self.model, "*.pattern", transform=lambda pattern: pattern[:0]):
            return self.model(tokens)


FASTEST = ", fastest kernel"
"""What is added to the name of a contender whose linear maps are computed by the kernel that a trial found."""


class OursFastest(Ours):
    """`measured_transformer.Decoder` in `linear_kernel("fastest")`, which a user can ask for."""

    name = Ours.name + FASTEST


class _Torch(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocab, size.width)
        self.positions = nn.Parameter(0.02 * torch.randn(size.length, size.width))
        layer = nn.TransformerEncoderLayer(
            size.width,
            size.heads,
            4 * size.width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, size.layers, norm=nn.LayerNorm(size.width), enable_nested_tensor=False
        )
        self.unembedding = nn.Linear(size.width, size.vocab, bias=False)
        mask = nn.Transformer.generate_square_subsequent_mask(size.length)
        self.register_buffer("mask", mask)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        return self.unembedding(self.encoder(x, mask=self.mask, is_causal=True))


class Torch(Contender):
    """`torch.nn.TransformerEncoder` with a causal mask, an embedding before it and a projection behind it.

    It has no cache, so it does not take part in decoding.
    """

    name, package = "torch.nn.TransformerEncoder", "torch"
    decodes = False

    def build(self) -> nn.Module:
        return _Torch(self.size)


class Gpt2(Contender):
    """GPT-2 of `transformers`, with its kernel for fused attention."""

    name, package = "transformers GPT-2", "transformers"

    def build(self) -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        s = self.size
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=s.vocab,
                n_embd=s.width,
                n_layer=s.layers,
                n_head=s.heads,
                n_positions=s.length,
                activation_function="gelu",
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                tie_word_embeddings=False,
                attn_implementation="sdpa",
                bos_token_id=None,
                eos_token_id=None,
            )
        )

    def logits(self, tokens: Tensor) -> Tensor:
        """The logits alone; keeping keys and values is for decoding."""
        return self.model(tokens, use_cache=False).logits

    def decode(self, prompt: Tensor, n: int) -> Tensor:
        written = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=n,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
        )
        return written[:, prompt.shape[1] :]


class XTransformers(Contender):
    """`x_transformers.TransformerWrapper` with its flash attention, and its wrapper for decoding.

    Its attention has no biases and its norms have weights alone, so it has a little less to compute.
    """

    name, package = "x-transformers", "x-transformers"

    def build(self) -> nn.Module:
        from x_transformers import Decoder as Layers
        from x_transformers import TransformerWrapper

        s = self.size
        return TransformerWrapper(
            num_tokens=s.vocab,
            max_seq_len=s.length,
            attn_layers=Layers(
                dim=s.width,
                depth=s.layers,
                heads=s.heads,
                attn_dim_head=s.width // s.heads,
                attn_flash=True,
            ),
        )

    def decode(self, prompt: Tensor, n: int) -> Tensor:
        from x_transformers import AutoregressiveWrapper

        writer = AutoregressiveWrapper(self.model)
        return writer.generate(prompt, n, temperature=0.0, cache_kv=True)


class TransformerLens(Contender):
    """`transformer_lens.HookedTransformer`, whose attention is always written out.

    For decoding it gets twice the context: it breaks off at half of it.
    """

    name, package = "TransformerLens", "transformer-lens"
    captures = True

    def build(self) -> nn.Module:
        from transformer_lens import HookedTransformer, HookedTransformerConfig

        s = self.size
        return HookedTransformer(
            HookedTransformerConfig(
                n_layers=s.layers,
                d_model=s.width,
                d_head=s.width // s.heads,
                n_heads=s.heads,
                d_mlp=4 * s.width,
                n_ctx=2 * s.length if s.decoding else s.length,
                d_vocab=s.vocab,
                act_fn="gelu",
                normalization_type="LN",
                device=s.device,
                default_prepend_bos=False,
            )
        )

    def decode(self, prompt: Tensor, n: int) -> Tensor:
        written = self.model.generate(
            prompt,
            max_new_tokens=n,
            stop_at_eos=False,
            do_sample=False,
            use_past_kv_cache=True,
            prepend_bos=False,
            verbose=False,
            return_type="tokens",
        )
        return written[:, prompt.shape[1] :]

    def capture(self, tokens: Tensor, everything: bool) -> dict[str, Tensor]:
        def wanted(name: str) -> bool:
            return everything or name.endswith("hook_pattern") or "hook_resid" in name

        _, seen = self.model.run_with_cache(tokens, names_filter=wanted)
        return dict(seen)


CONTENDERS: tuple[type[Contender], ...] = (
    Ours,
    OursFastest,
    Torch,
    Gpt2,
    XTransformers,
    TransformerLens,
)
