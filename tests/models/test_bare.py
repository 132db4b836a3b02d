"""The GPT in one file against `Decoder`, and that this comparison sees what is wrong with either."""

from pathlib import Path

import pytest
import torch
from measured_transformer.interop import bare as weights
from measured_transformer.models import bare
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

SMALL = Config(vocab=11, d_model=16, n_layers=2, n_heads=4, max_length=20, positions="rotary")
CONFIGS = {
    "default": SMALL,
    "larger": SMALL.replace(vocab=50, d_model=96, n_layers=4, n_heads=3, max_length=64),
    "one head": SMALL.replace(n_heads=1, n_layers=1),
    "tied": SMALL.replace(activation="gelu_tanh", initialisation="gpt2", tie_embeddings=True),
    "ReLU": SMALL.replace(activation="relu", embedding_scale=2.0),
}


def decoder_of(config, dtype):
    """A decoder none of whose weights is zero or one: neither a bias nor a norm's factor can hide."""
    torch.manual_seed(0)
    model = Decoder(config).to(dtype).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def difference(model, gpt):
    tokens = torch.randint(model.config.vocab, (3, model.config.max_length))
    with torch.no_grad():
        wanted, found = model(tokens), gpt(tokens)
    assert found.shape == wanted.shape
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
def test_it_gives_the_decoders_logits(config, dtype, tolerance):
    model = decoder_of(config, dtype)
    assert difference(model, weights.from_decoder(model)) < tolerance


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (".triu(1)", ".triu(2)"),
        (".triu(1)", ".triu(0)"),
        (" / math.sqrt(D)", " / D"),
        ("self.attention(self.attention_norm(x))", "self.attention(x)"),
        ("self.feedforward(self.feedforward_norm(x))", "self.feedforward(x)"),
        ("self.unembedding(self.final_norm(x))", "self.unembedding(x)"),
        ("x = x + self.attention(", "x = self.attention("),
        ("self.embedding_scale * ", ""),
        ("rotate(queries), rotate(keys)", "queries, keys"),
        ("rotate(queries), rotate(keys)", "rotate(queries), keys"),
        ("first * sin + second * cos", "second * cos - first * sin"),
        ("x[..., 0::2], x[..., 1::2]", "x.chunk(2, -1)"),
        (".view(B, T, H, D).transpose(1, 2)", ".view(B, H, T, D)"),
        ("softmax(-1)", "softmax(-2)"),
    ],
)
def test_the_comparison_sees_a_broken_mask_scale_norm_or_axis(right, wrong):
    source = Path(bare.__file__).read_text("utf-8")
    assert right in source
    broken = {"__name__": "broken"}
    taking = (
        Path(weights.__file__).read_text("utf-8").replace("from __future__", "# from __future__")
    )
    taking = taking.replace("from measured_transformer.models.bare", "# from measured_transformer")
    exec(compile(source.replace(right, wrong) + taking, "broken", "exec"), broken)
    model = decoder_of(SMALL, torch.float64)
    with pytest.raises(ValueError, match="its logits are"):
        broken["from_decoder"](model)
    broken["prove_same"] = lambda *models, **parts: None
    found = difference(model, broken["from_decoder"](model))
    assert not found < 1e-3


def test_it_learns_like_any_module_and_no_position_sees_a_later_one():
    torch.manual_seed(0)
    gpt = bare.BareGPT(vocab=11, d_model=16, n_layers=2, n_heads=4)
    tokens = torch.randint(11, (4, 8))
    gpt(tokens).logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None for parameter in gpt.parameters())
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 11
    with torch.no_grad():
        same = gpt(tokens).isclose(gpt(changed), rtol=0, atol=1e-6).all(-1)
    assert same[:, :5].all()
    assert not same[:, 5:].any()


@pytest.mark.parametrize(
    "change",
    [
        {"positions": "learned"},
        {"positions": "sinusoidal"},
        {"rotary_base": 100.0},
        {"rotary_pairing": "halves"},
        {"norm": "rms"},
        {"placement": "post", "final_norm": True},
        {"activation": "swiglu"},
        {"residual": False},
        {"attention_scale": 1.0},
        {"logit_scale": 0.5},
        {"norm_eps": 1e-6},
        {"n_kv_heads": 2},
        {"bias": False},
        {"head_bias": True},
        {"d_ff": 24},
        {"head": "none"},
        {"head": "mlm"},
        {"embedding_norm": True},
    ],
    ids=str,
)
def test_a_decoder_with_other_parts_is_refused(change):
    with pytest.raises(ValueError, match="no other parts than BareGPT, got Config"):
        weights.from_decoder(Decoder(SMALL.replace(**change)))


def test_it_is_short_enough_for_a_first_hour():
    lines = Path(bare.__file__).read_text("utf-8").splitlines()
    assert len(lines) <= 120
