"""GGUF files of llama.cpp: the models that they hold, equal to what `transformers` reads from them."""

from __future__ import annotations

import struct
import sys

import numpy as np
import pytest
import torch
from measured_transformer import Decoder
from measured_transformer.interop import from_gguf
from measured_transformer.interop.gguf_file import GGUFFile

gguf = pytest.importorskip("gguf", reason="reads GGUF files: pip install gguf")
transformers = pytest.importorskip("transformers", reason="the reference is not installed")

from gguf_reference import SCALES, tokens_of, write_gpt2, write_llama  # noqa: E402
from hf_reference import randomise  # noqa: E402

TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}
BLOCKS = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")


def llama(width: int = 64, **changes):
    settings = {
        "vocab_size": 97,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rope_theta": 50000.0,
        **changes,
    }
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    randomise(model)
    return model.eval()


def read_by_transformers(path):
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()


def check_equal(path, theirs, **tolerance):
    ours = from_gguf(path)
    assert type(ours) is Decoder
    tokens = tokens_of(ours.config.vocab)
    with torch.no_grad():
        expected, logits = theirs(tokens).logits, ours(tokens)
    assert expected.std() > 0.1, "the reference says something"
    torch.testing.assert_close(logits, expected, **{**TOLERANCE, **tolerance})
    return ours


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", *BLOCKS])
def test_every_way_of_storing_weights_is_read_as_transformers_reads_it(tmp_path, kind):
    path = write_llama(tmp_path / "model.gguf", llama(), kind)
    check_equal(path, read_by_transformers(path))


@pytest.mark.parametrize("kind", SCALES)
def test_k_quants_are_read_as_transformers_reads_them(tmp_path, kind):
    path = write_llama(tmp_path / "model.gguf", llama(256, num_hidden_layers=1), kind)
    check_equal(path, read_by_transformers(path))


def test_real_numbers_give_the_model_that_was_written(tmp_path):
    theirs = llama(tie_word_embeddings=True)
    ours = check_equal(write_llama(tmp_path / "model.gguf", theirs), theirs)
    assert ours.unembedding.weight is ours.token_embedding.weight
    assert ours.config.rotary_pairing == "halves"
    query = theirs.model.layers[1].self_attn.q_proj.weight
    assert torch.equal(ours.blocks[1].attention.query.weight, query), "rows of the checkpoint"
    assert not ours.training


def test_an_unembedding_of_its_own_and_biases_are_found(tmp_path):
    theirs = llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=False)
    ours = check_equal(write_llama(tmp_path / "model.gguf", theirs), theirs)
    assert ours.config.attention_has_bias
    assert ours.config.ffn_has_bias
    assert not ours.config.tie_embeddings


def test_heads_may_be_wider_than_their_share(tmp_path):
    theirs = llama(head_dim=32)
    given = {"llama.attention.key_length": 32, "llama.attention.value_length": 32}
    ours = check_equal(write_llama(tmp_path / "model.gguf", theirs, changed=given), theirs)
    assert ours.config.head_width == 32


def test_gpt2_is_read_with_its_maps_as_the_file_has_them(tmp_path):
    config = transformers.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    theirs = transformers.GPT2LMHeadModel(config)
    randomise(theirs)
    check_equal(write_gpt2(tmp_path / "model.gguf", theirs.eval()), theirs)


def test_the_precision_is_what_is_asked_for(tmp_path):
    path = write_llama(tmp_path / "model.gguf", llama(), "Q8_0")
    assert {p.dtype for p in from_gguf(path).parameters()} == {torch.float32}
    half = from_gguf(path, dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    exact = from_gguf(path, dtype=torch.float64)
    tokens = tokens_of(97)
    with torch.no_grad():
        torch.testing.assert_close(exact(tokens).float(), from_gguf(path)(tokens), **TOLERANCE)


def test_loading_draws_no_random_numbers(tmp_path):
    path = write_llama(tmp_path / "model.gguf", llama())
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    from_gguf(path)
    assert torch.equal(torch.rand(4), expected)


# The head of the file ------------------------------------------------------------------------------


def test_the_head_is_what_the_package_reads(tmp_path):
    changed = {
        "general.languages": ["en", "日本語"],
        "some.numbers": [1, -2, 3],
        "some.shares": [0.5, 0.25],
        "a.flag": True,
    }
    path = write_llama(tmp_path / "model.gguf", llama(), "Q4_1", changed=changed)
    ours, theirs = GGUFFile(path), gguf.GGUFReader(path)
    own = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert ours.metadata == own
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        stored = ours.tensors[tensor.name]
        assert stored.kind == tensor.tensor_type.name
        assert stored.shape == tuple(reversed(tensor.shape.tolist()))
        assert (stored.start, stored.bytes) == (tensor.data_offset, tensor.n_bytes)
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(ours.tensor(tensor.name).numpy(), expected)


def test_a_file_says_how_its_weights_are_stored(tmp_path):
    file = GGUFFile(write_llama(tmp_path / "model.gguf", llama(), "Q4_1"))
    assert file.precision == "4 bits (Q4_1)"
    assert list(file.kinds) == ["Q4_1"], "vectors do not count"


# What is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"general.architecture": "mamba"},
            r"general\.architecture='mamba'.*reads llama, .*, gpt2, qwen2",
        ),
        ({"llama.rope.scaling.type": "yarn"}, r"llama\.rope\.scaling\.type='yarn'.*'none'"),
        ({"llama.rope.scaling.factor": 4.0}, r"llama\.rope\.scaling\.factor=4\.0"),
        ({"llama.rope.dimension_count": 8}, r"llama\.rope\.dimension_count=8.*supported is 16"),
        ({"llama.expert_count": 8}, r"lacks the key llama\.expert_used_count"),
        ({"llama.attention.sliding_window": 64}, r"llama\.attention\.sliding_window=64"),
        ({"llama.something_new": 1}, r"llama\.something_new=1, which this library does not"),
        ({"llama.feed_forward_length": [128, 64]}, r"each block in llama\.feed_forward_length"),
        ({"split.count": 3}, r"split\.count=3"),
        ({"general.type": "adapter"}, r"general\.type='adapter'"),
        ({"llama.block_count": None}, r"lacks the key llama\.block_count"),
        ({"llama.block_count": 1}, r"surplus: blk\.1\.attn_k\.weight"),
    ],
)
def test_what_is_not_computed_is_named(tmp_path, changed, said):
    path = write_llama(tmp_path / "model.gguf", llama(), changed=changed)
    with pytest.raises(ValueError, match=said):
        from_gguf(path)


def test_settings_that_change_nothing_are_read(tmp_path):
    theirs = llama()
    changed = {
        "llama.rope.scaling.type": "none",
        "llama.expert_count": 0,
        "split.count": 1,
        "general.type": "model",
        "llama.attention.head_count_kv": 2,
    }
    check_equal(write_llama(tmp_path / "model.gguf", theirs, changed=changed), theirs)


def test_missing_and_surplus_tensors_are_listed(tmp_path):
    path = write_llama(tmp_path / "a.gguf", llama(), without=["blk.1.ffn_up.weight"])
    with pytest.raises(ValueError, match=r"missing: blk\.1\.ffn_up\.weight"):
        from_gguf(path)
    extra = {"blk.0.attn_q_norm.weight": np.ones(16, np.float32)}
    path = write_llama(tmp_path / "b.gguf", llama(), more=extra)
    with pytest.raises(ValueError, match=r"surplus: blk\.0\.attn_q_norm\.weight"):
        from_gguf(path)
    scaled = {"rope_freqs.weight": np.ones(8, np.float32)}
    path = write_llama(tmp_path / "c.gguf", llama(), more=scaled)
    with pytest.raises(ValueError, match=r"rope_freqs\.weight, which scales"):
        from_gguf(path)
    path = write_llama(tmp_path / "d.gguf", llama(), without=["token_embd.weight"])
    with pytest.raises(ValueError, match=r"lacks the tensor token_embd\.weight"):
        from_gguf(path)


def test_no_file_and_no_gguf_file_are_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a GGUF file"):
        from_gguf(tmp_path / "absent.gguf")
    (tmp_path / "text.gguf").write_text("a text of some length")
    with pytest.raises(ValueError, match="no GGUF file"):
        from_gguf(tmp_path / "text.gguf")


@pytest.mark.parametrize(
    ("version", "said"),
    [(1, "version 1 of GGUF; read are 2 and 3"), (0x03000000, "big-endian")],
)
def test_other_versions_and_orders_of_bytes_are_refused(tmp_path, version, said):
    path = write_llama(tmp_path / "model.gguf", llama())
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<I", version)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=said):
        from_gguf(path)


@pytest.mark.parametrize("kept", [5, 40, 700, -64])
def test_a_file_that_was_cut_short_is_refused(tmp_path, kept):
    path = write_llama(tmp_path / "model.gguf", llama())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="cut short"):
        from_gguf(path)


def test_a_missing_package_is_named_with_the_command(tmp_path, monkeypatch):
    path = write_llama(tmp_path / "model.gguf", llama())
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match="pip install gguf"):
        from_gguf(path)
