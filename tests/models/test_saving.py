"""Models in folders: every kind and config, exactly; what would come back as another model is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.interop import from_huggingface
from measured_transformer.models import saving
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.factorised import FactorisedConfig, FactorisedEncoder
from measured_transformer.models.saving import kept_beside, load, save
from safetensors.torch import load_file, save_file
from test_composed import CHOICES, made, tokens
from torch import nn

SMALL: dict[str, Any] = {"vocab": 11, "d_model": 16, "n_layers": 2, "n_heads": 4}
CHANGES: list[dict[str, Any]] = [
    {},
    {"positions": "learned", "max_length": 9, "tie_embeddings": True, "initialisation": "gpt2"},
    {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "n_kv_heads": 2},
    {"positions": "rotary", "rotary_pairing": "halves", "rotary_base": 500.5, "d_head": 6},
    {"positions": "alibi", "placement": "post", "activation": "relu", "attention_bias": False},
    {"positions": "relative", "attention_scale": 1.0, "relative_buckets": 8, "logit_scale": 0.25},
    {"positions": "none", "norm": "none", "residual": False, "head_bias": True, "d_ff": 10},
    {"head": "none", "dropout": 0.2, "embedding_norm": True, "embedding_scale": 3.5},
]
ENCODERS: list[dict[str, Any]] = [
    {"head": "mlm", "token_types": 2, "pooler": True, "tie_embeddings": True, "head_bias": True},
]
CASES = [
    *[(kind, change) for kind in (Decoder, Encoder, EncoderDecoder) for change in CHANGES],
    *[(Encoder, change) for change in ENCODERS],
    (EncoderDecoder, {"n_decoder_layers": 1, "tie_embeddings": True}),
    (EncoderDecoder, {"n_decoder_heads": 2, "d_decoder_ff": 6, "positions": "sinusoidal_halves"}),
    (EncoderDecoder, {"shared_embedding": False, "tie_embeddings": True, "wide_stream": True}),
]


NARROW: dict[str, Any] = {
    **SMALL,
    **{"n_layers": 4, "positions": "learned", "placement": "post", "embedding_norm": True},
    **{"d_embedding": 6, "max_length": 9},
}
FACTORISED: list[dict[str, Any]] = [
    {
        "head": "mlm",
        "tie_embeddings": True,
        "head_bias": True,
        "shared_groups": 1,
        "token_types": 2,
    },
    {"head": "mlm", "pooler": True, "labels": 2, "shared_groups": 2},
    {"head": "none", "pooler": True, "shared_groups": 1, "group_layers": 2},
    {"head": "tokens", "labels": 3},
]


def outputs(model: nn.Module) -> torch.Tensor:
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])
    return model(tokens, tokens[:, :3]) if isinstance(model, EncoderDecoder) else model(tokens)


def decoder(**changes: Any) -> Decoder:
    return Decoder(Config(**{**SMALL, **changes}))


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_every_model_comes_back_exactly(kind: type, change: dict[str, Any], tmp_path: Path):
    model = kind(Config(**{**SMALL, **change})).eval()
    assert save(model, tmp_path) == tmp_path
    again = load(tmp_path)
    assert type(again) is kind
    assert again.config == model.config
    assert not any(module.training for module in again.modules())
    own, other = model.state_dict(), again.state_dict()
    assert list(own) == list(other)
    assert all(torch.equal(own[name], other[name]) for name in own)
    assert torch.equal(outputs(model), outputs(again))


@pytest.mark.parametrize("change", FACTORISED)
def test_blocks_that_share_their_weights_share_them_again(change: dict[str, Any], tmp_path: Path):
    model = FactorisedEncoder(FactorisedConfig(**{**NARROW, **change})).bfloat16().eval()
    again = load(model.save(tmp_path))
    assert type(again) is FactorisedEncoder
    assert again.config == model.config
    assert torch.equal(outputs(model), outputs(again))
    own, other = (list(dict(one.named_parameters())) for one in (model, again))
    assert own == other
    (file,) = tmp_path.glob("*.safetensors")
    assert sum(one.numel() for one in load_file(file).values()) == sum(
        one.numel() for one in model.parameters()
    )


@pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("kind", [Decoder, Encoder, EncoderDecoder])
@torch.no_grad()
def test_every_choice_of_a_config_comes_back(kind: type, changes: dict[str, Any], tmp_path: Path):
    if kind is EncoderDecoder and changes.get("parallel"):
        pytest.skip("a parallel block has no cross-attention")
    model = made(kind, changes, torch.float32)
    again = load(save(model, tmp_path))
    assert again.config == model.config
    given = (tokens(), tokens(n=5)) if kind is EncoderDecoder else (tokens(),)
    assert torch.equal(again(*given), model(*given))
    assert all(weight.data_ptr() % 64 == 0 for weight in again.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_precision_is_kept(dtype: torch.dtype, tmp_path: Path):
    model = decoder(positions="rotary", norm="rms").to(dtype).eval()
    save(model, tmp_path)
    again = load(tmp_path)
    assert {tensor.dtype for tensor in again.state_dict().values()} == {dtype}
    assert torch.equal(outputs(model), outputs(again))


@pytest.mark.parametrize("positions", ["sinusoidal", "none"])
def test_norms_in_another_precision_stay_so(positions: str, tmp_path: Path):
    model = decoder(positions=positions).bfloat16().eval()
    model.final_norm.float()
    save(model, tmp_path)
    again = load(tmp_path)
    kept = {name: tensor.dtype for name, tensor in again.state_dict().items()}
    assert kept == {name: tensor.dtype for name, tensor in model.state_dict().items()}
    assert set(kept.values()) == {torch.bfloat16, torch.float32}
    assert torch.equal(outputs(model), outputs(again))


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path):
    model = decoder()
    with torch.no_grad():
        model.unembedding.weight[0, 0], model.unembedding.weight[1, 0] = torch.nan, torch.inf
    save(model, tmp_path)
    assert load(tmp_path).unembedding.weight[0, 0].isnan()
    assert load(tmp_path).unembedding.weight[1, 0].isinf()


def test_tied_weights_are_written_once_and_tied_again(tmp_path: Path):
    model = EncoderDecoder(Config(**SMALL, tie_embeddings=True))
    save(model, tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    table = "token_embedding.weight"
    kept = load_file(file)
    assert [name for name in kept if "embedding" in name] == [f"encoder.{table}"]
    again = load(tmp_path)
    assert again.unembedding.weight is again.encoder.token_embedding.weight
    assert again.decoder.token_embedding.weight is again.encoder.token_embedding.weight
    assert sum(tensor.numel() for tensor in kept.values()) == sum(
        parameter.numel() for parameter in model.parameters()
    )


def test_a_loaded_model_can_be_trained(tmp_path: Path):
    save(decoder(tie_embeddings=True), tmp_path)
    model = load(tmp_path)
    outputs(model).sum().backward()
    assert all(p.requires_grad and p.grad is not None for p in model.parameters())


def test_neither_way_draws_random_numbers_or_changes_the_mode(tmp_path: Path):
    model = decoder(dropout=0.5).train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    before = torch.get_rng_state()
    save(model, tmp_path)
    load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in model.modules()] == modes


def test_weights_that_are_parts_of_a_larger_tensor(tmp_path: Path):
    model, large = decoder(), torch.randn(100, 16)
    model.unembedding.weight = nn.Parameter(large[:11])
    save(model, tmp_path)
    assert torch.equal(load(tmp_path).unembedding.weight, large[:11])


def test_what_holds_a_model(tmp_path: Path):
    model = decoder()
    save(SimpleNamespace(model=model, losses=[1.0]), tmp_path)
    assert torch.equal(load(tmp_path).unembedding.weight, model.unembedding.weight)


def test_a_module_that_holds_a_model(tmp_path: Path):
    class Language(Decoder):
        """A model with a tokenizer, which is not kept."""

        @property
        def model(self) -> Decoder:
            return inner

    inner = decoder()
    save(Language(inner.config), tmp_path)
    assert torch.equal(load(tmp_path).unembedding.weight, inner.unembedding.weight)


def test_texts_are_kept_beside_the_model(tmp_path: Path):
    first, second = decoder(), decoder(n_layers=1)
    save(first, tmp_path, beside={"notes.txt": "äöü", "more.json": "{}"})
    assert kept_beside(tmp_path) == {"notes.txt": "äöü", "more.json": "{}"}
    assert load(tmp_path).config == first.config
    save(first, tmp_path, beside={"notes.txt": "äöü"})
    save(second, tmp_path, beside={"notes.txt": "later"})
    assert kept_beside(tmp_path) == {"notes.txt": "later"}
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".safetensors", ".txt"]
    save(second, tmp_path)
    assert kept_beside(tmp_path) == {}
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".safetensors"]
    (tmp_path / "notes-mine.txt").write_text("mine")
    save(second, tmp_path)
    assert (tmp_path / "notes-mine.txt").exists()


@pytest.mark.parametrize("name", ["../x.txt", "x", "", ".txt", "a/b.txt"])
def test_a_name_beside_is_a_plain_file_name(name: str, tmp_path: Path):
    with pytest.raises(ValueError, match="expected a file name such as"):
        save(decoder(), tmp_path / "new", beside={name: "text"})
    assert not (tmp_path / "new").exists()


def test_what_is_beside_must_be_there(tmp_path: Path):
    save(decoder(), tmp_path, beside={"notes.txt": "text"})
    (file,) = tmp_path.glob("*.txt")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is no text, or it is damaged"):
        kept_beside(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"is missing, which model\.json beside it names"):
        kept_beside(tmp_path)
    change_about(tmp_path, beside={"notes.txt": "../notes.txt"})
    with pytest.raises(ValueError, match="must name files beside it"):
        load(tmp_path)


# Replacing what is there ----------------------------------------------------------------------------


def test_a_second_model_replaces_the_first_and_nothing_else(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    first, second = decoder(), decoder(n_layers=1)
    save(first, tmp_path)
    save(second, tmp_path)
    assert load(tmp_path).config == second.config
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".safetensors", ".txt"]
    save(second, tmp_path)  # the same once more
    assert torch.equal(outputs(load(tmp_path)), outputs(second.eval()))


@pytest.mark.parametrize("fails", ["save_file", "_digest", "_write", "dumps"])
def test_a_failure_leaves_the_model_that_was_there(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = decoder().eval()
    save(first, tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())

    def fail(*args: object, **kwargs: object) -> None:
        if fails == "save_file":
            Path(args[1]).write_bytes(b"half")  # type: ignore[arg-type]
        raise OSError("the disk is full")

    monkeypatch.setattr(saving.json if fails == "dumps" else saving, fails, fail)
    with pytest.raises(OSError, match="the disk is full"):
        save(decoder(n_layers=1), tmp_path)
    monkeypatch.undo()
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert torch.equal(outputs(load(tmp_path)), outputs(first))


def test_a_failure_in_the_last_step_leaves_the_model_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    save(decoder(), tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())

    def fail(self: Path, target: Path) -> Path:
        if target.name == saving.FILE:
            raise OSError("the disk is full")
        return Path(os.replace(self, target) or target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="the disk is full"):
        save(decoder(n_layers=1), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


# What is refused ------------------------------------------------------------------------------------


class Variant(nn.Identity):
    """A part that no config asks for."""


class Other(Decoder):
    """A decoder with a forward pass of its own."""


def scale(model: Decoder) -> None:
    model.blocks[1].attention.scale = 0.3


def epsilon(model: Decoder) -> None:
    model.final_norm.eps = 0.1


def activate(model: Decoder) -> None:
    model.blocks[0].feedforward.activate = torch.sin


def norm(model: Decoder) -> None:
    model.blocks[1].attention_norm = Variant()


def further(model: Decoder) -> None:
    model.extra = nn.Linear(2, 2)


def gone(model: Decoder) -> None:
    del model.blocks[1]


def forward(model: Decoder) -> None:
    kept = model.blocks[0].feedforward.forward
    model.blocks[0].feedforward.forward = lambda x: 2 * kept(x)


def hook(model: Decoder) -> None:
    model.blocks[0].register_forward_hook(lambda module, args, out: 2 * out)


def before_hook(model: Decoder) -> None:
    model.register_forward_pre_hook(lambda module, args: None)


def parametrised(model: Decoder) -> None:
    nn.utils.parametrizations.weight_norm(model.unembedding)


def tied(model: Decoder) -> None:
    model.unembedding.weight = model.token_embedding.weight


def shared(model: Decoder) -> None:
    model.blocks[1] = model.blocks[0]


def narrow(model: Decoder) -> None:
    model.unembedding.weight = nn.Parameter(torch.zeros(3, 16))


def parameter(model: Decoder) -> None:
    model.steering = nn.Parameter(torch.zeros(16))


def mixed(model: Decoder) -> None:
    model.final_norm.double()


def inner_config(model: Decoder) -> None:
    model.config = model.config.replace(n_layers=3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (scale, r"blocks\.1\.attention\.scale is 0\.3 and not None"),
        (epsilon, r"final_norm\.eps is 0\.1 and not 1e-05"),
        (activate, "with the same weights the two give other outputs"),
        (norm, r"blocks\.1\.attention_norm is a Variant and not a LayerNorm"),
        (further, "it has a Linear at extra, which the config does not ask for"),
        (gone, r"it has no blocks\.1"),
        (forward, r"blocks\.0\.feedforward\.forward was replaced"),
        (hook, r"a hook is attached to blocks\.0"),
        (before_hook, "a hook is attached to it"),
        (parametrised, "unembedding is a Parametrized"),
        (tied, r"embedding\.weight are tied"),
        (shared, r"blocks\.[01].* are tied"),
        (narrow, r"unembedding\.weight has the shape \(3, 16\) and not \(11, 16\)"),
        (parameter, "it has steering, which the config does not ask for"),
        (mixed, "it cannot be run"),
        (inner_config, r"it has no blocks\.2"),
    ],
)
def test_a_model_that_is_not_its_configs_is_refused(change: Any, said: str, tmp_path: Path):
    model = decoder()
    change(model)
    with pytest.raises(ValueError, match=rf"not what its config describes.*{said}") as caught:
        save(model, tmp_path / "new")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"head": "none"}, "other pooled states"),
        ({"head": "mlm"}, "other pooled states"),
        ({"head": "mlm", "labels": 2}, "other pooled states"),
        ({"head": "sequence", "labels": 3}, "other outputs"),
    ],
)
def test_a_pooler_that_computes_something_else_is_refused(
    change: dict[str, Any], said: str, tmp_path: Path
):
    model = Encoder(Config(**SMALL, pooler=True, **change))
    save(model, tmp_path)
    assert model.pooler is not None
    model.pooler.activate = torch.relu
    with pytest.raises(ValueError, match=f"with the same weights the two give {said}"):
        save(model, tmp_path)


def test_weights_that_were_untied_are_refused(tmp_path: Path):
    model = decoder(tie_embeddings=True)
    model.unembedding.weight = nn.Parameter(model.token_embedding.weight.detach().clone())
    with pytest.raises(ValueError, match=r"embedding\.weight are not tied"):
        save(model, tmp_path)


def test_a_watched_model_is_refused(tmp_path: Path):
    model = decoder()
    with (
        capture(model, "logits"),
        pytest.raises(ValueError, match="the tap logits is being watched"),
    ):
        save(model, tmp_path)
    save(model, tmp_path)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Other(Config(**SMALL)), "got Other; a subclass"),
        (nn.Linear(2, 2), "got Linear"),
        (3, "got int"),
        (SimpleNamespace(model="x"), "got str"),
        (decoder().to("meta"), "no values"),
    ],
)
def test_what_is_no_model_is_refused(model: Any, said: str, tmp_path: Path):
    with pytest.raises(ValueError, match=said):
        save(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_compiled_model_is_told_from_the_one_inside(tmp_path: Path):
    with pytest.raises(ValueError, match=r"save the model that torch\.compile was given"):
        save(torch.compile(decoder()), tmp_path)


def test_a_file_in_place_of_the_folder(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="expected a folder to save a model to, got the file"):
        save(decoder(), tmp_path / "file")
    with pytest.raises(FileNotFoundError, match=r"expected a folder that .* wrote, got a file"):
        load(tmp_path / "file")


# What cannot be loaded ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(decoder(), tmp_path / "model")


def change_about(folder: Path, **changes: Any) -> None:
    file = folder / saving.FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_no_folder(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="got nothing there"):
        load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"save wrote nothing here"):
        load(tmp_path)


def test_a_folder_of_another_format(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ValueError, match=r"interop\.from_huggingface"):
        load(tmp_path)


def test_the_reader_of_the_other_format_knows_this_one(folder: Path):
    with pytest.raises(
        FileNotFoundError, match=r"a model of measured_transformer\.save: read it with load"
    ):
        from_huggingface(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "x"}, "was not written by"),
        ({"format_version": 2}, "format_version 2, and this version .* reads up to 1"),
        ({"format_version": None}, "format_version None"),
        (
            {"model": "Oracle"},
            "must name one of Decoder, Encoder, FactorisedEncoder, EncoderDecoder, got 'Oracle'",
        ),
        ({"weights": "../weights.safetensors"}, "must name the file of the weights beside it"),
        ({"dtype": "nn"}, "must name a precision of torch, got 'nn'"),
        ({"weights": 3}, "must name the file of the weights"),
        ({"tied": {"a": "b"}}, "ties a to b, but its config ties nothing"),
        ({"config": {"type": "Config", "vocab": 5, "later": 1}}, r"does not know \(later\)"),
    ],
)
def test_what_a_folder_says_is_checked(folder: Path, changes: dict[str, Any], said: str):
    change_about(folder, **changes)
    with pytest.raises(ValueError, match=said) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_damaged_files(folder: Path):
    (weights,) = folder.glob("*.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match="damaged"):
        load(folder)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"is missing, which model\.json beside it names"):
        load(folder)
    (folder / saving.FILE).write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        load(folder)


def test_tensors_that_do_not_fit(folder: Path):
    (weights,) = folder.glob("*.safetensors")
    tensors = load_file(weights)
    tensors["more"] = tensors.pop("final_norm.weight")
    tensors["unembedding.weight"] = tensors["unembedding.weight"][:3].clone()
    save_file(tensors, weights)
    with pytest.raises(
        ValueError,
        match=r"missing: final_norm\.weight; surplus: more; "
        r"misshapen: unembedding\.weight \(3, 16\) instead of \(11, 16\)",
    ):
        load(folder)
