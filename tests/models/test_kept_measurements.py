"""What every stored measurement rests on: a seed gives the same weights, under the same names, for ever.

Numbers and digests come from the models as they were when the first measurements were stored. They guard three
things at once: the order in which random weights are drawn, names and shapes in checkpoints, and names of taps.
Weights and logits are summed with a factor for each place, so that two that change places change the sum. Who
changes any of this on purpose measures everything anew.
"""

import hashlib

import pytest
import torch
from measured_transformer.internals.names import taps
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

SIZES = {"vocab": 11, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_length": 8}
KINDS = {"decoder": Decoder, "encoder": Encoder, "encoder-decoder": EncoderDecoder}
CONFIGS = {
    "default": {},
    "original": {"placement": "post", "activation": "relu", "tie_embeddings": True},
    "GPT-2": {
        "positions": "learned",
        "activation": "gelu_tanh",
        "initialisation": "gpt2",
        "tie_embeddings": True,
    },
    "Llama": {
        "positions": "rotary",
        "rotary_pairing": "halves",
        "norm": "rms",
        "activation": "swiglu",
        "bias": False,
        "n_kv_heads": 2,
    },
    "T5": {
        "positions": "relative",
        "relative_buckets": 8,
        "relative_max_distance": 16,
        "attention_scale": 1.0,
        "logit_scale": 0.25,
        "norm": "rms",
        "bias": False,
    },
    "ALiBi": {"positions": "alibi", "n_decoder_layers": 3, "d_head": 6, "head_bias": True},
    "bare stream": {"norm": "none", "residual": False, "positions": "none", "head": "none"},
    "post-norm with a last norm": {"placement": "post", "final_norm": True, "embedding_norm": True},
}
BERT = {"head": "mlm", "pooler": True, "token_types": 2, "embedding_norm": True, "head_bias": True}
CASES = [(config, kind) for config in CONFIGS for kind in KINDS] + [("BERT", "encoder")]

# (names and shapes of weights, names of taps, sum over weights, sum over logits)
KEPT = {
    ("default", "decoder"): ("cab3853d8573", "287c8ca6f1da", 23.193259142, 0.804547488),
    ("default", "encoder"): ("cab3853d8573", "287c8ca6f1da", 23.193259142, 2.828069236),
    ("default", "encoder-decoder"): ("4d22e5504c29", "29010b6fa572", -15.676266578, -4.678589188),
    ("original", "decoder"): ("d0000f702b0e", "0f9909a600b3", 21.245726996, 8.84889021),
    ("original", "encoder"): ("d0000f702b0e", "0f9909a600b3", 21.245726996, 7.152706237),
    ("original", "encoder-decoder"): ("4c1a03a4861e", "56165fff50f8", -2.887871275, -2.070673424),
    ("GPT-2", "decoder"): ("2887b37bd4c7", "287c8ca6f1da", -2.568192394, 0.450185213),
    ("GPT-2", "encoder"): ("2887b37bd4c7", "287c8ca6f1da", -2.568192394, 0.464641602),
    ("GPT-2", "encoder-decoder"): ("5e51bdeae7a2", "29010b6fa572", -8.583651, 0.421234744),
    ("Llama", "decoder"): ("e918b3cba9f3", "0a15ddb24d5e", -17.575595576, -3.570185843),
    ("Llama", "encoder"): ("e918b3cba9f3", "0a15ddb24d5e", -17.575595576, -8.372429203),
    ("Llama", "encoder-decoder"): ("f5e137e4ac5b", "a4656a150e2e", -13.00224702, -4.513373325),
    ("T5", "decoder"): ("35d5f85a9558", "287c8ca6f1da", 1.923651132, -1.340213544),
    ("T5", "encoder"): ("35d5f85a9558", "287c8ca6f1da", 1.923651132, 0.288756716),
    ("T5", "encoder-decoder"): ("9d23ee69925c", "29010b6fa572", -30.883844886, -1.017494079),
    ("ALiBi", "decoder"): ("f6f41d511ff6", "287c8ca6f1da", -5.580017047, -7.463718716),
    ("ALiBi", "encoder"): ("f6f41d511ff6", "287c8ca6f1da", -5.580017047, -21.569059659),
    ("ALiBi", "encoder-decoder"): ("820d8166cc3d", "3b8149d0b929", -41.134408243, 1.082775745),
    ("bare stream", "decoder"): ("45596a9482fa", "6f5c7eacfb06", -25.017220537, -1.959135029),
    ("bare stream", "encoder"): ("45596a9482fa", "6f5c7eacfb06", -25.017220537, -2.178867612),
    ("bare stream", "encoder-decoder"): (
        "87d2b3976f48",
        "faf6334f8a2b",
        18.973815236,
        -0.242964533,
    ),
    ("post-norm with a last norm", "decoder"): (
        "fa45205a39a5",
        "a53c17e0ed18",
        11.557740745,
        1.475832039,
    ),
    ("post-norm with a last norm", "encoder"): (
        "fa45205a39a5",
        "a53c17e0ed18",
        11.557740745,
        4.05718778,
    ),
    ("post-norm with a last norm", "encoder-decoder"): (
        "a6c9718feafe",
        "cb2fa2d1dc60",
        -16.721521905,
        -2.02120928,
    ),
    ("BERT", "encoder"): ("6e4a78b5626a", "36163a5f430f", -17.055632331, 1.833939428),
}


def digest(words):
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def weighed(numbers):
    flat = numbers.detach().double().flatten()
    return float(flat @ torch.arange(len(flat), dtype=torch.float64).mul(0.37).cos())


def found(config, kind):
    torch.manual_seed(3)
    model = KINDS[kind](Config(**SIZES, **{**CONFIGS, "BERT": BERT}[config])).eval()
    weights = model.state_dict()
    names = digest(f"{name} {tuple(weight.shape)}" for name, weight in weights.items())
    total = weighed(torch.cat([weight.flatten() for weight in weights.values()]))
    tokens = torch.arange(12).reshape(2, 6) % 11
    given = (tokens, tokens.flip(0)[:, :4]) if kind == "encoder-decoder" else (tokens,)
    with torch.no_grad():
        logits = model.double()(*given)
    return names, digest(taps(model)), total, weighed(logits)


@pytest.mark.parametrize(("config", "kind"), CASES)
def test_a_seed_gives_the_weights_names_and_logits_that_measurements_were_made_with(config, kind):
    names, tap_names, weights, logits = KEPT[config, kind]
    now = found(config, kind)
    assert now[:2] == (names, tap_names)
    assert now[2] == pytest.approx(weights, rel=1e-6, abs=1e-6)
    assert now[3] == pytest.approx(logits, rel=1e-6, abs=1e-6)
