"""What cannot be converted is refused by a ValueError of one sentence; the published BERT is read."""

import json
import warnings

import pytest
import torch
from hf_reference import randomise
from measured_transformer import Config, Decoder, Encoder, EncoderDecoder
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.patching import patched
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.huggingface import FAMILIES
from measured_transformer.interop.loads import BEYOND_DEFAULTS, what_loads
from measured_transformer.tasks.task import Batch
from safetensors.torch import load_file, save_file
from test_huggingface_checkpoints import (
    BERT,
    LLAMA,
    T5,
    TOKENS,
    answer,
    make,
)

EIGHT = [torch.float8_e4m3fn, torch.float8_e5m2]
KINDS = {"llama": (Decoder, LLAMA), "bert": (Encoder, BERT), "t5": (EncoderDecoder, T5)}


MALFORMED = ("3", None, -1, 2.5, [1, 2], {"a": 1})


def stored(folder, change):
    file = folder / "model.safetensors"
    save_file(
        {n: change(n, t) for n, t in load_file(file).items()}, file, metadata={"format": "pt"}
    )


def one_sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("asked", [None, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_eight_bits_are_refused(tmp_path, kind, dtype, asked):
    to_huggingface(make(*KINDS[kind]), tmp_path)
    stored(tmp_path, lambda name, t: t.to(dtype).contiguous() if t.ndim == 2 else t)
    with pytest.raises(ValueError, match=r"float8.*dequantise") as error:
        from_huggingface(tmp_path, dtype=asked)
    one_sentence(error)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_settings_of_the_wrong_kind_are_refused_by_their_names(family):
    (about,) = (one for one in what_loads() if one.name == family.name)
    held = {"model_type": family.name, **BEYOND_DEFAULTS.get(family.name, {})}
    refused = set()
    for name in (*about.settings, "rope_scaling"):
        for value in MALFORMED:
            try:
                family.read(Checkpoint({**held, name: value}, {}, None), {})
            except ValueError as error:
                text = str(error)
                assert name in text, (name, value, text)
                assert "\n" not in text
                assert len(text) < 400
                refused.add(name)
    assert "vocab_size" in refused


SIZES = {"hidden_size": 36, "num_attention_heads": 5}


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("llama", SIZES, r"n_heads must divide .* \(this checkpoint has hidden_size=36, num_att"),
        ("phi", {"hidden_size": 36, "num_attention_heads": 4}, "width of heads, got 9 .this check"),
        ("gpt2", {"n_head": 7}, r"\(this checkpoint has n_head=7\)"),
        ("gpt_neox", {"head_dim": 3}, "this checkpoint has head_dim=3"),
        ("bart", {"encoder_ffn_dim": 0}, r"\(this checkpoint has encoder_ffn_dim=0\)"),
        ("gemma3_text", {"rope_parameters": 3}, "rope_parameters must hold a dictionary for each"),
        ("gemma3_text", {"rope_scaling": 3}, "rope_scaling must be a dictionary, got 3"),
        ("phi", {"partial_rotary_factor": 1.5}, "partial_rotary_factor must lie above 0"),
        ("llama", {"partial_rotary_factor": 1.5}, "supported is partial_rotary_factor=1.0$"),
        ("llama", {"rope_theta": float("nan")}, "rope_theta must be a number, got nan"),
        ("mistral", {"layer_types": "sliding"}, "has layer_types='sliding', .* for each of its 32"),
    ],
)
def test_refusals_in_the_librarys_words_tell_the_settings_too(kind, settings, said):
    with pytest.raises(ValueError, match=said) as error:
        FAMILIES[kind].read(Checkpoint({"model_type": kind, **settings}, {}, None), {})
    one_sentence(error)


def test_what_only_the_model_refuses_tells_the_settings_too():
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 9}
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_attention_heads=2))
    factors = {
        "short_factor": [1.0] * 5,
        "long_factor": [1.0] * 5,
    }  # a head of eight has four pairs
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 8}
    theirs.config.rope_parameters = rope | factors
    with pytest.raises(ValueError, match=r"4 pairs, got 5 .*has rope_parameters=") as error:
        from_huggingface(theirs)
    one_sentence(error)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.complex64])
def test_weights_that_are_no_real_numbers_are_refused(tmp_path, dtype):
    to_huggingface(make(Decoder, LLAMA), tmp_path)
    stored(tmp_path, lambda name, t: t.to(dtype) if "q_proj" in name else t)
    with pytest.raises(ValueError, match="expected real numbers, got torch"):
        from_huggingface(tmp_path)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.complex64])
def test_a_model_is_of_real_numbers(tmp_path, dtype):
    to_huggingface(make(Decoder, LLAMA), tmp_path)
    with pytest.raises(ValueError, match="dtype must be one of"):
        from_huggingface(tmp_path, dtype=dtype)


def test_a_live_model_without_numbers_or_quantised_is_refused():
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "vocab_size": 9}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    with pytest.raises(ValueError, match="device 'meta'") as error:
        from_huggingface(model)
    one_sentence(error)
    model = transformers.LlamaForCausalLM(config)

    class Packed(torch.Tensor):
        pass

    weight = model.model.layers[0].mlp.up_proj.weight
    model.model.layers[0].mlp.up_proj.weight = torch.nn.Parameter(weight.data.as_subclass(Packed))
    with pytest.raises(ValueError, match=r"as a Packed of torch\.float32"):
        from_huggingface(model)


@pytest.mark.parametrize("head", [2, -3, 7])
@pytest.mark.parametrize("tap", ["keys", "values"])
def test_a_key_value_head_that_is_not_there_is_refused(tap, head):
    model = Decoder(Config(vocab=20, d_model=16, n_kv_heads=2))
    parts = [Component(f"blocks.0.attention.{tap}", head)]
    target = answer_logit(-1, torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=r"head must lie in -2\.\.1") as error:
        patched(model, TOKENS, TOKENS, parts, target)
    one_sentence(error)
    reference = Batch(TOKENS, TOKENS, TOKENS >= 0)
    with (
        pytest.raises(ValueError, match=r"heads? must lie in -2\.\.1"),
        ablated(model, parts, "mean", reference=reference),
    ):
        model(TOKENS)
    with (
        pytest.raises(ValueError, match=r"heads must lie in -2\.\.1"),
        ablated(model, parts, "zero"),
    ):
        model(TOKENS)


# BERT as it is published --------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path):
    """The layout of bert-base-uncased: all heads, old names of norms, and the class of masked words."""
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 97}
    theirs = transformers.BertForPreTraining(
        transformers.BertConfig(**sizes, num_attention_heads=4)
    )
    randomise(theirs)
    theirs.eval().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    held = load_file(tmp_path / "model.safetensors")
    renamed = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): t
        for n, t in held.items()
    }
    assert {"cls.seq_relationship.weight", "bert.pooler.dense.weight"} <= renamed.keys()
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path, theirs


def test_the_published_bert_is_read_with_all_its_heads(published):
    folder, theirs = published
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = from_huggingface(folder)
    assert torch.equal(ours.classifier.weight, theirs.cls.seq_relationship.weight)
    tokens = torch.randint(97, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(tokens, output_hidden_states=True)
        torch.testing.assert_close(ours(tokens), expected.prediction_logits, rtol=1e-4, atol=1e-4)
        pooled = ours.pool(expected.hidden_states[-1])
        torch.testing.assert_close(pooled, theirs.bert(tokens).pooler_output, rtol=1e-4, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = from_huggingface(folder, ignore=["cls.seq_relationship.*"])
        assert torch.equal(again(tokens), ours(tokens))


def test_the_head_of_another_model_is_surplus(published, tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    to_huggingface(make(Decoder, LLAMA), folder)
    held = load_file(folder / "model.safetensors")
    held["cls.seq_relationship.weight"] = torch.zeros(2, 16)
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"surplus: cls\.seq_relationship\.weight"):
        from_huggingface(folder)
    assert torch.isfinite(answer(make(Decoder, LLAMA))).all()
