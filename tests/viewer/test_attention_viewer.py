"""The viewer without a browser: its data, its escaping, its drawing, and what it refuses."""

import base64
import io
import json
import warnings

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from measured_transformer import Config, Decoder, capture
from measured_transformer.viewer.attention import (
    MAX_TOKENS,
    MAX_WEIGHTS,
    AttentionViewer,
    attention_viewer,
)
from PIL import Image

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
EMPTY = 4095
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "<b>bold</b>",
    '"it\'s" & &amp;',
    " lead",
    "two\nlines",
    "",
    "\U0001f600",
    "\u0645\u0631\u062d\u0628\u0627",
    "a\u202eb",
    "\ud800",
    "$x^2$",
]


def weights(*shape, causal=False):
    scores = np.random.default_rng(0).normal(size=shape)
    if causal:
        scores = np.where(np.tri(shape[-1], dtype=bool), scores, -np.inf)
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def soup(viewer):
    return BeautifulSoup(viewer.html, "html.parser")


def data(viewer):
    return json.loads(viewer._data())  # which the page has as it is, see below


def test_the_page_has_the_data():
    viewer = attention_viewer(weights(1, 1, 2, 4, 4), words(4))
    assert json.loads(soup(viewer).select_one("script.av-data").string) == data(viewer)


def decoded(viewer, example, shape):
    """Weights in thousandths, as the script reads them."""
    text = data(viewer)["examples"][example]["weights"]
    pairs = zip(text[::2], text[1::2], strict=True)
    codes = [DIGITS.index(high) * 64 + DIGITS.index(low) for high, low in pairs]
    return np.array(codes).reshape(shape)


def words(n):
    return [f"w{place}" for place in range(n)]


# What it holds ----------------------------------------------------------------------------------


def test_weights_arrive_rounded_to_three_decimals():
    patterns = weights(2, 3, 4, 5, 5)
    viewer = attention_viewer(patterns, words(5))
    for example in range(2):
        found = decoded(viewer, example, (3, 4, 5, 5)) / 1000
        assert np.abs(found - patterns[example]).max() <= 0.0005 + 1e-12
        assert np.allclose(found, patterns[example].round(3))
    assert data(viewer)["layers"] == ["Layer 0", "Layer 1", "Layer 2"]
    assert data(viewer)["examples"][1]["queries"] == words(5)
    assert data(viewer)["examples"][1]["keys"] is None


def test_the_size_of_the_page_is_two_letters_a_weight():
    small, large = (attention_viewer(weights(1, 1, 1, n, n), words(n)) for n in (10, 100))
    grown = len(large._data()) - len(small._data())
    assert grown <= 2 * (100**2 - 10**2) + 90 * len('"w99",') + 40  # and its name
    script = soup(small).select("script")[1].string
    assert len(script.encode()) < 21_000
    assert "http" not in script.replace("http://www.w3.org", "")


def test_masked_pairs_are_empty_and_zeros_are_zeros():
    causal = weights(1, 1, 2, 4, 4, causal=True)
    codes = decoded(attention_viewer(causal, words(4)), 0, (1, 2, 4, 4))
    assert (codes == EMPTY).tolist() == (~np.tri(4, dtype=bool))[None, None].repeat(2, 1).tolist()
    one_zero = weights(1, 1, 2, 4, 4)
    one_zero[0, 0, 0, 1] = [0, 1, 0, 0]  # the other head looks there
    assert EMPTY not in decoded(attention_viewer(one_zero, words(4)), 0, -1)
    shown = decoded(attention_viewer(causal, words(4), mask=True), 0, (1, 2, 4, 4))
    assert EMPTY not in shown
    assert shown[0, 0, 0].tolist() == [1000, 0, 0, 0]


def test_masks_as_the_library_has_them():
    past = torch.ones(4, 4, dtype=torch.bool).tril()
    causal = weights(2, 1, 2, 4, 4, causal=True)
    expected = data(attention_viewer(causal, words(4)))
    for mask in (past, past.numpy(), past.expand(2, 4, 4), [past, past]):
        assert data(attention_viewer(causal, words(4), mask=mask)) == expected
    nothing = causal.copy()
    nothing[0, :, :, 3] = 0.0  # a query that sees nothing has a row of zeros
    codes = decoded(attention_viewer(nothing, words(4)), 0, (1, 2, 4, 4))
    assert (codes[0, :, 3] == EMPTY).all()


def test_what_capture_gives_is_taken_as_it_is():
    model = Decoder(Config(vocab=10, d_model=16, n_layers=12, n_heads=4)).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    with capture(model, "blocks.*.attention.pattern") as seen:
        model(ids)
    viewer = attention_viewer(seen, ids)
    stacked = torch.stack([seen[f"blocks.{layer}.attention.pattern"] for layer in range(12)], dim=1)
    assert data(viewer) == data(attention_viewer(stacked, ids.tolist()))
    assert data(viewer)["examples"][1]["queries"] == list("92653")
    backwards = dict(reversed([(f"blocks.{n}.attention.pattern", n) for n in (2, 10)]))
    some = attention_viewer({name: seen[name] for name in backwards}, ids)
    assert data(some)["layers"] == ["Layer 2", "Layer 10"]
    apart = attention_viewer([{name: each[:1] for name, each in seen.items()}], ids[:1])
    assert data(apart)["examples"] == data(viewer)["examples"][:1]


def test_examples_may_differ_in_length_and_one_needs_no_axis_of_its_own():
    short, long = weights(2, 3, 4, 4), weights(2, 3, 7, 7)
    viewer = attention_viewer([short, torch.tensor(long)], [words(4), words(7)], labels=["a", "b"])
    assert decoded(viewer, 0, (2, 3, 4, 4)).tolist() == (short * 1000).round().tolist()
    assert decoded(viewer, 1, (2, 3, 7, 7)).tolist() == (long * 1000).round().tolist()
    assert [each["label"] for each in data(viewer)["examples"]] == ["a", "b"]
    alone = attention_viewer(short, words(4))
    assert data(alone) == data(attention_viewer(short[None], words(4)))


def test_keys_of_another_sequence():
    cross = weights(1, 1, 2, 3, 5)
    viewer = attention_viewer(cross, list("abc"), key_tokens=list("vwxyz"))
    assert data(viewer)["examples"][0]["keys"] == list("vwxyz")
    assert "the same position" in viewer.summaries[0][0][0].shares
    assert "the previous token" not in viewer.summaries[0][0][0].shares


def test_half_precision_is_close_enough_and_nothing_is_written_into_the_caller_s_tensor():
    patterns = torch.tensor(weights(1, 1, 2, 40, 40)).bfloat16().requires_grad_()
    before = patterns.detach().clone()
    viewer = attention_viewer(patterns, words(40))
    assert torch.equal(patterns.detach(), before)
    assert abs(decoded(viewer, 0, (2, 40, 40)).sum(-1) - 1000).max() < 20


def test_the_same_call_gives_the_same_bytes():
    make = lambda: attention_viewer(weights(1, 2, 2, 4, 4), words(4))  # noqa: E731
    assert make().html == make().html


# What a page makes of it ------------------------------------------------------------------------


def test_tokens_are_text_and_never_markup():
    n = len(HOSTILE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also about letters that the font of the drawing lacks
        viewer = attention_viewer(
            weights(1, 1, 2, n, n), HOSTILE, labels=["<i>x</i>"], title="</script>\"'<b>"
        )
    page = soup(viewer)
    assert len(page.select("script")) == 2
    assert len(page.select(".attention-viewer")) == 1
    assert not page.select("i, bold, b b, li b b")
    assert page.select("b")  # the names of the heads, and nothing else is bold
    assert all(bold.get_text().startswith("Layer") for bold in page.select("b"))
    assert page.select_one("img")["alt"].startswith("</script>\"'<b>")
    raw = viewer.html.split('class="av-data">')[1].split("</script>")[0]
    assert not set("<>&") & set(raw)
    shown = data(viewer)["examples"][0]["queries"]
    assert shown[:4] == HOSTILE[:4]
    assert shown[4:] == [
        "\u2423lead",
        "two\u21b5lines",
        "\u2205",
        *HOSTILE[7:9],
        "a\\u202eb",
        "\\ud800",
        "$x^2$",
    ]
    viewer.html.encode("utf-8")


def test_tokens_in_sentences_are_text_too():
    pattern = np.full((1, 1, 5, 5), 0.1)
    pattern[..., 2] = 0.6  # no place stands out, so the busiest token is named
    tokens = ["a", "b", "<img src=x>", "c", "d"]
    page = soup(attention_viewer(pattern, tokens))
    assert "\u201c<img src=x>\u201d receives most, 0.60" in page.select_one("li span").get_text()
    assert len(page.select("img")) == 1


def test_without_scripts_there_is_the_drawing_and_a_sentence_for_each_head():
    viewer = attention_viewer(weights(2, 2, 3, 4, 4), words(4), labels=["one", "two"])
    page = soup(viewer)
    assert "rounded to three decimals" in page.get_text(" ").replace("\n", " ")
    image = page.select_one(".av-static img")
    assert base64.b64decode(image["src"].split(",")[1]) == viewer.static.light
    assert image["alt"].strip()
    lists = page.select(".av-words ul")
    assert len(lists) == 2
    for example, listed in enumerate(lists):
        said = [item.select_one("span").get_text() for item in listed.select("li")]
        flat = [head.sentence for layer in viewer.summaries[example] for head in layer]
        assert said == flat
        names = [item.select_one("b").get_text() for item in listed.select("li")]
        assert names[:2] == ["Layer 0, head 0.", "Layer 0, head 1."]
        assert len(names) == 6


def test_what_a_notebook_gets():
    viewer = attention_viewer(weights(1, 1, 2, 4, 4), words(4))
    bundle, metadata = viewer._repr_mimebundle_()
    assert bundle["text/html"] == viewer._repr_html_() == viewer.html
    assert base64.b64decode(bundle["image/png"]) == viewer.static.light
    assert bundle["text/plain"] == "AttentionViewer(1 example, 1 layer of 2 heads)"
    assert metadata["measured"]["kind"] == "viewer"
    assert base64.b64decode(metadata["measured"]["dark"]) == viewer.static.dark


def test_the_drawing_shows_the_first_example_with_empty_masks():
    causal = weights(1, 1, 1, 6, 6, causal=True)
    drawn = attention_viewer(causal, words(6)).static
    (panel, bar) = drawn.figure.axes
    (image,) = panel.get_images()
    cells = image.get_array()
    assert cells.mask.tolist() == (~np.tri(6, dtype=bool)).tolist()
    assert np.allclose(cells.compressed(), causal[0, 0, 0][np.tri(6, dtype=bool)])
    assert [each.get_text() for each in panel.get_xticklabels()] == words(6)
    assert bar.get_ylabel() == "weight"
    several = attention_viewer(weights(3, 2, 4, 6, 6), words(6), start=(2, 1, 3))
    first = several.static.figure.axes[0].get_images()[0].get_array()
    assert np.allclose(first, weights(3, 2, 4, 6, 6)[2, 0, 0])
    assert len(several.static.figure.axes) == 2 * 4 + 1


def test_many_heads_stay_readable():
    drawn = attention_viewer(weights(1, 8, 9, 5, 5), words(5)).static
    width, height = Image.open(io.BytesIO(drawn.light)).size
    assert width == 1280
    assert height < 2 * width


def test_saved_as_a_page_and_as_an_image(tmp_path):
    viewer = attention_viewer(weights(1, 1, 2, 4, 4), words(4), title="One & <two>")
    page = viewer.save(tmp_path / "attention.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert viewer.html in page
    assert BeautifulSoup(page, "html.parser").title.get_text() == "One & <two>"
    assert viewer.save(tmp_path / "attention.png").read_bytes() == viewer.static.light
    with pytest.raises(ValueError, match=r"\.html or \.png, got 'attention\.svg'"):
        viewer.save(tmp_path / "attention.svg")


# What it refuses --------------------------------------------------------------------------------

GOOD = weights(2, 2, 2, 4, 4)


def with_value(value, place=(1, 0, 1, 2, 3)):
    spoilt = GOOD.copy()
    spoilt[place] = value
    return spoilt


TAPS = {f"blocks.{n}.attention.pattern": torch.tensor(GOOD[0]) for n in range(2)}
WRONG = {
    "three axes": ((GOOD[0, 0], words(4)), {}, r"\(example, layer, head, query, key\).*got shape"),
    "six axes": ((GOOD[None], words(4)), {}, r"got shape \(1, 2, 2, 2, 4, 4\)"),
    "ragged": (([[[1.0]], [[1.0, 2.0]]], words(2)), {}, "that is no array"),
    "list of the wrong axes": (([GOOD], [words(4)]), {}, r"each example, got shape .* in place 0"),
    "heads that differ": (([GOOD[0], GOOD[0, :, :1]], words(4)), {}, r"2 of 1 in example 1"),
    "scores": ((with_value(-0.5), words(4)), {}, r"between 0 and 1, got -0\.5 in example 1, layer 0, "
               r"head 1, query 2"),
    "nan": ((with_value(np.nan), words(4)), {}, r"finite.*nan in example 1, layer 0, head 1, query 2"),
    "rows": ((with_value(0.9), words(4)), {}, r"sum to 1 within 0\.01, got .* in example 1, layer 0, "
             r"head 1, query 2"),
    "transposed": ((GOOD.swapaxes(-1, -2), words(4)), {}, r"last axis has to be that of the keys"),
    "nothing": ((0 * GOOD, words(4)), {}, "nothing but zeros in example 0"),
    "a row of zeros in one head": ((with_value(0, (0, 0, 0, 1)), words(4)), {}, "got 0 in example 0"),
    "tokens": ((GOOD, words(3)), {}, r"4 tokens for the 4 queries of example 0, got 3.*\[\.\.\., :n, :n\]"),
    "lists of tokens": ((GOOD, [words(4)]), {}, "each of 2 examples, got 1 lists"),
    "text": ((GOOD, "abcd"), {}, "list of tokens.*got str; split"),
    "nested": ((GOOD, [[["a"]], ["b"]]), {}, "example 0 as a list of strings or numbers"),
    "keys": ((GOOD[..., :3, :], words(3)), {}, "4 tokens for the 4 keys of example 0, got 3.*key_tokens"),
    "key tokens": ((GOOD, words(4)), {"key_tokens": words(5)}, "4 key_tokens for the 4 keys"),
    "mask type": ((GOOD, words(4)), {"mask": np.ones((4, 4))}, "Boolean mask.*got float64"),
    "mask shape": ((GOOD, words(4)), {"mask": np.ones((3, 4), bool)}, r"\(4, 4\) of example 0, got.*\(3, 4\)"),
    "mask count": ((GOOD, words(4)), {"mask": [np.ones((4, 4), bool)]}, "each of 2 examples, got 1"),
    "mask that lies": ((GOOD, words(4)), {"mask": np.tri(4, dtype=bool)}, "forbids to look.*key 1; mask is"),
    "labels": ((GOOD, words(4)), {"labels": ["one"]}, r"labels for 2 examples, got \['one'\]"),
    "layers": ((GOOD, words(4)), {"layers": [0, 1, 2]}, "layers for 2 layers"),
    "start": ((GOOD, words(4)), {"start": (0, 2, 0)}, r"start as \(example, layer, head\).*layer below 2.*got"),
    "compare": ((GOOD, words(4)), {"compare": (0, -3)}, r"compare as \(layer, head\).*head below 2"),
    "no taps": (({}, words(4)), {}, "of one kind.*got nothing"),
    "two kinds": ((TAPS | {"blocks.0.cross_attention.pattern": TAPS["blocks.0.attention.pattern"]},
                   words(4)), {}, r"one kind.*blocks\.\*\.attention\.pattern, blocks\.\*\.cross_attention"),
    "another tap": (({"blocks.0.out": torch.ones(1, 4, 8)}, words(4)), {}, r"blocks\.0\.out of shape"),
    "layers of other shapes": ((TAPS | {"blocks.1.attention.pattern": torch.tensor(GOOD[0, :, :1])},
                                words(4)), {}, r"got \(2, 1, 4, 4\) in blocks\.1"),
    "other layers": (([TAPS, {"blocks.5.attention.pattern": TAPS["blocks.0.attention.pattern"]}],
                      words(4)), {}, "the same layers in every example"),
}  # fmt: skip


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name):
    arguments, more, match = WRONG[name]
    with pytest.raises(ValueError, match=match):
        attention_viewer(*arguments, **more)


def test_what_is_too_large_is_refused_with_a_way_out():
    n = MAX_TOKENS + 1
    with pytest.raises(
        ValueError, match=f"at most {MAX_TOKENS} tokens a side, got {n}; show a part"
    ):
        attention_viewer(np.full((1, 1, 1, n, n), 1 / n), words(n))
    heads = MAX_WEIGHTS // 100**2 + 1
    with pytest.raises(
        ValueError, match=rf"at most {MAX_WEIGHTS} weights in all, got .*fewer examples"
    ):
        attention_viewer(np.full((1, 1, heads, 100, 100), 0.01), words(100))


def test_the_largest_tolerated_error_of_a_row():
    exact = np.full((1, 1, 1, 2, 2), 0.5)
    assert isinstance(attention_viewer(exact + 0.0049, words(2)), AttentionViewer)
    with pytest.raises(ValueError, match=r"got 1\.01 in"):
        attention_viewer(exact + 0.0051, words(2))
