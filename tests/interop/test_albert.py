"""ALBERT computes here what it computes in `transformers`, in every block, and misfits are named."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from measured_transformer.analysis.attribution import attention_weights
from measured_transformer.internals.capture import capture
from measured_transformer.interop.albert import Albert, albert_from, read_albert
from measured_transformer.interop.checkpoint import Checkpoint, read_checkpoint

transformers = pytest.importorskip("transformers")
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
    torch.manual_seed(0)
    config = transformers.AlbertConfig(**{**SIZES, **changes}, attn_implementation="eager")
    made = getattr(transformers, f"Albert{kind}")(config).double().eval()
    with (
        torch.no_grad()
    ):  # fresh biases are zero and fresh norms one, so that a swap would not show
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_logits_states_and_patterns_are_those_of_transformers(act: str) -> None:
    other = theirs(hidden_act=act)
    model = albert_from(read_checkpoint(other), dtype=torch.float64)
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


def test_a_model_without_head_gives_its_states() -> None:
    other = theirs("Model")
    model = albert_from(read_checkpoint(other), dtype=torch.float64)
    tokens = torch.randint(40, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), other(tokens).last_hidden_state)


def test_padding_moves_no_token() -> None:
    model = albert_from(read_checkpoint(theirs()), dtype=torch.float64)
    tokens = torch.randint(40, (1, 6))
    padded = torch.cat([tokens, torch.zeros(1, 3, dtype=torch.long)], dim=1)
    real = torch.arange(9)[None] < 6
    with torch.no_grad():
        torch.testing.assert_close(model(padded, padding_mask=real)[:, :6], model(tokens))


def test_blocks_share_their_weights_and_count_once() -> None:
    other = theirs()
    model = albert_from(read_checkpoint(other), dtype=torch.float64)
    assert isinstance(model, Albert)
    pooler = 32 * 32 + 32 if hasattr(other.albert.pooler, "weight") else 0
    expected = sum(one.numel() for one in other.parameters()) - pooler
    assert sum(one.numel() for one in model.parameters()) == expected


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


def test_what_is_not_computed_is_refused(tmp_path: Any) -> None:
    checkpoint = read_checkpoint(theirs())

    def changed(**settings: Any) -> Checkpoint:
        return Checkpoint(
            {**checkpoint.config, **settings}, checkpoint.tensors, "AlbertForMaskedLM"
        )

    for settings, said in (
        ({"num_hidden_groups": 2}, "num_hidden_groups=2"),
        ({"inner_group_num": 2}, "inner_group_num=2"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"embedding_size": 0}, "embedding_size must be a positive whole number"),
        ({"embedding_size": 16}, "misshapen"),
        ({"model_type": "bert"}, "expected a checkpoint of model_type 'albert', got 'bert'"),
    ):
        with pytest.raises(ValueError, match=said):
            albert_from(changed(**settings))
    lacking = {name: one for name, one in checkpoint.tensors.items() if "ffn_output" not in name}
    with pytest.raises(ValueError, match=r"missing: .*ffn_output\.weight"):
        albert_from(Checkpoint(checkpoint.config, lacking, "AlbertForMaskedLM"))
    with pytest.raises(ValueError, match="got one of AlbertForPreTraining"):
        albert_from(Checkpoint(checkpoint.config, checkpoint.tensors, "AlbertForPreTraining"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert"}))
    (tmp_path / "pytorch_model.bin").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"expected tensors in .*pytorch_model\.bin"):
        read_albert(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="got no JSON"):
        read_albert(tmp_path)
