"""ALBERT computes here what it computes in `transformers`, in every block, and misfits are named."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
import torch
from hf_reference import randomise
from llama_relatives import eps, flag
from measured_transformer import Config, Encoder, capture
from measured_transformer.analysis.attribution import attention_weights
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.interop.albert import read_albert
from measured_transformer.models.factorised import FactorisedConfig, FactorisedEncoder
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="the reference is not installed")

HEADS = (
    *("Model", "ForPreTraining", "ForMaskedLM", "ForSequenceClassification"),
    *("ForTokenClassification", "ForQuestionAnswering"),
)
SEEDS = 12
SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "embedding_size": 12,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}


def theirs(kind: str = "ForMaskedLM", **changes: Any) -> Any:
    config = transformers.AlbertConfig(**{**SIZES, **changes}, attn_implementation="eager")
    made = getattr(transformers, f"Albert{kind}")(config).eval()
    randomise(made)
    return made


def drawn(seed: int) -> tuple[str, dict[str, Any]]:
    """A head and settings, the same for the same seed."""
    random = Random(f"albert {seed}")
    heads, groups = random.choice((2, 4)), random.choice((1, 1, 2, 3))
    width, head = heads * random.choice((6, 8)), HEADS[seed % len(HEADS)]
    return head, {
        "vocab_size": random.choice((31, 34)),
        "embedding_size": random.choice((8, 12, width)),
        "hidden_size": width,
        "num_hidden_layers": random.choice((3, 4, 7)),
        "num_hidden_groups": groups,
        "inner_group_num": random.choice((1, 1, 2)),
        "num_attention_heads": heads,
        "intermediate_size": random.choice((20, 11)),
        "max_position_embeddings": random.choice((9, 24)),
        "type_vocab_size": random.choice((1, 2, 3)),
        "hidden_act": random.choice(("gelu", "gelu_new", "relu", "silu")),
        "layer_norm_eps": eps(random),
        "num_labels": 2 if head == "ForQuestionAnswering" else random.choice((2, 3)),
        "tie_word_embeddings": flag(random),
    }


@torch.no_grad()
def answers(model: nn.Module, tokens: Tensor, types: Tensor) -> Tensor:
    found = model(tokens, token_type_ids=types)
    if "start_logits" in found:
        return torch.stack((found.start_logits, found.end_logits), dim=-1)
    return found[0]


@pytest.mark.parametrize("seed", range(SEEDS))
@torch.no_grad()
def test_equal_to_transformers_and_back(seed: int, tmp_path: Any) -> None:
    head, settings = drawn(seed)
    draws = torch.Generator().manual_seed(seed)
    tokens = torch.randint(31, (2, 9), generator=draws)
    types = torch.randint(settings["type_vocab_size"], (2, 9), generator=draws)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        other = theirs(head, **settings).to(dtype)
        expected = answers(other, tokens, types)
        model = from_huggingface(other)
        ours = model(tokens, token_types=types)
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)
        if "sop_logits" in other(tokens):
            with capture(model, "final_state") as seen:
                model(tokens, token_types=types)
            found = model.classify(seen["final_state"])
            pairs = other(tokens, token_type_ids=types).sop_logits
            torch.testing.assert_close(found, pairs, rtol=tolerance, atol=tolerance)

        written, _ = to_huggingface(model, tmp_path / str(dtype), model_type="albert")
        assert to_huggingface(model)[0]["model_type"] == "albert"
        again = from_huggingface(tmp_path / str(dtype))
        assert again.config == model.config
        assert torch.equal(again(tokens), model(tokens))
        kind = getattr(transformers, written["architectures"][0])
        if head == "ForQuestionAnswering":
            continue  # written as a head for each token, of as many classes
        assert written["architectures"] == [f"Albert{head}"]
        read, report = kind.from_pretrained(
            tmp_path / str(dtype), output_loading_info=True, attn_implementation="eager"
        )
        assert not any(report.values())
        back = answers(read.eval(), tokens, types)
        torch.testing.assert_close(back, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_states_and_patterns_of_every_pass_are_those_of_transformers(act: str) -> None:
    other = theirs(hidden_act=act).double()
    model = from_huggingface(other)
    tokens, types = torch.randint(40, (2, 9)), torch.randint(2, (2, 9))
    with torch.no_grad():
        found = other(
            tokens, token_type_ids=types, output_hidden_states=True, output_attentions=True
        )
    with torch.no_grad(), capture(model, "embedding", "blocks.*.residual_post") as seen:
        logits = model(tokens, token_types=types)
    torch.testing.assert_close(logits, found.logits)
    states = [seen["embedding"], *(seen[f"blocks.{i}.residual_post"] for i in range(3))]
    for one, expected in zip(states, found.hidden_states, strict=True):
        torch.testing.assert_close(one, expected)
    with torch.no_grad():
        plain = other(tokens, output_attentions=True).attentions
    torch.testing.assert_close(attention_weights(model, tokens), torch.stack(plain))


def test_padding_moves_no_token() -> None:
    model = from_huggingface(theirs().double())
    tokens = torch.randint(40, (1, 6))
    padded = torch.cat([tokens, torch.zeros(1, 3, dtype=torch.long)], dim=1)
    real = torch.arange(9)[None] < 6
    with torch.no_grad():
        torch.testing.assert_close(model(padded, padding_mask=real)[:, :6], model(tokens))


@pytest.mark.parametrize(("groups", "inner"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_blocks_share_their_weights_and_count_once(groups: int, inner: int) -> None:
    other = theirs(num_hidden_groups=groups, inner_group_num=inner)
    model = from_huggingface(other)
    assert isinstance(model, FactorisedEncoder)
    assert len(model.blocks) == 3 * inner
    assert sum(one.numel() for one in model.parameters()) == sum(
        one.numel() for one in other.parameters()
    )
    one = model.blocks[0].feedforward.up.weight
    assert (
        sum(block.feedforward.up.weight is one for block in model.blocks)
        == {1: 3, 2: 2, 3: 1}[groups]
    )


def test_fresh_weights_train_and_answer() -> None:
    config = FactorisedConfig(
        vocab=11, d_model=16, n_layers=4, n_heads=2, d_embedding=6, shared_groups=2, positions="learned",
        placement="post", embedding_norm=True, head="mlm", head_bias=True, tie_embeddings=True,
    )  # fmt: skip
    assert repr(config).startswith(
        "FactorisedConfig(vocab=11, d_model=16, n_layers=4, n_heads=2, positions="
    )
    model = FactorisedEncoder(config)
    tokens = torch.randint(11, (3, 5))
    loss = model(tokens).logsumexp(-1).mean() - model(tokens).mean()
    loss.backward()
    assert all(one.grad is not None and one.grad.isfinite().all() for one in model.parameters())
    assert model.blocks[0].attention.query.weight is model.blocks[1].attention.query.weight
    assert model.blocks[0].attention.query.weight is not model.blocks[2].attention.query.weight


def test_configs_that_make_no_such_encoder_are_refused() -> None:
    whole: dict[str, Any] = {
        "vocab": 11, "d_embedding": 8, "n_layers": 4, "positions": "learned", "embedding_norm": True,
        "head": "none",
    }  # fmt: skip
    for changes, said in (
        ({"d_embedding": 0}, "d_embedding must be a positive whole number"),
        ({"shared_groups": -1}, "shared_groups must be 0 or a positive whole number"),
        ({"shared_groups": 5}, "with a pass for each of shared_groups"),
        ({"shared_groups": 1, "group_layers": 3}, "n_layers must be a multiple of group_layers"),
        ({"group_layers": 2}, "group_layers is for shared_groups of 1 or more"),
        ({"positions": "rotary"}, "got positions='rotary'"),
        ({"embedding_norm": False}, "embedding_norm=False"),
        ({"head": "linear"}, "got head='linear'"),
    ):
        with pytest.raises(ValueError, match=said):
            FactorisedConfig(**whole | changes)
    with pytest.raises(ValueError, match="expected a FactorisedConfig, got Config"):
        FactorisedEncoder(Config(vocab=11))  # type: ignore[arg-type]


def test_no_other_architecture_has_it_and_it_has_no_other() -> None:
    model = from_huggingface(theirs())
    for name in ("bert", "electra", "modernbert"):
        with pytest.raises(ValueError, match="no architecture has this config"):
            to_huggingface(model, model_type=name)
    plain = Encoder(
        Config(
            vocab=11,
            positions="learned",
            placement="post",
            embedding_norm=True,
            token_types=2,
            head="none",
            d_model=16,
            n_heads=2,
        )
    )
    with pytest.raises(ValueError, match="its config must be a FactorisedConfig"):
        to_huggingface(plain, model_type="albert")


def test_both_forms_of_a_folder_are_read(tmp_path: Any) -> None:
    other = theirs()
    other.save_pretrained(tmp_path / "safe")
    (tmp_path / "pickled").mkdir()
    torch.save(other.state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    settings = (tmp_path / "safe" / "config.json").read_text()
    (tmp_path / "pickled" / "config.json").write_text(settings)
    one, two = (
        read_albert(tmp_path / name, dtype=torch.float64).state_dict()
        for name in ("safe", "pickled")
    )
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_hidden_groups": 4}, "num_hidden_groups must be at most num_hidden_layers=3"),
        ({"num_hidden_groups": 2}, "missing: .*albert_layer_groups.1"),
        ({"inner_group_num": 0}, "inner_group_num must be a positive whole number, got 0"),
        ({"embedding_size": 0}, "embedding_size must be a positive whole number, got 0"),
        ({"embedding_size": 16}, "misshapen"),
        ({"hidden_act": "mish"}, "hidden_act must be one of"),
        ({"architectures": ["AlbertForCausalLM"]}, "got one of AlbertForCausalLM"),
    ],
)
def test_what_is_not_computed_is_refused(
    settings: dict[str, Any], said: str, tmp_path: Any
) -> None:
    theirs().save_pretrained(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(told | settings))
    for read in (from_huggingface, read_albert):
        with pytest.raises(ValueError, match=said):
            read(tmp_path)


def test_folders_that_hold_no_albert_are_refused(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert"}))
    (tmp_path / "pytorch_model.bin").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"expected tensors in .*pytorch_model\.bin"):
        read_albert(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="got no JSON"):
        read_albert(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(
        ValueError, match="expected a checkpoint of model_type 'albert', got 'bert'"
    ):
        read_albert(tmp_path)
