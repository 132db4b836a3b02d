"""The common base of the architectures' files: the form of their tables, and checks of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.tensors import PRECISIONS, Entry, check_numbers, load_tensors
from measured_transformer.interop.words import with_settings
from measured_transformer.models.config import Config, Layer
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.factorised import FactorisedConfig, FactorisedEncoder
from measured_transformer.parts.experts import Experts
from measured_transformer.parts.feedforward import Activation
from measured_transformer.parts.latent import Latent
from measured_transformer.parts.position_schemes import SCHEMES

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
_PLAIN = {"d_embedding": None, "shared_groups": 0, "group_layers": 1}
"""What a config without a factorised embedding would have in a `FactorisedConfig`."""
_BY_LAYER = tuple(field.name for field in fields(Layer))
UNGATED: dict[Activation, Activation] = {gated: plain for plain, gated in GATED.items()}


class MisfitError(ValueError):
    """A config has what an architecture has no setting for."""


@dataclass(frozen=True)
class Family:
    """One architecture: a table of names of tensors, and settings in both directions.

    Attributes:
        name: its `model_type`.
        prefix: what the names of all tensors but a head's begin with in a model that has a head.
        kind: the class of its models.
        config_of: the config for a checkpoint; raises ValueError for settings that are not supported.
        entries: the table of names, without prefix.
        settings: its settings for a config, beside `model_type`, from which `config_of` makes that config
            again; raises `MisfitError` where there is no such setting. What they leave out need not be checked.
        tied_names: names that repeat a tensor, and that tensor's name.
        derived_tensors: globs of stored tensors that follow from the config.
        heads: what the names of its heads' tensors begin with.
        tidy: the tensors under today's names, without those that the settings leave unread.
        repeated: what the names of further tensors of `tied_names` begin with that are written, as those of a
            head are, where the settings tie nothing.
        free: settings that `settings` chooses and that say nothing of the model, such as numbers of tokens.
        classes: of a form of another family, the classes that it reads.
        forms: further kinds of models of the same `model_type`.
    """

    name: str
    prefix: str
    kind: type[Decoder] | type[Encoder] | type[EncoderDecoder]
    config_of: Callable[[Checkpoint, Mapping[str, Tensor]], Config]
    entries: Callable[[Config], list[Entry]]
    settings: Callable[[Config], dict[str, Any]]
    tied_names: Callable[[Config], dict[str, str]] = lambda _: {}
    derived_tensors: tuple[str, ...] = ()
    heads: tuple[str, ...] = HEADS
    tidy: Callable[[Mapping[str, Any], dict[str, Tensor]], dict[str, Tensor]] = lambda _, held: held
    repeated: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    forms: tuple[Family, ...] = ()

    def build(
        self,
        checkpoint: Checkpoint,
        *,
        dtype: torch.dtype | None = None,
        ignore: Iterable[str] = (),
    ) -> Model:
        """The model that a checkpoint describes, in evaluation mode; arguments as of `from_huggingface`.

        Raises:
            ValueError: when the checkpoint asks for what is not computed, or its tensors do not fit.
        """
        if dtype is not None and dtype not in PRECISIONS:
            raise ValueError(f"dtype must be one of {', '.join(map(str, PRECISIONS))}, got {dtype}")
        tensors = self.cleaned(checkpoint, ignore)
        check_numbers(tensors)
        config = self.read(checkpoint, tensors)
        kind = FactorisedEncoder if isinstance(config, FactorisedConfig) else self.kind
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced
            try:
                model: Model = kind(config)
            except ValueError as error:
                raise ValueError(with_settings(str(error), checkpoint.config)) from error
        if dtype is None:
            kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
            dtype = reduce(torch.promote_types, kinds) if kinds else torch.float32
        model = model.to(dtype)
        load_tensors(model, self.entries(config), tensors, self.tied_names(config))
        return model.eval()

    def read(self, checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
        """The config for a checkpoint, as `config_of`; every refusal names the settings that it is about.

        Raises:
            ValueError: as `config_of`.
        """
        try:
            return self.config_of(checkpoint, tensors)
        except ValueError as error:
            raise ValueError(with_settings(str(error), checkpoint.config)) from error

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"{self.name} ({', '.join(self.classes)})" if self.classes else self.name

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

    def write_config(self, model: Model) -> dict[str, Any] | list[str]:
        """The settings of a model, or the reasons why it does not fit this architecture.

        The settings are read again: a config that does not come back has something that they do not say.
        """
        if not isinstance(model, self.kind):
            article = "a" if self.kind is Decoder else "an"
            return [f"it must be {article} {self.kind.__name__}"]
        config = model.config
        try:
            settings = {"model_type": self.name, **self.settings(config)}
            names = [row.theirs for row in self.entries(config)]
            held = {name: torch.tensor([i]) for i, name in enumerate(names)}
            if not settings.get(
                "tie_word_embeddings", False
            ):  # then a head is written, even if equal
                held |= {
                    second: held[first]
                    for second, first in self.tied_names(config).items()
                    if second.startswith(self.heads)
                }
            checkpoint = Checkpoint(settings, held, settings["architectures"][0])
            again = self.config_of(checkpoint, held)
        except ValueError as error:
            return [str(error)]
        return differences(config, again, self.kind) or self._strangers(model) or settings

    def _strangers(self, model: Model) -> list[str]:
        """Parameters that the table does not have, and those that it has and the model does not."""
        parameters = dict(model.named_parameters(remove_duplicate=False))
        stored = {name for row in self.entries(model.config) for name in row.ours}
        if missing := sorted(stored - parameters.keys()):
            return [f"its model has {', '.join(missing)}, which this one lacks"]
        known = {id(parameters[name]) for name in stored}
        others = sorted(name for name, one in parameters.items() if id(one) not in known)
        return [f"it stores no {', '.join(others)}"] if others else []

    def with_prefix(self, tensors: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
        """The tensors under the names that a model with or without head gives them."""
        if config.head == "none":
            return dict(tensors)
        return {
            name if name.startswith(self.heads) else self.prefix + name: tensor
            for name, tensor in tensors.items()
        }


def require(config: Mapping[str, Any], **supported: Any) -> None:
    """Raise ValueError when a setting has another value than the supported one."""
    for name, value in {"quantization_config": None, "per_layer_config": None, **supported}.items():
        if name in config and config[name] != value and config[name] is not None:
            raise ValueError(
                f"this checkpoint has {name}={config[name]!r}, which this library does not compute; "
                f"supported is {name}={value!r}"
            )


def whole(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A setting that is a size. Raises ValueError when it is no positive whole number."""
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    return value


def positive(config: Mapping[str, Any], name: str) -> float:
    """A setting that is a factor. Raises ValueError when it is no positive number."""
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


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
        theirs = ", ".join(NAMES[one] for one in GATED)
        raise ValueError(f"{field} with a gate must be one of {theirs}; got {NAMES[plain]!r}")
    return GATED[plain]


def dropout(config: Mapping[str, Any], *fields: str, default: float) -> float:
    """The largest dropout rate: one rate serves all places here. Raises ValueError for what is no number."""
    rates = [config.get(field, default) or 0.0 for field in fields]
    for field, rate in zip(fields, rates, strict=True):
        if not isinstance(rate, int | float):
            raise ValueError(f"{field} must be a number, got {rate!r}")
    return float(max(rates))


def named(value: Any, names: Mapping[Any, str], field: str) -> str:
    """The name of a value in the settings of an architecture. Raises MisfitError when it has none."""
    if value not in names:
        raise MisfitError(f"{field} must be one of {', '.join(map(str, names))}; is {value!r}")
    return names[value]


def differences(config: Config, other: Config, kind: type[Any]) -> list[str]:
    """One message for each choice in which two configs would give different models.

    Args:
        config: what there is.
        other: what an architecture would make of it.
        kind: the class of the models.
    """
    mine, theirs = _essence(config, kind), _essence(other, kind)
    if not (config.layers or other.layers):
        return _unequal(mine, theirs)
    common = {name: value for name, value in mine.items() if name not in _BY_LAYER}
    if found := _unequal(common, theirs):
        return found
    for i in range(max(config.n_layers, config.decoder_layers)):
        one, another = (_essence(c.of_layer(i), kind) for c in (config, other))
        own = {name: one[name] for name in _BY_LAYER}
        if found := _unequal(own, another, place=f"of layer {i} "):
            return found
    return []


def _unequal(mine: Mapping[str, Any], theirs: Mapping[str, Any], place: str = "") -> list[str]:
    # Between two schemes of positions, what belongs to one of them says nothing.
    alike = mine.get("positions") == theirs["positions"] or "positions" not in mine
    return [
        f"{name} {place}must be {theirs[name]!r}, is {value!r}"
        for name, value in mine.items()
        if theirs[name] != value and (alike or None not in (value, theirs[name]))
    ]


def _ungated(name: Activation) -> Activation:
    return UNGATED.get(name, name)


def _essence(config: Config, kind: type[Any]) -> dict[str, Any]:
    """What a config says, with the defaults written out and without what has no effect."""
    c, scheme = config, SCHEMES[config.positions]
    found = _PLAIN | {field.name: getattr(c, field.name) for field in fields(c)}
    # A stream that is float32 in float16 is the same function, with other rounding.
    for name in ("bias", "initialisation", "layers", "wide_stream"):
        del found[name]
    found |= {
        "n_decoder_layers": c.decoder_layers,
        "n_decoder_heads": c.decoder_heads,
        "d_decoder_ff": c.decoder_neurons,
        "n_kv_heads": c.kv_heads,
        "d_head": c.head_width,
        "d_ff": c.neurons,
        "max_length": c.max_length if scheme.limited else None,
        "attention_scale": round(c.attention_scale or c.head_width**-0.5, 12),
        "final_norm": c.has_final_norm,
        "norm_bias": c.norm_has_bias if c.norm == "layer" else None,
        "attention_bias": c.attention_has_bias,
        "qkv_bias": c.qkv_has_bias,
        "ffn_bias": c.ffn_has_bias,
        "head_activation": _ungated(c.head_activation or c.activation) if c.head == "mlm" else None,
        "head_layer_bias": c.head_layer_bias if c.head == "mlm" else None,
        "pooler_activation": c.pooler_activation if c.pooler else None,
        "embedding_scale": round(c.embedding_factor, 12),
        "logit_scale": round(c.logit_scale, 12),
    }
    if kind is not EncoderDecoder:
        for name in ("n_decoder_layers", "n_decoder_heads", "d_decoder_ff", "shared_embedding"):
            found[name] = None
    if isinstance(c.network, Experts):
        found |= {"network": replace(c.network, width=c.network.neurons(c)), "d_ff": None}
    if isinstance(c.attention, Latent):
        width = c.attention.d_value or c.head_width
        scale = c.attention_scale or (c.head_width + c.attention.d_rotary) ** -0.5
        found |= {
            "attention": replace(c.attention, d_value=width),
            "attention_scale": round(scale, 12),
            "n_kv_heads": None,
        }
    if scheme.turned is None:
        for name in ("rotary_pairing", "rotary_share", "rotary_scaling"):
            found[name] = None
        if c.positions not in ("sinusoidal", "sinusoidal_halves"):
            found["rotary_base"] = None
    if "relative" not in c.positions:
        found["relative_buckets"] = found["relative_max_distance"] = None
    return found
