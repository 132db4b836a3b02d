"""What the public functions say to arguments of the wrong kind: what was expected, and what came."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from measured_transformer import (
    Config,
    Decoder,
    Encoder,
    EncoderDecoder,
    TextFile,
    capture,
    evaluate,
    generate,
    intervene,
    load,
    pretrained,
    save,
    train,
)
from measured_transformer.inference.sampling import Sampling
from measured_transformer.inference.windows import SlidingWindow
from measured_transformer.internals.at import at
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.jobs import make_jobs
from measured_transformer.training.schedules import Constant, ExponentialDecay, WarmupCosine

pytestmark = pytest.mark.usefixtures(
    "unhooked"
)  # as users call the library: without checks of shapes

CONFIG = Config(vocab=16, d_model=16, n_layers=1, n_heads=2, positions="rotary")
TASK = Lag(vocab=16, lag=3)
TOKENS = torch.tensor([[1, 2, 3, 4]])


@pytest.fixture(scope="module")
def model():
    return Decoder(CONFIG)


TRAIN = {"config": CONFIG, "task": TASK, "steps": 1, "learning_rate": 0.01, "seed": 0}
NO_NUMBERS = (None, "0.1", [0.1], True, torch.tensor([0.1, 0.2]), object())
OF_TRAIN = [
    ("config", {"vocab": 16}, r"config must be a Config, such as Config\(vocab=256\), got dict"),
    ("config", None, "got NoneType"),
    ("task", "mine.txt", "task must make batches, .* got str without vocab, causal, batch"),
    ("task", Lag, "got the class Lag; make one by calling it"),
    ("seed", 1.5, "seed must be a whole number, such as 0, got 1.5"),
    ("seed", "0", "seed must be a whole number, such as 0, got '0'"),
    ("seed", None, "seed must be a whole number"),
    ("seed", math.nan, "seed must be a whole number"),
    ("seed", True, "seed must be a whole number"),
    ("seed", 2**70, "seed must be a whole number"),
    ("schedule", "cosine", r"from a step to a factor, such as WarmupCosine\(.*; got 'cosine'"),
    ("schedule", None, "schedule must be a function .*; got None"),
    ("schedule", Constant, "schedule must be a function .*; got the class Constant"),
    ("schedule", lambda step: None, "the schedule must give a factor .*, got None at step 0"),
    ("schedule", lambda step: "1", r"the schedule must give a factor .*, got '1' at step 0"),
    ("steps", 1.5, "steps must be a whole number and not negative, .* got 1.5"),
    ("steps", "1", "got '1'"),
    ("betas", 0.9, "betas must be two numbers from 0 to below 1, got 0.9"),
    ("betas", ("0.9", 0.98), "betas must be two numbers from 0 to below 1"),
    ("prepare", "frozen", "prepare must be a function of the fresh model, or None; got 'frozen'"),
    ("after_step", 3, "after_step must be a function of a Step, or None; got 3"),
    ("checkpoint", 7, "checkpoint must be the path of a file, or None, got 7"),
    *(
        (name, value, f"{name} must be a number.*, got")
        for name in ("learning_rate", "weight_decay", "eps", "label_smoothing", "clip")
        for value in NO_NUMBERS
        if not (name == "clip" and value is None)
    ),
]


@pytest.mark.parametrize(("name", "value", "said"), OF_TRAIN)
def test_train_says_what_it_expected(name, value, said):
    with pytest.raises(ValueError, match=said):
        train(**{**TRAIN, name: value})


def test_what_is_trained_in_another_process_is_checked_before():
    with pytest.raises(ValueError, match=r"schedule must be a function .*; got 'cosine'"):
        make_jobs(CONFIG, TASK, [0], {"steps": 1, "learning_rate": 0.1, "schedule": "cosine"})


def test_whole_numbers_of_numpy_are_seeds():
    numpy = pytest.importorskip("numpy")
    one, other = (train(**{**TRAIN, "seed": seed}) for seed in (3, numpy.int64(3)))
    assert one.losses.tolist() == other.losses.tolist()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"model": None},
            "model must be a Decoder, an Encoder or an EncoderDecoder, .* got NoneType",
        ),
        ({"task": "mine.txt"}, "task must make batches, .* got str without"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"size": 0}, "size"),
        ({"length": 2.5}, "length"),
        ({"part": "test"}, "Lag does not divide its items"),
    ],
)
def test_evaluate_says_what_it_expected(changed, said, model):
    with pytest.raises(ValueError, match=said):
        evaluate(**{"model": model, "task": TASK, "seed": 0, **changed})


def test_the_result_of_a_training_is_told_from_its_model():
    run = train(**TRAIN)
    with pytest.raises(ValueError, match="such as `model` of what train gives, got Run"):
        evaluate(run, TASK, seed=0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": None}, "expected a Decoder or an EncoderDecoder, got NoneType"),
        ({"prompts": 3}, "prompts must be a list"),
        ({"prompts": [[]]}, "prompt 0 is empty"),
        ({"max_new_tokens": None}, "max_new_tokens must be a whole number of at least 1, got None"),
        ({"max_new_tokens": 2.0}, "max_new_tokens must be a whole number of at least 1, got 2.0"),
        ({"chunk": "all"}, "chunk must be a whole number of at least 1, got 'all'"),
        ({"window": 8}, r"window must be a SlidingWindow, such as SlidingWindow\(.*; got 8"),
        ({"strategy": "greedy"}, r"strategy must be Greedy\(\), .* got 'greedy'"),
        ({"stop": 2.5}, "stop must hold whole numbers"),
        ({"stop": 99}, "stop must lie in 0..15"),
    ],
)
def test_generate_says_what_it_expected(changed, said, model):
    with pytest.raises(ValueError, match=said):
        generate(**{"model": model, "prompts": [[1, 2]], "max_new_tokens": 2, **changed})


GENERATOR = torch.Generator()
CALLS = {
    "Sampling, generator": (lambda: Sampling(0), r"generator must be a torch\.Generator, .* got 0"),
    "Sampling, temperature": (
        lambda: Sampling(GENERATOR, temperature="hot"),
        "temperature must be a positive number, got 'hot'",
    ),
    "Sampling, top_k": (lambda: Sampling(GENERATOR, top_k=1.5), "top_k must be a whole number"),
    "Sampling, top_p": (
        lambda: Sampling(GENERATOR, top_p=None),
        r"top_p must lie in \(0, 1\], got",
    ),
    "SlidingWindow": (lambda: SlidingWindow(window=None), "a window of at least 1 .* got None, 0"),
    "SlidingWindow, sinks": (lambda: SlidingWindow(window=4, sinks=1.5), "got 4, 1.5"),
    "WarmupCosine": (lambda: WarmupCosine(1, 4, final="0"), "final is a factor .*, got '0'"),
    "ExponentialDecay": (lambda: ExponentialDecay(None), "rate must lie above 0 .*, got None"),
    "time constant": (lambda: ExponentialDecay.lasting("5"), "time_constant must be a positive"),
    "Decoder": (lambda: Decoder({}), r"made from a Config, such as Config\(vocab=256\), got dict"),
    "Encoder": (lambda: Encoder(None), "made from a Config, .* got NoneType"),
    "EncoderDecoder": (lambda: EncoderDecoder(16), "made from a Config, .* got int"),
    "Config, layers": (lambda: Config(vocab=4, layers=2), "layers must be a tuple .*, got 2"),
    "load": (lambda: load(None), "folder must be a path, .* got None"),
    "save": (lambda: save(Decoder(CONFIG), 3), "folder must be a path, .* got 3"),
    "TextFile": (lambda: TextFile(None), "path must be that of a text file, got None"),
    "TextFile, share": (
        lambda: TextFile(__file__, train_share="0.8"),
        "train_share must lie between",
    ),
    "TextFile, decode": (
        lambda: TextFile(__file__).decode(65),
        "expected a list of tokens, got 65",
    ),
    "pretrained": (lambda: pretrained(None), "expected one of smollm2-.*; got None"),
    "at": (lambda: at(None, heads=0), "the change of a part must be a function, .* got NoneType"),
    "at, text": (lambda: at("zero"), "the change of a part must be a function, .* got str"),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_was_expected_and_what_came_is_said(name):
    call, said = CALLS[name]
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tokens": [[1, 2]]}, "tokens must be a tensor .* got list; make one with torch.tensor"),
        ({"padding_mask": [[True] * 4]}, "padding_mask must be a tensor .* got list"),
        (
            {"positions": 3},
            r"positions must be a tensor of shape \(batch, position\) = \(1, 4\), got int",
        ),
        ({"cache": {}}, r"cache must come from model\.make_cache\(\), got dict"),
    ],
)
def test_a_model_says_what_it_expected(given, said, model):
    with pytest.raises(ValueError, match=said):
        model(**{"tokens": TOKENS, **given})


def test_capture_and_intervene_say_what_they_expected(model):
    with (
        pytest.raises(ValueError, match=r"transform must be a function .*, got str"),
        capture(model, "logits", transform="mean"),
    ):
        pass
    with (
        pytest.raises(
            ValueError, match=r"the change of logits must be a function, .* got NoneType"
        ),
        intervene(model, {"logits": None}),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"a tensor of the chosen part's shape .*, got NoneType"),
        intervene(model, {"blocks.0.attention.mixed": at(lambda part: None, heads=0)}),
    ):
        model(TOKENS)


def test_nothing_is_written_by_what_is_refused(tmp_path):
    with pytest.raises(ValueError, match="seed must be a whole number"):
        train(**{**TRAIN, "seed": 0.5}, checkpoint=tmp_path / "state")
    assert not list(Path(tmp_path).iterdir())
