"""A live model without a browser: what is packed, its names, its drawing, and what is refused."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from measured_transformer import Config, Decoder, Encoder
from measured_transformer.analysis.lens import TunedLens
from measured_transformer.models.config import Layer
from measured_transformer.viewer.live import Live, live, live_choice
from measured_transformer.viewer.live_weights import (
    halved,
    in_eight_bits,
    pack,
    require_known,
    rounded,
)

WORDS = ["up", "down", "</script><script>alert(1)</script>", "<b>"]
CONFIG = Config(vocab=4, d_model=16, n_layers=2, n_heads=4)


def decoder(**changes):
    torch.manual_seed(0)
    return Decoder(CONFIG.replace(**changes)).eval()


@pytest.fixture(scope="module")
def made():
    return live(decoder(), ["up down", "down"], tokens=WORDS, title="A <b>title</b>")


def data_of(made):
    soup = BeautifulSoup(made.html, "html.parser")
    weights = base64.b64decode(soup.select_one(".lm-weights").string)
    return json.loads(soup.select_one(".lm-told").string), weights


def test_the_page_has_the_weights_rounded_to_half_precision(made):
    data, packed = data_of(made)
    told = data["packed"]
    assert zlib.crc32(packed) == told["checksum"]
    assert len(packed) == told["bytes"]
    own = decoder().state_dict()
    for name, weight in made.model.state_dict().items():
        entry = told["weights"][name]
        found = np.frombuffer(packed, "<f2", weight.numel(), entry["at"]).reshape(entry["shape"])
        assert np.array_equal(found.astype(np.float32), weight.numpy())
        assert torch.equal(weight, own[name].half().float())
    kept = np.frombuffer(packed, "|u1", made.kept.numel(), told["kept"]["at"])
    assert np.array_equal(kept, made.kept.flatten().numpy())
    assert made.kept.shape == (64, 32)


def test_tied_weights_are_packed_once_and_positions_as_they_are_added():
    model = halved(decoder(tie_embeddings=True))
    told, packed = pack(model, torch.zeros(2, 3, dtype=torch.long), 10)
    assert "unembedding.weight" not in told["weights"]
    entry = told["weights"]["positions"]
    found = np.frombuffer(packed, "<f4", 160, entry["at"]).reshape(10, 16)
    assert np.allclose(found, model.positions(10).numpy())


def test_nothing_that_is_given_becomes_markup(made):
    soup = BeautifulSoup(made.html, "html.parser")
    assert soup.select("b b, .lm-words script") == []
    assert all("alert(1)" not in script.string for script in soup.select("script:not([type])"))
    assert "alert(1)" in json.dumps(data_of(made)[0]["words"])
    assert soup.img["alt"].startswith("A <b>title</b>: ")


def test_a_notebook_gets_it_with_a_drawing_and_it_is_saved(made, tmp_path):
    data, metadata = made._repr_mimebundle_()
    assert set(data) == {"text/html", "image/png", "text/plain"}
    assert metadata["measured"]["kind"] == "viewer"
    assert re.match(r"Live\(2 texts, 2 layers of 4 heads, \d+ kB of weights\)", repr(made))
    page = made.save(tmp_path / "live.html").read_text("utf-8")
    assert "<title>A &lt;b&gt;title" in page
    assert not re.search(r"(src|href)=[\"'](https?:)?//", page)
    assert made.save(tmp_path / "live.png").stat().st_size > 1000


def test_the_model_is_not_changed():
    model = decoder()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    live(model, ["up"], tokens=WORDS)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_characters_and_bytes_are_cut_without_names():
    assert isinstance(live(decoder(), ["ab ba"], tokens=list("ab c")), Live)
    bench = live(Decoder(CONFIG.replace(vocab=256)), ["é\n"])
    data, _ = data_of(bench)
    assert data["cut"] == "bytes"
    assert [data["names"][i] for i in (10, 32, 65, 200)] == ["↵", "␣", "A", "\\xc8"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"parallel": True}, "parallel=False, got True"),
        ({"window": 4}, "window=None, got 4"),
        ({"positions": "relative"}, "positions one of"),
        ({"placement": "sandwich"}, "placement one of pre, post"),
        ({"layers": (Layer(window=4),)}, "layers"),
        ({"logit_cap": 3.0}, "logit_cap=None"),
    ],
)
def test_what_the_page_cannot_run_is_refused(changes, why):
    with pytest.raises(ValueError, match=why):
        live(decoder(**changes), ["up"], tokens=WORDS)


def test_other_models_and_added_weights_are_refused():
    with pytest.raises(ValueError, match="a page runs a Decoder, got Encoder"):
        require_known(Encoder(CONFIG))
    model = decoder()
    model.more = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"other weights: more\.bias"):
        require_known(model)
    with torch.no_grad():
        model = decoder()
        model.unembedding.weight[0, 0] = 1e6
    with pytest.raises(ValueError, match="1000000"):
        halved(model)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"texts": "up"}, "list of at least one text"),
        ({"texts": []}, "list of at least one text"),
        ({"texts": ["north"]}, "in which there is none"),
        ({"tokens": None}, "256 bytes"),
        ({"tokens": ["up", "down"]}, "names for the 4 tokens, got 2"),
        ({"tokens": ["up", "up", "a", "b"]}, "a name of its own"),
        ({"tokens": ["up", "a b", "c", "d"]}, "without blanks"),
        ({"kept": torch.zeros(1, 4, dtype=torch.long)}, "at least two kept sentences"),
        ({"kept": torch.zeros(4, 65, dtype=torch.long)}, "of 2 to 64 token numbers"),
        ({"kept": torch.full((4, 5), 4)}, "tokens from 0 to 3"),
        ({"steer": ("up", "north")}, "two texts in steer"),
        ({"limit": 1000}, "at most 0.0 MB in 16 bits"),
        ({"bits": 4}, "expected 8 or 16 bits, got 4"),
        ({"merges": [(1, 2)]}, "either names of tokens or merges of bytes, got both"),
        ({"tokens": None, "merges": [(1, 2)]}, "a model of 257 pieces"),
        ({"views": ("heads", "sky")}, "expected views among next, overview, heads"),
        ({"experiments": ()}, "expected experiments among off, patch"),
        ({"lens": TunedLens(torch.zeros(2, 16, 16), torch.zeros(2, 16), ())}, "a lens of 3 depths"),
    ],
)
def test_what_does_not_fit_is_refused(given, why):
    with pytest.raises(ValueError, match=why):
        live(decoder(), **({"texts": ["up"], "tokens": WORDS} | given))


def test_eight_bits_are_exact_in_single_precision_and_stay_when_rounded_again():
    model = decoder()
    once = rounded(model, 8)
    again = rounded(once, 8)
    for given, one, other in zip(
        model.parameters(), once.parameters(), again.parameters(), strict=True
    ):
        assert torch.equal(one, other)
        codes, scales = in_eight_bits(given)
        assert torch.equal(one.double().reshape(codes.shape), codes * scales[:, None])
        step = given.abs().reshape(codes.shape).amax(1, keepdim=True) / 127
        assert ((one - given).abs().reshape(codes.shape) <= 0.52 * step + 1e-7).all()
    half, eight = (
        len(pack(rounded(model, b), torch.zeros(2, 3).long(), 10, bits=b)[1]) for b in (16, 8)
    )
    assert eight < 0.8 * half


def test_a_choice_has_each_model_once_and_needs_two(made):
    chosen = live_choice({"one <b>": made, "two": made}, title="Both")
    soup = BeautifulSoup(chosen.html, "html.parser")
    assert [box.has_attr("hidden") for box in soup.select(".live-choice > .live-model")] == [
        False,
        True,
    ]
    assert len(soup.select("style")) == 1
    assert len(soup.select(".lm-static img")) == 2
    assert chosen.html.count("<!--drawing-->") == 1, "a page has one figure for it"
    assert len(soup.select("script:not([type])")) == 1
    assert chosen.static is made.static
    assert repr(chosen) == "LiveChoice(one <b>, two)"
    with pytest.raises(ValueError, match="at least two models to choose from, got 1"):
        live_choice({"one": made})
