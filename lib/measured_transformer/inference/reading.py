"""How the functions that write text call a model: only the last logits, and one product for three projections.

All of them go through a model's own forward pass. What a cache allows to leave out is left out: where the model
computes as its class says, the unembedding reads only the last positions; where its `forward` was replaced or
hooked, the whole model is called.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.stack import Stack
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block


def last_logits(
    model: Decoder | EncoderDecoder,
    tokens: Int[Tensor, "row position"],
    *,
    last: int = 1,
    padding_mask: Bool[Tensor, "row position"] | None = None,
    source: Int[Tensor, "row source"] | None = None,
    source_padding_mask: Bool[Tensor, "row source"] | None = None,
    cache: KeyValueCache | None = None,
) -> Float[Tensor, "row last vocab"]:
    """The model's logits at the last positions of a call, in float32 at least.

    Args:
        model: what is called.
        tokens: those that come next; of the target in an encoder-decoder.
        last: number of positions.
        padding_mask: True for real tokens among them.
        source, source_padding_mask: what an encoder-decoder reads.
        cache: of the earlier calls.

    Raises:
        ValueError: when an encoder-decoder gets no source to read.
    """
    if computes_as_its_class(model):
        memory = None
        if isinstance(model, EncoderDecoder):
            memory = None if cache is None else cache.memory
            if memory is None:
                if source is None:
                    raise ValueError("an EncoderDecoder needs a source to read, got none")
                memory = model.encode(source, padding_mask=source_padding_mask)
            if cache is not None:
                cache.memory = memory
        stack = model.decoder if isinstance(model, EncoderDecoder) else model
        stream = stack.stream(
            tokens,
            padding_mask=padding_mask,
            memory=memory,
            memory_padding_mask=None if memory is None else source_padding_mask,
            cache=cache,
        )
        logits: Tensor = model.unembed(stream if stream.shape[1] == last else stream[:, -last:])
    elif isinstance(model, EncoderDecoder):
        logits = model(
            source,
            tokens,
            source_padding_mask=source_padding_mask,
            target_padding_mask=padding_mask,
            cache=cache,
        )[:, -last:]
    else:
        logits = model(tokens, padding_mask=padding_mask, cache=cache)[:, -last:]
    # Sums of many small probabilities need more digits than half precision has.
    return logits.float() if logits.itemsize < 4 else logits


def computes_as_its_class(model: nn.Module) -> bool:
    """Return whether calling the model is no more than what `Decoder` or `EncoderDecoder` does."""
    if model._forward_hooks or model._forward_pre_hooks:
        return False
    base = EncoderDecoder if isinstance(model, EncoderDecoder) else Decoder
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    steps = ("forward", "decode", "unembed") if base is EncoderDecoder else ("forward", "unembed")
    own = all(getattr(type(model), name) is getattr(base, name) for name in steps)
    own = own and getattr(type(stack), "stream", None) is Stack.stream
    return own and not {*steps, "stream"} & (vars(model).keys() | vars(stack).keys())


def join_projections(
    stack: Stack,
    cache: KeyValueCache,
    make: Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]] | None = None,
) -> None:
    """Let each attention layer compute queries, keys and values by one product, as long as this cache is used.

    The weights are copied: they must stay what they are while the cache is used, as in one call of `generate`.

    Args:
        stack, cache: whose layers they are, and where their products are kept.
        make: as in `MultiHeadAttention.join_projections`.
    """
    for block, layer in zip(stack.blocks, cache.layers, strict=True):
        attention = block.attention if isinstance(block, Block) else None
        if isinstance(attention, MultiHeadAttention):
            layer.joined = attention.join_projections(make)
