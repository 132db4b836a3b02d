"""The cells for a reader's own sentence run with any language model in place of the one that is named."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measured_transformer
import pytest
import torch
from bookpress.chapters import Chapter, load_book, notebook
from measured_book.rooms.carry_over.own import rows_of_text
from measured_book.rooms.fact_on_its_way.sentence import held
from measured_book.rooms.its_numbers.sentence import with_fewer_bits
from measured_book.rooms.repeats.sentence import copied
from measured_book.rooms.sink.sentence import to_first
from measured_book.rooms.thirty_blocks.sentence import without_each_block
from measured_transformer import LanguageModel
from measured_transformer import language as language_package

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizer can be made")
transformers = pytest.importorskip("transformers", reason="no checkpoint can be made")

ROOT = Path(__file__).parents[2]
FOLDER = "real-language-model"
NAMED = 'pretrained("smollm2-135m-instruct")'
PLAIN = re.compile(r"^`{3}python\n(.*?)^`{3}$", re.M | re.S)
CELL = re.compile(r"^`{3}\{code-cell\} ipython3\n((?::.*\n)*)(.*?)^`{3}$", re.M | re.S)
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
    for page in [chapter.path.read_text("utf-8")]
    for codes in [[*PLAIN.findall(page), *(code for _, code in CELL.findall(page))]]
    if (cells := [code for code in codes if NAMED in code])
}
"""The cells with the real model in other chapters, most of which only show them."""
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


def llama(vocab: int) -> Any:
    """Of few blocks and heads, untied; texts begin with a token of the model's own."""
    config = transformers.LlamaConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=8192,
        vocab_size=vocab,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.LlamaForCausalLM(config)


def short_gpt2(vocab: int) -> Any:
    """Of few blocks and heads, with learned positions that soon end."""
    config = transformers.GPT2Config(
        vocab_size=vocab,
        n_embd=32,
        n_layer=4,
        n_head=4,
        n_positions=128,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def made(folder: Path, kind: Callable[[int], Any], vocab: int | None = None) -> LanguageModel:
    """A small random model with a tokenizer of bytes that knows the pages' words."""
    cut = tokenizers.Tokenizer(tokenizers.models.BPE())
    cut.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    cut.decoder = tokenizers.decoders.ByteLevel()
    texts = [text for cell in CELLS for text in words_of(str(cell.values[0]))]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    cut.train_from_iterator(texts * 3, trainer)
    if kind is llama:
        begins = [("<|endoftext|>", 0)]
        cut.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=begins
        )
    cut.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    kind(vocab or cut.get_vocab_size()).save_pretrained(folder)
    return LanguageModel.from_huggingface(folder)


@pytest.fixture(scope="module", params=[qwen, gpt2, neox], ids=["qwen", "gpt2", "neox"])
def other(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LanguageModel:
    """Of another family, with as many blocks, heads and tokens as the model that chapters name."""
    return made(tmp_path_factory.mktemp("other"), request.param, TOKENS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """With fewer blocks, heads and tokens than the model that chapters name."""
    return made(tmp_path_factory.mktemp("small"), llama)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """Which reads few tokens at once."""
    return made(tmp_path_factory.mktemp("short"), short_gpt2)


def test_every_page_has_a_cell_for_a_sentence_of_the_readers_own() -> None:
    assert len(PAGES) >= 4
    for name, chapter in PAGES.items():
        assert own_cells(chapter), f"{name} has no cell that loads a model"


@pytest.mark.parametrize("name", SHOWN)
def test_a_chapter_s_cell_with_the_real_model_is_short(name: str) -> None:
    assert all(len([line for line in code.splitlines() if line]) <= 15 for code in SHOWN[name])


Run = Callable[[str, LanguageModel], str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a cell with a model in place of the one that it names, and gives what it prints."""

    def with_model(code: str, model: LanguageModel) -> str:
        asked = []

        def pretrained(name: str) -> LanguageModel:
            asked.append(name)
            return copy.deepcopy(model)  # some cells train it

        monkeypatch.setattr(measured_transformer, "pretrained", pretrained)
        monkeypatch.setattr(language_package, "pretrained", pretrained)
        exec(compile(code, "cell", "exec"), {"__name__": "__main__"})
        assert set(asked) == {"smollm2-135m-instruct"}
        return capsys.readouterr().out

    return with_model


@pytest.mark.parametrize("code", CELLS)
def test_a_cell_runs_with_another_model_in_its_place(
    code: str, other: LanguageModel, run: Run
) -> None:
    printed = run(code, other)
    assert re.search(r"\d", printed), "the cell prints what it found"
    assert not re.search(r"\bnan\b", printed.lower())


@pytest.mark.parametrize("code", CELLS)
def test_a_cell_asks_for_no_number_of_blocks_heads_or_tokens(
    code: str, small: LanguageModel, run: Run
) -> None:
    printed = run(code, small)
    assert re.search(r"\d", printed), "the cell prints what it found"
    assert not re.search(r"\bnan\b", printed.lower())
    blocks = [int(number) for number in re.findall(r"block (\d+)", printed)]
    heads = [int(number) for number in re.findall(r"head (\d+)", printed)]
    assert max(blocks, default=1) <= 3
    assert max(heads, default=1) <= 4


class Written(ast.NodeTransformer):
    """Puts one text in the place of every sentence of a cell."""

    def __init__(self, text: str) -> None:
        self.text = text

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        last = node.values[-1]
        if isinstance(last, ast.Constant) and len(last.value.split()) > 5:
            return ast.copy_location(ast.Constant(self.text), node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and len(node.value.split()) > 5 and "{}" not in node.value:
            return ast.copy_location(ast.Constant(self.text), node)
        return node


def written(code: str, text: str) -> str:
    return ast.unparse(ast.fix_missing_locations(Written(text).visit(ast.parse(code))))


OWN = [
    pytest.param(own_cells(chapter)[0], id=name)
    for name, chapter in PAGES.items()
    if own_cells(chapter)
]
"""The cell for a sentence of the reader's own on each page of the part."""
UNUSUAL = {
    "German": "Ein Fluß beginnt als Regen, und er läuft hinab bis ins Meer.",
    "Chinese": "河流始于雨水 最终流入大海",
    "emoji": "🙂🚀 I 💚 rivers 🏞️ and the sea!",
    "long": "A river begins as rain. " * 300,
}


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=UNUSUAL)
@pytest.mark.parametrize("code", OWN)
def test_a_text_may_be_in_any_language_and_long(
    code: str, text: str, small: LanguageModel, run: Run
) -> None:
    printed = run(written(code, text), small)
    assert re.search(r"\d", printed)
    assert not re.search(r"\bnan\b", printed.lower())


@pytest.mark.parametrize("text", ["", " ", "Hi"], ids=["empty", "blank", "one word"])
@pytest.mark.parametrize("code", OWN)
def test_too_short_a_text_is_answered_with_one_sentence(
    code: str, text: str, short: LanguageModel, run: Run
) -> None:
    if written(code, text) == ast.unparse(ast.parse(code)):
        pytest.skip("asks for words, not for a sentence")
    with pytest.raises(ValueError, match="expected a text of at least") as said:
        run(written(code, text), short)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("code", OWN)
def test_a_model_that_reads_few_tokens_is_given_no_more(
    code: str, short: LanguageModel, run: Run
) -> None:
    text = (
        "The river runs down to the sea. " * 12
    )  # more than half of what it reads, and less than all
    assert 64 < short.encode(text).shape[1] <= 128
    assert re.search(r"\d", run(written(code, text), short))


FORM = "The capital of Greece is Athens.\nThe capital of{} is"
SUBJECTS, ANSWERS = (" France", " Italy"), (" Paris", " Rome")


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (("The capital of France is", SUBJECTS, ANSWERS), r"a prompt with \{\} once"),
        ((FORM, ("France", "Italy"), ANSWERS), "one token each in .* with the space before them"),
        ((FORM, (" Liechtenstein", " Italy"), ANSWERS), "two subjects of one token each"),
        ((FORM, (" France", " France"), ANSWERS), "two different subjects"),
        ((FORM, (" France",), ANSWERS), "two different subjects"),
        ((FORM, SUBJECTS, (" Rome", " Rome")), "two different answers"),
        ((FORM, SUBJECTS, (" Antananarivo", " Rome")), "a string that is one token"),
        ((FORM * 100, SUBJECTS, ANSWERS), r"\{\} once"),
        (("A river begins. " * 100 + FORM, SUBJECTS, ANSWERS), "at most 128 tokens"),
    ],
)
def test_what_a_fact_needs_is_said(given: Any, answer: str, small: LanguageModel) -> None:
    with pytest.raises(ValueError, match=answer):
        held(small, *given)


@pytest.mark.parametrize(
    "shown",
    [
        lambda model: held(model, FORM, SUBJECTS, ANSWERS),
        lambda model: copied(model, UNUSUAL["German"]),
        lambda model: without_each_block(model, UNUSUAL["German"]),
        lambda model: with_fewer_bits(model, UNUSUAL["German"]),
        lambda model: rows_of_text(model, UNUSUAL["German"]),
        lambda model: to_first(model, UNUSUAL["German"]),
    ],
    ids=["fact", "repeats", "blocks", "numbers", "rows", "sink"],
)
def test_a_model_without_a_tokenizer_is_refused_with_one_sentence(
    shown: Any, small: LanguageModel
) -> None:
    with pytest.raises(
        ValueError, match=r"expected a language model with its tokenizer.* got Decoder"
    ):
        shown(small.model)
