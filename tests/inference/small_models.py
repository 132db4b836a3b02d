"""Small models whose texts vary, and what they write without a cache, one prompt at a time."""

from __future__ import annotations

import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.position_schemes import SCHEMES as _SCHEMES

SCHEMES = tuple(_SCHEMES)
VOCAB = 23
SMALL = Config(
    vocab=VOCAB,
    d_model=16,
    n_layers=2,
    n_heads=4,
    d_ff=24,
    max_length=32,
    relative_buckets=8,
    relative_max_distance=6,
)
PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7, 9], [3, 2]]
START = 1


def made(kind, config=SMALL, seed=0):
    """A model in float64 whose weights are large enough that its text depends on all it has read."""
    torch.manual_seed(seed)
    model = kind(config).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.mul_(1.5)
    return model


def start_of(model):
    return START if isinstance(model, EncoderDecoder) else None


@torch.no_grad()
def next_log_probs(model, prompt, written):
    """Of the token after `written`, from one call with everything and no cache."""
    source = torch.tensor([prompt])
    if isinstance(model, EncoderDecoder):
        return model(source, torch.tensor([[START, *written]]))[0, -1].log_softmax(-1)
    return model(torch.tensor([[*prompt, *written]]))[0, -1].log_softmax(-1)


def greedy(model, prompt, n, stop=()):
    """The plainest greedy decoding: tokens and their log-probabilities."""
    written, log_probs = [], []
    for _ in range(n):
        best = next_log_probs(model, prompt, written).max(-1)
        written.append(best.indices.item())
        log_probs.append(best.values.item())
        if written[-1] in stop:
            break
    return written, log_probs


KINDS = [Decoder, EncoderDecoder]
