"""Watching never changes the answer: every tap, in every precision, of every kind of model.

Where nobody looks, fused kernels compute norms and attention; where somebody looks, the same is written out. In
half precision the kernels compute in float32, and what is written out must do so as well: the squares of a
stream with one large entry, or the scores of long queries and keys, overflow in float16.
"""

import copy

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.names import taps
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

SIZES = {"vocab": 50, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "max_length": 16}
CONFIGS = {
    "layer": {},
    "rms": {"norm": "rms", "bias": False, "activation": "swiglu"},
    "none": {"norm": "none"},
    "post": {"placement": "post", "embedding_norm": True},
    "rotary, grouped": {"positions": "rotary", "n_kv_heads": 2, "norm": "rms"},
    "alibi": {"positions": "alibi"},
    "relative, unscaled": {"positions": "relative", "attention_scale": 1.0, "norm": "rms"},
    "learned": {"positions": "learned", "tie_embeddings": True},
    "wide": {"wide_stream": True, "norm": "rms", "activation": "swiglu"},
    "wide, post": {"wide_stream": True, "placement": "post", "embedding_norm": True},
}
KINDS = {"decoder": Decoder, "encoder": Encoder, "encoder-decoder": EncoderDecoder}
# How far a watched run may be from one in float64, beside twice what an unwatched one is: in units of the
# precision, relative to the largest logit.
UNITS = 64
TOKENS = torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(0))


def made(kind, changes, weather):
    """A model of float64 whose stream or scores are of an ordinary size, or are large in places."""
    torch.manual_seed(0)
    model = KINDS[kind](Config(**SIZES, **changes)).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if weather == "calm" and parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif weather == "large entry" and name.endswith("token_embedding.weight"):
                parameter[:, 3] = 600.0
            elif weather == "large scores" and name.endswith(("query.weight", "key.weight")):
                parameter.mul_(300)
    return model


def run(model):
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            return model(TOKENS, TOKENS[:, :7])
        return model(TOKENS)


CASES = [
    pytest.param(kind, name, dtype, weather)
    for kind in KINDS
    for name in CONFIGS
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    for weather in ("calm", "large entry", "large scores")
    if not (name == "none" and weather == "large entry")  # a model without norms has no answer then
]


@pytest.mark.parametrize(("kind", "name", "dtype", "weather"), CASES)
def test_the_answer_is_as_near_to_the_truth_as_when_nobody_looks(kind, name, dtype, weather):
    exact = made(kind, CONFIGS[name], weather)
    truth = run(exact)
    model = copy.deepcopy(exact).to(dtype)
    plain = run(model)
    assert plain.isfinite().all(), "the case itself overflows where nobody looks"
    allowed = 2 * (plain.double() - truth).abs().max()
    allowed += UNITS * torch.finfo(dtype).eps * truth.abs().max()
    if weather == "large scores":  # which key is the best one is then a matter of the last digit
        allowed = torch.inf
    wrong = []
    for patterns in [(), *((f"*{kind}",) for kind in kinds_of_taps(model))]:
        with capture(model, *patterns) as seen:
            watched = run(model)
        if not watched.isfinite().all() or (watched.double() - truth).abs().max() > allowed:
            wrong.append(" ".join(patterns) or "all")
        wrong += [f"the value of {name}" for name, value in seen.items() if value.isnan().any()]
    assert not wrong, f"watching {wrong[:6]} changes the answer"


def kinds_of_taps(model):
    """The last names of all taps: one glob for each covers every tap."""
    return sorted({name.rpartition(".")[2] for name in taps(model)})
