"""What a course assignment does with the library: `test_wheel.py` runs it where only its wheel is installed.

Each function is one question of the assignment; what it finds is checked on the spot.
"""

from __future__ import annotations

import json
import math
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import torch
from measured_book.evidence.registry import claims
from measured_book.figures.plots import heat_map, subplots
from measured_transformer import (
    Config,
    Decoder,
    Encoder,
    EncoderDecoder,
    capture,
    intervene,
)
from measured_transformer.inference.generate import generate
from measured_transformer.internals.at import at
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.models.sizes import count_flops, count_parameters
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import evaluate, train
from measured_transformer.viewer.style import themed

TASK = Lag(vocab=8, length=32, lag=3)


def read_a_tuned_rate() -> tuple[Config, float]:
    """A Llama-like config for this task, and the learning rate that comes with the library for it."""
    table = (files("measured_transformer.training") / "tuned.jsonl").read_text().splitlines()
    choices: dict[str, dict[str, Any]] = {line["name"]: line for line in map(json.loads, table)}
    name = "relative-lag-rotary"
    choice = choices[name]
    losses = {rate: sum(each) / len(each) for rate, each in choice["losses"][name]}
    rate = choice["best"][name]
    assert losses[rate] == min(losses.values()) < math.log(TASK.vocab)
    llama = {"norm": "rms", "activation": "swiglu", "bias": False, "rotary_pairing": "halves"}
    config = Config(vocab=TASK.vocab, d_model=32, max_length=256, positions="rotary")
    return config.replace(initialisation="gpt2", **llama), rate


def train_a_decoder(config: Config, rate: float) -> Decoder:
    """A model that has learned the rule, after a few steps."""
    run = train(config, TASK, steps=120, learning_rate=rate, seed=0, batch_size=32)
    assert not run.diverged
    assert isinstance(run.model, Decoder)
    assert run.losses[0] > 0.9 * math.log(TASK.vocab)
    assert evaluate(run.model, TASK, seed=0).loss < TASK.bayes_loss() + 0.05
    return run.model


def find_the_heads_that_look_back(model: Decoder, tokens: torch.Tensor) -> tuple[int, list[int]]:
    """The block whose patterns lie most on the token that decides the next one, and its heads that do so."""
    with torch.no_grad(), capture(model, "blocks.*.attention.pattern") as seen:
        model(tokens)
    layers, heads = model.config.n_layers, model.config.n_heads
    assert list(seen) == [f"blocks.{i}.attention.pattern" for i in range(layers)]
    patterns = torch.stack(list(seen.values()))
    assert patterns.shape == (layers, len(tokens), heads, tokens.shape[1], tokens.shape[1])
    torch.testing.assert_close(patterns.sum(-1), torch.ones(patterns.shape[:-1]))
    assert not patterns.triu(1).any()
    back = patterns.diagonal(1 - TASK.lag, dim1=-2, dim2=-1).mean(dim=(1, 3))
    layer = int(back.amax(dim=1).argmax())
    found = (back[layer] > 0.5).nonzero().flatten().tolist()
    assert found
    return layer, found


def switch_them_off(model: Decoder, layer: int, heads: list[int]) -> None:
    """Without these heads the rule is lost, the others cannot help; afterwards the model is what it was."""
    before = evaluate(model, TASK, seed=0).loss
    tap = f"blocks.{layer}.attention.head_outputs"
    with intervene(model, {tap: at(0.0, heads=heads[0])}):
        without_one = evaluate(model, TASK, seed=0).loss
    with intervene(model, {tap: at(0.0, heads=heads)}):
        without_all = evaluate(model, TASK, seed=0).loss
    assert without_one != before
    assert without_all > before + 0.5
    assert evaluate(model, TASK, seed=0).loss == before


def continue_a_text(model: Decoder, prompt: list[int]) -> None:
    """The key-value cache writes what reading everything anew each time would write."""
    written = generate(model, [prompt, prompt[:4]], max_new_tokens=8)
    text = list(prompt)
    with torch.no_grad():
        for _ in range(8):
            text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
    assert written.tokens[0].tolist() == text[len(prompt) :]
    assert written.cache_bytes > 0


def save_and_read_back(model: Decoder, tokens: torch.Tensor, folder: Path) -> None:
    """A folder that other libraries read too holds the same model."""
    to_huggingface(model, folder)
    settings = json.loads((folder / "config.json").read_text())
    assert settings["architectures"] == ["LlamaForCausalLM"]
    assert (folder / "model.safetensors").is_file()
    again = from_huggingface(folder)
    with torch.no_grad():
        assert torch.equal(again(tokens), model(tokens))


def count(model: Decoder) -> None:
    """Parameters and arithmetic follow from the config."""
    real = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(model.config, "decoder").total == real
    assert count_flops(model.config, "decoder", length=TASK.length).attention > 0


def try_the_other_models(tokens: torch.Tensor) -> None:
    """An encoder sees what is to come; an encoder-decoder writes another text."""
    encoder = Encoder(Config(vocab=8, d_model=16, n_layers=1, n_heads=2)).eval()
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 8
    with torch.no_grad():
        assert not torch.equal(encoder(tokens)[:, 0], encoder(changed)[:, 0])
    both = EncoderDecoder(Config(vocab=8, d_model=16, n_layers=1, n_heads=2)).eval()
    written = generate(both, [[1, 2, 3], [4]], max_new_tokens=5, start=0)
    assert [len(text) for text in written.tokens] == [5, 5]


def read_the_claims() -> None:
    """Every claim has a statement and a chapter; those of one chapter are a part of all."""
    everything = claims()
    chapter = claims("book/positions/positional-encoding")
    assert 0 < len(chapter) < len(everything)
    assert all(claim.statement and claim.chapter for claim in everything.values())


def draw(model: Decoder, tokens: torch.Tensor, layer: int, head: int, file: Path) -> None:
    """One pattern as a picture, for a light page and a dark one."""
    with torch.no_grad(), capture(model, f"blocks.{layer}.attention.pattern") as seen:
        model(tokens)
    (pattern,) = seen.values()

    @themed
    def picture() -> Any:
        figure, axes = subplots()
        heat_map(axes, pattern[0, head], label="weight", x_label="key", y_label="query")
        return figure

    picture().save(file)
    assert file.read_bytes().startswith(b"\x89PNG")
    assert mpl.get_backend().lower() == "agg"


def main(folder: Path) -> None:
    """Work through all questions, with what has to be written to files going to `folder`."""
    torch.set_num_threads(1)
    tokens = TASK.batch(torch.Generator().manual_seed(1), 8).inputs
    config, rate = read_a_tuned_rate()
    model = train_a_decoder(config, rate)
    layer, heads = find_the_heads_that_look_back(model, tokens)
    switch_them_off(model, layer, heads)
    continue_a_text(model, tokens[0, :6].tolist())
    save_and_read_back(model, tokens, folder / "checkpoint")
    count(model)
    try_the_other_models(tokens)
    read_the_claims()
    draw(model, tokens, layer, heads[0], folder / "pattern.png")
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
