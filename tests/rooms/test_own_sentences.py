"""The cells for a reader's own sentence run with any language model in place of the one that is named."""

from __future__ import annotations

import ast
import copy
import re
from pathlib import Path
from typing import Any

import measured_transformer
import pytest
import torch
from bookpress.chapters import Chapter, load_book, notebook
from measured_transformer import LanguageModel
from measured_transformer import language as language_package

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizer can be made")
transformers = pytest.importorskip("transformers", reason="no checkpoint can be made")

ROOT = Path(__file__).parents[2]
FOLDER = "real-language-model"
NAMED = 'pretrained("smollm2-135m-instruct")'
PLAIN = re.compile(r"^`{3}python\n(.*?)^`{3}$", re.M | re.S)
SIZES = {"hidden_size": 36, "num_hidden_layers": 30, "num_attention_heads": 9}


TOKENS = 49_152
"""Blocks, heads and tokens as many as the model has that chapters name: their cells ask for some by number."""


def own_cells(chapter: Chapter) -> list[str]:
    """The code on a page that loads a language model for the reader's own text, run or only shown."""
    run = [cell.source for cell in notebook(chapter).cells if cell.cell_type == "code"]
    shown = PLAIN.findall(chapter.path.read_text("utf-8"))
    return [code for code in (*run, *shown) if "pretrained(" in code]


BOOK = load_book(ROOT).chapters
PAGES = {chapter.path.stem: chapter for chapter in BOOK if chapter.path.parent.name == FOLDER}
SHOWN = {
    chapter.path.stem: cells
    for chapter in BOOK
    if chapter.path.parent.name != FOLDER and chapter.path.stem != "your-own-checkpoint"
    if (cells := [code for code in PLAIN.findall(chapter.path.read_text("utf-8")) if NAMED in code])
}
"""The cells with the real model that other chapters show and do not run."""
CELLS = [
    pytest.param(code, id=f"{name}-{i}")
    for name, codes in ({name: own_cells(one) for name, one in PAGES.items()} | SHOWN).items()
    for i, code in enumerate(codes)
]


def words_of(code: str) -> list[str]:
    """The strings of a piece of code, of which a small tokenizer is made."""
    nodes = ast.walk(ast.parse(code))
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def qwen(vocab: int) -> Any:
    config = transformers.Qwen2Config(
        **SIZES, vocab_size=vocab, num_key_value_heads=3, intermediate_size=64
    )
    return transformers.Qwen2ForCausalLM(config)


def gpt2(vocab: int) -> Any:
    config = transformers.GPT2Config(
        vocab_size=vocab,
        n_embd=36,
        n_layer=30,
        n_head=9,
        n_positions=140_000,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def neox(vocab: int) -> Any:
    config = transformers.GPTNeoXConfig(
        **SIZES,
        vocab_size=vocab,
        intermediate_size=64,
        rotary_pct=1.0,
        max_position_embeddings=8192,
    )
    return transformers.GPTNeoXForCausalLM(config)


@pytest.fixture(scope="module", params=[qwen, gpt2, neox], ids=["qwen", "gpt2", "neox"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small random model of another family, with a tokenizer of bytes that knows the pages' words."""
    folder = tmp_path_factory.mktemp("other")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    texts = [text for cell in CELLS for text in words_of(str(cell.values[0]))]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts * 3, trainer)
    made.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    request.param(TOKENS).save_pretrained(folder)
    return LanguageModel.from_huggingface(folder)


def test_every_page_has_a_cell_for_a_sentence_of_the_readers_own() -> None:
    assert len(PAGES) >= 4
    for name, chapter in PAGES.items():
        assert own_cells(chapter), f"{name} has no cell that loads a model"


@pytest.mark.parametrize("name", SHOWN)
def test_a_chapter_s_cell_with_the_real_model_is_short(name: str) -> None:
    assert all(len([line for line in code.splitlines() if line]) <= 15 for code in SHOWN[name])


@pytest.mark.parametrize("code", CELLS)
def test_a_cell_runs_with_another_model_in_its_place(
    code: str, other: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def pretrained(name: str) -> Any:
        asked.append(name)
        return copy.deepcopy(other)  # some cells train it

    monkeypatch.setattr(measured_transformer, "pretrained", pretrained)
    monkeypatch.setattr(language_package, "pretrained", pretrained)
    exec(compile(code, "cell", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert set(asked) == {"smollm2-135m-instruct"}
    assert re.search(r"\d", printed), "the cell prints what it found"
    assert "nan" not in printed.lower()
