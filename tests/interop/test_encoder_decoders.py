"""T5, mT5, BART and Marian: equal to `transformers` whole, padded and token by token; there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_decoders import RELATIVES, build, drawn
from llama_relatives import double_precision
from measured_transformer import Config, Encoder, EncoderDecoder, capture, generate
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.interop.sides import SourceSide, TargetSide
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="the reference is not installed")

SEEDS = 4
PROMPT, LENGTH = 2, 9
every_relative = pytest.mark.parametrize("model_type", RELATIVES)
every_drawn = pytest.mark.parametrize(
    ("model_type", "seed"), [(name, seed) for name in RELATIVES for seed in range(SEEDS)]
)
TIED = {"tie_word_embeddings": True}


def batch(vocab: int, side: str = "right") -> tuple[Tensor, Tensor, Tensor]:
    """Three sources, where their tokens are real, and what is written."""
    draws = torch.Generator().manual_seed(1)
    source = torch.randint(vocab, (3, 11), generator=draws)
    target = torch.randint(vocab, (3, LENGTH), generator=draws)
    lengths, where = torch.tensor([[11], [7], [1]]), torch.arange(11)
    return source, where < lengths if side == "right" else where >= 11 - lengths, target


@torch.no_grad()
def theirs_of(model: nn.Module, source: Tensor, real: Tensor, target: Tensor) -> Tensor:
    return model(input_ids=source, attention_mask=real.long(), decoder_input_ids=target)[0]


@torch.no_grad()
def theirs_by_token(model: nn.Module, source: Tensor, real: Tensor, target: Tensor) -> Tensor:
    mask, start = real.long(), target[:, :PROMPT]
    step = model(input_ids=source, attention_mask=mask, decoder_input_ids=start, use_cache=True)
    found, read = [step[0]], (step.encoder_last_hidden_state,)
    for i in range(PROMPT, target.shape[1]):
        step = model(
            encoder_outputs=read,
            attention_mask=mask,
            decoder_input_ids=target[:, i : i + 1],
            past_key_values=step.past_key_values,
            use_cache=True,
        )
        found.append(step[0])
    return torch.cat(found, dim=1)


@torch.no_grad()
def ours_of(model: EncoderDecoder, source: Tensor, real: Tensor, target: Tensor) -> Tensor:
    return model(source, target, source_padding_mask=real)


@torch.no_grad()
def ours_by_token(model: EncoderDecoder, source: Tensor, real: Tensor, target: Tensor) -> Tensor:
    cache, found = model.make_cache(), []
    for part in target.split([PROMPT] + [1] * (target.shape[1] - PROMPT), dim=1):
        found.append(model(source, part, source_padding_mask=real, cache=cache))
    return torch.cat(found, dim=1)


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@every_drawn
def test_equal_in_float32_and_back(model_type: str, seed: int, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, seed), "Model" if seed == 1 else None)
    ours = from_huggingface(theirs)
    inputs = batch(ours.config.vocab)
    expected = theirs_of(theirs, *inputs)
    assert_close(ours_of(ours, *inputs), expected, 1e-5)
    assert_close(ours_by_token(ours, *inputs), theirs_by_token(theirs, *inputs), 1e-5)
    with capture(ours), torch.no_grad():
        assert_close(ours_of(ours, *inputs), expected, 1e-5)

    settings, _ = to_huggingface(ours, tmp_path, model_type=model_type)
    assert settings["model_type"] == model_type
    again, report = type(theirs).from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    if model_type == "marian":  # without a head, transformers reports its sinusoids, and makes them
        report["missing_keys"] = {k for k in report["missing_keys"] if "embed_positions" not in k}
    assert not any(report.values())
    assert_close(theirs_of(again, *inputs), expected, 1e-5)


@every_drawn
def test_equal_in_float64(model_type: str, seed: int, monkeypatch: pytest.MonkeyPatch):
    with double_precision(monkeypatch):
        theirs = build(model_type, drawn(model_type, seed))
        inputs = batch(theirs.config.vocab_size)
        expected, by_token = theirs_of(theirs, *inputs), theirs_by_token(theirs, *inputs)
    ours = from_huggingface(theirs)
    assert_close(ours_of(ours, *inputs), expected, 1e-11)
    assert_close(ours_by_token(ours, *inputs), by_token, 1e-11)


@every_relative
def test_folders_of_either_library(model_type: str, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, 0) | TIED)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, live = from_huggingface(tmp_path / "theirs"), from_huggingface(theirs)
    assert ours.config == live.config
    inputs = batch(ours.config.vocab)
    expected = ours_of(live, *inputs)
    assert torch.equal(ours_of(ours, *inputs), expected)
    to_huggingface(ours, tmp_path / "ours", model_type=model_type)
    assert torch.equal(ours_of(from_huggingface(tmp_path / "ours"), *inputs), expected)


@every_relative
def test_what_is_written_token_by_token(model_type: str):
    theirs = build(model_type, drawn(model_type, 2))
    ours = from_huggingface(theirs)
    source, _, _ = batch(ours.config.vocab)
    start = theirs.config.decoder_start_token_id
    with torch.no_grad():
        expected = theirs.generate(
            source, max_new_tokens=6, do_sample=False, num_beams=1, decoder_start_token_id=start
        )
    written = generate(ours, source.tolist(), max_new_tokens=6, start=start)
    assert torch.equal(torch.stack(written.tokens), expected[:, 1:])


@pytest.mark.parametrize("model_type", ["t5", "bart", "marian"])
def test_a_source_padded_on_the_left(model_type: str):
    theirs = build(model_type, drawn(model_type, 0))
    ours = from_huggingface(theirs)
    source, real, target = batch(ours.config.vocab, "left")
    places = torch.arange(source.shape[1]).expand_as(source)
    with torch.no_grad():
        logits = ours(source, target, source_padding_mask=real, source_positions=places)
    assert_close(logits, theirs_of(theirs, source, real, target), 1e-5)
    # Counted from the real tokens, padding moves nothing: each row is as it is alone.
    padded = ours_of(ours, source, real, target)
    for row in range(3):
        alone = ours(source[row : row + 1, real[row]], target[row : row + 1]).detach()
        assert_close(padded[row : row + 1], alone, 1e-5)


def test_target_positions_are_those_that_are_given():
    ours = from_huggingface(build("bart", drawn("bart", 0))).double()
    source, _, target = batch(ours.config.vocab)
    places = torch.arange(LENGTH).expand_as(target)
    with torch.no_grad():
        plain = ours(source, target)
        assert torch.equal(ours(source, target, target_positions=places), plain)
        assert not torch.allclose(ours(source, target, target_positions=places + 1), plain)


# T5's encoder alone -----------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["t5", "mt5"])
@pytest.mark.parametrize("seed", range(SEEDS))
@torch.no_grad()
def test_the_encoder_alone(model_type: str, seed: int, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, seed), "EncoderModel")
    ours = from_huggingface(theirs)
    assert isinstance(ours, Encoder)
    for side in ("right", "left"):
        source, real, _ = batch(ours.config.vocab, side)
        expected = theirs(source, attention_mask=real.long())[0]
        assert_close(ours(source, padding_mask=real)[real], expected[real], 1e-5)

    theirs.save_pretrained(tmp_path / "theirs")
    assert torch.equal(from_huggingface(tmp_path / "theirs")(source), ours(source))
    written, _ = to_huggingface(ours, tmp_path / "ours", model_type=model_type)
    assert written["architectures"] == [type(theirs).__name__]
    assert torch.equal(from_huggingface(tmp_path / "ours")(source), ours(source))
    again, report = type(theirs).from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values())
    assert_close(again(source, attention_mask=real.long())[0][real], expected[real], 1e-5)


@torch.no_grad()
def test_the_encoder_of_a_folder_that_holds_the_whole(tmp_path: Path):
    theirs = build("t5", drawn("t5", 0) | TIED)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    told = config | {"architectures": ["T5EncoderModel"]}
    (tmp_path / "config.json").write_text(json.dumps(told))
    source, real, _ = batch(31)
    expected = theirs.encoder(source, attention_mask=real.long())[0]
    ours = from_huggingface(tmp_path)
    assert_close(ours(source, padding_mask=real)[real], expected[real], 1e-5)


# float16 ----------------------------------------------------------------------------------------


def large(model_type: str, settings: dict[str, Any], kind: str | None = None) -> nn.Module:
    """A T5 whose networks write numbers beyond the largest of float16."""
    theirs = build(model_type, settings, kind)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "DenseReluDense" in name:
                parameter.mul_(60 if theirs.config.is_gated_act else 200)
    return theirs


@pytest.mark.parametrize("gate", ["", "gated-"])
@pytest.mark.parametrize("model_type", ["t5", "mt5"])
@torch.no_grad()
def test_a_stream_beyond_float16_stays_finite_and_near(model_type, gate, tmp_path: Path):
    settings = drawn(model_type, 0) | {"feed_forward_proj": f"{gate}relu", "d_ff": 48}
    theirs = large(model_type, settings)
    inputs = batch(theirs.config.vocab_size)
    truth = theirs_of(theirs, *inputs)
    theirs.save_pretrained(tmp_path)
    half = type(theirs).from_pretrained(tmp_path, dtype=torch.float16)
    allowed = 2 * float((theirs_of(half, *inputs).float() - truth).abs().max())
    allowed += 16 * torch.finfo(torch.float16).eps * float(truth.abs().max())

    for ours in (
        from_huggingface(tmp_path, dtype=torch.float16),
        from_huggingface(theirs).half(),
        from_huggingface(theirs.half()),
    ):
        assert {parameter.dtype for parameter in ours.parameters()} == {torch.float16}
        with capture(ours, "*.residual_post", "*.out") as seen:
            watched = ours_of(ours, *inputs)
        assert max(float(one.abs().max()) for one in seen.values()) > 65504
        plain = ours_of(ours, *inputs)
        with capture(ours):
            everything = ours_of(ours, *inputs)
        for logits in (plain, watched, everything, ours_by_token(ours, *inputs)):
            assert logits.dtype == torch.float16
            assert float((logits.float() - truth).abs().max()) <= allowed
        written = generate(ours, inputs[0].tolist(), max_new_tokens=3, start=0)
        assert all(row.isfinite().all() for row in written.log_probs)


@torch.no_grad()
def test_the_encoder_alone_in_float16():
    theirs = large("t5", drawn("t5", 0) | {"feed_forward_proj": "relu"}, "EncoderModel")
    source, real, _ = batch(theirs.config.vocab_size)
    truth = theirs(source, attention_mask=real.long())[0]
    ours = from_huggingface(theirs, dtype=torch.float16)
    states = ours(source, padding_mask=real)
    assert states.dtype == torch.float16
    torch.testing.assert_close(states[real].float(), truth[real], rtol=0.02, atol=0.02)


# Embeddings, biases and tables of positions -------------------------------------------------------


def test_each_side_may_have_an_embedding_of_its_own():
    untied = {"tie_word_embeddings": False}
    for settings in (untied, {"share_encoder_decoder_embeddings": False}):
        kind = "bart" if settings is untied else "marian"
        ours = from_huggingface(build(kind, drawn(kind, 0) | TIED | settings))
        assert not ours.config.shared_embedding
        assert ours.decoder.token_embedding is not ours.encoder.token_embedding
        tied = ours.unembedding.weight is ours.decoder.token_embedding.weight
        assert tied == ours.config.tie_embeddings == (settings is not untied)


def test_an_embedding_stored_once_serves_both_sides(tmp_path: Path):
    """So older versions wrote a BART with an unembedding of its own."""
    theirs = build("bart", drawn("bart", 0) | TIED)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    tensors = load_file(tmp_path / "model.safetensors")
    own = torch.randn_like(tensors["model.shared.weight"])
    save_file({**tensors, "lm_head.weight": own}, tmp_path / "model.safetensors")
    ours = from_huggingface(tmp_path)
    assert ours.config.shared_embedding
    assert not ours.config.tie_embeddings
    theirs.lm_head.weight = nn.Parameter(own)
    inputs = batch(ours.config.vocab)
    expected = theirs_of(theirs, *inputs)
    assert_close(ours_of(ours, *inputs), expected, 1e-5)
    to_huggingface(ours, tmp_path / "ours")
    again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    assert_close(theirs_of(again, *inputs), expected, 1e-5)


def test_a_checkpoint_without_a_bias_of_logits(tmp_path: Path):
    theirs = build("bart", drawn("bart", 0))
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["final_logits_bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    ours = from_huggingface(tmp_path)
    assert ours.unembedding.bias is None
    theirs.final_logits_bias.zero_()
    inputs = batch(ours.config.vocab)
    assert_close(ours_of(ours, *inputs), theirs_of(theirs, *inputs), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_marians_sinusoids_are_known_in_every_precision(dtype):
    ours = from_huggingface(build("marian", drawn("marian", 0)).to(dtype))
    assert ours.config.positions == "sinusoidal_halves"
    assert not [name for name in ours.state_dict() if "positions" in name]


def test_a_table_of_marian_with_other_numbers_is_learned(tmp_path: Path):
    theirs = build("marian", drawn("marian", 0))
    with torch.no_grad():
        theirs.model.decoder.embed_positions.weight[3] += 1
    ours = from_huggingface(theirs)
    assert ours.config.positions == "learned"
    inputs = batch(ours.config.vocab)
    expected = theirs_of(theirs, *inputs)
    assert_close(ours_of(ours, *inputs), expected, 1e-5)
    to_huggingface(ours, tmp_path, model_type="marian")
    assert_close(theirs_of(type(theirs).from_pretrained(tmp_path), *inputs), expected, 1e-5)


def test_token_numbers_may_be_given_and_sizes_may_not(tmp_path: Path):
    ours = from_huggingface(build("marian", drawn("marian", 0)))
    extra = {"pad_token_id": 5, "decoder_start_token_id": 5, "eos_token_id": 2}
    settings, _ = to_huggingface(ours, tmp_path, extra=extra, model_type="marian")
    assert settings.items() >= extra.items()
    assert transformers.MarianMTModel.from_pretrained(tmp_path).config.pad_token_id == 5
    with pytest.raises(ValueError, match="cannot change those of the model, got d_model"):
        to_huggingface(ours, extra={"d_model": 5})


def test_sides_with_other_heads_are_seen_as_they_are():
    settings = drawn("bart", 0) | {"encoder_attention_heads": 4, "decoder_attention_heads": 2}
    ours = from_huggingface(build("bart", settings))
    source, _, target = batch(ours.config.vocab)
    written, read = TargetSide(ours, source), SourceSide(ours, target)
    assert (read.config.n_heads, written.config.n_heads) == (4, 2)
    with torch.no_grad(), capture(written, "blocks.0.attention.pattern") as seen:
        assert torch.equal(written(target), ours(source, target))
    assert seen["blocks.0.attention.pattern"].shape[1] == 2


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model_type", "settings", "message"),
    [
        ("t5", {"architectures": ["T5ForSequenceClassification"]}, "one of T5ForSequenceClass"),
        ("t5", {"architectures": ["T5EncoderModel"], "is_decoder": True}, "is_decoder=True"),
        ("t5", {"feed_forward_proj": "gated-mish", "dense_act_fn": None}, "got 'mish'"),
        ("mt5", {"architectures": ["MT5ForQuestionAnswering"]}, "got one of MT5ForQuestion"),
        ("bart", {"architectures": ["BartForCausalLM"]}, "got one of BartForCausalLM"),
        ("bart", {"normalize_before": True}, "normalize_before=True"),
        ("bart", {"add_final_layer_norm": True}, "add_final_layer_norm=True"),
        ("bart", {"normalize_embedding": False}, "normalize_embedding=False"),
        ("bart", {"static_position_embeddings": True}, "static_position_embeddings=True"),
        ("bart", {"is_decoder": True}, "is_decoder=True"),
        ("bart", {"activation_function": "mish"}, "activation_function must be one of"),
        ("bart", {"decoder_attention_heads": 5}, "n_decoder_heads must divide d_model"),
        ("bart", {"d_model": "24"}, "d_model must be a positive whole number"),
        ("marian", {"decoder_vocab_size": 50}, "decoder_vocab_size=50"),
        ("marian", {"static_position_embeddings": False}, "static_position_embeddings=False"),
        ("marian", {"quantization_config": {"bits": 4}}, "quantization_config="),
    ],
)
def test_what_is_not_computed_is_refused(model_type: str, settings: Any, message, tmp_path: Path):
    build(model_type, drawn(model_type, 0)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(ValueError, match=message):
        from_huggingface(tmp_path)


POST = Config(
    vocab=11,
    d_model=16,
    placement="post",
    positions="sinusoidal_halves",
    embedding_scale=4.0,
)


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("marian", {"positions": "sinusoidal"}, "positions must be 'sinusoidal_halves'"),
        ("marian", {"placement": "pre"}, "placement must be 'post', is 'pre'"),
        ("marian", {"embedding_scale": 3.0}, r"embedding_scale must be 1\.0, is 3\.0"),
        ("marian", {"rotary_base": 100.0}, r"rotary_base must be 10000\.0, is 100\.0"),
        ("bart", {"positions": "learned"}, "embedding_norm must be True, is False"),
        (
            "bart",
            {"shared_embedding": False, "tie_embeddings": True},
            "with an embedding for each side, the unembedding must not be tied",
        ),
        ("t5", {}, "t5: .*placement must be 'pre'"),
        ("mt5", {"n_decoder_heads": 2}, "mt5: .*n_decoder_heads must be 4, is 2"),
    ],
)
def test_what_an_architecture_cannot_say_is_not_written(model_type, changes, message):
    with pytest.raises(ValueError, match=message):
        to_huggingface(EncoderDecoder(POST.replace(**changes)), model_type=model_type)


def test_a_model_made_here_is_written_as_marian():
    for changes in ({}, {"shared_embedding": False}, {"n_decoder_heads": 2, "d_decoder_ff": 7}):
        model = EncoderDecoder(POST.replace(**changes))
        assert to_huggingface(model)[0]["model_type"] == "marian"


def test_an_encoder_that_is_no_t5_says_so():
    with pytest.raises(ValueError, match=r"t5 \(T5EncoderModel\): .*norm must be 'rms'"):
        to_huggingface(Encoder(POST.replace(head="none")), model_type="t5")
