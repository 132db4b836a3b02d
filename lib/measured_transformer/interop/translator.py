"""Saves a translator and its tokenizer in one file, so that they cannot be mixed up.

The numbers of a model's tokens mean something only together with the tokenizer that gave them. With another one
a model writes fluent nonsense, and nothing fails. So both are kept together, and what does not fit is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from measured_transformer.interop.proof import prove_same
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.kept_config import config_from_json, config_to_json

SPECIAL = 4
"""Tokens behind the tokenizer's own: padding, start, end and the unknown word."""


def save_translator(file: Path | str, model: EncoderDecoder, tokenizer: str) -> None:
    """Write weights, config and tokenizer atomically: an existing file is replaced completely or not at all.

    Args:
        file: where to; its folder must exist.
        model: whose tokens are those of the tokenizer and `SPECIAL` more.
        tokenizer: of the package `tokenizers`, as the text that its `to_str` gives.

    Raises:
        ValueError: when the tokenizer cannot be read or does not fit the model, or the model is no longer what
            its config says; then nothing is written.
        OSError: when the file cannot be written; an older one is left as it was.
    """
    _check_fit(tokenizer, model.config.vocab)
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    rebuilt = _rebuilt(model.config, tensors)
    prove_same(model, rebuilt)
    about = {"config": json.dumps(config_to_json(model.config)), "tokenizer": tokenizer}
    path = Path(file)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors, beside, metadata=about)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load_translator(
    file: Path | str, *, tokenizer: str | None = None
) -> tuple[EncoderDecoder, str]:
    """Read a translator: the model, in evaluation mode, and the text of its tokenizer.

    Args:
        file: what `save_translator` wrote.
        tokenizer: the one that the caller means to use, where there is one: it must be the model's own.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when the file is damaged or holds something else, or the tokenizer is not that of the model.
    """
    if not Path(file).is_file():
        raise FileNotFoundError(f"expected the file of a translator, got {str(file)!r}")
    try:
        with safe_open(file, framework="pt") as stored:
            about = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    if missing := {"config", "tokenizer"} - set(about):
        raise ValueError(f"{file} is no translator: it lacks {', '.join(sorted(missing))}")
    config = config_from_json(json.loads(about["config"]))
    _check_fit(about["tokenizer"], config.vocab)
    if tokenizer is not None and _pieces(tokenizer) != _pieces(about["tokenizer"]):
        raise ValueError(
            f"the tokenizer is not that of {file}: its tokens have other numbers, and the model would read "
            "other words than were written"
        )
    try:
        return _rebuilt(config, tensors), about["tokenizer"]
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _rebuilt(config: Config, tensors: Mapping[str, Tensor]) -> EncoderDecoder:
    """The model with these weights, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        model = EncoderDecoder(config)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"the weights do not fit the config: {error}") from error
    return model.eval()


def _pieces(tokenizer: str) -> dict[str, int]:
    """The tokens of a tokenizer with their numbers."""
    try:
        found = json.loads(tokenizer)["model"]["vocab"]
        return {str(piece): int(number) for piece, number in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            "expected the text of a tokenizer (to_str), with a table of numbers by piece"
        ) from error


def _check_fit(tokenizer: str, vocab: int) -> None:
    count = len(_pieces(tokenizer))
    if count + SPECIAL != vocab:
        raise ValueError(
            f"the tokenizer has {count} pieces and the model {vocab} tokens: expected {SPECIAL} more tokens "
            "than pieces (padding, start, end, unknown)"
        )
