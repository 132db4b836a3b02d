"""BERT with every head, and its relatives: read, padded, written and read by `transformers` again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_reference import randomise
from measured_transformer import capture
from measured_transformer.interop import from_huggingface, to_huggingface
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="the reference is not installed")

VOCAB, LENGTHS = 31, (7, 4, 2)
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
}
DISTIL = {
    "vocab_size": VOCAB,
    "dim": 24,
    "hidden_dim": 20,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": 16,
}
WIDTH, NARROW = {"embedding_size": 24}, {"embedding_size": 10}
UNTIED = {"tie_word_embeddings": False}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("Bert", "Model", {"hidden_act": "relu"}),
    ("Bert", "ForMaskedLM", UNTIED),
    ("Bert", "ForPreTraining", {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    ("Bert", "ForPreTraining", UNTIED),
    ("Bert", "ForNextSentencePrediction", {}),
    ("Bert", "ForSequenceClassification", {"num_labels": 5}),
    ("Bert", "ForSequenceClassification", {}),
    ("Bert", "ForTokenClassification", {"num_labels": 3, "type_vocab_size": 1}),
    ("Bert", "ForQuestionAnswering", {}),
    ("Roberta", "Model", {}),
    ("Roberta", "ForMaskedLM", {"hidden_act": "relu", "type_vocab_size": 1}),
    ("Roberta", "ForMaskedLM", {**UNTIED, "pad_token_id": 0}),
    ("Roberta", "ForMaskedLM", {"pad_token_id": 4, "layer_norm_eps": 1e-5}),
    ("Roberta", "ForSequenceClassification", {"num_labels": 3}),
    ("Roberta", "ForTokenClassification", {"num_labels": 4}),
    ("Roberta", "ForQuestionAnswering", {}),
    ("XLMRoberta", "Model", {"type_vocab_size": 1}),
    ("XLMRoberta", "ForMaskedLM", {"type_vocab_size": 1}),
    ("XLMRoberta", "ForSequenceClassification", {"num_labels": 3}),
    ("Camembert", "ForMaskedLM", {"type_vocab_size": 1}),
    ("DistilBert", "Model", {}),
    ("DistilBert", "ForMaskedLM", {"activation": "relu"}),
    ("DistilBert", "ForMaskedLM", {"sinusoidal_pos_embds": True, **UNTIED}),
    ("DistilBert", "ForSequenceClassification", {"num_labels": 3}),
    ("DistilBert", "ForTokenClassification", {"num_labels": 3}),
    ("DistilBert", "ForQuestionAnswering", {}),
    ("Electra", "Model", WIDTH),
    ("Electra", "ForMaskedLM", {**WIDTH, "hidden_act": "relu"}),
    ("Electra", "ForMaskedLM", {**WIDTH, **UNTIED}),
    ("Electra", "ForSequenceClassification", {**WIDTH, "num_labels": 4}),
    ("Electra", "ForTokenClassification", WIDTH),
    ("Electra", "ForQuestionAnswering", WIDTH),
    ("Electra", "Model", NARROW),
    ("Electra", "ForMaskedLM", {**NARROW, "hidden_act": "relu"}),
    ("Electra", "ForMaskedLM", {**NARROW, **UNTIED}),
    ("Electra", "ForSequenceClassification", {**NARROW, "num_labels": 4}),
    ("Albert", "Model", {**NARROW, "num_hidden_groups": 2}),
    ("Albert", "ForPreTraining", {**NARROW, "layer_norm_eps": 1e-3}),
    ("Albert", "ForPreTraining", {**NARROW, **UNTIED, "num_labels": 3}),
    ("Albert", "ForMaskedLM", {**WIDTH, "hidden_act": "relu"}),
    ("Albert", "ForMaskedLM", {**NARROW, **UNTIED, "inner_group_num": 2}),
    ("Albert", "ForSequenceClassification", {**NARROW, "num_labels": 4}),
    ("Albert", "ForTokenClassification", {**NARROW, "type_vocab_size": 1}),
    ("Albert", "ForQuestionAnswering", NARROW),
    ("MPNet", "Model", {}),
    ("MPNet", "ForMaskedLM", {"hidden_act": "relu"}),
    ("MPNet", "ForMaskedLM", {**UNTIED, "pad_token_id": 3}),
    ("MPNet", "ForSequenceClassification", {"num_labels": 3}),
    ("MPNet", "ForTokenClassification", {}),
    ("MPNet", "ForQuestionAnswering", {}),
]
TYPES = {
    "Bert": "bert",
    "Roberta": "roberta",
    "XLMRoberta": "xlm-roberta",
    "Camembert": "camembert",
    "DistilBert": "distilbert",
    "Electra": "electra",
    "MPNet": "mpnet",
    "Albert": "albert",
}
every_case = pytest.mark.parametrize(
    ("classes", "head", "settings"), CASES, ids=[f"{a}{b} {c}" for a, b, c in CASES]
)
CHOICES = ["Bert", "Roberta", "XLMRoberta", "DistilBert", "MPNet", "Albert"]


def make(classes: str, head: str, settings: dict[str, Any], seed: int = 0) -> nn.Module:
    sizes = DISTIL if classes == "DistilBert" else SIZES
    config = getattr(transformers, f"{classes}Config")(
        **(sizes | settings), attn_implementation="eager"
    )
    model = getattr(transformers, classes + head)(config).eval()
    randomise(model, seed)
    return model


def batch(side: str = "right") -> tuple[Tensor, Tensor]:
    tokens = torch.randint(
        5, VOCAB, (len(LENGTHS), max(LENGTHS)), generator=torch.Generator().manual_seed(1)
    )
    where, lengths = torch.arange(max(LENGTHS)), torch.tensor(LENGTHS)[:, None]
    return tokens, where < lengths if side == "right" else where >= max(LENGTHS) - lengths


def offset_of(model: nn.Module) -> int:
    if isinstance(model, transformers.MPNetPreTrainedModel):
        return 2
    if model.config.model_type in ("roberta", "xlm-roberta", "camembert"):
        return int(model.config.pad_token_id) + 1
    return 0


@torch.no_grad()
def theirs_of(model: nn.Module, tokens: Tensor, real: Tensor) -> Tensor:
    """Logits, or the final state; start and end of an answer side by side."""
    places = (real.long().cumsum(1) - 1).clamp(min=0) + offset_of(model)
    output = model(tokens, attention_mask=real.long(), position_ids=places)
    if "start_logits" in output:
        return torch.stack((output.start_logits, output.end_logits), dim=-1)
    return output[0] if "prediction_logits" not in output else output.prediction_logits


def same(ours: Tensor, theirs: Tensor, real: Tensor, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    pick = real if ours.ndim == 3 else slice(None)
    torch.testing.assert_close(ours[pick], theirs[pick], rtol=tolerance, atol=tolerance)


@every_case
@torch.no_grad()
def test_equal_to_transformers(classes, head, settings):
    model = make(classes, head, settings)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
        model = model.to(dtype)
        ours = from_huggingface(model)
        for side in ("right", "left"):
            if side == "left" and ours.config.head == "sequence":
                continue  # the first place, which both read, is then no token
            tokens, real = batch(side)
            expected = theirs_of(model, tokens, real)
            same(ours(tokens, padding_mask=real), expected, real, tolerance)
            with capture(ours):
                same(ours(tokens, padding_mask=real), expected, real, tolerance)


@every_case
@torch.no_grad()
def test_written_and_read_by_both(classes, head, settings, tmp_path: Path):
    model = make(classes, head, settings)
    ours = from_huggingface(model)
    tokens, real = batch()
    expected = theirs_of(model, tokens, real)

    model.save_pretrained(tmp_path / "theirs")
    same(from_huggingface(tmp_path / "theirs")(tokens, padding_mask=real), expected, real, 1e-5)

    written, _ = to_huggingface(ours, tmp_path / "ours", model_type=TYPES[classes])
    again = from_huggingface(tmp_path / "ours")
    assert torch.equal(again(tokens, padding_mask=real), ours(tokens, padding_mask=real))
    assert again.config == ours.config
    read, report = getattr(transformers, written["architectures"][0]).from_pretrained(
        tmp_path / "ours", output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    logits = theirs_of(read.eval(), tokens, real)
    if head == "ForQuestionAnswering":
        assert written["architectures"] == [f"{classes}ForTokenClassification"]
    same(logits, expected, real, 1e-5)


@pytest.mark.parametrize("classes", CHOICES)
@torch.no_grad()
def test_choices_are_rows_with_one_label(classes):
    model = make(classes, "ForMultipleChoice", {})
    tokens, _ = batch()
    expected = model(tokens[None]).logits
    ours = from_huggingface(model)
    assert ours.config.labels == 1
    torch.testing.assert_close(ours(tokens).T, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_next_sentence_stands_beside_the_logits():
    model = make("Bert", "ForPreTraining", {})
    tokens, real = batch()
    expected = model(tokens, attention_mask=real.long())
    ours = from_huggingface(model)
    with capture(ours, "final_state") as seen:
        logits = ours(tokens, padding_mask=real)
    same(logits, expected.prediction_logits, real, 1e-5)
    same(ours.classify(seen["final_state"]), expected.seq_relationship_logits, real, 1e-5)


@torch.no_grad()
def test_published_bert_base_layout(tmp_path: Path):
    """It says BertForMaskedLM, and holds gamma, beta, a pooler and the next-sentence head."""
    from safetensors.torch import load_file, save_file

    model = make("Bert", "ForPreTraining", {})
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["BertForMaskedLM"]})
    )
    tensors = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    tokens, real = batch()
    ours = from_huggingface(tmp_path)
    assert (ours.config.pooler, ours.config.labels) == (True, 2)
    same(ours(tokens, padding_mask=real), theirs_of(model, tokens, real), real, 1e-5)


def test_the_pooler_of_a_model_without_head():
    for classes in ("Bert", "Roberta", "MPNet", "Albert"):
        model = make(classes, "Model", {})
        tokens, real = batch()
        ours = from_huggingface(model)
        expected = model(tokens, attention_mask=real.long()).pooler_output
        pooled = ours.pool(ours(tokens, padding_mask=real))
        torch.testing.assert_close(pooled, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("classes", "head", "settings", "message"),
    [
        ("Electra", "ForPreTraining", WIDTH, "got one of ElectraForPreTraining"),
        ("Electra", "ForMultipleChoice", WIDTH, "got one of ElectraForMultipleChoice"),
        ("Bert", "LMHeadModel", {"is_decoder": True}, "is_decoder=True"),
        ("Roberta", "ForCausalLM", {"is_decoder": True}, "is_decoder=True"),
        ("MPNet", "Model", {"relative_attention_num_buckets": 40}, "num_buckets=40"),
        ("DistilBert", "Model", {"activation": "mish"}, "activation must be one of"),
        ("Bert", "Model", {"hidden_act": "mish"}, "hidden_act must be one of"),
    ],
)
def test_what_is_not_computed_is_refused(classes, head, settings, message):
    model = make(classes, head, settings)
    with pytest.raises(ValueError, match=message):
        from_huggingface(model)
