"""The tables of the page *What loads* and what the tests of this folder compare with `transformers` agree."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import encoder_decoders
import expert_relatives
import gpt_relatives
import llama_relatives
import measured_transformer.interop as interop
import pytest
from measured_transformer.interop import loads
from measured_transformer.interop.gguf_architectures import ARCHITECTURES
from measured_transformer.interop.huggingface import FAMILIES
from measured_transformer.interop.loads import OF_ALL, TRIED, Loadable, what_loads

transformers = pytest.importorskip("transformers", reason="the reference is not installed")

import test_bert_relatives as berts  # noqa: E402
import test_gguf_relatives as ggufs  # noqa: E402
import test_modernbert as modernberts  # noqa: E402

DRAWN = {**llama_relatives.RELATIVES, **gpt_relatives.RELATIVES, **expert_relatives.RELATIVES}
SEEDS = 30
# Read, and written by other names.
OLDER = {
    *("no_rope_layer_interval", "sliding_window_pattern", "original_max_position_embeddings"),
    *("rope_theta", "rope_scaling", "rope_local_base_freq"),
    *("reorder_and_upcast_attn", "attn_logit_softcapping"),  # the second: of Gemma 2 alone
    *("bos_token_id", "eos_token_id", "pad_token_id"),
    "max_window_layers",  # the layers' types are written
}
# Written, and drawn by other names or inside `rope_parameters`; dropout does nothing in evaluation.
NOT_DRAWN = {
    *("rope_theta", "partial_rotary_factor", "rotary_pct", "rotary_emb_base"),
    *("head_dim", "hidden_act", "rope_scaling"),
    "num_nextn_predict_layers",  # of training alone
    *("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop"),
}
every_family = pytest.mark.parametrize("family", what_loads(), ids=list(FAMILIES))


def test_every_family_stands_there_once_and_is_tried():
    assert [one.name for one in what_loads()] == list(FAMILIES)
    assert set(TRIED) == set(FAMILIES)
    tested = {*DRAWN, *berts.TYPES.values(), "modernbert", *encoder_decoders.RELATIVES}
    assert tested == set(FAMILIES), "every family is compared with transformers"


@every_family
def test_its_classes_are_those_of_transformers(family: Loadable):
    for name in family.classes:
        assert hasattr(transformers, name), name
        config = getattr(transformers, name).config_class
        assert config.model_type == family.name


def test_the_classes_of_encoders_are_those_that_are_compared():
    compared = {classes + head for classes, head, _ in berts.CASES}
    compared |= {f"{classes}ForMultipleChoice" for classes in berts.CHOICES}
    known = {name for one in what_loads() for name in one.classes if one.kind == "Encoder"}
    known -= {f"ModernBert{head}" for head in ("ForMaskedLM", "Model")}
    assert modernberts.heads.args == ("head", ["ForMaskedLM", "Model"])
    same = {"BertForMultipleChoice"} | {  # heads that one dialect's code reads alike for all
        f"{classes}{head}"
        for classes in ("XLMRoberta", "Camembert")
        for head in (
            *("Model", "ForSequenceClassification", "ForTokenClassification"),
            *("ForQuestionAnswering", "ForMultipleChoice"),
        )
    }
    assert known - compared <= same
    assert compared <= known


@every_family
def test_a_refusal_is_one_sentence_that_names_the_setting(family: Loadable):
    assert len(family.refused) == len((*OF_ALL, *TRIED[family.name]))
    for asked, sentence in family.refused.items():
        assert "\n" not in sentence
        assert len(sentence) < 400
        names = [part.split("=")[0] for part in asked.split(", ")]
        inner = re.findall(r"'(\w+)'", asked)
        assert any(name in sentence for name in (*names, *inner)), (asked, sentence)


def test_what_a_family_is_said_to_refuse_and_computes_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(TRIED, "llama", ({"mlp_bias": True},))
    with pytest.raises(ValueError, match="llama computes mlp_bias=True: take it out of TRIED"):
        what_loads.__wrapped__()


def required_settings() -> dict[str, set[str]]:
    """Module -> the settings that it has `family.require` check."""
    found = {}
    for path in Path(interop.__file__).parent.glob("*.py"):
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "require"
        ]
        found[path.stem] = {str(word.arg) for call in calls for word in call.keywords} - {"None"}
    return {module: names for module, names in found.items() if names}


def test_all_that_is_required_has_its_sentence_on_the_page():
    told: dict[str, set[str]] = {}
    for name, family in FAMILIES.items():
        function = family.config_of
        module = inspect.getmodule(getattr(function, "func", function))
        assert module is not None
        asked = {key for settings in TRIED[name] for key in settings}
        told.setdefault(module.__name__.rpartition(".")[2], set()).update(asked)
    for module, names in required_settings().items():
        assert names <= told[module], module


@pytest.mark.parametrize("name", DRAWN)
def test_settings_and_rope_types_are_those_that_are_compared(name: str):
    about = next(one for one in what_loads() if one.name == name)
    drawn, kinds = set(), set()
    for seed in range(SEEDS):
        settings = DRAWN[name][1](llama_relatives.Random(f"{name} {seed}"))
        drawn |= settings.keys()
        rotary = settings.get("rope_parameters") or {}
        flat = [rotary] if "rope_type" in rotary else rotary.values()
        kinds |= {one["rope_type"] for one in flat}
    assert drawn - OLDER <= set(about.settings)
    assert set(about.settings) - drawn <= NOT_DRAWN
    assert kinds <= set(about.rope_types)
    assert bool(kinds) == bool(about.rope_types)


def test_the_gguf_files_are_those_that_are_compared():
    named = {name: one.name for one in what_loads() for name in one.gguf}
    assert named == {name: how.family for name, how in ARCHITECTURES.items()}
    assert set(named) == {"llama", "gpt2", *ggufs.CASES}


def test_the_example_with_a_live_model_runs():
    from bookpress.sphinx.loads import live_example

    code = live_example()
    names: dict[str, object] = {}
    exec(compile(code, "what loads", "exec"), names)
    assert "transformer.h.1.mlp" in names["seen"]
    assert names["seen"]["transformer.h.1.mlp"].shape == (1, 9, 16)
    assert "transformer.h.0.self_attention.dense" in names["called_modules"](names["model"])
    assert not names["logits"].equal(names["without"])
    assert inspect.getdoc(loads).count("::\n") == 1
