"""Folders: there and back, sharded, broken in every way, and settings that are not computed here."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_reference import randomise
from measured_transformer import Config, Decoder, Encoder, EncoderDecoder
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.interop.family import Model
from safetensors.torch import load_file, save_file
from torch import Tensor

TOKENS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
SMALL: dict[str, Any] = {"vocab": 11, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 12}
GPT2 = Config(
    **SMALL,
    positions="learned",
    max_length=8,
    activation="gelu_tanh",
    initialisation="gpt2",
    tie_embeddings=True,
)
LLAMA = Config(
    **SMALL,
    n_kv_heads=2,
    positions="rotary",
    rotary_pairing="halves",
    rotary_base=700.0,
    norm="rms",
    activation="swiglu",
    bias=False,
    initialisation="gpt2",
)
BERT = Config(
    **SMALL,
    positions="learned",
    max_length=8,
    placement="post",
    norm_eps=1e-12,
    token_types=2,
    embedding_norm=True,
    head="mlm",
    head_bias=True,
    tie_embeddings=True,
    initialisation="gpt2",
)
T5 = Config(
    **SMALL,
    n_decoder_layers=1,
    positions="relative",
    relative_buckets=8,
    relative_max_distance=16,
    attention_scale=1.0,
    norm="rms",
    activation="relu",
    bias=False,
    embedding_scale=1.0,
    logit_scale=16**-0.5,
    tie_embeddings=True,
    initialisation="gpt2",
)
UNTIED_T5 = T5.replace(tie_embeddings=False, logit_scale=1.0, activation="geglu_tanh")
MODELS = {
    "gpt2": (Decoder, GPT2),
    "gpt2, untied, quick gelu": (
        Decoder,
        GPT2.replace(tie_embeddings=False, activation="gelu_sigmoid", attention_scale=1.0),
    ),
    "gpt2, no head": (Decoder, GPT2.replace(head="none", tie_embeddings=False)),
    "llama": (Decoder, LLAMA),
    "llama, tied, biased, wide": (
        Decoder,
        LLAMA.replace(tie_embeddings=True, attention_bias=True, ffn_bias=True, d_head=10),
    ),
    "llama, no head": (Decoder, LLAMA.replace(head="none")),
    "bert": (Encoder, BERT),
    "bert, untied, pooler": (Encoder, BERT.replace(tie_embeddings=False, pooler=True)),
    "bert, no head": (
        Encoder,
        BERT.replace(head="none", head_bias=False, tie_embeddings=False, pooler=True),
    ),
    "t5": (EncoderDecoder, T5),
    "t5 1.1": (EncoderDecoder, UNTIED_T5),
    "t5, tied, unscaled": (EncoderDecoder, T5.replace(logit_scale=1.0)),
    "t5, quick gelu": (EncoderDecoder, T5.replace(activation="gelu_sigmoid")),
    "t5 1.1, exact gelu": (EncoderDecoder, UNTIED_T5.replace(activation="geglu")),
    "t5, no head": (
        EncoderDecoder,
        T5.replace(head="none", tie_embeddings=False, logit_scale=1.0, activation="swiglu"),
    ),
}
every_model = pytest.mark.parametrize(("kind", "config"), MODELS.values(), ids=MODELS.keys())


def make(kind: type, config: Config) -> Any:
    torch.manual_seed(0)
    model = kind(config).eval()
    randomise(model)
    return model


def answer(model: Model) -> Tensor:
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            return model(TOKENS, TOKENS[:, :3])
        return model(TOKENS)


@every_model
def test_there_and_back(kind, config, tmp_path: Path):
    model = make(kind, config)
    settings, tensors = to_huggingface(model, tmp_path / "made" / "here")
    again = from_huggingface(tmp_path / "made" / "here")
    assert torch.equal(answer(again), answer(model))
    assert again.config == config.replace(
        n_kv_heads=again.config.n_kv_heads,
        d_head=again.config.d_head,
        attention_bias=again.config.attention_bias,
        ffn_bias=again.config.ffn_bias,
        n_decoder_layers=again.config.n_decoder_layers,
        max_length=again.config.max_length,
        embedding_scale=again.config.embedding_scale,
        wide_stream=again.config.wide_stream,
        rotary_pairing=again.config.rotary_pairing,
    )
    assert json.loads((tmp_path / "made/here/config.json").read_text()) == settings
    assert load_file(tmp_path / "made/here/model.safetensors").keys() == tensors.keys()
    assert again.state_dict().keys() == model.state_dict().keys()


@every_model
def test_transformers_computes_the_same_from_what_is_written(kind, config, tmp_path: Path):
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    model = make(kind, config)
    settings, _ = to_huggingface(model, tmp_path)
    theirs, report = getattr(transformers, settings["architectures"][0]).from_pretrained(
        tmp_path, output_loading_info=True
    )
    pretraining = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}
    assert set(report["missing_keys"]) <= pretraining
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    with torch.no_grad():
        if kind is EncoderDecoder:
            output = theirs.eval()(input_ids=TOKENS, decoder_input_ids=TOKENS[:, :3])
        else:
            output = theirs.eval()(TOKENS)
    torch.testing.assert_close(answer(model), output[0], rtol=1e-5, atol=1e-5)


def test_what_is_written_is_a_copy(tmp_path: Path):
    model = make(Decoder, GPT2)
    before = answer(model)
    _, tensors = to_huggingface(model)
    for tensor in tensors.values():
        tensor.zero_()
    assert torch.equal(answer(model), before)


def test_extra_settings_are_written():
    settings, _ = to_huggingface(make(Decoder, GPT2), extra={"eos_token_id": 7})
    assert settings["eos_token_id"] == 7
    assert settings["dtype"] == "float32"


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        (Decoder, GPT2.replace(positions="sinusoidal"), r"gpt2: positions must be 'learned'"),
        (
            Decoder,
            LLAMA.replace(rotary_pairing="interleaved"),
            r"llama: rotary_pairing must be 'halves'",
        ),
        (
            Encoder,
            BERT.replace(token_types=0, norm_eps=0.1),
            r"bert: token_types must be 1 or more",
        ),
        (Decoder, GPT2.replace(initialisation="xavier"), r"embedding_scale must be 1\.0, is 4\.0"),
        (EncoderDecoder, T5.replace(bias=True), r"t5: attention_bias must be False"),
        (EncoderDecoder, T5.replace(logit_scale=0.3), r"t5: logit_scale must be 1\.0, is 0\.3"),
        (EncoderDecoder, T5.replace(tie_embeddings=False), r"t5: an unembedding of its own"),
    ],
)
def test_a_model_that_no_architecture_has_is_refused_with_the_reason(kind, config, reason):
    with pytest.raises(ValueError, match=reason):
        to_huggingface(make(kind, config))


# Broken folders ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    to_huggingface(make(Decoder, GPT2), tmp_path)
    return tmp_path


def rewrite(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def configure(folder: Path, **settings: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))


def test_missing_surplus_and_misshapen_tensors_are_all_listed(folder: Path):
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors["transformer.h.1.mlp.c_fc.bias"]
        tensors["transformer.h.7.mlp.c_fc.bias"] = torch.zeros(12)
        tensors["transformer.wpe.weight"] = torch.zeros(9, 16)
        tensors["transformer.ln_f.bias"] = torch.zeros(16, dtype=torch.int8)

    rewrite(folder, change)
    with pytest.raises(ValueError, match="does not fit its config") as raised:
        from_huggingface(folder)
    message = str(raised.value)
    assert "missing: h.1.mlp.c_fc.bias" in message
    assert "surplus: h.7.mlp.c_fc.bias" in message
    assert "wpe.weight: expected (8, 16), got (9, 16)" in message
    assert "ln_f.bias: expected real numbers, got torch.int8" in message


def test_a_transposed_matrix_is_misshapen_not_turned(folder: Path):
    def change(tensors: dict[str, Tensor]) -> None:
        name = "transformer.h.0.mlp.c_fc.weight"
        tensors[name] = tensors[name].T.contiguous()

    rewrite(folder, change)
    with pytest.raises(ValueError, match=r"c_fc\.weight: expected \(16, 12\), got \(12, 16\)"):
        from_huggingface(folder)


def test_a_tied_head_that_differs_is_at_odds(folder: Path):
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.ones(11, 16)}))
    with pytest.raises(ValueError, match=r"lm_head\.weight should be wte\.weight again"):
        from_huggingface(folder)


def test_an_untied_head_that_is_missing_is_missing(folder: Path):
    configure(folder, tie_word_embeddings=False)
    with pytest.raises(ValueError, match=r"missing: lm_head\.weight"):
        from_huggingface(folder)


def test_a_head_may_stand_for_the_embedding_that_it_is(folder: Path):
    expected = answer(from_huggingface(folder))
    rewrite(folder, lambda t: t.update({"lm_head.weight": t.pop("transformer.wte.weight")}))
    assert torch.equal(answer(from_huggingface(folder)), expected)


def test_masks_and_missing_prefixes_of_old_files(folder: Path):
    expected = answer(from_huggingface(folder))

    def change(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 8, 8).tril()

    rewrite(folder, change)
    assert torch.equal(answer(from_huggingface(folder)), expected)
    rewrite(folder, lambda t: t.update({"transformer.wte.weight": t["wte.weight"].clone()}))
    with pytest.raises(ValueError, match=r"holds wte\.weight twice"):
        from_huggingface(folder)


def test_gamma_and_beta_of_the_first_bert(tmp_path: Path):
    to_huggingface(make(Encoder, BERT), tmp_path)
    expected = answer(from_huggingface(tmp_path))

    def change(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            old = name.replace("weight", "gamma").replace("bias", "beta")
            tensors[old] = tensors.pop(name)

    rewrite(tmp_path, change)
    assert torch.equal(answer(from_huggingface(tmp_path)), expected)


def test_shards(folder: Path):
    expected = answer(from_huggingface(folder))
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, places = sorted(tensors), {}
    for number, part in enumerate((names[::2], names[1::2])):
        shard = f"model-{number}.safetensors"
        save_file({name: tensors[name] for name in part}, folder / shard)
        places |= dict.fromkeys(part, shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert torch.equal(answer(from_huggingface(str(folder))), expected)

    index.write_text(json.dumps({"weight_map": places | {"more": "model-1.safetensors"}}))
    with pytest.raises(ValueError, match="promises tensors that no shard holds: more"):
        from_huggingface(folder)
    index.write_text(json.dumps({"weight_map": places | {"more": "../elsewhere.safetensors"}}))
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        from_huggingface(folder)
    (folder / "model-1.safetensors").unlink()
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(FileNotFoundError, match=r"model-1\.safetensors"):
        from_huggingface(folder)


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_pickled_checkpoints_are_refused_unread(folder: Path, name: str):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap(folder / "trace")))
    for source in (folder, folder / name):
        with pytest.raises(ValueError, match="pickled"):
            from_huggingface(source)
    assert not (folder / "trace").exists()


def test_safetensors_beside_a_pickled_copy_are_read(folder: Path):
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(folder / "trace")))
    from_huggingface(folder)
    assert not (folder / "trace").exists()


def test_folders_and_files_that_are_not_there(folder: Path):
    with pytest.raises(FileNotFoundError, match="nothing is downloaded"):
        from_huggingface("gpt2")
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        from_huggingface(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        from_huggingface(folder)


def test_damaged_files(folder: Path):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        from_huggingface(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match="no JSON"):
        from_huggingface(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="JSON object, got a list"):
        from_huggingface(folder)


@pytest.mark.parametrize(
    ("kind", "config", "settings", "message"),
    [
        (
            Decoder,
            GPT2,
            {"model_type": "mamba"},
            "model_type is one of gpt2, llama, bert, t5, .*; got 'm",
        ),
        (
            Decoder,
            GPT2,
            {"architectures": ["GPT2ForSequenceClassification"]},
            "got one of GPT2ForS",
        ),
        (Decoder, GPT2, {"add_cross_attention": True}, "add_cross_attention=True"),
        (Decoder, GPT2, {"activation_function": "mish"}, "got 'mish'"),
        (Decoder, GPT2, {"quantization_config": {"bits": 4}}, "quantization_config"),
        (
            Decoder,
            LLAMA,
            {"rope_scaling": {"type": "proportional", "factor": 2.0}},
            "rope_type='proportional' in rope_scaling",
        ),
        (
            Decoder,
            LLAMA,
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}},
            "rope_parameters",
        ),
        (
            Decoder,
            LLAMA,
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
            "partial_rotary_factor",
        ),
        (Decoder, LLAMA, {"hidden_act": "quick_gelu"}, "hidden_act with a gate"),
        (Encoder, BERT, {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        (Encoder, BERT, {"is_decoder": True}, "is_decoder=True"),
        (Encoder, BERT, {"architectures": ["BertLMHeadModel"]}, "BertLMHeadModel"),
        (EncoderDecoder, T5, {"architectures": ["T5ForQuestionAnswering"]}, "T5ForQues"),
        (EncoderDecoder, T5, {"feed_forward_proj": "gated-quick_gelu"}, "gated-quick_gelu"),
        (EncoderDecoder, T5, {"feed_forward_proj": ["relu"]}, "feed_forward_proj must be a name"),
        (EncoderDecoder, T5, {"dense_act_fn": "mish"}, "got 'mish'"),
        (EncoderDecoder, T5, {"is_causal": False}, "is_causal=False"),
        (Decoder, GPT2, {"is_causal": False}, "is_causal=False"),
        (Decoder, LLAMA, {"is_causal": False}, "is_causal=False"),
        (Decoder, LLAMA, {"rope_parameters": {"rope_theta": "1e4"}}, "rope_theta must be a number"),
        (Decoder, GPT2, {"model_type": ["gpt2"]}, r"model_type is one of .*; got \['gpt2'\]"),
        (
            Decoder,
            GPT2,
            {"activation_function": ["gelu"]},
            r"activation_function .* got \['gelu'\]",
        ),
        (Decoder, GPT2, {"resid_pdrop": "none"}, "resid_pdrop must be a number, got 'none'"),
        (Decoder, GPT2, {"layer_norm_epsilon": None}, "norm_eps must be a finite number, got None"),
    ],
)
def test_settings_that_are_not_computed_here_are_refused(
    unhooked, kind, config, settings, message, tmp_path: Path
):
    to_huggingface(make(kind, config), tmp_path)
    configure(tmp_path, **settings)
    with pytest.raises(ValueError, match=message):
        from_huggingface(tmp_path)


def test_the_base_of_older_llamas(tmp_path: Path):
    model = make(Decoder, LLAMA)
    to_huggingface(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": None}))
    assert torch.equal(answer(from_huggingface(tmp_path)), answer(model))
    assert config["rope_theta"] == 700.0


@pytest.mark.parametrize("base", [{"rope_theta": None}, {}])
def test_a_base_that_is_not_told_is_found_where_it_is(base, tmp_path: Path):
    model = make(Decoder, LLAMA)
    to_huggingface(model, tmp_path)
    configure(tmp_path, rope_parameters={"rope_type": "default", **base})
    assert from_huggingface(tmp_path).config.rotary_base == 700.0
    configure(tmp_path, rope_parameters=None, rope_theta=None)
    assert from_huggingface(tmp_path).config.rotary_base == 10000.0


@pytest.mark.parametrize(
    ("kind", "config", "left_out"),
    [
        (
            Decoder,
            GPT2.replace(dropout=0.1),
            "n_inner scale_attn_weights layer_norm_epsilon activation_function resid_pdrop "
            "embd_pdrop attn_pdrop tie_word_embeddings architectures dtype",
        ),
        (
            Decoder,
            LLAMA.replace(n_kv_heads=None, norm_eps=1e-6, rotary_base=10000.0),
            "num_key_value_heads head_dim rope_theta rope_parameters rms_norm_eps hidden_act "
            "attention_bias mlp_bias attention_dropout tie_word_embeddings architectures dtype",
        ),
        (
            Encoder,
            BERT.replace(dropout=0.1),
            "type_vocab_size layer_norm_eps hidden_act hidden_dropout_prob "
            "attention_probs_dropout_prob tie_word_embeddings architectures dtype",
        ),
        (
            EncoderDecoder,
            T5.replace(
                dropout=0.1,
                n_decoder_layers=None,
                norm_eps=1e-6,
                relative_buckets=32,
                relative_max_distance=128,
            ),
            "num_decoder_layers relative_attention_num_buckets relative_attention_max_distance "
            "layer_norm_epsilon feed_forward_proj dropout_rate tie_word_embeddings architectures",
        ),
    ],
    ids=["gpt2", "llama", "bert", "t5"],
)
def test_settings_left_out_are_the_ones_of_transformers(
    kind, config, left_out, tmp_path: Path
) -> None:
    config = (
        config.replace(d_ff=64) if kind is Decoder and config.positions == "learned" else config
    )
    model = make(kind, config)
    to_huggingface(model, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    for name in left_out.split():
        del written[name]
    (tmp_path / "config.json").write_text(json.dumps(written))
    again = from_huggingface(tmp_path)
    assert torch.equal(answer(again), answer(model))
    assert again.config.dropout == config.dropout


def test_one_architecture_need_not_stand_in_a_list(folder: Path):
    expected = answer(from_huggingface(folder))
    configure(folder, architectures="GPT2LMHeadModel")
    assert torch.equal(answer(from_huggingface(folder)), expected)


@pytest.mark.parametrize("places", [None, [], {"a": 1}])
def test_an_index_without_a_map_is_damaged(folder: Path, places: Any):
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(ValueError, match=r"index\.json must hold a weight_map"):
        from_huggingface(folder)


@pytest.mark.parametrize("source", [None, 3, {"wte.weight": torch.zeros(2, 2)}])
def test_what_is_no_folder_and_no_model_is_refused(unhooked: None, source: Any):
    with pytest.raises(ValueError, match="expected a folder or a model of transformers, got"):
        from_huggingface(source)


def test_only_models_of_this_library_are_written(unhooked: None):
    with pytest.raises(ValueError, match=r"an EncoderDecoder, got Linear"):
        to_huggingface(torch.nn.Linear(2, 2))


def test_a_module_without_a_config_is_no_checkpoint():
    with pytest.raises(ValueError, match="a model of transformers with a config, got Linear"):
        from_huggingface(torch.nn.Linear(2, 2))


def test_an_architecture_of_another_kind_says_so():
    with pytest.raises(ValueError, match=r"gpt2: it must be a Decoder"):
        to_huggingface(make(Encoder, GPT2), model_type="gpt2")
