"""A model in a folder: its weights as safetensors, and its config as JSON beside them.

`save` writes every `Decoder`, `Encoder`, `FactorisedEncoder` and `EncoderDecoder` whose parts are those of its
config; `load` gives the same model back, bit for bit. Weights that are tied, or that blocks share, are written
once. Nothing is pickled.

`model.json` names the file of the weights and replaces its predecessor in one step, last of all. So a folder
holds at any time a whole model: the new one, or the one that it held before. Texts may be kept `beside` the
weights, as `language.saving` keeps a tokenizer.

>>> import tempfile, torch
>>> from measured_transformer.models.decoder import Decoder
>>> model = Decoder(Config(vocab=10, positions="rotary")).eval()
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = save(model, folder)
...     again = load(folder)
>>> tokens = torch.tensor([[3, 1, 4]])
>>> again.config == model.config, torch.equal(again(tokens), model(tokens))
(True, True)
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.factorised import FactorisedEncoder
from measured_transformer.models.kept_config import config_from_json, config_to_json
from measured_transformer.models.own_parts import check_own_parts, main_dtype

Model = Decoder | Encoder | EncoderDecoder
FILE = "model.json"
"""The file that makes a folder one of `save`."""
FORMAT = "measured_transformer model"
VERSION = 1
"""Version of the format; `load` reads this one and all before it."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w-]*\.\w+")
_KINDS: dict[str, type[Model]] = {
    kind.__name__: kind for kind in (Decoder, Encoder, FactorisedEncoder, EncoderDecoder)
}


def save(
    model: Any,
    folder: str | Path,
    *,
    types: Iterable[type] = (),
    beside: Mapping[str, str] | None = None,
) -> Path:
    """Write a model to a folder, from which `load` makes it again.

    Gradients, the state of an optimiser and the mode (training or evaluation) are not kept; what goes on from
    where a training was is `train(..., checkpoint=...)`.

    Args:
        model: a `Decoder`, `Encoder` or `EncoderDecoder`, or what holds one as `model`, such as the result of
            `train` or a model that comes with its tokenizer: then that one, without what is beside it.
        folder: made where it is missing. A model that was saved there before is replaced, other files stay.
        types: frozen dataclasses of your own that stand in the config; `load` is given the same.
        beside: texts to keep with the model, by names such as 'notes.txt'; `kept_beside` reads them.

    Returns:
        The folder.

    Raises:
        ValueError: when it is no such model, or its modules are not those that its config describes (a variant,
            a replaced or removed part, a hook), so that another model would be loaded; when the config holds
            what cannot be kept; when a name in `beside` is no plain file name with an ending; or when the
            folder is a file. Nothing is written then.
    """
    types, texts = tuple(types), dict(beside or {})
    for name in texts:
        if not _PLAIN_NAME.fullmatch(name):
            raise ValueError(f"expected a file name such as 'notes.txt' in beside, got {name!r}")
    model = _checked(model)
    check_path("folder", folder)
    told = config_to_json(model.config, types)
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise ValueError(f"expected a folder to save a model to, got the file {place}")
    with _fresh(type(model), model.config) as twin:
        check_own_parts(model, twin)
        tied = _tied(twin)
    tensors = {
        name: _plain(tensor) for name, tensor in model.state_dict().items() if name not in tied
    }
    place.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {
        "format": FORMAT,
        "format_version": VERSION,
        "model": type(model).__name__,
        "dtype": str(main_dtype(model)).removeprefix("torch."),
        "tied": tied,
        "config": told,
    }
    before = _files_before(place)
    made: list[Path] = []
    try:
        weights = _keep(place, "weights.safetensors", lambda part: save_file(tensors, part), made)
        files = {name: _keep_text(place, name, text, made) for name, text in texts.items()}
        told_beside = {"beside": files} if files else {}
        about = {**about, **told_beside, "weights": weights}
        _write(place / FILE, json.dumps(about, indent=2) + "\n")
    except BaseException:
        for file in made:
            file.unlink(missing_ok=True)
        raise
    for name in before - {weights, *files.values()}:
        (place / name).unlink(missing_ok=True)
    return place


def load(folder: str | Path, *, types: Iterable[type] = ()) -> Model:
    """The model that `save` wrote to a folder, on the CPU and in evaluation mode.

    Args:
        folder: what `save` was given.
        types: frozen dataclasses of your own that stand in the config.

    Raises:
        FileNotFoundError: when there is no such folder, or no saved model in it.
        ValueError: when it holds something else, such as a checkpoint of the Hugging Face format; when a newer
            version of the library wrote it; when a file is damaged, or tensors are missing, surplus or of
            another shape than the config asks for.
    """
    check_path("folder", folder)
    about, place = _about(Path(folder)), Path(folder)
    kind, config = _KINDS[about["model"]], config_from_json(about["config"], types)
    tensors = _read(place / about["weights"])
    with _fresh(kind, config) as model:
        tied = _tied(model)
        if about.get("tied") != tied:
            raise ValueError(
                f"{place / FILE} ties {_words(about.get('tied'))}, but its config ties {_words(tied)}: one of "
                "the two was changed by hand"
            )
        _check_tensors(place, tensors, model, tied)
        model.to(getattr(torch, about["dtype"]))
        _put(model, tensors, tied)
    return model.eval()


def kept_beside(folder: str | Path) -> dict[str, str]:
    """The texts that `save` was given to keep beside the model of a folder, by name; none: an empty dictionary.

    Raises:
        FileNotFoundError, ValueError: as `load`; also when one of the files is missing or no text.
    """
    check_path("folder", folder)
    place = Path(folder)
    found = {}
    for name, file in _about(place).get("beside", {}).items():
        try:
            found[name] = (place / file).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{place / file} is missing, which {FILE} beside it names: copy the whole folder"
            ) from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{place / file} is no text, or it is damaged: {error}") from error
    return found


def check_path(name: str, given: object) -> None:
    """Raise ValueError unless this names a place in the file system."""
    if not isinstance(given, str | Path):
        raise ValueError(f"{name} must be a path, such as 'models/first', got {given!r}")


# Models of a config ---------------------------------------------------------------------------------


class _Undrawn(TorchFunctionMode):
    """Leaves out the drawing of weights that are replaced at once."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (Tensor.normal_, Tensor.uniform_):
            return args[0]
        return func(*args, **(kwargs or {}))


@contextmanager
def _fresh(kind: type[Model], config: Config) -> Iterator[Model]:
    """A model of the config whose weights nobody has drawn; random numbers go on as if it had not been made."""
    with torch.random.fork_rng(devices=[]), _Undrawn():
        model = kind(config)
    yield model


def _tied(model: nn.Module) -> dict[str, str]:
    """For each further name of a tensor the first one."""
    first: dict[int, str] = {}
    tied = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        known = first.setdefault(id(tensor), name)
        if known != name:
            tied[name] = known
    return tied


@torch.no_grad()
def _put(model: nn.Module, tensors: Mapping[str, Tensor], tied: Mapping[str, str]) -> None:
    """Give a model these tensors, not copies of them."""
    own = model.state_dict(keep_vars=True)
    made = {
        name: nn.Parameter(tensor, requires_grad=own[name].requires_grad)
        if isinstance(own[name], nn.Parameter)
        else tensor
        for name, tensor in tensors.items()
    }
    for name in own:
        module, _, last = name.rpartition(".")
        setattr(model.get_submodule(module), last, made[tied.get(name, name)])


def _checked(model: Any) -> Model:
    held = model if type(model) in _KINDS.values() else getattr(model, "model", model)
    if isinstance(held, Model) and type(held) in _KINDS.values():
        return held
    compiled = " (it was compiled: save the model that torch.compile was given)"
    hint = compiled if hasattr(held, "_orig_mod") else ""
    raise ValueError(
        f"expected a Decoder, an Encoder or an EncoderDecoder to save, got {type(held).__name__}{hint}; "
        "a subclass may compute something else, and load would not make it"
    )


# Files ----------------------------------------------------------------------------------------------


def _plain(tensor: Tensor) -> Tensor:
    """A tensor on the CPU that lies in one piece in a storage of its own."""
    tensor = tensor.detach().cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def _write(file: Path, text: str) -> None:
    """Replace a file in one step."""
    part = file.with_name(f".{uuid4().hex}.part")
    try:
        with part.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _keep(place: Path, name: str, write: Callable[[Path], None], made: list[Path]) -> str:
    """Write a file under a name with the digest of what is in it; what is new in the folder goes to `made`."""
    part = place / f".{uuid4().hex}.part"
    try:
        write(part)
        stem, dot, ending = name.rpartition(".")
        kept = f"{stem}-{_digest(part)}{dot}{ending}"
        if not (place / kept).exists():  # the same contents have the same name
            made.append(place / kept)
            part.replace(place / kept)
    finally:
        part.unlink(missing_ok=True)
    return kept


def _keep_text(place: Path, name: str, text: str, made: list[Path]) -> str:
    def write(part: Path) -> None:
        part.write_text(text, encoding="utf-8")

    return _keep(place, name, write, made)


def _files_before(place: Path) -> set[str]:
    """The names of the weights and of what is beside them in the folder already."""
    try:
        about = _about(place)
    except (OSError, ValueError):
        return set()
    return {str(about["weights"]), *about.get("beside", {}).values()}


def _about(place: Path) -> dict[str, Any]:
    """What the folder says about its model, checked."""
    if not place.is_dir():
        what = "a file" if place.exists() else "nothing there"
        raise FileNotFoundError(
            f"expected a folder that measured_transformer.save wrote, got {what}: {place}"
        )
    file = place / FILE
    if not file.is_file():
        if (place / "config.json").is_file():
            raise ValueError(
                f"{place} holds no {FILE} but a config.json, as folders of the Hugging Face format do: read "
                "it with measured_transformer.interop.from_huggingface"
            )
        raise FileNotFoundError(
            f"{place} holds no {FILE}: measured_transformer.save wrote nothing here"
        )
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is no JSON, or it is damaged: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"{file} was not written by measured_transformer.save")
    version = about.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise ValueError(
            f"{file} has format_version {version!r}, and this version of measured_transformer reads up to "
            f"{VERSION}: install a newer one"
        )
    if about.get("model") not in _KINDS:
        raise ValueError(f"{file} must name one of {', '.join(_KINDS)}, got {about.get('model')!r}")
    if not isinstance(getattr(torch, str(about.get("dtype")), None), torch.dtype):
        raise ValueError(f"{file} must name a precision of torch, got {about.get('dtype')!r}")
    weights = about.get("weights")
    if not isinstance(weights, str) or Path(weights).name != weights:
        raise ValueError(f"{file} must name the file of the weights beside it, got {weights!r}")
    beside = about.get("beside", {})
    if not isinstance(beside, dict) or not all(
        isinstance(one, str) and Path(one).name == one for one in beside.values()
    ):
        raise ValueError(f"{file} must name files beside it, got {beside!r}")
    return about


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} is missing, which {FILE} beside it names: copy the whole folder"
        )
    try:
        # In a file tensors lie one behind the other. Copies begin where PyTorch's own do: on some processors
        # the last digits of a product depend on that, and its speed.
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is no safetensors file, or it is damaged: {error}") from error


def _check_tensors(
    place: Path, tensors: Mapping[str, Tensor], model: nn.Module, tied: Mapping[str, str]
) -> None:
    own = {n: t for n, t in model.state_dict().items() if n not in tied}
    missing, surplus = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    other = [
        f"{n} {tuple(tensors[n].shape)} instead of {tuple(own[n].shape)}"
        for n in own
        if n in tensors and tensors[n].shape != own[n].shape
    ]
    faults = [
        f"{kind}: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
        for kind, names in (("missing", missing), ("surplus", surplus), ("misshapen", other))
        if names
    ]
    if faults:
        raise ValueError(f"the tensors in {place} do not fit its config: {'; '.join(faults)}")


def _words(tied: Any) -> str:
    if not isinstance(tied, dict) or not tied:
        return "nothing"
    return ", ".join(f"{second} to {first}" for second, first in tied.items())
