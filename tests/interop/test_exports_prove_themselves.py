"""What an export would read back is the model itself; anything else is refused, and nothing is written."""

import copy
from pathlib import Path

import pytest
import torch
from measured_transformer import Config, Decoder, Encoder, EncoderDecoder, capture, intervene
from measured_transformer.analysis.folding import as_rms_model, fold_norms
from measured_transformer.interop import checkpoint, from_huggingface, to_huggingface
from measured_transformer.interop.bare import from_decoder
from measured_transformer.interop.proof import SMALL, prove_same
from measured_transformer.interop.translator import save_translator
from measured_transformer.parts.norms import RMSNorm
from measured_transformer.tasks.text import byte_tokenizer
from measured_transformer.variants import norms
from measured_transformer.variants.checkpointing import Checkpointed
from test_huggingface_checkpoints import BERT, GPT2, LLAMA, T5, answer, every_model, make
from torch import nn


def llama(**changes):
    return make(Decoder, LLAMA.replace(**changes)).double()


def prepared(prepare, config=LLAMA, kind=Decoder):
    model = kind(config)
    prepare(model)
    model = model.double().eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def changed(change, config=LLAMA, kind=Decoder):
    model = make(kind, config).double()
    change(model)
    return model


def appended(model):
    model.blocks.append(copy.deepcopy(model.blocks[0]))


def removed(model):
    model.blocks = model.blocks[:1]


def other_activation(model):
    model.blocks[1].feedforward.activate = torch.relu


def other_scale(model):
    model.blocks[0].attention.scale = 1.0


def untied(model):
    model.unembedding.weight = nn.Parameter(-model.unembedding.weight.detach())


def hooked(model):
    model.blocks[0].register_forward_hook(lambda part, inputs, output: 2 * output)


def looking(model):
    model.blocks[0].attention.register_forward_hook(lambda part, inputs, output: None)


def hooked_before(model):
    model.final_norm.register_forward_pre_hook(lambda part, inputs: (2 * inputs[0],))


def own_forward(model):
    own = model.blocks[0].attention.forward
    model.blocks[0].attention.forward = lambda *args, **how: 0 * own(*args, **how)


def own_pattern(model):
    """Another mask, which shows in long sequences alone."""
    attention = model.blocks[0].attention
    own = attention._allowed
    attention._allowed = lambda *args: own(*args)


def other_norm(model):
    model.final_norm = RMSNorm(16, eps=0.5).double()


def wider_norm(model):
    model.final_norm.eps = 0.5


def other_base(model):
    model.rotary.base = 3.0


def another_embedding(model):
    model.embedding_scale = 3.0


def one_more(model):
    model.register_parameter("spare", nn.Parameter(torch.ones(2).double()))


def buffered(model):
    model.blocks[0].register_buffer("mask", torch.ones(2))


def parametrised(model):
    nn.utils.parametrizations.weight_norm(model.blocks[0].attention.query)


def other_pooler(model):
    model.pooler.activate = torch.relu


def pooled(head, labels):
    """A config whose pooler stands beside the logits, or before them."""
    tokens = head == "mlm"
    return BERT.replace(
        head=head, labels=labels, pooler=True, head_bias=tokens, tie_embeddings=tokens
    )


class Negative(Decoder):
    def forward(self, tokens, **how):
        return -super().forward(tokens, **how)


class Later(Decoder):
    def stream(self, tokens, **how):
        return super().stream(tokens, **how)


class Named(Decoder):
    """Computes what a decoder does."""

    colour = "red"

    def describe(self):
        return self.colour


PLAIN = {
    "folded": lambda: fold_norms(llama(tie_embeddings=True)),
    "as rms": lambda: as_rms_model(llama(norm="layer", bias=True)),
    "folded gpt2": lambda: fold_norms(make(Decoder, GPT2).double()),
    **{
        name: (lambda name=name: prepared(getattr(norms, name)))
        for name in ("sandwich", "head_norms", "gated_branches", "tanh_norms")
    },
    **{
        change.__name__: (lambda change=change: changed(change))
        for change in (
            appended,
            removed,
            other_activation,
            other_scale,
            hooked,
            looking,
            hooked_before,
            own_forward,
            own_pattern,
            wider_norm,
            other_base,
            another_embedding,
            one_more,
            buffered,
            parametrised,
        )
    },
    "untied": lambda: changed(untied, LLAMA.replace(tie_embeddings=True)),
    "other norm": lambda: changed(other_norm, GPT2),
    "class": lambda: changed(lambda model: None, LLAMA, Negative),
    "class, later": lambda: changed(lambda model: None, LLAMA, Later),
    "bert": lambda: changed(lambda m: setattr(m.head_layer, "activate", torch.relu), BERT, Encoder),
    **{
        f"pooler, {head}": (
            lambda head=head, labels=labels: changed(other_pooler, pooled(head, labels), Encoder)
        )
        for head, labels in (("none", 0), ("mlm", 2), ("sequence", 3))
    },
    "t5": lambda: changed(lambda m: hooked(m.decoder), T5, EncoderDecoder),
    "t5, memory": lambda: changed(lambda m: appended(m.encoder), T5, EncoderDecoder),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_model_that_is_not_its_config_is_refused_and_nothing_changes(name, tmp_path: Path):
    model = PLAIN[name]()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"does not compute|does not have|no architecture"):
        to_huggingface(model)
    with pytest.raises(ValueError, match=r"does not compute|does not have|no architecture"):
        to_huggingface(model, tmp_path / "new")
    assert not list(tmp_path.iterdir())
    to_huggingface(make(Decoder, GPT2), tmp_path)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"does not compute|does not have|no architecture"):
        to_huggingface(model, tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == files
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


@every_model
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_model_that_is_its_config_passes_in_every_precision(kind, config, dtype):
    model = make(kind, config).to(dtype).train()
    state = torch.get_rng_state()
    to_huggingface(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(part.training for part in model.modules())
    assert next(model.parameters()).dtype == dtype


@pytest.mark.parametrize("kind", [Decoder, Named])
def test_harmless_changes_pass(kind, tmp_path: Path):
    model = make(kind, LLAMA)
    Checkpointed()(model)
    model = fold_norms(model)  # without biases it is a model of the same config, with other weights
    to_huggingface(model, tmp_path)
    assert torch.equal(answer(from_huggingface(tmp_path)), answer(model))


def test_captures_and_interventions_at_work_see_nothing_and_do_not_count(tmp_path: Path):
    model = make(Decoder, LLAMA)
    with capture(model, "logits") as seen, intervene(model, {"blocks.0.attention.out": 0.0}):
        here = answer(model)
        kept = seen["logits"].clone()
        to_huggingface(model, tmp_path)
        assert torch.equal(seen["logits"], kept)
        assert torch.equal(answer(model), here)
    assert torch.equal(answer(from_huggingface(tmp_path)), answer(model))


def test_settings_that_are_added_may_not_change_the_model(tmp_path: Path):
    model = make(Decoder, LLAMA)
    for extra in ({"rms_norm_eps": 0.5}, {"rope_theta": 3.0}, {"num_hidden_layers": 1}):
        with pytest.raises(ValueError, match="cannot change those of the model"):
            to_huggingface(model, tmp_path, extra=extra)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("at", ["save_file", "replace"])
def test_an_interrupted_write_leaves_the_folder_as_it_was(at, tmp_path: Path, monkeypatch):
    to_huggingface(make(Decoder, GPT2), tmp_path)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def broken(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    def refused(self, target):
        raise OSError("disk full")

    if at == "save_file":
        monkeypatch.setattr(checkpoint, "save_file", broken)
    else:
        monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(OSError, match="disk full"):
        to_huggingface(make(Decoder, LLAMA), tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == files


def test_weights_without_numbers_are_refused(unhooked):
    model = Decoder(LLAMA).to("meta")
    with pytest.raises(ValueError, match="on the device 'meta'"):
        to_huggingface(model)


def test_large_models_are_compared_in_their_own_precision():
    config = LLAMA.replace(vocab=SMALL // 16)
    for dtype in (torch.float32, torch.bfloat16):
        model = make(Decoder, config).to(dtype)
        to_huggingface(model)
        other_scale(model)
        with pytest.raises(ValueError, match="its logits are"):
            to_huggingface(model)


def test_a_difference_far_away_is_seen():
    """Both rotate alike at first; one of the pairs turns a little slower."""
    model = make(Decoder, LLAMA)
    slower = copy.deepcopy(model)
    slower.rotary.base = 701.0
    with pytest.raises(ValueError, match="its logits are"):
        prove_same(model, slower)


def test_a_translator_proves_itself(tmp_path: Path):
    pieces = byte_tokenizer("zwei hunde spielen im schnee", 262)
    config = Config(vocab=266, d_model=8, n_heads=2, n_layers=1)
    for change in (hooked, other_scale):
        model = EncoderDecoder(config).eval()
        change(model.decoder)
        with pytest.raises(ValueError, match="does not compute"):
            save_translator(tmp_path / "one", model, pieces.to_str())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", [hooked, own_pattern, other_base, appended, buffered])
def test_the_bare_model_is_the_decoder(change):
    config = Config(vocab=11, d_model=16, n_layers=2, n_heads=4, positions="rotary")
    from_decoder(Decoder(config))
    model = Decoder(config)
    change(model)
    with pytest.raises(ValueError, match=r"does not compute|no other parts"):
        from_decoder(model)
