"""The common base of the architectures' files: the form of their tables, and checks of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.tensors import Entry
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.feedforward import Activation

Model = Decoder | Encoder | EncoderDecoder
"""Any model of this library."""
HEADS = ("lm_head.", "cls.")  # what the names of a head's tensors begin with

# What `transformers` calls the functions, and what they are called here.
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "silu": "silu",
    "swish": "silu",
}
GATED: dict[Activation, Activation] = {
    "relu": "reglu",
    "gelu": "geglu",
    "gelu_tanh": "geglu_tanh",
    "silu": "swiglu",
}
NAMES: dict[Activation, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "gelu_sigmoid": "quick_gelu",
    "silu": "silu",
}
UNGATED: dict[Activation, Activation] = {gated: plain for plain, gated in GATED.items()}


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
        name: its `model_type`.
        prefix: what the names of all tensors but a head's begin with in a model that has a head.
        derived_tensors: globs of stored tensors that follow from the config.
        build: a fresh model for a checkpoint; raises ValueError for settings that are not supported.
        entries: the table of names, without prefix.
        tied_names: names that repeat a tensor, and that tensor's name.
        kind: the class of its models.
        incompatibilities: reasons why a config is none of this architecture; empty when there are none.
        settings: its settings for such a config, beside `model_type`.
        tidy: the tensors under today's names, without those that the settings leave unread.
    """

    name: str
    prefix: str
    derived_tensors: tuple[str, ...]
    build: Callable[[Checkpoint, Mapping[str, Tensor]], Model]
    entries: Callable[[Config], list[Entry]]
    tied_names: Callable[[Config], dict[str, str]]
    kind: type[Decoder] | type[Encoder] | type[EncoderDecoder]
    incompatibilities: Callable[[Config], list[str]]
    settings: Callable[[Config], dict[str, Any]]
    tidy: Callable[[Mapping[str, Any], dict[str, Tensor]], dict[str, Tensor]] = lambda _, held: held

    def cleaned(self, checkpoint: Checkpoint, ignore: Iterable[str]) -> dict[str, Tensor]:
        """The tensors under the names of the table, without derived and ignored ones.

        Raises:
            ValueError: when two tensors have the same name in the table.
        """
        ignore = [ignore] if isinstance(ignore, str) else list(ignore)
        kept: dict[str, Tensor] = {}
        for name, tensor in checkpoint.tensors.items():
            short = name.removeprefix(self.prefix)
            if any(fnmatchcase(short, pattern) for pattern in self.derived_tensors):
                continue
            if any(fnmatchcase(n, pattern) for pattern in ignore for n in (name, short)):
                continue
            if short in kept:
                raise ValueError(f"the checkpoint holds {short} twice, with and without prefix")
            kept[short] = tensor
        return self.tidy(checkpoint.config, kept)

    def write_config(self, model: Model) -> dict[str, Any] | str:
        """The settings of a model, or the reasons why it does not fit this architecture."""
        incompatibilities = self.incompatibilities(model.config)
        if not isinstance(model, self.kind):
            article = "a" if self.kind is Decoder else "an"
            incompatibilities = [*incompatibilities, f"it must be {article} {self.kind.__name__}"]
        if incompatibilities:
            return "; ".join(incompatibilities)
        return {"model_type": self.name, **self.settings(model.config)}

    def with_prefix(self, tensors: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
        """The tensors under the names that a model with or without head gives them."""
        if config.head == "none":
            return dict(tensors)
        return {
            name if name.startswith(HEADS) else self.prefix + name: tensor
            for name, tensor in tensors.items()
        }


def require(config: Mapping[str, Any], **supported: Any) -> None:
    """Raise ValueError when a setting has another value than the supported one."""
    for name, value in {"quantization_config": None, **supported}.items():
        if name in config and config[name] != value and config[name] is not None:
            raise ValueError(
                f"this checkpoint has {name}={config[name]!r}, which this library does not compute; "
                f"supported is {name}={value!r}"
            )


def architecture(checkpoint: Checkpoint, supported: Iterable[str], default: str) -> str:
    """The class that the checkpoint was saved from.

    Raises:
        ValueError: when it is none of the supported ones.
    """
    name = checkpoint.architecture or default
    if name not in supported:
        raise ValueError(
            f"expected a checkpoint of {', '.join(supported)}; got one of {name}, for which this library "
            "has no model"
        )
    return name


def activation(config: Mapping[str, Any], field: str, default: str) -> Activation:
    """The activation that a setting names. Raises ValueError when it is unknown here."""
    name = config.get(field, default)
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(f"{field} must be one of {', '.join(ACTIVATIONS)}; got {name!r}")
    return ACTIVATIONS[name]


def gated(plain: Activation, field: str) -> Activation:
    """The gated form of an activation. Raises ValueError when there is none here."""
    if plain not in GATED:
        raise ValueError(f"{field} with a gate must be one of {', '.join(GATED)}; got {plain!r}")
    return GATED[plain]


def dropout(config: Mapping[str, Any], *fields: str, default: float) -> float:
    """The largest dropout rate: one rate serves all places here. Raises ValueError for what is no number."""
    rates = [config.get(field, default) or 0.0 for field in fields]
    for field, rate in zip(fields, rates, strict=True):
        if not isinstance(rate, int | float):
            raise ValueError(f"{field} must be a number, got {rate!r}")
    return float(max(rates))


def misfits(config: Config, **wanted: Any) -> list[str]:
    """One message for each field whose value differs from the one that an architecture needs."""
    return [
        f"{name} must be {value!r}, is {getattr(config, name)!r}"
        for name, value in wanted.items()
        if getattr(config, name) != value
    ]


def applying(*reasons: tuple[bool, str]) -> list[str]:
    """The reasons that apply, from pairs of a condition and a reason."""
    return [reason for applies, reason in reasons if applies]
