"""Configs as JSON and back, with dataclasses in their fields, and what cannot be kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, make_dataclass
from typing import Any

import pytest
from measured_transformer.models import kept_config
from measured_transformer.models.config import Config
from measured_transformer.models.kept_config import config_from_json, config_to_json


@dataclass(frozen=True)
class Scaling:
    factor: float = 8.0
    kind: str = "linear"


class Tuned:
    """What is no dataclass itself, and named by an annotation."""


@dataclass(frozen=True)
class Loud(Tuned):
    volume: float = 11.0


@dataclass(frozen=True)
class Layer:
    window: int | None = None
    scaling: Scaling | None = None


@dataclass(frozen=True)
class Whole:
    """What stands in for a config whose fields hold other dataclasses."""

    vocab: int = 5
    scaling: Scaling | None = None
    layers: tuple[Layer, ...] = ()
    by_name: Any = None
    tuned: Tuned | None = None


def there_and_back(config: Config, types: tuple[type, ...] = ()) -> Config:
    return config_from_json(json.loads(json.dumps(config_to_json(config, types))), types)


def test_every_field_comes_back_as_it_was():
    config = Config(
        vocab=7,
        d_model=48,
        n_decoder_layers=3,
        rotary_base=1e6 + 0.1,
        norm_eps=1.1e-7,
        attention_scale=1.0,
        embedding_scale=0.1 + 0.2,
        final_norm=False,
        tie_embeddings=True,
    )
    again = there_and_back(config)
    assert again == config
    for field in fields(Config):
        assert type(getattr(again, field.name)) is type(getattr(config, field.name)), field.name


@pytest.fixture
def nested(monkeypatch: pytest.MonkeyPatch) -> type:
    monkeypatch.setattr(kept_config, "Config", Whole)
    monkeypatch.setattr(kept_config, "PARTS", ())
    return Whole


@pytest.mark.usefixtures("nested")
def test_dataclasses_and_tuples_of_them_come_back():
    whole: Any = Whole(
        scaling=Scaling(0.1, "yarn"),
        layers=(Layer(window=4), Layer(scaling=Scaling(2.0)), Layer()),
        by_name={"a": (1, 2.5), "b": None},
    )
    told = kept_config._told(whole, "Config", kept_config._known(()))
    again = kept_config._made(json.loads(json.dumps(told)), "Config", kept_config._known(()))
    assert again == whole
    assert isinstance(again.layers, tuple)
    assert isinstance(again.layers[1].scaling, Scaling)


@dataclass(frozen=True)
class Yarn(Scaling):
    """What inherits from a type that an annotation names."""

    beta: float = 32.0


@pytest.mark.usefixtures("nested")
def test_kinds_of_a_type_are_known_where_they_are_the_librarys(monkeypatch: pytest.MonkeyPatch):
    whole: Any = Whole(scaling=Yarn(2.0, beta=16.0), tuned=Loud(3.0))
    with pytest.raises(ValueError, match=r"Config\.scaling holds a Yarn"):
        kept_config._told(whole, "Config", kept_config._known(()))
    for kind in (Tuned, Loud, Yarn):
        monkeypatch.setattr(kind, "__module__", "measured_transformer.parts.rotary")
    known = kept_config._known(())
    told = kept_config._told(whole, "Config", known)
    again = kept_config._made(told, "Config", known)
    assert again == whole
    assert type(again.scaling) is Yarn
    assert type(again.tuned) is Loud


@pytest.mark.usefixtures("nested")
def test_the_types_of_the_annotations_are_known_and_no_other():
    assert kept_config._known(()) == {"Whole": Whole, "Layer": Layer, "Scaling": Scaling}


def test_a_dataclass_of_ones_own_is_kept_when_it_is_given():
    config = Config(vocab=5)
    object.__setattr__(config, "dropout", Scaling())  # as a field behind a protocol would hold it
    known = kept_config._known([Scaling])
    told = kept_config._told(config, "Config", known)
    assert told["dropout"] == {"type": "Scaling", "factor": 8.0, "kind": "linear"}
    assert kept_config._made(told["dropout"], "Config.dropout", known) == Scaling()
    with pytest.raises(ValueError, match=r"Config\.dropout holds a Scaling.*types=\[Scaling\]"):
        config_to_json(config)


@pytest.mark.parametrize("value", [[1, 2], float("inf"), {1, 2}, len, b"x"])
def test_what_json_cannot_hold_is_refused(value: object):
    config = Config(vocab=5)
    object.__setattr__(config, "dropout", value)
    with pytest.raises(ValueError, match=r"Config\.dropout must hold finite numbers"):
        config_to_json(config)


def test_a_field_of_a_newer_version_is_named():
    told = config_to_json(Config(vocab=5)) | {"hyperdrive": 3}
    with pytest.raises(ValueError, match=r"does not know \(hyperdrive\).*newer"):
        config_from_json(told)


def test_a_field_of_a_newer_version_is_not_needed():
    told = config_to_json(Config(vocab=5, n_layers=3))
    del told["logit_scale"]
    assert config_from_json(told) == Config(vocab=5, n_layers=3)


def test_a_type_of_a_newer_version_is_named():
    told = config_to_json(Config(vocab=5)) | {"dropout": {"type": "Schedule", "rate": 0.1}}
    with pytest.raises(ValueError, match=r"Config\.dropout is of the type 'Schedule'.*newer"):
        config_from_json(told)


def test_a_value_that_the_config_refuses_is_refused():
    told = config_to_json(Config(vocab=5)) | {"n_heads": 7}
    with pytest.raises(ValueError, match="n_heads must divide d_model"):
        config_from_json(told)


def test_what_is_no_config_is_refused():
    with pytest.raises(ValueError, match="expected an object of type Config, got int"):
        config_from_json(3)
    with pytest.raises(ValueError, match="cannot be made from what was saved"):
        config_from_json({"type": "Config"})


def test_two_types_of_one_name_are_refused():
    other = make_dataclass("Config", [("x", int)], frozen=True)
    with pytest.raises(ValueError, match="two types have the name Config"):
        config_to_json(Config(vocab=5), [other])
    with pytest.raises(ValueError, match="expected frozen dataclasses as types"):
        config_to_json(Config(vocab=5), [int])
