"""Rotary settings of checkpoints: `rope_parameters`, the older `rope_scaling` and what stands beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from measured_transformer.interop.family import MisfitError
from measured_transformer.models.config import Config
from measured_transformer.parts.rotary_scaling import (
    Dynamic,
    Interpolated,
    Llama3,
    LongRope,
    RotaryScaling,
    Yarn,
)

KEYS = frozenset(
    (
        *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "finetuned"),
        *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
        *("mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor"),
        *("low_freq_factor", "high_freq_factor"),
    )
)
"""What rotary settings may hold. Those of another `rope_type` are passed over, as `transformers` does."""

_Reader = Callable[["_Settings"], RotaryScaling | None]


def read_rope(
    theirs: Mapping[str, Any],
    *,
    base: float = 10000.0,
    share: float | None = None,
    synonyms: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The fields `rotary_base`, `rotary_share` and `rotary_scaling` of a `Config`.

    Args:
        theirs: all settings of a checkpoint.
        base: the base where no setting tells it.
        share: the share of a head that is turned where no setting tells it; None for architectures that turn
            whole heads whatever is set.
        synonyms: further names of rope types, and what each stands for.

    Raises:
        ValueError: when a setting is missing, is no number, or asks for what is not computed here.
    """
    name = "rope_scaling" if theirs.get("rope_scaling") else "rope_parameters"
    return read_parameters(
        theirs, theirs.get(name) or {}, name, base=base, share=share, synonyms=synonyms
    )


def read_parameters(
    theirs: Mapping[str, Any],
    given: Any,
    name: str,
    *,
    base: float,
    share: float | None = None,
    synonyms: Mapping[str, str] | None = None,
    nested: bool = False,
) -> dict[str, Any]:
    """As `read_rope`, from settings that stand under the name `name`; those of one layer type are `nested`.

    Raises:
        ValueError: as `read_rope`.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must be a dictionary, got {given!r}")
    settings = _Settings(theirs, given, name, nested)
    if unknown := sorted(key for key in set(given) - KEYS if given[key] is not None):
        raise ValueError(
            f"this checkpoint has {name}={dict(given)!r}, of which this library does not compute "
            f"{', '.join(unknown)}"
        )
    kind = given.get("rope_type", given.get("type", "default"))
    kind = (synonyms or {}).get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, str) or kind not in READERS:
        raise ValueError(
            f"this checkpoint has rope_type={kind!r} in {name}, which this library does not compute; "
            f"supported are {', '.join(READERS)}"
        )
    turned = settings.number("partial_rotary_factor", 1.0 if share is None else share, outside=True)
    if share is None and turned != 1:
        raise ValueError(
            f"this checkpoint has partial_rotary_factor={turned!r}, which this architecture does not "
            "compute; supported is partial_rotary_factor=1.0"
        )
    if not 0 < turned <= 1:
        raise ValueError(f"partial_rotary_factor must lie above 0 and be at most 1, got {turned!r}")
    theta = settings.number("rope_theta", base, outside=not nested)
    if theta <= 1:
        raise ValueError(f"rope_theta must be greater than one, got {theta!r}")
    return {
        "rotary_base": theta,
        "rotary_share": turned,
        "rotary_scaling": READERS[kind](settings),
    }


def rope_of(theirs: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The `rope_parameters` of one type of layer, where each type has its own; empty where there are none.

    Raises:
        ValueError: when they are no dictionary of dictionaries.
    """
    every = theirs.get("rope_parameters") or {}
    given = (every.get(kind) or {}) if isinstance(every, Mapping) else None
    if not isinstance(given, Mapping):
        raise ValueError(
            f"rope_parameters must hold a dictionary for each type of layer, such as {kind!r}; got {every!r}"
        )
    return given


class _Settings:
    """Rotary settings, and the settings beside them that stand in for what they leave out."""

    def __init__(
        self, theirs: Mapping[str, Any], given: Mapping[str, Any], name: str, nested: bool
    ) -> None:
        self.theirs, self.given, self.name, self.nested = theirs, given, name, nested

    def number(
        self, key: str, default: int | float | None = None, *, outside: bool = False
    ) -> float:
        """A number; one beside the rotary settings where they have none and that is looked for."""
        value = self.given.get(key)
        if value is None and outside:
            value = self.theirs.get(key)
        if value is None:
            value = default
        if value is None:
            raise ValueError(f"{self.name} must hold {key}, got {dict(self.given)!r}")
        if not _is_number(value):
            raise ValueError(f"{key} must be a number, got {value!r}")
        return float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Several numbers."""
        value = self.given.get(key)
        if not isinstance(value, list | tuple) or not all(map(_is_number, value)):
            raise ValueError(f"{self.name} must hold {key}, a list of numbers; got {value!r}")
        return tuple(float(one) for one in value)

    @property
    def longest(self) -> int:
        """The length that the model is for."""
        return int(self._beside("max_position_embeddings"))

    @property
    def trained(self) -> int:
        """The length of training, which a setting beside the rotary ones tells before they do."""
        key = "original_max_position_embeddings"
        if not self.nested and self.theirs.get(key) is not None:
            return int(self._beside(key))
        return int(self.number(key, default=self.longest))

    def _beside(self, key: str) -> float:
        value = self.theirs.get(key)
        if not _is_number(value):
            raise ValueError(f"the checkpoint's config must hold {key}, a number; got {value!r}")
        return float(value)

    @property
    def growth(self) -> float:
        """How many times longer sequences become."""
        if self.given.get("factor") is None:
            return self.longest / self.trained
        return self.number("factor")


def _is_number(value: Any) -> TypeGuard[int | float]:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and math.isfinite(value)


def _yarn(settings: _Settings) -> Yarn:
    truncate = bool(settings.given.get("truncate", True))
    if settings.nested and not truncate:  # transformers looks for it in another place
        raise ValueError(
            f"this checkpoint has truncate=False in {settings.name}; supported is True"
        )
    factor = settings.growth
    stretch = settings.given.get("attention_factor")
    scales = [settings.given.get(key) for key in ("mscale", "mscale_all_dim")]
    if stretch is not None:
        stretch = settings.number("attention_factor")
    elif all(scales):
        above, below = (
            1.0 if factor <= 1 else 0.1 * settings.number(key) * math.log(factor) + 1
            for key in ("mscale", "mscale_all_dim")
        )
        stretch = above / below
    return Yarn(
        factor=factor,
        trained=settings.trained,
        fast=(settings.given.get("beta_fast") and settings.number("beta_fast")) or 32.0,
        slow=(settings.given.get("beta_slow") and settings.number("beta_slow")) or 1.0,
        stretch=stretch,
        truncate=truncate,
    )


def _llama3(settings: _Settings) -> Llama3:
    slow, fast = settings.number("low_freq_factor"), settings.number("high_freq_factor")
    if not 0 < slow < fast:
        raise ValueError(
            "low_freq_factor must be positive and below high_freq_factor, got "
            f"low_freq_factor={slow} and high_freq_factor={fast}"
        )
    return Llama3(factor=settings.number("factor"), trained=settings.trained, slow=slow, fast=fast)


def _longrope(settings: _Settings) -> LongRope:
    short, long = settings.numbers("short_factor"), settings.numbers("long_factor")
    if len(short) != len(long):
        raise ValueError(
            "short_factor and long_factor must hold as many numbers, got "
            f"{len(short)} and {len(long)}"
        )
    trained, factor = settings.trained, settings.growth
    if settings.given.get("attention_factor") is not None:
        stretch = settings.number("attention_factor")
    else:
        stretch = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))
    return LongRope(short, long, trained, stretch)


READERS: dict[str, _Reader] = {
    "default": lambda settings: None,
    "linear": lambda settings: Interpolated(settings.number("factor")),
    "dynamic": lambda settings: Dynamic(settings.number("factor"), settings.longest),
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
}
"""What each `rope_type` says, as a `RotaryScaling`."""


def write_rope(config: Config) -> dict[str, Any]:
    """The settings that tell a config's rotary fields: those of its first block that turns.

    Raises:
        MisfitError: when there is no `rope_type` for the scaling.
    """
    blocks = [config.of_layer(i) for i in range(config.n_layers)]
    block = next((one for one in blocks if one.positions == "rotary"), config)
    parameters, scaling = write_parameters(block), block.rotary_scaling
    settings: dict[str, Any] = {
        "max_position_embeddings": longest(config),
        "rope_theta": block.rotary_base,
        "rope_parameters": parameters,
    }
    if scaling is not None:  # what versions of transformers before the fifth read
        settings["rope_scaling"] = {
            key: value for key, value in parameters.items() if key != "rope_theta"
        }
    if isinstance(scaling, LongRope):
        settings["original_max_position_embeddings"] = scaling.trained
    if block.rotary_share != 1:
        settings["partial_rotary_factor"] = block.rotary_share
    return settings


def longest(config: Config) -> int:
    """The length that scaling of the kind `Dynamic` begins at; `max_length` where there is none."""
    blocks = (config.of_layer(i).rotary_scaling for i in range(config.n_layers))
    return next((one.trained for one in blocks if isinstance(one, Dynamic)), config.max_length)


def write_parameters(block: Config) -> dict[str, Any]:
    """The `rope_parameters` of one block. Raises MisfitError when no `rope_type` has its scaling."""
    parameters = {"rope_theta": block.rotary_base, **_written(block.rotary_scaling)}
    if block.rotary_share != 1:
        parameters["partial_rotary_factor"] = block.rotary_share
    return parameters


def _written(scaling: RotaryScaling | None) -> dict[str, Any]:
    match scaling:
        case None:
            return {"rope_type": "default"}
        case Interpolated():
            return {"rope_type": "linear", "factor": scaling.factor}
        case Dynamic():
            return {"rope_type": "dynamic", "factor": scaling.factor}
        case Yarn():
            stretch = {} if scaling.stretch is None else {"attention_factor": scaling.stretch}
            return {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.trained,
                "beta_fast": scaling.fast,
                "beta_slow": scaling.slow,
                **stretch,
                **({} if scaling.truncate else {"truncate": False}),
            }
        case Llama3():
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.trained,
                "low_freq_factor": scaling.slow,
                "high_freq_factor": scaling.fast,
            }
        case LongRope():
            return {
                "rope_type": "longrope",
                "short_factor": list(scaling.short),
                "long_factor": list(scaling.long),
                "original_max_position_embeddings": scaling.trained,
                "attention_factor": scaling.stretch,
            }
    raise MisfitError(
        f"rotary_scaling must be one of {', '.join(READERS)}; is a {type(scaling).__name__}"
    )
