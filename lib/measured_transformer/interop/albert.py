"""An ALBERT (Lan et al. 2020) in a folder whose weights may be pickled, as those of published ones are.

`from_huggingface` reads the same models, and no pickled weights; the tables of both stand in `bert_relatives`.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import torch

from measured_transformer.interop.bert_relatives import ALBERT
from measured_transformer.interop.checkpoint import Checkpoint, read_checkpoint
from measured_transformer.models.factorised import FactorisedEncoder


def read_albert(folder: str | Path, *, dtype: torch.dtype | None = None) -> FactorisedEncoder:
    """The model in a folder with `config.json` and its weights, in evaluation mode.

    Weights may be safetensors, or pickled as `pytorch_model.bin`, of which nothing but tensors is unpickled.

    Args:
        folder: a local one.
        dtype: of the model's numbers; that of the weights when not given.

    Raises:
        FileNotFoundError: when the folder, its config or its weights are missing.
        ValueError: when a file cannot be read, a setting asks for what is not computed here, or tensors are
            missing, surplus or misshapen.
    """
    folder = Path(folder)
    pickled = folder / "pytorch_model.bin"
    checkpoint = _unpickled(folder) if pickled.is_file() else read_checkpoint(folder)
    if (kind := checkpoint.config.get("model_type")) != ALBERT.name:
        raise ValueError(f"expected a checkpoint of model_type {ALBERT.name!r}, got {kind!r}")
    model = ALBERT.build(checkpoint, dtype=dtype)
    assert isinstance(model, FactorisedEncoder)
    return model


def _unpickled(folder: Path) -> Checkpoint:
    """What a folder with pickled weights holds."""
    pickled = folder / "pytorch_model.bin"
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
    return Checkpoint(settings, tensors, (settings.get("architectures") or [None])[0])
