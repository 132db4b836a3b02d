"""The workbench without a browser: its data, its size, its escaping, its drawing, and what it refuses."""

import base64
import json
import zlib

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from measured_transformer import Config, Decoder, Encoder, EncoderDecoder
from measured_transformer.viewer.workbench import LIMIT, MAX_TOKENS, Workbench, workbench
from torch import nn

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<b>",
    '"it\'s" &amp;',
    " two\nlines",
    "$x^2$",
    "\ud800",
]
CONFIG = Config(vocab=6, d_model=24, n_layers=2, n_heads=3, positions="rotary")


def decoder(**changes):
    torch.manual_seed(0)
    return Decoder(CONFIG.replace(**changes)).eval()


@pytest.fixture(scope="module")
def bench():
    return workbench(
        decoder(), [[0, 1, 2, 3, 4], [5, 5, 1]], tokens=HOSTILE, title="A <b>title</b>"
    )


def data_of(made):
    """What the script of a page unpacks."""
    packed = BeautifulSoup(made.html, "html.parser").select_one(".wb-data").string
    whole = zlib.decompress(base64.b64decode(packed))
    length = int.from_bytes(whole[:4], "little")
    return json.loads(whole[4 : 4 + length]), whole[4 + length :]


def values(blob, told):
    kind = np.dtype(f"<u{told['bits'] // 8}")
    count = int(np.prod(told["shape"]))
    codes = np.frombuffer(blob, kind, count, told["at"]).reshape(told["shape"])
    if "step" not in told:
        return codes
    last = 2 ** told["bits"] - 1
    return np.where(codes == last, np.nan, told["low"] + told["step"] * codes.astype(float))


def test_what_the_page_unpacks_is_what_was_found(bench):
    told, blob = data_of(bench)
    for sentence, found in zip(told["sentences"], bench.examinations, strict=True):
        assert np.allclose(values(blob, sentence["pattern"]), found.pattern, atol=1 / 500)
        for name, wanted in (
            ("size", found.size),
            ("stream", found.stream),
            ("lensChances", found.lens_chances),
            ("lensTarget", found.lens_target),
            ("directLogits", found.direct_logits),
        ):
            span = np.nanmax(wanted) - np.nanmin(wanted)
            assert np.allclose(
                values(blob, sentence[name]), wanted, atol=span / 50_000, equal_nan=True
            )
        for how, gone in found.without.items():
            assert np.allclose(
                values(blob, sentence[how]["loss"]), gone.loss, atol=1e-3, equal_nan=True
            )
        names = np.array([*told["names"], *[None] * 70_000], dtype=object)
        shown = names[values(blob, sentence["lensTokens"])]
        assert (
            shown[-1, 0, 0]
            == told["names"][sorted(bench._names).index(found.lens_tokens[-1, 0, 0])]
        )


def test_tokens_and_title_are_never_markup(bench):
    page = BeautifulSoup(bench.html, "html.parser")
    assert len(page.select("script")) == 2
    assert {each.name for each in page.select(".wb-words b > *")} == {"bdi"}
    assert page.select("bdi > *") == []
    assert "alert(1)</script>" not in bench.html
    assert "<b>title" not in bench.html
    names = data_of(bench)[0]["names"]
    assert "␣two↵lines" in names
    assert "\\ud800" in names


def test_the_page_of_its_own_loads_nothing(bench, tmp_path):
    text = bench.save(tmp_path / "bench.html").read_text("utf-8")
    page = BeautifulSoup(text, "html.parser")
    assert page.title.string == "A <b>title</b>"
    assert page.select("link[rel=stylesheet], script[src]") == []
    assert all(image["src"].startswith("data:") for image in page.select("img"))
    assert "http" not in bench.html
    assert bench.save(tmp_path / "bench.png").read_bytes() == bench.static.light
    with pytest.raises(ValueError, match=r"\.html or \.png"):
        bench.save(tmp_path / "bench.svg")


def test_a_notebook_gets_page_drawing_and_dark_drawing(bench):
    data, more = bench._repr_mimebundle_()
    assert data["text/html"] == bench._repr_html_() == bench.html
    assert set(data) == {"text/html", "image/png", "text/plain"}
    assert more["measured"]["kind"] == "viewer"
    assert repr(bench) == "Workbench(2 sentences, 2 layers of 3 heads)"


def test_without_scripts_there_are_a_drawing_and_words(bench):
    page = BeautifulSoup(bench.html, "html.parser")
    assert page.select_one(".wb-static img")["alt"].startswith(
        "A <b>title</b>: what every head does"
    )
    words = [item.get_text() for item in page.select(".wb-words li")]
    effect = bench.without().effect
    layer, head = np.unravel_index(effect.argmax(), effect.shape)
    assert words[0].startswith(f"Without layer {layer}, head {head} a position costs")
    assert sum(word.startswith("Position") for word in words) == 5 + 3


def test_it_stays_small_and_says_what_to_give_less_of():
    sentences = torch.randint(6, (4, 20)).tolist()
    made = workbench(decoder(n_layers=4, d_model=64, n_heads=8), sentences)
    assert made.size == len(made.html.encode()) < LIMIT
    with pytest.raises(
        ValueError, match=r"at most 60 kB, got .* kB are script.*Give fewer sentences"
    ):
        workbench(decoder(), sentences, limit=60_000)


def test_an_encoder_that_names_no_tokens_has_a_workbench():
    config = CONFIG.replace(head="none", placement="post")
    made = workbench(Encoder(config), [[0, 1, 2]], title="States")
    told, _ = data_of(made)
    assert "lensTokens" not in told["sentences"][0]
    assert not told["causal"]
    assert "move by" in made._words()


def test_a_model_of_another_library_and_its_tokenizer():
    """A GPT-2 of transformers, read by interop, with texts that its tokenizer cuts."""
    transformers = pytest.importorskip("transformers", reason="makes the foreign model")
    from measured_transformer.interop import from_huggingface
    from measured_transformer.tasks.text import byte_tokenizer

    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=300, n_embd=24, n_layer=2, n_head=2, n_positions=32)
    ).eval()
    tokenizer = byte_tokenizer("the cat sat on the mat, and the dog sat on the cat " * 20, 300)
    made = workbench(from_huggingface(theirs), ["the cat sat"], tokenizer=tokenizer)
    found = made.examinations[0]
    with torch.no_grad():
        chances = theirs(torch.tensor(found.tokens)[None]).logits[0].softmax(-1)
    assert np.allclose(found.lens_chances[-1], chances.topk(5).values, atol=1e-5)
    assert found.direct_tokens is not None
    assert made._labels[0].startswith("the ␣cat")


def test_numbers_are_the_names_where_there_are_none_and_functions_name_too():
    assert workbench(decoder(), [[3, 1]])._labels == ("3 1",)
    made = workbench(decoder(), torch.tensor([[3, 1]]), tokens=lambda number: f"t{number}")
    assert made._labels == ("t3 t1",)


class NoHeads(nn.Module):
    """Stands where attention stood."""

    def forward(self, x, *args, **kwargs):
        return x


def without_heads():
    model = decoder()
    model.blocks[1].attention = NoHeads()
    return model


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (EncoderDecoder(CONFIG), {}, "expected a Decoder or an Encoder, got EncoderDecoder"),
        (nn.Linear(2, 2), {}, "from_huggingface"),
        (without_heads(), {}, "block 1 has no attention.pattern"),
        (decoder(), {"sentences": ["the cat"]}, "sentence 0 is a text: give the tokenizer"),
        (decoder(), {"sentences": "the cat"}, "expected a list of sentences, got one text"),
        (decoder(), {"sentences": []}, "at least one sentence"),
        (decoder(), {"sentences": [[0], []]}, "expected 1 to 64 tokens in sentence 1, got 0"),
        (decoder(), {"sentences": [[0] * (MAX_TOKENS + 1)]}, "got 65; cut it"),
        (
            decoder(positions="learned", max_length=8),
            {"sentences": [[0] * 9]},
            "1 to 8 tokens in sentence 0, got 9",
        ),
        (decoder(), {"sentences": [[0, 6]]}, "tokens from 0 to 5 in sentence 0, got 0 to 6"),
        (decoder(), {"sentences": [[0.5]]}, "as a list of token numbers"),
        (decoder(), {"sentences": [["a", "b"]]}, "what tokens are called is told in tokens"),
        (decoder(), {"tokens": ["a", "b"]}, "names for the 6 tokens of the model, got 2"),
        (decoder(), {"tokens": "abcdef"}, "a list of names or a function"),
        (decoder(), {"tokenizer": object()}, "a tokenizer with id_to_token"),
        (decoder(), {"labels": ["a", "b"]}, "a label for each of 1 sentences"),
        (decoder(), {"targets": []}, "targets for each of 1 sentences, got 0"),
        (decoder(), {"start": (0, 2, 0)}, "layer below 2, head below 3; got"),
        (decoder(), {"reference": [[9]]}, "in reference 0, got 9 to 9"),
    ],
)
def test_what_does_not_fit_is_said(model, given, message):
    with pytest.raises(ValueError, match=message):
        workbench(model, **{"sentences": [[0, 1, 2]], **given})


def test_the_drawing_has_both_themes_and_any_token(bench):
    assert bench.static.light != bench.static.dark
    assert isinstance(bench, Workbench)
