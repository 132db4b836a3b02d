"""The lint of prose, held to tables of lines that it accepts and of lines that it rejects."""

import textwrap
from pathlib import Path

import pytest
from bookpress.prose import IN_ALT, lint, main

ACCEPTED = {
    "names that begin with a letter": "GPT-2, CS-1.3, float64, bf16, ReLU6, L2 and BERT-base.v1 pass.",
    "a name whose parts are marked up": "**GPT**-2 and *fp*32",
    "inline code": "`n = 5000` and ``x `1` y``",
    "inline mathematics": "With $d = 64$ and {math}`n=100`.",
    "display mathematics": "$$ x = 3 $$",
    "an amsmath environment": "\\begin{align}x &= 3\\end{align}",
    "a measured value": "The distance is {measured}`min_distance:.3f`.",
    "a measured percentage": "{measured}`CS-1.3.share|mean:.0%` of them",
    "a quoted figure": "The source says {quoted}`12.4`.",
    "a constant": "{constant}`10000` is the base, {constant}`64`-wide.",
    "references and citations": "{ref}`layer 3 <fig-3>`, {numref}`fig-3`, {cite:t}`vaswani2017attention`",
    "a link target": "[the page](https://example.org/2017/3.html)",
    "bare links": "https://example.org/2017 and <https://example.org/3>",
    "a comment": "% 12.4 is not shown",
    "a label": "(section-3)=",
    "front matter": "---\ntitle: Twelve\nversion: 3\n---\n\ntext",
    "an ordered list": "1. one\n2. two",
    "a numbered heading": "# 2.1. Positions",
    "plain code": "```python\nx = 3\n```",
    "a code cell": "```{code-cell} python\n:tags: [remove-output]\nx = 12.4\n```",
    "a literal include": "```{literalinclude} a.py\n:lines: 3-5\n```",
    "options of a directive": "```{figure} a3.png\n:width: 50\n:name: fig-3\n\nCaption\n```",
    "sizes of a grid": "::::{grid} 1 2 2 3\n:::{grid-item}\ntext\n:::\n::::",
    "mathematics as directive": "```{math}\n:label: eq-3\nx = 3\n```",
    "number words": "Two layers, a hundred positions, the third head.",
    "a reference to a footnote": "text[^1]\n\n[^1]: words",
    "markup": '<span style="width: 3px">words</span>',
}

REJECTED = {
    "a decimal": ("The distance is 12.4 here.", [(1, "12.4")]),
    "an integer": ("All 5 seeds", [(1, "5")]),
    "a percentage": ("17 % of them, or 18%", [(1, "17"), (1, "18")]),
    "a factor": ("3x faster, 4\u00d7 slower", [(1, "3x"), (1, "4")]),
    "a power of ten": ("below 1e-9", [(1, "1e-9")]),
    "thousands": ("1,115,394 characters", [(1, "1,115,394")]),
    "a negative number": ("a change of -0.3", [(1, "0.3")]),
    "a fraction": ("about \u00bd of it", [(1, "\u00bd")]),
    "digits before a hyphen": ("a 2-layer model", [(1, "2-layer")]),
    "a year in plain words": ("Vaswani et al. (2017)", [(1, "2017")]),
    "a number behind a sign": ("loss=0.4, n:5, (a,3)", [(1, "0.4"), (1, "5"), (1, "3")]),
    "a number behind mathematics": ("$d$-3", [(1, "3")]),
    "emphasis": ("**12.4** and *3*", [(1, "12.4"), (1, "3")]),
    "the words of a link": ("[over 5 seeds](a.md)", [(1, "5")]),
    "a role that only styles": ("{sub}`12.4`", [(1, "12.4")]),
    "a table cell": ("| a | b |\n|---|---|\n| GPT-2 | 12.4 |", [(3, "12.4")]),
    "a list item": ("- one\n- 12.4\n  - 5 deep", [(2, "12.4"), (3, "5")]),
    "a definition": ("term\n: about 8", [(2, "8")]),
    "a quotation": ("> about 8", [(1, "8")]),
    "a footnote": ("text[^1]\n\n[^1]: after 300 steps", [(3, "300")]),
    "a heading": ("# 1. All 5 seeds", [(1, "5")]),
    "a heading without a stop": ("# 5 seeds", [(1, "5")]),
    "the second line": ("words\nand 12.4\nand 3", [(2, "12.4"), (3, "3")]),
    "behind code that breaks the line": ("`a\nb` 12.4", [(2, "12.4")]),
    "a block of markup": ("<div>\nwords 7\n</div>", [(2, "7")]),
    "alternative text": ("![the 3 heads](a.png)", [(1, "3")]),
    "a caption": ("```{figure} a.png\n:width: 50\n\nOver 5 seeds\n```", [(4, "5")]),
    "a title": (":::{note} The 3 heads\nwords\n:::", [(1, "3")]),
    "a nested directive": (
        "::::{dropdown} Solution\n:class: x\n\n- words\n\n:::{tip}\nabout 55\n:::\n::::",
        [(7, "55")],
    ),
    "a directive in a list": ("- words\n\n  ```{note}\n  about 9\n  ```", [(4, "9")]),
    "an unknown directive": ("```{poem}\nof 9 lines\n```", [(2, "9")]),
    "a caption of a cell": (
        "```{code-cell} python\n---\nmystnb:\n  figure:\n    caption: Over 33 seeds\n---\nx = 3\n```",
        [(5, "33")],
    ),
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_accepts(text: str) -> None:
    assert lint(text, "page.md") == []


@pytest.mark.parametrize(("text", "expected"), REJECTED.values(), ids=REJECTED)
def test_rejects(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(found.line, found.numeral) for found in lint(text, "page.md")] == expected


def test_a_caption_of_several_lines_is_found_at_its_option() -> None:
    text = textwrap.dedent(
        """\
        Words.

        ```{code-cell} python
        ---
        mystnb:
          figure:
            caption: |
              After 300 steps
          image: {alt: "4 curves"}
        ---
        draw(5)
        ```
        """
    )
    found = lint(text, "page.md")
    assert [(f.line, f.numeral) for f in found] == [(7, "300"), (9, "4")]
    assert found[1].remedy == IN_ALT


def test_the_command_names_line_numeral_and_ways_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "bad.md").write_text("# Title\n\nIt is 12.4 wide.\n", "utf-8")
    (tmp_path / "good.md").write_text("It is {constant}`3` wide.\n", "utf-8")
    assert main([str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert f"{tmp_path / 'part' / 'bad.md'}:3: bare numeral '12.4'" in shown
    assert "{measured}" in shown
    assert "{quoted}" in shown
    assert "{constant}" in shown
    assert "good.md" not in shown
    assert main([str(tmp_path / "good.md")]) == 0
    assert capsys.readouterr().out == ""


def test_the_command_names_a_path_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_the_command_says_why_alternative_text_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```{figure} a.png\n:alt: 3 heads\n\nCaption\n```\n", "utf-8")
    assert main([str(page)]) == 1
    assert "lternative text shows no roles" in capsys.readouterr().out
