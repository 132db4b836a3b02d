"""Reading and writing a folder with `config.json` and safetensors, or what a live model holds."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says about itself.

    Attributes:
        config: the settings of `config.json`.
        tensors: every tensor by its name.
        architecture: the class it was saved from, such as 'BertForMaskedLM'; None when it does not say.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    architecture: str | None


def read_checkpoint(source: str | Path | nn.Module) -> Checkpoint:
    """The settings and tensors of a folder or of a model of `transformers`.

    Raises:
        FileNotFoundError: when the folder, its config or a shard is missing.
        ValueError: when a file cannot be read, or the tensors are pickled.
    """
    if isinstance(source, nn.Module):
        config = getattr(source, "config", None)
        if config is None or not hasattr(config, "to_dict"):
            raise ValueError(
                "expected a folder or a model of transformers with a config, got "
                f"{type(source).__name__}"
            )
        tensors = {name: tensor.detach() for name, tensor in source.state_dict().items()}
        return Checkpoint(config.to_dict(), tensors, type(source).__name__)
    if not isinstance(source, str | PathLike):
        raise ValueError(
            f"expected a folder or a model of transformers, got {type(source).__name__}: tensors alone do "
            "not tell what is to be computed with them"
        )
    folder = Path(source)
    _refuse_pickle(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"expected a local folder with config.json and safetensors, got {str(source)!r}; "
            "nothing is downloaded: fetch the checkpoint first and give the folder"
        )
    if not (folder / "config.json").is_file():
        own = (folder / "model.json").is_file()
        hint = (
            "; it seems to be a model of measured_transformer.save: read it with load"
            if own
            else ""
        )
        raise FileNotFoundError(f"expected a config.json in {folder}{hint}")
    config = _read_json(folder / "config.json")
    tensors = _read_tensors(folder)
    named = config.get("architectures") or [None]
    return Checkpoint(config, tensors, named if isinstance(named, str) else named[0])


def write_checkpoint(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write `config.json` and `model.safetensors`: both whole, or neither, with what was there before."""
    told = json.dumps(config, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    weights, about = (
        folder / f".{name}.{os.getpid()}" for name in ("model.safetensors", "config.json")
    )
    try:
        save_file(dict(tensors), weights, metadata={"format": "pt"})
        about.write_text(told)
        weights.replace(folder / "model.safetensors")
        about.replace(folder / "config.json")
    finally:
        weights.unlink(missing_ok=True)
        about.unlink(missing_ok=True)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return _read_safetensors(whole)
    if index.is_file():
        places = _read_json(index).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(f, str) for f in places.values()):
            raise ValueError(
                f"{index} must hold a weight_map from names of tensors to names of files"
            )
        tensors: dict[str, Tensor] = {}
        for shard in sorted(set(places.values())):
            if Path(shard).name != shard or not (folder / shard).is_file():
                raise FileNotFoundError(f"{index} names a shard that is not in the folder: {shard}")
            tensors.update(_read_safetensors(folder / shard))
        if lost := sorted(set(places) - set(tensors)):
            raise ValueError(f"{index} promises tensors that no shard holds: {', '.join(lost)}")
        return tensors
    for file in sorted(folder.iterdir()):
        _refuse_pickle(file)
    raise FileNotFoundError(
        f"expected model.safetensors or model.safetensors.index.json in {folder}"
    )


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file} is no safetensors file, or it is damaged: {error}") from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is no JSON: {error}") from error
    if not isinstance(read, dict):
        raise ValueError(f"{file} must hold a JSON object, got a {type(read).__name__}")
    return read


def _refuse_pickle(file: Path) -> None:
    if file.suffix in _PICKLED and file.is_file():
        raise ValueError(
            f"{file} is pickled: reading it could run any code it holds, so it is refused. Convert it to "
            "safetensors where you trust it (save_pretrained of transformers writes that)"
        )
