"""The registry: the documented example is valid, and each way to break the schema is named."""

import re
import textwrap
from pathlib import Path

import pytest
from measured_book.evidence import declarations, registry
from measured_book.evidence.declarations import parse_claims, parse_values
from measured_book.evidence.registry import (
    RULES,
    Bound,
    Difference,
    Equivalence,
    Identity,
    Number,
    Proportion,
    Rule,
    Threshold,
    claim,
    claims,
    read_claims,
)
from measured_book.evidence.verdicts import Verdict

PLAIN = """
chapter = "book/part/chapter"

[[claim]]
id = "CS-1.3"
source = "CS"
place = "section 1"
statement = "Words."
kind = "experiment"
scope = "Small models."
test = "A comparison."
seeds = 10
expected = "confirmed"
[claim.rule]
type = "difference"
direction = "greater"
smallest_effect = 0.1
"""

PARTS = (
    PLAIN.partition("[claim.rule]")[0]
    + """
axis = "the scheme"
[[claim.part]]
name = "one"
label = "scheme one"
[claim.part.rule]
type = "bound"
at_most = 0
[[claim.part]]
name = "two"
[claim.part.rule]
type = "bound"
at_most = 1
"""
)

CITED = """
[[claim]]
id = "DD-7.9"
source = "DD"
place = "section 7"
statement = "Words."
kind = "cited"
scope = "The published configuration."
chapter = "book/part/chapter"
test = "Read."
reference = "touvron2023llama"
"""


def change(old: str, new: str, text: str = PLAIN) -> str:
    assert old in text
    return text.replace(old, new, 1)


def examples() -> list[str]:
    """The TOML of the module's docstring: two claims, the second in short, its evidence, and values."""
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", str(declarations.__doc__))
    return [textwrap.dedent(block) for block in blocks]


def test_the_documented_short_form_is_the_same_claim() -> None:
    first, second, short, evidence, values = examples()
    said = parse_claims(first + second, "a.toml")["DD-7.7"]
    told = second.partition("axis =")[0] + short.replace("axis =", 'combine = "levels"\naxis =')
    assert parse_claims(first + told, "a.toml")["DD-7.7"] == said
    head, shared, parts = told.partition("[claim.parts]")
    chapter, _, rest = first.partition("\n")
    text = f"{chapter}\n{values}{rest}{head}{evidence}{shared}{parts}"
    written = parse_claims(text, "a.toml")["DD-7.7"].part("alibi").evidence
    assert {name: one.text for name, (one,) in written.items()} == {
        "treatment": "excess[scheme=rotary]",
        "baseline": "excess[scheme=alibi]",
    }
    line = text.splitlines().index('baseline = "excess[scheme={part}]"') + 1
    assert written["baseline"][0].where == f"a.toml, line {line}"
    assert parse_values(text, "a.toml")["excess"].where == "a.toml, line 3"


def quoting(quote: str, *, text: str = PLAIN) -> str:
    return change('statement = "Words."', f'{quote}\nstatement = "Words."', text)


def test_a_claim_quotes_its_source_or_says_why_it_is_asked() -> None:
    said = quoting('quote = "The source says this [...] and a little later it says that."')
    said = said.replace("says this", "says these five words")
    found = parse_claims(said, "a.toml")["CS-1.3"]
    assert found.quote.startswith("The source says these five words [...] and a little")
    assert found.ours == ""
    asked = parse_claims(quoting('ours = "Nobody says so."'), "a.toml")["CS-1.3"]
    assert (asked.quote, asked.ours) == ("", "Nobody says so.")


LONG = " ".join(["word"] * 41)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            quoting('quote = "Too short it is"'),
            "field quote: expected at least 5 words in a row, so that they can be found, got 4: ",
        ),
        (
            quoting(f'quote = "{LONG}"'),
            "field quote: expected at most 40 words of the source, got 41",
        ),
        (quoting('quote = ""'), "field quote: expected a text that is not empty, got ''"),
        (quoting('quot = "One two three four five."'), "got 'quot (did you mean quote?)'"),
        (
            quoting('quote = "One two three four five."\nours = "Nobody says so."'),
            "field quote, ours: expected one of the two, got both",
        ),
        (
            quoting('quote = "One two three four five."')
            .replace('"CS', '"LT')
            .replace("expected =", 'reference = "a2020b"\nexpected ='),
            "field quote: expected none for a paper, which `reference` names, got 'One two",
        ),
    ],
)
def test_a_wrong_quotation_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse_claims(text, "a.toml")
    assert str(caught.value).startswith("a.toml, claim ")


def test_the_documented_example_is_valid() -> None:
    found = parse_claims("\n".join(examples()[:2]), "example.toml")
    assert list(found) == ["CS-1.3", "DD-7.7"]
    first, second = found.values()
    assert first.rule == Identity(tolerance=1e-9, control_above=1e-3)
    assert first.chapter == second.chapter == "book/positions/positional-encoding"
    assert first.expected is Verdict.CONFIRMED
    assert second.expected is Verdict.CONDITIONAL
    assert [part.label for part in second.parts] == ["against sinusoidal", "alibi"]
    assert second.part("alibi").rule == Difference(direction="less", smallest_effect=0.1)
    with pytest.raises(KeyError, match="no part 'rope'; it has sinusoidal, alibi"):
        second.part("rope")


def test_the_packaged_claims_are_valid() -> None:
    for claim_id, found in claims().items():
        assert claim(claim_id) is found
        assert found.scope
        assert claim_id in claims(found.chapter)
    assert claims("book/nowhere/at-all") == {}


def test_cited_and_planned_claims() -> None:
    cited = parse_claims(CITED, "a.toml")["DD-7.9"]
    assert cited.rule is None
    assert cited.expected is Verdict.FACT
    assert cited.references == ("touvron2023llama",)
    planned = change('expected = "confirmed"', 'status = "planned"')
    found = parse_claims(planned, "a.toml")["CS-1.3"]
    assert found.expected is None
    assert found.rule == Difference(direction="greater", smallest_effect=0.1)
    assert found.seeds == 10


WRITTEN = change(
    "[claim.rule]", '[claim.evidence]\ntreatment = "a.b"\nbaseline = "a.c"\n[claim.rule]'
)
SHORT = (
    PARTS.partition("[[claim.part]]")[0]
    + """[claim.rule]
type = "bound"
at_most = 0
[claim.evidence]
value = "a.b[arm={arm}]"
[claim.parts]
one = {label = "scheme one", arm = "first"}
two = {arm = "second", rule = {at_most = 1}}
"""
)


def test_shared_rules_and_words_make_parts() -> None:
    found, long = (parse_claims(text, "a.toml")["CS-1.3"] for text in (SHORT, PARTS))
    assert [(p.name, p.label, p.rule) for p in found.parts] == [
        (p.name, p.label, p.rule) for p in long.parts
    ]
    assert [p.evidence["value"][0].text for p in found.parts] == [
        "a.b[arm=first]",
        "a.b[arm=second]",
    ]
    assert found.is_written
    assert not long.is_written
    assert parse_claims(WRITTEN, "a.toml")["CS-1.3"].evidence["baseline"][0].text == "a.c"


def test_white_space_of_long_texts_is_folded() -> None:
    text = PLAIN.replace('"Words."', '"""Two\n   lines."""')
    assert parse_claims(text, "a.toml")["CS-1.3"].statement == "Two lines."


RULE_TABLES = {
    'type = "identity"\ntolerance = 1e-9\ncontrol_above = 0.1': Identity(1e-9, 0.1),
    'type = "identity"\ntolerance = 1\nno_control = "x"': Identity(1.0, no_control="x"),
    'type = "number"\nstated = 6.283\ndigits = 3': Number((6.283,), 3),
    'type = "number"\nstated = [17, 31]\nwithin = 0.01': Number((17.0, 31.0), within=0.01),
    'type = "bound"\nat_least = 0\nbelow = 1\ncontrol = true': Bound(
        at_least=0.0, below=1.0, control=True
    ),
    'type = "difference"\ndirection = "less"\nsmallest_effect = 1\npaired = false': Difference(
        "less", 1.0, paired=False
    ),
    'type = "equivalence"\nmargin = 0.01\nconfidence = 0.9': Equivalence(0.01, confidence=0.9),
    'type = "proportion"\nat_least = 0.8': Proportion(at_least=0.8),
    'type = "threshold"\nat_most = -1': Threshold(at_most=-1.0),
    'type = "threshold"\nat_least = 0.1\nat_most = 0.2': Threshold(at_least=0.1, at_most=0.2),
}


@pytest.mark.parametrize(("table", "rule"), RULE_TABLES.items(), ids=lambda x: str(x)[:20])
def test_every_rule_reads_and_writes_the_same(table: str, rule: Rule) -> None:
    text = PLAIN.partition("[claim.rule]")[0] + "[claim.rule]\n" + table
    assert parse_claims(text, "a.toml")["CS-1.3"].rule == rule
    again = rule.as_dict()
    assert RULES[again.pop("type")] is type(rule)
    if "stated" in again:
        again["stated"] = tuple(again["stated"])
    assert type(rule)(**again) == rule


def test_every_rule_type_is_tried_above() -> None:
    assert {type(rule) for rule in RULE_TABLES.values()} == set(RULES.values())


BROKEN = {
    "no TOML": ("[[claim]", ["a.toml", "expected TOML"]),
    "one bracket": ('[claim]\nid = "CS-1.3"', ["[[claim]]", "double the brackets"]),
    "unknown at the top": ("title = 3\n" + PLAIN, ["only chapter", "got title"]),
    "missing field": (change('scope = "Small models."', ""), ["field scope", "a text", "nothing"]),
    "empty scope": (change('"Small models."', '" "'), ["field scope", "not empty", "' '"]),
    "unknown field": (
        change("statement =", 'statment = "x"\nstatement ='),
        ["field statment", "did you mean statement?"],
    ),
    "unknown field in a rule": (
        change("smallest_effect = 0.1", "smallest_effect = 0.1\nmargin = 3"),
        ["difference rule, field margin", "only the fields", "smallest_effect"],
    ),
    "missing in a rule": (
        change("smallest_effect = 0.1", ""),
        ["difference rule, field smallest_effect", "expected a number, got nothing"],
    ),
    "unknown rule": (
        change('"difference"', '"t-test"'),
        ["field type", "identity, number, bound", "'t-test'"],
    ),
    "text for a number": (change("0.1", '"0.1"'), ["field smallest_effect", "a number", "'0.1'"]),
    "boolean for a number": (change("0.1", "true"), ["field smallest_effect", "a number", "True"]),
    "number for a boolean": (change("0.1", "0.1\npaired = 1"), ["field paired", "true or false"]),
    "bad direction": (change('"greater"', '"more"'), ["field direction", "'greater' or 'less'"]),
    "effect of zero": (change("0.1", "0"), ["field smallest_effect", "above 0"]),
    "confidence in percent": (change("0.1", "0.1\nconfidence = 95"), ["field confidence", "95"]),
    "bad id": (change("CS-1.3", "CS13"), ["claim CS13, field id", "CS-1.3 or DA-2.1a"]),
    "no id": (change('id = "CS-1.3"', ""), ["claim number 1, field id"]),
    "another source": (change('"CS"', '"DD"'), ["field source", "CS, as in the id", "'DD'"]),
    "unknown source": (change('"CS"', '"XX"'), ["field source", "one of CS, DA, DD, EX, IW"]),
    "bad kind": (change('"experiment"', '"guess"'), ["field kind", "identity, arithmetic"]),
    "bad status": (change("place =", 'status = "done"\nplace ='), ["field status", "planned"]),
    "bad docname": (
        change("book/part/chapter", "book/part/chapter.md"),
        ["field chapter", "document name", "chapter.md"],
    ),
    "no chapter": (change('chapter = "book/part/chapter"', ""), ["field chapter", "nothing"]),
    "bad section": (change("place =", 'section = "Of it"\nplace ='), ["field section", "label"]),
    "unknown verdict": (change('"confirmed"', '"true"'), ["field expected", "not reproduced"]),
    "another size, undeclared": (
        change('"confirmed"', '"does not carry over"'),
        ["claim CS-1.3, field expected", "said_of beside it", "none"],
    ),
    "refuted beside another size": (
        change('expected = "confirmed"', 'expected = "refuted"\nsaid_of = "BERT, 110 million"'),
        ["field expected", "does not carry over, beside said_of"],
    ),
    "a size without a number": (
        change("place =", 'said_of = "large models"\nplace ='),
        ["field said_of", "size in numbers", "'large models'"],
    ),
    "a misspelt size": (
        change("place =", 'said_off = "BERT, 110 million"\nplace ='),
        ["field said_off", "did you mean said_of?"],
    ),
    "a misprint, undeclared": (
        change('"confirmed"', '"misprint"'),
        ["field expected", "the field misprint beside it", "only one of them"],
    ),
    "a misprint of an experiment": (
        change("place =", 'misprint = {says = "x", shown_by = "CS-1.4"}\nplace ='),
        ["field misprint", "none for the kind experiment"],
    ),
    "fact": (change('"confirmed"', '"fact"'), ["field expected", "cited claims"]),
    "several verdicts": (
        change('expected = "confirmed"', 'expected = ["confirmed", "refuted"]'),
        ["field expected", "one of confirmed, refuted", "['confirmed', 'refuted']"],
    ),
    "no seeds": (change("seeds = 10", ""), ["field seeds", "nothing"]),
    "one seed": (change("seeds = 10", "seeds = 1"), ["field seeds", "two or more"]),
    "listed seeds": (change("seeds = 10", "seeds = [0, 1]"), ["field seeds", "a whole number"]),
    "half a seed": (change("seeds = 10", "seeds = 2.5"), ["field seeds", "a whole number"]),
    "no seeds, planned": (
        change('seeds = 10\nexpected = "confirmed"', 'status = "planned"'),
        ["field seeds", "a whole number such as 10", "nothing"],
    ),
    "no seeds, but one value a seed": (
        change('kind = "experiment"', 'kind = "arithmetic"').replace("seeds = 10", ""),
        ["field seeds", "nothing"],
    ),
    "no rule, planned": (
        change('expected = "confirmed"', 'status = "planned"').partition("[claim.rule]")[0],
        ["field rule", "a rule or parts", "nothing"],
    ),
    "no expectation": (change('expected = "confirmed"', ""), ["field expected", "nothing"]),
    "no rule": (PLAIN.partition("[claim.rule]")[0], ["field rule", "a rule or parts", "nothing"]),
    "rule and parts": (
        PARTS + '[claim.rule]\ntype = "bound"\nat_most = 0\n',
        ["field rule", "no rule beside parts that all have their own", "got one"],
    ),
    "parts in two forms": (
        PARTS + "[claim.parts]\nthree = {}\n",
        ["field parts", "either [claim.parts] or [[claim.part]]", "both"],
    ),
    "a value that the rule does not have": (
        change('treatment = "a.b"', 'treatment = "a.b"\nvalue = "a.b"', WRITTEN),
        ["evidence, field value", "only the fields treatment, baseline"],
    ),
    "a value left out": (
        change('baseline = "a.c"', "", WRITTEN),
        ["field evidence.baseline", "an expression", "got nothing"],
    ),
    "an expression that breaks off": (
        change('"a.c"', '"a.c[arm"', WRITTEN),
        ["a.toml, line 16: expected a closing ]"],
    ),
    "a word that no part gives": (
        change('arm = "second", ', "", SHORT),
        ["part two, field arm", "a text", "got nothing"],
    ),
    "a word that nothing asks for": (
        change('arm = "second"', 'arm = "second", axis = "b"', SHORT),
        ["part two, field axis", "only the fields"],
    ),
    "words without parts": (
        change('"a.c"', '"a.{c}"', WRITTEN),
        ["a.toml, line 16", "in braces, got {c}"],
    ),
    "no axis": (change('axis = "the scheme"', "", PARTS), ["field axis", "in words", "nothing"]),
    "axis without parts": (
        change("place =", 'axis = "x"\nplace ='),
        ["axis, combine", "only beside parts"],
    ),
    "unknown combination": (
        change("axis =", 'combine = "most"\naxis =', PARTS),
        ["field combine", "levels, readings, every, majority"],
    ),
    "one part": (PARTS.partition('[[claim.part]]\nname = "two"')[0], ["field part", "two or more"]),
    "same part twice": (change('"two"', '"one"', PARTS), ["part.name", "'one' twice"]),
    "part with a space": (change('"two"', '"part two"', PARTS), ["part.name", "'part two'"]),
    "broken rule in a part": (
        change("at_most = 1", "at_mots = 1", PARTS),
        ["claim CS-1.3, part two", "field at_mots", "did you mean at_most?"],
    ),
    "same id twice": (
        PLAIN + PLAIN.partition("[[claim]]")[2].join(["[[claim]]", ""]),
        ["got two"],
    ),
    "cited with a rule": (
        CITED + '[claim.rule]\ntype = "bound"\nat_most = 0\n',
        ["field rule", "none, because a cited claim is not tested"],
    ),
    "cited without reference": (
        change('reference = "touvron2023llama"', "", CITED),
        ["claim DD-7.9, field reference", "nothing"],
    ),
    "cited and judged": (CITED + 'expected = "confirmed"', ["field expected", "fact"]),
}


@pytest.mark.parametrize(("text", "words"), BROKEN.values(), ids=BROKEN)
def test_broken_files_are_explained(text: str, words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^a\.toml") as caught:
        parse_claims(text, "a.toml")
    for word in words:
        assert word in str(caught.value)


BROKEN_RULES = {
    "no control, no reason": ("identity", "tolerance = 1e-9", "got neither"),
    "control and reason": (
        "identity",
        'tolerance = 1e-9\ncontrol_above = 1\nno_control = "x"',
        "got both",
    ),
    "an empty reason": ("identity", 'tolerance = 1e-9\nno_control = " "', "reason in words"),
    "a control below the tolerance": (
        "identity",
        "tolerance = 1e-9\ncontrol_above = 1e-12",
        "at least the tolerance",
    ),
    "no tolerance": ("identity", "tolerance = 0\ncontrol_above = 1", "above 0"),
    "nothing stated": ("number", "stated = []\ndigits = 1", "at least one number"),
    "a text stated": ("number", 'stated = ["a"]\ndigits = 1', "list of numbers"),
    "neither digits nor share": ("number", "stated = 1", "got neither"),
    "half a digit": ("number", "stated = 1\ndigits = 0.5", "a whole number"),
    "no bound": ("bound", "control = true", "got none"),
    "two lower bounds": ("bound", "at_least = 0\nabove = 1", "at most one lower bound"),
    "two upper bounds": ("bound", "at_most = 0\nbelow = 1", "at most one upper bound"),
    "bounds that cross": ("bound", "at_least = 1\nat_most = 0", "lower bound below"),
    "an infinite bound": ("bound", "at_most = inf", "finite"),
    "no margin": ("equivalence", "margin = 0", "above 0"),
    "a share of all": ("proportion", "at_least = 1", "between 0 and 1"),
    "no threshold": ("threshold", "confidence = 0.9", "got neither"),
    "two shares": ("proportion", "at_least = 0.2\nat_most = 0.3", "got both"),
    "a range from above": ("threshold", "at_least = 1\nat_most = 0", "smaller to a larger number"),
    "an empty range": ("threshold", "at_least = 1\nat_most = 1", "got 1.0 to 1.0"),
    "an infinite range": ("threshold", "at_least = -inf\nat_most = 1", "finite"),
}


@pytest.mark.parametrize(("kind", "table", "words"), BROKEN_RULES.values(), ids=BROKEN_RULES)
def test_broken_rules_are_explained(kind: str, table: str, words: str) -> None:
    text = PLAIN.partition("[claim.rule]")[0] + f'[claim.rule]\ntype = "{kind}"\n{table}\n'
    with pytest.raises(ValueError, match=rf"a\.toml, claim CS-1\.3, {kind} rule") as caught:
        parse_claims(text, "a.toml")
    assert words in str(caught.value)


def test_an_id_in_two_files_names_both(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(PLAIN, "utf-8")
    assert list(read_claims(tmp_path)) == ["CS-1.3"]
    (tmp_path / "b.toml").write_text(PLAIN, "utf-8")
    with pytest.raises(ValueError, match=r"b\.toml, claim CS-1\.3.*one in a\.toml too"):
        read_claims(tmp_path)


def test_an_unknown_id_gives_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_packaged", lambda: parse_claims(PLAIN, "a.toml"))
    assert claim("CS-1.3").id == "CS-1.3"
    with pytest.raises(KeyError, match=r"nearest are CS-1\.3"):
        claim("CS-1.33")
    with pytest.raises(KeyError, match="none is near"):
        claim("nothing")


MISPRINT = """
chapter = "book/part/chapter"
[[claim]]
id = "IW-1.1"
source = "IW"
place = "section 1"
quote = "The matrix is the product of the two."
statement = "It is the product."
kind = "identity"
scope = "As printed."
test = "Shapes."
misprint = {says = "the product with the transpose", shown_by = "IW-1.2"}
expected = "misprint"
[claim.rule]
type = "bound"
at_least = 1
[[claim]]
id = "IW-1.2"
source = "IW"
place = "section 1"
quote = "The score is the product with the transpose."
statement = "It is the product with the transpose."
kind = "identity"
scope = "Any weights."
test = "Largest deviation."
expected = "confirmed"
[claim.rule]
type = "bound"
at_most = 1
"""


def test_a_misprint_names_the_claim_that_shows_what_is_meant() -> None:
    first = parse_claims(MISPRINT, "one.toml")["IW-1.1"]
    assert (first.misprint, first.meant_in) == ("the product with the transpose", "IW-1.2")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('shown_by = "IW-1.2"', 'shown_by = "IW-1.3"', "a claim of this file.*did you mean IW-1.2"),
        ('shown_by = "IW-1.2"', 'show_by = "IW-1.2"', "field shown_by"),
        ('expected = "confirmed"', 'expected = "refuted"', "a confirmed claim.*IW-1.2, refuted"),
        ('expected = "misprint"', 'expected = "refuted"', "only one of them"),
        (', shown_by = "IW-1.2"}', "}", "field shown_by: expected a text, got nothing"),
        (
            '{says = "the product with the transpose", shown_by = "IW-1.2"}',
            '"x"',
            "a table such as",
        ),
    ],
)
def test_a_misprint_that_nothing_shows_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"one.toml, claim IW-1.1.*{said}"):
        parse_claims(MISPRINT.replace(old, new), "one.toml")
