"""From a checkpoint of the Hugging Face format to a model of this library, and back.

The names of tensors and settings are those of the `transformers` library, which is not needed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from measured_transformer.interop.bart import BART, MARIAN
from measured_transformer.interop.bert import BERT
from measured_transformer.interop.bert_relatives import (
    ALBERT,
    CAMEMBERT,
    DISTILBERT,
    ELECTRA,
    MPNET,
    ROBERTA,
    XLM_ROBERTA,
)
from measured_transformer.interop.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from measured_transformer.interop.cohere import COHERE
from measured_transformer.interop.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from measured_transformer.interop.family import Family, Model
from measured_transformer.interop.gemma import GEMMA, GEMMA2, GEMMA3
from measured_transformer.interop.gpt2 import GPT2
from measured_transformer.interop.gpt_neo import GPT_NEO, OPT
from measured_transformer.interop.gpt_neox import GPT_NEOX, GPTJ, PHI
from measured_transformer.interop.gpt_oss import GPT_OSS
from measured_transformer.interop.granite import GRANITE
from measured_transformer.interop.llama import LLAMA
from measured_transformer.interop.mistral import MISTRAL
from measured_transformer.interop.mixtral import MIXTRAL
from measured_transformer.interop.modernbert import MODERNBERT
from measured_transformer.interop.olmo import OLMO, OLMO2
from measured_transformer.interop.phi3 import PHI3
from measured_transformer.interop.proof import check_real, prove_same
from measured_transformer.interop.qwen import QWEN2, QWEN3
from measured_transformer.interop.qwen_moe import OLMOE, QWEN2_MOE, QWEN3_MOE
from measured_transformer.interop.smollm3 import SMOLLM3
from measured_transformer.interop.stablelm import STABLELM
from measured_transformer.interop.t5 import MT5, T5
from measured_transformer.interop.tensors import named_tensors

NEAREST = 4
"""So many architectures are named where none fits: those with the fewest reasons against them."""
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *(GPT2, LLAMA, BERT, T5),
        *(QWEN2, QWEN3, MISTRAL, GEMMA3, GEMMA2, GEMMA, PHI3, SMOLLM3),
        *(OLMO2, OLMO, GRANITE, STABLELM, COHERE),
        *(MIXTRAL, QWEN3_MOE, GPT_OSS, QWEN2_MOE, OLMOE, DEEPSEEK_V3, DEEPSEEK_V2),
        *(GPT_NEOX, OPT, PHI, GPT_NEO, GPTJ),
        *(ROBERTA, XLM_ROBERTA, DISTILBERT, MODERNBERT, MPNET, ELECTRA, ALBERT, CAMEMBERT),
        *(BART, MARIAN, MT5),
    )
}
"""What can be read and written. A model is written as the first that has its config."""


def from_huggingface(
    path_or_model: str | Path | nn.Module,
    *,
    dtype: torch.dtype | None = None,
    ignore: Iterable[str] = (),
) -> Model:
    """The model of this library that computes what a checkpoint of one of `FAMILIES` computes.

    The taps `embedding`, `blocks.{i}.residual_post` and `final_state` show what `transformers` calls hidden
    states. Positions are counted from the real tokens, so that padding moves no token; to number them by
    place in the row, as `transformers` does unless told otherwise, give ``positions`` in the call (of an
    `EncoderDecoder` ``source_positions``). In float64
    every step here is float64; `transformers` takes RMS norms and rotary angles in float32 all the same.

    Args:
        path_or_model: a local folder with `config.json` and `model.safetensors` (or shards with their index),
            or a model of `transformers`.
        dtype: of the model's numbers: float64, float32, bfloat16 or float16; that of the checkpoint when not
            given (the widest where they differ).
        ignore: names or globs of tensors to leave out on purpose, such as a head that has no place here.

    Returns:
        A `Decoder` (GPT-2, Llama and their relatives), an `Encoder` (BERT and its relatives, with any of their
        heads, and the encoder of a T5 alone; a `FactorisedEncoder` where embeddings are narrower) or an
        `EncoderDecoder` (T5, mT5, BART, Marian), in evaluation mode. Where a checkpoint has different dropout
        rates for different places, the model has the largest.

    Raises:
        FileNotFoundError: when the folder or a file in it is missing.
        ValueError: when the architecture is unknown, a setting asks for something that this library does not
            compute, tensors are missing, surplus, misshapen or at odds with each other, without numbers (on the
            meta device), quantised or in an 8-bit precision, or the checkpoint is pickled.
    """
    checkpoint = read_checkpoint(path_or_model)
    return _family(checkpoint).build(checkpoint, dtype=dtype, ignore=ignore)


def to_huggingface(
    model: Model,
    path: str | Path | None = None,
    *,
    model_type: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings and tensors from which `transformers` builds the same model.

    Before anything is written the model is read back from them and compared with the one given (`proof`). A
    model that is no longer what its config says, because a part was exchanged, folded or hooked, is refused.

    Args:
        model: a model whose config is one that an architecture of `FAMILIES` has.
        path: a folder to write `config.json` and `model.safetensors` to; made when it is missing.
        model_type: the architecture to write, where more than one has the config; the first that fits when
            not given.
        extra: settings to add, such as the numbers of special tokens; none of those that describe the model.

    Returns:
        What `config.json` holds, and copies of the tensors by name; what is tied stands there once.

    Raises:
        ValueError: when no architecture fits, or not the one that is asked for, and says what stands in the
            way; when `extra` changes a setting of the model; when the model read back is another one. Then
            nothing is written, and what the folder held is left as it was.
    """
    if not isinstance(model, Model):
        raise ValueError(
            f"expected a Decoder, an Encoder or an EncoderDecoder, got {type(model).__name__}"
        )
    if model_type is not None and model_type not in FAMILIES:
        raise ValueError(f"model_type must be one of {', '.join(FAMILIES)}; got {model_type!r}")
    reasons = {}
    families = FAMILIES.values() if model_type is None else [FAMILIES[model_type]]
    for family in (form for one in families for form in (one, *one.forms)):
        settings = family.write_config(model)
        if isinstance(settings, dict):
            break
        reasons[family] = settings
    else:
        nearest = sorted(
            reasons, key=lambda one: (not isinstance(model, one.kind), len(reasons[one]))
        )
        raise ValueError(
            "no architecture has this config:\n"
            + "\n".join(f"  {one.title}: {'; '.join(reasons[one])}" for one in nearest[:NEAREST])
        )
    check_real(model)
    tensors = named_tensors(model, family.entries(model.config))
    if not settings["tie_word_embeddings"]:  # then a head reads tensors of its own, even when equal
        for second, first in family.tied_names(model.config).items():
            if second.startswith((*family.heads, *family.repeated)):
                tensors[second] = tensors[first].clone()
    dtype = next(iter(tensors.values())).dtype
    if wrong := [
        name
        for name, value in (extra or {}).items()
        if settings.get(name, value) != value and name not in family.free
    ]:
        raise ValueError(
            f"extra adds settings and cannot change those of the model, got {', '.join(sorted(wrong))}"
        )
    settings = {**settings, "dtype": str(dtype).removeprefix("torch."), **(extra or {})}
    tensors = family.with_prefix(tensors, model.config)
    settings = json.loads(json.dumps(settings))
    named = (settings.get("architectures") or [None])[0]
    try:
        written = Checkpoint(settings, tensors, named)
        rebuilt = _family(written).build(written, dtype=dtype)
    except ValueError as error:
        raise ValueError(f"what would be written cannot be read back: {error}") from error
    prove_same(model, rebuilt)
    if path is not None:
        write_checkpoint(Path(path), settings, tensors)
    return settings, tensors


def _family(checkpoint: Checkpoint) -> Family:
    kind = checkpoint.config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(
            f"expected a checkpoint whose model_type is one of {', '.join(FAMILIES)}; got {kind!r}"
        )
    family = FAMILIES[kind]
    return next((form for form in family.forms if checkpoint.architecture in form.classes), family)
