"""What a reader types into the search leads to the chapter that explains it, from a server or a folder."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from urllib.parse import urlencode

import pytest
import tiny_pages
from bookpress.sphinx.finding import CHAPTER, GLOSSARY, OTHER, REFERENCE, in_signs, script_of

STATIC = Path(__file__).parents[2] / "book" / "_static"
ASK = """(query) =>
  Search._performSearch(...Search._parseQuery(query)).reverse().map(([page, , anchor]) => page + anchor)
"""

WANTED = {
    "induction": "inside/induction",
    "induction heads": "inside/induction",
    "ICL": "inside/induction",
    "KV cache": "attention/at-inference",
    "kv-cache": "attention/at-inference",
    "KVcache": "attention/at-inference",
    "key-value cache": "attention/at-inference",
    "key value caching": "attention/at-inference",
    "speculative decoding": "attention/at-inference",
    "GPT-2": "inside/your-own-checkpoint",
    "gpt2": "inside/your-own-checkpoint",
    "Llama": "inside/your-own-checkpoint",
    "RoPE": "positions/rotary-and-alibi",
    "what is RoPE?": "positions/rotary-and-alibi",
    "rotary embeddings": "positions/rotary-and-alibi",
    "ALiBi": "positions/rotary-and-alibi",
    "positional encodings": "positions/positional-encoding",
    "position embedding": "positions/positional-encoding",
    "long context": "positions/extrapolation",
    "BPE": "translation/language-models",
    "tokeniser": "translation/language-models",
    "perplexity": "translation/language-models",
    "temperature": "translation/language-models",
    "IOI": "real-language-model/repeats",
    "few-shot": "real-language-model/repeats",
    "path patching": "inside/attribution",
    "beta": "training/optimisers",
    "Adam": "training/optimisers",
    "AdamW": "training/optimisers",
    "Muon": "training/optimisers",
    "gradient clipping": "training/optimisers",
    "LR": "training/learning-rate",
    "the learning rate": "training/learning-rate",
    "cosine schedule": "training/schedules",
    "warmup": "training/warm-up",
    "dropout": "training/regularisation",
    "weight decay": "training/regularisation",
    "initialization": "training/initialisation",
    "µP": "training/initialisation",
    "QKV": "attention/attention",
    "self-attention": "attention/attention",
    "causal masking": "attention/attention",
    "softmax": "attention/attention",
    "MHA": "attention/heads",
    "multihead attention": "attention/heads",
    "GQA": "attention/projections",
    "MLA": "attention/projections",
    "attention sink": "attention/allocation",
    "flash attention": "attention/cost",
    "linear attention": "attention/cost",
    "delta rule": "attention/cost",
    "sliding window": "attention/cost",
    "weight tying": "machine/one-sitting",
    "prefix caching": "attention/at-inference",
    "needle in a haystack": "positions/extrapolation",
    "causal tracing": "feed-forward/facts",
    "loss spikes": "training/spikes",
    "loss spike": "training/spikes",
    "transcoders": "feed-forward/superposition",
    "steering vector": "real-language-model/fact-on-its-way",
    "T5": "inside/your-own-checkpoint",
    "FFN": "feed-forward/feed-forward",
    "MLP": "feed-forward/feed-forward",
    "feedforward": "feed-forward/feed-forward",
    "SwiGLU": "feed-forward/feed-forward",
    "MoE": "feed-forward/mixture-of-experts",
    "SAE": "feed-forward/superposition",
    "superposition": "feed-forward/superposition",
    "ROME": "feed-forward/facts",
    "layernorm": "norms/layer-norm",
    "layer normalization": "norms/layer-norm",
    "RMSNorm": "norms/layer-norm",
    "pre-LN": "norms/norm-placement",
    "skip connections": "residual/without-skips",
    "residual stream": "residual/residual-stream",
    "logit lens": "inside/probes-and-lenses",
    "probing": "inside/probes-and-lenses",
    "BLEU": "translation/metric-traps",
    "seq2seq": "translation/encoder-decoder",
    "cross attention": "translation/encoder-decoder",
    "LSTM": "translation/transformer-or-recurrent",
    "quantization": "real-language-model/its-numbers",
}
"""What readers type -> the page that is to come first, in `book/`."""


def open_search(browser, site: str, query: str = ""):
    """Open a site's search page, for a query as from the field on every page, and wait for its index."""
    page = browser.new_page()
    page.goto(f"{site}/search.html?{urlencode({'q': query})}")
    page.wait_for_function("Search.hasIndex()", timeout=60_000)
    return page


def asked(page, query: str) -> list[str]:
    """Return what an open search page finds, the first first: names of pages, with anchors."""
    return [found.removeprefix("book/") for found in page.evaluate(ASK, query)]


def page_of(place: str) -> str:
    return place.split("#")[0]


# In the book --------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["by a server", "from its folder"])
def test_what_readers_type_finds_its_chapter_first(built, server, browser, opened):
    page = open_search(browser, server if opened == "by a server" else built.as_uri())
    wrong = {}
    for query, wanted in WANTED.items():
        found = [page_of(place) for place in asked(page, query)]
        if found[:1] != [wanted]:
            rank = found.index(wanted) + 1 if wanted in found else "missing"
            wrong[query] = f"begins with {found[:1]}; {wanted} is at {rank}"
    page.close()
    assert not wrong


@pytest.mark.parametrize("opened", ["by a server", "from its folder"])
def test_the_first_link_shown_is_the_chapter(built, server, browser, opened):
    site = server if opened == "by a server" else built.as_uri()
    page = open_search(browser, site, "KV cache")
    link = page.locator("#search-results li a").first
    link.wait_for(timeout=20_000)
    assert link.get_attribute("href").split("?")[0] == "book/attention/at-inference.html"
    assert "Key-value cache" in page.locator("#search-results li").first.inner_text()
    page.close()


def test_chapters_come_before_the_glossary_and_that_before_the_reference(built, browser):
    page = open_search(browser, built.as_uri())
    kinds = page.evaluate("Object.fromEntries(Object.entries(FINDING.kinds))")
    for query in ("cache", "norm", "rotary", "gradient", "weights"):
        found = [kinds[f"book/{page_of(place)}"] for place in asked(page, query)]
        assert found == sorted(found, reverse=True), query
        assert {CHAPTER, REFERENCE} <= set(found), query
    page.close()


def test_a_name_from_code_leads_to_its_entry(built, browser):
    page = open_search(browser, built.as_uri())
    for query in ("fused_attention", "fused_attention()"):
        first = asked(page, query)[0]
        assert first.startswith("reference/parts#"), query
        assert first.endswith(".fused_attention"), query
    page.close()


def test_no_title_in_the_index_is_tex(built):
    """Titles are what the search page lists, as text."""
    text = (built / "searchindex.js").read_text("utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    assert len(index["alltitles"]) > 100
    assert not [title for title in index["alltitles"] if "\\" in title or "$" in title]


# What the search page is handed -------------------------------------------------------------------

GLOSSED = """\
# Glossary

```{glossary}
Zipper
ZP
  A part with <teeth>; see {ref}`its teeth <teeth>` and {doc}`buttons`.

Knot
  A part without a page.
```
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    made = tiny_pages.make(tmp_path_factory.mktemp("finding"))
    shutil.copytree(STATIC, made.root / "static")
    made.settings = {"html_static_path": ["static"]}
    made.write(
        "index.md",
        "# Tiny\n\n```{toctree}\n:numbered:\nzippers\nbuttons\n```\n\n"
        "```{toctree}\nglossary\nother\n```\n",
    )
    made.write("glossary.md", GLOSSED)
    made.write("zippers.md", "# Of zippers\n\n(teeth)=\n## Teeth & rows\n\nSmall.\n")
    made.write(
        "buttons.md", "# Of buttons\n\n## Of $\\sqrt{d_k}$ kinds\n\nNo teeth at all, and a knot.\n"
    )
    made.write("other.md", "# Aside\n\nTeeth and a knot, and a knot.\n")
    assert made.build() == []
    return made


def handed(book) -> dict:
    page = (book.root / "_build/html/search.html").read_text("utf-8")
    found = re.search(r"<script[^>]*>const FINDING = (.*?);</script>", page)
    assert found, "the search page is handed nothing"
    assert page.index("const FINDING") < page.index("finding.js") < page.index("searchtools.js")
    return json.loads(found[1])


def test_an_entry_leads_to_its_places_by_all_its_names(book):
    data = handed(book)
    zipper = next(entry for entry in data["entries"] if entry["names"][0] == "Zipper")
    assert zipper["names"] == ["Zipper", "ZP"]
    assert zipper["anchors"] == ["term-Zipper", "term-ZP"]
    assert zipper["says"] == "A part with &lt;teeth&gt;."
    assert zipper["leads"] == [["zippers", "teeth", "Teeth &amp; rows"], ["buttons", "", ""]]
    assert data["glossary"] == "glossary"


def test_pages_have_kinds(book):
    kinds = handed(book)["kinds"]
    assert (kinds["zippers"], kinds["glossary"], kinds["other"]) == (CHAPTER, GLOSSARY, OTHER)


def test_no_other_page_is_handed_anything(book):
    for name in ("index", "zippers", "glossary"):
        text = (book.root / f"_build/html/{name}.html").read_text("utf-8")
        assert "FINDING" not in text
        assert "finding.js" not in text


def test_formulas_of_titles_are_signs_in_the_index_and_formulas_on_the_page(book):
    text = (book.root / "_build/html/searchindex.js").read_text("utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    assert "Of \N{SQUARE ROOT}d_k kinds" in index["alltitles"]
    heading = book.page("buttons").select_one("section section > h2")
    assert heading.select_one("span.math").get_text() == "\\(\\sqrt{d_k}\\)"


@pytest.mark.parametrize(
    ("tex", "signs"),
    [
        (r"1/\sqrt{d_k}", "1/\N{SQUARE ROOT}d_k"),
        (r"\sqrt d", "\N{SQUARE ROOT}d"),
        (r"\sqrt{a+b}", "\N{SQUARE ROOT}(a+b)"),
        (r"\frac{a+b}{2}", "(a+b)/2"),
        (r"\tfrac12", "1/2"),
        (r"n \times \mathrm{LN}(x)", "n \N{MULTIPLICATION SIGN} LN(x)"),
        (
            r"\alpha \le \infty",
            "\N{GREEK SMALL LETTER ALPHA} \N{LESS-THAN OR EQUAL TO} \N{INFINITY}",
        ),
        (r"\log n", "log n"),
        ("O(n^2)", "O(n^2)"),
    ],
)
def test_short_formulas_in_signs(tex, signs):
    assert in_signs(tex) == signs


def test_a_script_cannot_be_ended_by_what_it_says():
    assert "</script" not in script_of({"says": "</script>"})


ZIPPER = ["zippers#teeth", "buttons", "glossary#term-Zipper"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("zp", ZIPPER),
        ("Zippers", [*ZIPPER, "index"]),
        ("zip-per", [*ZIPPER, "index"]),
        ("what is a ZP?", ZIPPER),
        ("knots", ["glossary#term-Knot", "buttons", "other"]),
        ("teeth", ["zippers", "buttons", "glossary", "other", "index"]),
        ("hippopotamus", []),
    ],
)
def test_a_tiny_book_is_searched_from_its_folder(book, browser, query, found):
    page = open_search(browser, (book.root / "_build/html").as_uri())
    assert asked(page, query) == found
    page.close()
