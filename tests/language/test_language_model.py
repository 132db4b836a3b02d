"""A decoder with its tokenizer: the same model as before, and texts in and out."""

from __future__ import annotations

import copy

import pytest
import torch
from measured_transformer import Config, Decoder, Encoder, LanguageModel, capture, intervene
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.internals.names import taps
from measured_transformer.interop import Tokenizer
from measured_transformer.language.shown import Likely, Tokens, Top, visible

TEXT = "The capital of France is"
CONFIG = Config(vocab=260, d_model=32, n_layers=2, n_heads=4, positions="rotary")


def fresh(**changes) -> LanguageModel:
    torch.manual_seed(0)
    model = Decoder(CONFIG.replace(**changes)).eval()
    return LanguageModel(model, Tokenizer.of_bytes(), context=64, about="fresh")


@pytest.fixture
def lm():
    return fresh()


def tokens_of(text: str) -> torch.Tensor:
    return torch.tensor([list(text.encode())])


# The same model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "alibi"])
def test_a_text_gives_the_logits_of_its_tokens(positions):
    lm = fresh(positions=positions)
    assert torch.equal(lm(TEXT), lm.model(tokens_of(TEXT)))
    assert torch.equal(lm(tokens_of(TEXT)), lm.model(tokens_of(TEXT)))
    assert torch.equal(lm.encode(TEXT), tokens_of(TEXT))


def test_texts_of_different_lengths_are_read_as_each_by_itself(lm):
    texts = ["a", TEXT, "Köln?"]
    tokens, real = lm.batch(texts)
    logits = lm(texts)
    assert logits.shape[:2] == tokens.shape
    for row, text in enumerate(texts):
        alone = lm(text)[0]
        torch.testing.assert_close(logits[row, -len(alone) :], alone)
        assert real[row].sum() == len(alone)
    assert lm.batch(["ab", "cd"])[1] is None


def test_taps_and_weights_have_the_names_of_the_decoder_and_are_the_same(lm):
    assert list(taps(lm)) == list(taps(lm.model))
    own, whole = dict(lm.named_parameters()), dict(lm.model.named_parameters())
    assert own.keys() == whole.keys()
    assert all(own[name] is whole[name] for name in own)
    assert lm.state_dict().keys() == lm.model.state_dict().keys()
    assert isinstance(lm, Decoder)


def test_values_are_seen_and_replaced_by_text(lm):
    with capture(lm, "blocks.*.attention.pattern") as seen:
        lm(TEXT)
    assert list(seen) == ["blocks.0.attention.pattern", "blocks.1.attention.pattern"]
    assert seen["blocks.0.attention.pattern"].shape == (1, 4, 24, 24)
    before = lm(TEXT)
    with intervene(lm, {"blocks.1.attention.out": 0.0}):
        changed = lm(TEXT)
        on_model = lm.model(tokens_of(TEXT))
    assert torch.equal(changed, on_model)
    assert not torch.equal(changed, before)


def test_interventions_change_what_is_written_and_what_is_likeliest(lm):
    to_letter = torch.zeros(260)
    to_letter[ord("x")] = 50.0
    with intervene(lm, {"logits": to_letter}):
        assert lm.top(TEXT, 1).tokens == ["x"]
        assert lm.generate(TEXT, 4) == "xxxx"
    assert lm.generate(TEXT, 4) != "xxxx"


def test_functions_for_decoders_take_it(lm):
    ours = generate(lm, tokens_of(TEXT), max_new_tokens=5)
    assert torch.equal(
        ours.tokens[0], generate(lm.model, tokens_of(TEXT), max_new_tokens=5).tokens[0]
    )


def test_a_part_that_is_replaced_and_a_change_of_precision_hold_for_both(lm):
    lm.double()
    assert next(lm.model.parameters()).dtype == torch.float64
    lm.model.unembedding = torch.nn.Linear(32, 260, dtype=torch.float64)
    assert lm.unembedding is lm.model.unembedding
    assert torch.equal(lm(TEXT), lm.model(tokens_of(TEXT)))


def test_a_copy_has_weights_of_its_own(lm):
    other = copy.deepcopy(lm)
    assert torch.equal(other(TEXT), lm(TEXT))
    assert other.model.blocks[0] is other.blocks[0]
    with torch.no_grad():
        other.model.token_embedding.weight.zero_()
    assert not torch.equal(other(TEXT), lm(TEXT))


def test_hooks_on_the_decoder_are_called_once(lm):
    calls = []
    lm.model.register_forward_hook(lambda *_: calls.append("decoder"))
    lm.register_forward_hook(lambda *_: calls.append("language model"))
    lm(TEXT)
    assert calls == ["decoder", "language model"]


def test_gradients_flow_through_a_text(lm):
    lm(TEXT)[0, -1, 0].backward()
    assert lm.model.token_embedding.weight.grad.abs().sum() > 0


def test_reading_leaves_a_model_in_its_mode():
    lm = fresh(dropout=0.5)
    lm.train()
    expected = fresh(dropout=0.5).top(TEXT)
    assert lm.top(TEXT) == expected, "without dropout"
    lm.loss(TEXT)
    assert lm.blocks[0].training


# Texts out -----------------------------------------------------------------------------------------


def test_the_likeliest_tokens_have_the_softmax_of_the_logits(lm):
    top = lm.top(TEXT, 3)
    probabilities = lm(TEXT)[0, -1].softmax(-1)
    values, numbers = probabilities.topk(3)
    assert [one.number for one in top] == numbers.tolist()
    assert top.probabilities == pytest.approx(values.tolist())
    assert top.tokens == [lm.tokenizer.string(number) for number in numbers]
    earlier = lm.top(TEXT, 1, position=2)
    assert earlier[0].number == lm(TEXT)[0, 2].argmax()
    assert len(lm.top(TEXT, 1000)) == 260
    assert lm.top(TEXT, 260)[-1].token


def test_numbers_that_the_tokenizer_lacks_can_be_shown(lm):
    logits = torch.zeros(260)
    logits[258] = 9.0
    assert lm.likeliest(logits, 1).tokens == ["<unused 258>"]


def test_what_is_written_is_what_generate_writes(lm):
    found = generate(lm.model, tokens_of(TEXT), max_new_tokens=8).tokens[0]
    assert lm.generate(TEXT, 8) == lm.tokenizer.decode(found.tolist())
    assert lm.generate([TEXT], 8) == [lm.generate(TEXT, 8)]
    drawn = [
        lm.generate(TEXT, 8, strategy=Sampling(torch.Generator().manual_seed(s))) for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_texts_are_continued_as_each_by_itself(lm):
    texts = ["a", TEXT, "Köln?"]
    assert lm.generate(texts, 6) == [lm.generate(text, 6) for text in texts]


def test_a_text_ends_with_the_tokens_that_end_it(lm):
    first = generate(lm.model, tokens_of(TEXT), max_new_tokens=4).tokens[0]
    lm.tokenizer.stop = (int(first[0]),)
    assert len(lm.generate(TEXT, 4)) <= 1


def test_the_loss_is_the_mean_surprise(lm):
    expected = torch.nn.functional.cross_entropy(lm(TEXT)[0, :-1], tokens_of(TEXT)[0, 1:])
    assert lm.loss(TEXT) == pytest.approx(expected.item(), rel=1e-6)


def test_a_conversation_is_continued_with_its_answer(lm):
    lm.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\n{% endfor %}A:"
    )
    expected = lm.generate("user: Hello\nA:", 6).strip()
    assert lm.chat("Hello", 6) == expected
    assert lm.chat([{"role": "user", "content": "Hello"}], 6) == expected


def test_tokens_and_places_of_words(lm):
    assert lm.tokens("ab c") == ["a", "b", " ", "c"]
    assert lm.where(TEXT, "of") == [12, 13]
    with pytest.raises(ValueError, match="'Spain' does not stand in the text"):
        lm.where(TEXT, "Spain")


# How it is shown -----------------------------------------------------------------------------------


def test_it_says_what_it_is(lm):
    said = "LanguageModel(fresh; 2 blocks, width 32, 4 heads, 256 tokens, context 64)"
    assert repr(lm) == said
    assert repr(LanguageModel(lm.model, lm.tokenizer)).startswith("LanguageModel(2 blocks")


def test_likeliest_tokens_are_shown_in_lines_and_as_a_table():
    top = Top([Likely(" <b>", 0.5, 1), Likely("\n", 0.0001, 2)])
    assert repr(top) == "1  ' <b>'   50.0 %\n2  '\\n'     <0.1 %"
    page = top._repr_html_()
    assert "␣&lt;b&gt;" in page
    assert "<b>" not in page
    assert "↵" in page
    assert "50.0 %" in page
    assert repr(Top([])) == ""


def test_tokens_are_shown_with_their_positions():
    page = Tokens(["<s>", " a"])._repr_html_()
    assert "&lt;s&gt;" in page
    assert ">1</small>" in page
    assert visible("\t") == "⇥"
    assert visible("") == "∅"


# What is refused -----------------------------------------------------------------------------------


def test_what_is_longer_than_the_context_is_refused(lm):
    assert lm("x" * 64).shape == (1, 64, 260)
    for call in (lm, lm.top, lm.encode, lm.loss, lm.generate):
        with pytest.raises(ValueError, match="at most 64 tokens at once, got 65"):
            call("x" * 65)
    with pytest.raises(ValueError, match="at most 64 tokens at once, got 65"):
        lm(tokens_of("x" * 65))
    with pytest.raises(ValueError, match=r"got 60 and 5 new ones.*or a smaller max_new_tokens"):
        lm.generate("x" * 60, 5)
    assert len(lm.generate("x" * 60, 4).encode()) >= 4


def test_learned_positions_are_a_context_and_others_are_none():
    learned = Decoder(CONFIG.replace(positions="learned", max_length=7))
    assert LanguageModel(learned, Tokenizer.of_bytes()).context == 7
    assert LanguageModel(Decoder(CONFIG), Tokenizer.of_bytes()).context is None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda lm: lm(""), "at least one token, got ''"),
        (lambda lm: lm.generate(["a", ""], 2), "at least one token, got ''"),
        (lambda lm: lm([]), "at least one prompt"),
        (lambda lm: lm(3.5), "expected a text"),
        (lambda lm: lm([3]), "expected a text, got int"),
        (lambda lm: lm.top("ab", 0), "k must be a positive"),
        (lambda lm: lm.top("ab", position=2), "2 tokens, from 0 to 1, got position=2"),
        (lambda lm: lm.loss("a"), "at least two tokens"),
        (lambda lm: lm.chat("Hello"), "no chat template"),
        (lambda lm: lm("ab", padding_mask=torch.ones(1, 2).bool()), "their own padding_mask"),
    ],
)
def test_what_makes_no_sense_is_refused(unhooked, lm, call, said):
    with pytest.raises(ValueError, match=said):
        call(lm)


def test_a_model_and_a_tokenizer_must_fit(unhooked):
    with pytest.raises(ValueError, match="256 tokens and the model only 100"):
        LanguageModel(Decoder(CONFIG.replace(vocab=100)), Tokenizer.of_bytes())
    with pytest.raises(ValueError, match="expected a Decoder with logits, got Encoder"):
        LanguageModel(Encoder(CONFIG), Tokenizer.of_bytes())
    with pytest.raises(ValueError, match="expected a Decoder with logits"):
        LanguageModel(Decoder(CONFIG.replace(head="none")), Tokenizer.of_bytes())
    with pytest.raises(ValueError, match="context must be a positive"):
        LanguageModel(Decoder(CONFIG), Tokenizer.of_bytes(), context=0)
