"""A pattern that is captured with its scores is computed when it is read: the same bits, less memory."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.captured import Captured, Later
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config, Layer
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.experts import Experts
from measured_transformer.parts.latent import Latent
from measured_transformer.variants.checkpointing import Checkpointed

CONFIG = Config(vocab=9, d_model=12, n_layers=2, n_heads=3, d_ff=20, positions="rotary")
TOKENS = torch.tensor([[1, 2, 3, 4, 5, 6], [8, 0, 8, 0, 1, 2]])
REAL = torch.tensor([[True] * 6, [False, False, True, True, True, True]])
CONFIGS = {
    "rotary": {},
    "grouped": {"n_kv_heads": 1, "norm": "rms", "activation": "swiglu"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative", "attention_scale": 1.0},
    "window": {"window": 3},
    "sinks": {"sinks": True},
    "sinks and window": {"sinks": True, "layers": (Layer(window=2), Layer())},
    "capped": {"score_cap": 2.0, "qk_norm": "head"},
    "latent": {"attention": Latent(rank=8, d_rotary=4)},
    "experts": {"network": Experts(3, 2), "bias": False},
    "parallel": {"parallel": True, "shared_norm": True},
    "shared": {"shared_kv": True, "positions": "none"},
}
KINDS = {"decoder": Decoder, "encoder": Encoder, "encoder-decoder": EncoderDecoder}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def made(kind="decoder", dtype=torch.float32, **changes):
    torch.manual_seed(0)
    model = KINDS[kind](CONFIG.replace(**changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype)


def run(model, padded=False):
    real = REAL.clone() if padded else None
    if isinstance(model, EncoderDecoder):
        return model(TOKENS, TOKENS[:, :4], source_padding_mask=real)
    return model(TOKENS, padding_mask=real)


def patterns(seen):
    return [name for name in seen if name.endswith(".pattern")]


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_read_later_is_what_the_run_computed_to_the_last_bit(name, kind, dtype, padded):
    if kind == "encoder-decoder" and name in ("latent", "experts", "parallel"):
        pytest.skip("no encoder-decoder has such blocks")
    model = made(kind, dtype, **CONFIGS[name])
    with torch.no_grad(), capture(model, "*.pattern") as at_once, capture(model) as later:
        run(model, padded)
    assert later.waiting == patterns(later) == list(at_once)
    for tap, pattern in at_once.items():
        assert later[tap].dtype == pattern.dtype
        assert torch.equal(later[tap], pattern), tap
    assert not later.waiting


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_every_mode_gives_the_same_and_no_graph(mode):
    model = made()
    with mode(), capture(model, "*.pattern") as at_once, capture(model) as later:
        run(model)
    for tap, pattern in at_once.items():
        assert torch.equal(later[tap], pattern)
        assert not later[tap].requires_grad


def test_only_with_its_scores_is_a_pattern_put_off():
    model = made()
    for names in (["*.pattern"], ["*.pattern", "blocks.0.attention.scores"]):
        with capture(model, *names) as seen:
            run(model)
        assert seen.waiting == ["blocks.0.attention.pattern"][: len(names) - 1]
    with capture(model, "*.pattern"), capture(model, "*.scores") as others:
        run(model)
    assert not others.waiting


def test_every_call_transforms_and_gradients_keep_the_values_at_once():
    model = made()
    for options in (
        {"every_call": True},
        {"gradients": True},
        {"transform": lambda value: value.float()},
    ):
        with capture(model, **options) as seen:
            run(model)
        assert not seen.waiting


def test_under_autocast_the_values_are_kept_at_once():
    model = made()
    low = torch.autocast("cpu", dtype=torch.bfloat16)
    with low, capture(model, "*.pattern") as at_once, capture(model) as seen:
        run(model)
    assert not seen.waiting
    for tap, pattern in at_once.items():
        assert torch.equal(seen[tap], pattern)


def test_the_last_call_counts():
    model = made()
    with capture(model, "*.pattern") as plain, capture(model) as seen:
        run(model)
        model(TOKENS[:1, :3])
    assert {tuple(pattern.shape) for pattern in plain.values()} == {(1, 3, 3, 3)}
    for tap, pattern in plain.items():
        assert torch.equal(seen[tap], pattern)


@pytest.mark.parametrize("where", ["scores", "pattern"])
@pytest.mark.parametrize("first", ["the change", "the capture"])
def test_what_is_replaced_is_what_is_read(where, first):
    """A capture that is entered later sees the changed value, one that is entered before sees the run's own."""
    model, tap = made(), f"blocks.0.attention.{where}"
    change = {tap: at(0.25, heads=1, positions=[2, 3])}
    with capture(model, "*.pattern") as plain:
        run(model)
    if first == "the change":
        outer, inner = intervene(model, change), capture(model, "*.pattern")
        with outer, inner as at_once, capture(model) as later:
            run(model)
        assert not torch.equal(at_once["blocks.0.attention.pattern"], plain[patterns(plain)[0]])
    else:
        outer, inner = capture(model), capture(model, "*.pattern")
        with outer as later, inner as at_once, intervene(model, change):
            run(model)
    for name, pattern in at_once.items():
        assert torch.equal(later[name], pattern), name
    assert torch.allclose(later["blocks.1.attention.pattern"].sum(-1), torch.ones(()))


def test_scores_that_were_written_to_leave_their_pattern_alone():
    model = made()
    with capture(model, "*.pattern") as plain, capture(model) as seen:
        run(model)
    for name in seen:
        if name.endswith(".scores"):
            seen[name].zero_()
    for name, pattern in plain.items():
        assert torch.equal(seen[name], pattern)


def test_what_happens_to_weights_and_masks_afterwards_changes_nothing():
    model, real = made(sinks=True), REAL.clone()
    with torch.no_grad():
        with capture(model, "*.pattern") as plain, capture(model) as seen:
            model(TOKENS, padding_mask=real)
        real.fill_(True)
        for parameter in model.parameters():
            parameter.add_(3.0)
    for name, pattern in plain.items():
        assert torch.equal(seen[name], pattern)


def test_a_value_is_kept_once_it_was_read():
    model = made()
    with capture(model) as seen:
        run(model)
    name = patterns(seen)[0]
    assert name in seen.waiting
    seen[name][0, 0] = 7.0
    assert name not in seen.waiting
    assert bool((seen[name][0, 0] == 7).all())


def test_it_takes_no_memory_until_it_is_read():
    model, tokens = made(positions="none"), torch.zeros(1, 256, dtype=torch.int64)
    sizes = []
    for names in (["*.scores"], ["*.scores", "*.pattern"]):
        profiling = torch.profiler.profile(profile_memory=True)
        with torch.inference_mode(), profiling as profile, capture(model, *names) as seen:
            model(tokens)
        events = profile.profiler.kineto_results.events()
        sizes.append(sum(each.nbytes() for each in events if each.name() == "[memory]"))
        del seen
    pattern = 3 * 256 * 256 * 4
    assert sizes[1] - sizes[0] < pattern / 4
    assert sizes[0] >= 2 * pattern, "the scores of two blocks"


def test_it_holds_no_model():
    model = made(sinks=True)
    with capture(model) as seen:
        run(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert seen.waiting
    assert torch.allclose(seen[patterns(seen)[0]].sum(-1) < 1, torch.tensor(True))


def test_a_block_that_is_computed_again_leaves_the_values_as_they_were():
    model = made()
    Checkpointed()(model)
    model.train()
    with capture(model, "*.pattern") as plain, capture(model) as seen:
        loss = run(model).square().mean()
    loss.backward()
    assert seen.waiting
    for name, pattern in plain.items():
        assert torch.equal(seen[name], pattern)


# The dictionary -------------------------------------------------------------------------------------


def waiting(**further):
    seen = Captured(scores=torch.zeros(1, 4))
    seen.put_off("pattern", Later(torch.zeros(1, 4), lambda each: each.softmax(-1)))
    seen.update(further)
    return seen


EVEN = torch.full((1, 4), 0.25)
WAYS = {
    "index": lambda seen: seen["pattern"],
    "get": lambda seen: seen.get("pattern"),
    "setdefault": lambda seen: seen.setdefault("pattern"),
    "pop": lambda seen: seen.pop("pattern"),
    "popitem": lambda seen: seen.popitem()[1],
    "values": lambda seen: list(seen.values())[1],
    "items": lambda seen: dict(seen.items())["pattern"],
    "dict": lambda seen: dict(seen)["pattern"],
    "unpacked": lambda seen: {**seen}["pattern"],
    "given": lambda seen: (lambda **given: given)(**seen)["pattern"],
    "copy": lambda seen: seen.copy()["pattern"],
    "copy.copy": lambda seen: copy.copy(seen)["pattern"],
    "deepcopy": lambda seen: copy.deepcopy(seen)["pattern"],
    "pickle": lambda seen: pickle.loads(pickle.dumps(seen.copy()))["pattern"],
    "or": lambda seen: (seen | {})["pattern"],
    "ror": lambda seen: ({} | seen)["pattern"],
    "update": lambda seen: (lambda other: other.update(seen) or other)({})["pattern"],
    "ior": lambda seen: (lambda other: other.__ior__(seen))({})["pattern"],
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_read_gives_the_value(way):
    assert torch.equal(WAYS[way](waiting()), EVEN)


def test_it_is_a_dictionary_like_any_other():
    seen = waiting()
    assert isinstance(seen, dict)
    assert (list(seen), len(seen), "pattern" in seen) == (["scores", "pattern"], 2, True)
    assert seen.waiting, "names alone ask for no value"
    assert repr(waiting()) == repr({"scores": torch.zeros(1, 4), "pattern": EVEN})
    assert waiting() != {}
    assert seen.get("other") is None
    assert seen.get("other", 3) == 3
    assert seen.pop("other", 4) == 4
    for call in (lambda: seen["other"], lambda: seen.pop("other")):
        with pytest.raises(KeyError, match="other"):
            call()
    del seen["pattern"]
    assert list(seen) == ["scores"]


def test_torch_saves_it_and_loads_it_without_trusting_the_file():
    file = io.BytesIO()
    torch.save(waiting(), file)
    file.seek(0)
    again = torch.load(file, weights_only=True)
    assert isinstance(again, dict)
    assert torch.equal(again["pattern"], EVEN)
