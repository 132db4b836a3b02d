"""GGUF files of Llama's relatives: equal to the model that was written, and to what `transformers` reads."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.interop import from_gguf
from measured_transformer.interop.gguf_architectures import ARCHITECTURES
from measured_transformer.interop.huggingface import FAMILIES

gguf = pytest.importorskip("gguf", reason="reads GGUF files: pip install gguf")
transformers = pytest.importorskip("transformers", reason="the reference is not installed")

import gguf_reference as files  # noqa: E402
from hf_reference import randomise  # noqa: E402

SIZES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attn_implementation": "eager",
}


def tiny(name: str, layers: int, **changes):
    config = getattr(transformers, f"{name}Config" if name != "Gemma3" else "Gemma3TextConfig")
    model = getattr(transformers, f"{name}ForCausalLM")(
        config(**{**SIZES, "num_hidden_layers": layers, **changes})
    )
    if "Moe" in name or name in ("Mixtral", "GptOss", "Olmoe"):
        model.set_experts_implementation("eager")
    randomise(model)
    return model.eval()


CASES = {
    "qwen2": (
        lambda: tiny("Qwen2", 2, rope_theta=1e6, tie_word_embeddings=True),
        files.LLAMA,
        {"rope.freq_base": 1e6},
    ),
    "qwen3": (
        lambda: tiny("Qwen3", 2, rope_theta=1e6, head_dim=128),
        files.QWEN3,
        {"rope.freq_base": 1e6, "attention.key_length": 128, "attention.value_length": 128},
    ),
    "phi3": (
        lambda: tiny("Phi3", 2, sliding_window=6),
        files.PHI3,
        {
            "rope.freq_base": 1e4,
            "rope.dimension_count": 16,
            "rope.scaling.original_context_length": 4096,
            "attention.sliding_window": 6,
        },
    ),
    "gemma": (
        lambda: tiny("Gemma", 2, head_dim=32),
        files.LLAMA,
        {"attention.key_length": 32, "attention.value_length": 32},
    ),
    "gemma2": (
        lambda: tiny("Gemma2", 3, head_dim=32, query_pre_attn_scalar=32, sliding_window=5),
        files.GEMMA2,
        {
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "attention.sliding_window": 5,
        },
    ),
    "gemma3": (
        lambda: tiny(
            "Gemma3", 7, head_dim=32, query_pre_attn_scalar=32, sliding_window=5, rope_theta=1e6
        ),
        files.GEMMA3,
        {
            "attention.key_length": 32,
            "attention.value_length": 32,
            "rope.freq_base": 1e6,
            "attention.sliding_window": 5,
        },
    ),
}
EXPERTS = {"expert_count": 5, "expert_used_count": 2}
CASES |= {
    "llama with experts": (
        lambda: tiny("Mixtral", 2, num_local_experts=5, sliding_window=None, rope_theta=1e6),
        files.MIXTRAL,
        {"rope.freq_base": 1e6, **EXPERTS},
    ),
    "qwen2moe": (
        lambda: tiny(
            "Qwen2Moe",
            2,
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=64,
        ),
        files.QWEN2_MOE,
        {
            **EXPERTS,
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
        },
    ),
    "qwen3moe": (
        lambda: tiny(
            "Qwen3Moe",
            2,
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            norm_topk_prob=True,
            head_dim=32,
        ),
        files.QWEN3_MOE,
        {
            **EXPERTS,
            "expert_feed_forward_length": 32,
            "attention.key_length": 32,
            "attention.value_length": 32,
        },
    ),
    "olmoe": (
        lambda: tiny("Olmoe", 2, num_experts=5, num_experts_per_tok=2),
        files.QWEN3_MOE,
        EXPERTS,
    ),
    "gpt-oss": (
        lambda: tiny(
            "GptOss",
            3,
            num_local_experts=5,
            num_experts_per_tok=2,
            head_dim=32,
            sliding_window=5,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 15e4,
                "factor": 32.0,
                "original_max_position_embeddings": 8,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
            },
        ),
        files.GPT_OSS,
        {
            **EXPERTS,
            "expert_feed_forward_length": 96,
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.sliding_window": 5,
            "rope.freq_base": 15e4,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 8,
        },
    ),
}
# It has no Gemma and no OLMoE, takes the widths of Qwen's experts to be those of one size, reads no Mixtral
# with stacked experts and other numbers from a gpt-oss than stand there.
READ_BY_TRANSFORMERS = ["qwen2", "qwen3", "phi3", "gemma2", "gemma3"]


def written(tmp_path, name, kind="F32", **changed):
    make, table, keys = CASES[name]
    theirs = make()
    path, name = tmp_path / "model.gguf", name.split(" ")[0]
    return files.write_relative(path, theirs, name, table, {**keys, **changed}, kind=kind), theirs


def check_equal(ours, theirs):
    tokens = files.tokens_of(97)
    with torch.no_grad():
        expected, logits = theirs(tokens).logits, ours(tokens)
    assert expected.std() > 0.1, "the reference says something"
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_a_file_gives_the_model_that_was_written(tmp_path, name):
    path, theirs = written(tmp_path, name)
    check_equal(from_gguf(path), theirs)


@pytest.mark.parametrize("name", READ_BY_TRANSFORMERS)
def test_quantised_weights_are_read_as_transformers_reads_them(tmp_path, name):
    plain = {"attention.sliding_window": 0} if name == "phi3" else {}  # which theirs does not read
    path, _ = written(tmp_path, name, "Q8_0", **plain)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    if name in (
        "gemma2",
        "gemma3",
    ):  # not in the file: transformers takes that of its smallest model
        for block in theirs.model.layers:
            block.self_attn.scaling = 32**-0.5
    check_equal(from_gguf(path), theirs)


READS_EXPERTS = {
    # Widths that it takes for granted, as it does not read them.
    "qwen2moe": {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
    "qwen3moe": {"moe_intermediate_size": 768, "norm_topk_prob": True, "head_dim": 32},
}


@pytest.mark.parametrize("name", READS_EXPERTS)
def test_experts_are_read_as_transformers_reads_them(tmp_path, name):
    own = READS_EXPERTS[name]
    kind = {"qwen2moe": "Qwen2Moe", "qwen3moe": "Qwen3Moe"}[name]
    theirs = tiny(kind, 1, num_experts=5, num_experts_per_tok=2, **own)
    keys = {**EXPERTS, "expert_feed_forward_length": own["moe_intermediate_size"]}
    if "shared_expert_intermediate_size" in own:
        keys["expert_shared_feed_forward_length"] = own["shared_expert_intermediate_size"]
    if "head_dim" in own:
        keys |= {"attention.key_length": 32, "attention.value_length": 32}
    path = tmp_path / "model.gguf"
    files.write_relative(path, theirs, name, CASES[name][1], keys, kind="Q8_0")
    again = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    again.set_experts_implementation("eager")
    check_equal(from_gguf(path), again)


@pytest.mark.parametrize("kind", ["MXFP4", "Q8_0"])
def test_experts_in_four_bits_are_the_numbers_that_these_stand_for(tmp_path, kind):
    """OpenAI's own files store the experts like this."""
    path, _ = written(tmp_path, "gpt-oss", kind)
    held = {
        one.name: torch.tensor(gguf.quants.dequantize(one.data, one.tensor_type))
        for one in gguf.GGUFReader(path).tensors
        if "_exps.weight" in one.name
    }
    ours = from_gguf(path)
    assert len(held) == 3 * len(ours.blocks)
    for i, block in enumerate(ours.blocks):
        network = block.feedforward
        for name in ("gate", "up"):
            weight = getattr(network, name).weight.unflatten(0, (5, -1))
            assert torch.equal(weight, held[f"blk.{i}.ffn_{name}_exps.weight"])
        down = network.down.weight.unflatten(1, (5, -1)).transpose(0, 1)
        assert torch.equal(down, held[f"blk.{i}.ffn_down_exps.weight"])


def test_widths_of_experts_may_be_those_of_the_network(tmp_path):
    own = {"expert_feed_forward_length": None, "expert_shared_feed_forward_length": None}
    make = {"moe_intermediate_size": 48, "shared_expert_intermediate_size": 96}
    theirs = tiny("Qwen2Moe", 2, num_experts=5, num_experts_per_tok=2, **make)
    path = tmp_path / "model.gguf"
    files.write_relative(path, theirs, "qwen2moe", files.QWEN2_MOE, {**EXPERTS, **own})
    check_equal(from_gguf(path), theirs)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_older_files_hold_each_expert_by_itself(tmp_path, kind):
    make, table, keys = CASES["llama with experts"]
    theirs = make()
    for name, single in (("old", True), ("new", False)):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "model.gguf"
        files.write_relative(path, theirs, "llama", table, keys, kind=kind, single=single)
    held = {one.name for one in gguf.GGUFReader(tmp_path / "old" / "model.gguf").tensors}
    assert {"blk.0.ffn_gate.0.weight", "blk.1.ffn_down.4.weight"} <= held
    old, new = (from_gguf(tmp_path / name / "model.gguf") for name in ("old", "new"))
    if kind == "F32":
        check_equal(old, theirs)
    for name, weight in new.state_dict().items():
        assert torch.equal(old.state_dict()[name], weight), name


def test_an_expert_that_is_missing_is_named(tmp_path):
    make, table, keys = CASES["llama with experts"]
    path = tmp_path / "model.gguf"
    files.write_relative(
        path, make(), "llama", table, {**keys, "expert_count": 6}, kind="F32", single=True
    )
    with pytest.raises(ValueError, match=r"missing: blk\.0\.ffn_down\.5\.weight"):
        from_gguf(path)


def test_deepseek_is_refused_with_the_way_to_its_weights(tmp_path):
    make, table, keys = CASES["qwen3"]
    path = files.write_relative(tmp_path / "model.gguf", make(), "deepseek2", table, keys)
    with pytest.raises(ValueError, match=r"DeepSeek-V2 or V3 .* from_huggingface"):
        from_gguf(path)


def test_every_architecture_has_its_family_and_its_test():
    assert set(CASES) | {"llama", "gpt2"} == set(ARCHITECTURES)
    assert all(how.family in FAMILIES for how in ARCHITECTURES.values())


def test_positions_of_gemma_3_may_be_interpolated(tmp_path):
    scaled = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    path, _ = written(tmp_path, "gemma3", **scaled)
    ropes = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    theirs = tiny(
        "Gemma3", 7, head_dim=32, query_pre_attn_scalar=32, sliding_window=5, rope_parameters=ropes
    )
    check_equal(from_gguf(path), theirs)
    path, _ = written(tmp_path, "gemma3", **{"rope.scaling.type": "yarn"})
    with pytest.raises(ValueError, match=r"gemma3\.rope\.scaling\.type='yarn'"):
        from_gguf(path)


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("qwen2", {"rope.scaling.type": "yarn"}, r"qwen2\.rope\.scaling\.type='yarn'"),
        ("qwen3", {"expert_count": 8}, r"qwen3\.expert_count=8"),
        ("phi3", {"rope.dimension_count": 12}, r"phi3\.rope\.dimension_count=12"),
        ("gemma2", {"attention.value_length": 16}, r"gemma2\.attention\.value_length=16"),
        ("llama with experts", {"expert_gating_func": 2}, r"llama\.expert_gating_func=2"),
        ("qwen2moe", {"expert_used_count": None}, r"lacks the key qwen2moe\.expert_used_count"),
        ("olmoe", {"attention.clamp_kqv": 8.0}, r"olmoe\.attention\.clamp_kqv=8\.0"),
        ("gpt-oss", {"rope.scaling.type": "linear"}, r"gpt-oss\.rope\.scaling\.type='linear'"),
    ],
)
def test_what_is_not_computed_is_named(tmp_path, name, changed, said):
    path, _ = written(tmp_path, name, **changed)
    with pytest.raises(ValueError, match=said):
        from_gguf(path)
