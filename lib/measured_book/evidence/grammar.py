"""The grammar of expressions over results; what they mean is told, and done, in `evidence.expressions`.

Nothing here imports more than Python itself, so that claims are read and checked without loading arrays.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Never

_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_STATISTIC = re.compile(r"[A-Z]{2}-\d+\.\d+[a-z]?(?:\.\w+)+")
_CHOICE = re.compile(r"\s*([A-Za-z_]\w*)\s*(!=|<=|>=|=|<|>)\s*(.+)", re.DOTALL)
_COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")


class ExpressionError(ValueError):
    """An expression that cannot be read, or names what is not there; the message is one sentence."""


def nearest(word: str, known: Iterable[object]) -> str:
    """Words for the end of an error: the nearest known name, or all of them where none is near."""
    names = [str(one) for one in known]
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"the nearest is {close[0]}"
    return f"there are {', '.join(names)}" if names else "there are none"


# What an expression consists of -------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    value: float | int


@dataclass(frozen=True)
class Path:
    """``result.variable``, a declared name or CONSTANT (then ``variable`` is empty), or a claim's statistic."""

    name: str
    variable: str = ""
    statistic: bool = False

    @property
    def is_constant(self) -> bool:
        """True if it names a constant of the room, in capitals, or an attribute of one."""
        return self.name.isupper()

    def __str__(self) -> str:
        return f"{self.name}.{self.variable}" if self.variable else self.name


@dataclass(frozen=True)
class Choice:
    """One choice along an axis: ``sign`` is ``=``, ``..``, ``!=`` or a comparison."""

    axis: str
    sign: str
    labels: tuple[str, ...]
    several: bool = False

    def __str__(self) -> str:
        if self.sign == "..":
            return f"{self.axis}={'..'.join(self.labels)}"
        return f"{self.axis}{self.sign}{', '.join(self.labels)}"


@dataclass(frozen=True)
class Selection:
    """Values with choices along their axes."""

    of: Node
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Call:
    """A function with its arguments as they are written; ``first`` is what stands before a ``|``."""

    name: str
    arguments: tuple[str, ...]
    first: Node | None = None


@dataclass(frozen=True)
class Operation:
    """Two expressions with a sign of arithmetic or of comparison between them."""

    sign: str
    left: Node
    right: Node


Node = Number | Path | Selection | Call | Operation


# Parsing ------------------------------------------------------------------------------------------


@lru_cache(maxsize=16384)
def parse(text: str) -> Node:
    """The parts of an expression.

    Raises:
        ExpressionError: the text breaks the grammar; the message says what was expected and where.
    """
    parser = _Parser(text)
    found = parser.expression()
    parser.skip()
    if parser.at < len(text):
        parser.fail("the end, or one of + - * / | < > after a value")
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, expected: str) -> Never:
        here = self.text[self.at : self.at + 20].strip() or "the end"
        raise ExpressionError(f"expected {expected} in {self.text!r}, got {here!r}")

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, *signs: str) -> str:
        self.skip()
        for sign in signs:
            if self.text.startswith(sign, self.at):
                self.at += len(sign)
                return sign
        return ""

    def match(self, pattern: re.Pattern[str]) -> str:
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def expression(self) -> Node:
        found = self.comparison()
        while self.take("|"):
            name = self.match(_NAME)
            if not name:
                self.fail("the name of a function after |")
            found = Call(name, self.arguments() if self.take("(") else (), found)
        return found

    def comparison(self) -> Node:
        found = self.sum()
        sign = self.take(*_COMPARISONS)
        return Operation(sign, found, self.sum()) if sign else found

    def sum(self) -> Node:
        found = self.product()
        while sign := self.take("+", "-"):
            found = Operation(sign, found, self.product())
        return found

    def product(self) -> Node:
        found = self.power()
        while not self.text.startswith("**", self.at) and (sign := self.take("*", "/")):
            found = Operation(sign, found, self.power())
        return found

    def power(self) -> Node:
        if self.take("-"):
            return Operation("*", Number(-1), self.power())
        found = self.value()
        return Operation("**", found, self.power()) if self.take("**") else found

    def value(self) -> Node:
        found = self.atom()
        while self.take("["):
            found = Selection(found, tuple(self.choices()))
        return found

    def atom(self) -> Node:
        if self.take("("):
            inner = self.expression()
            if not self.take(")"):
                self.fail("a closing )")
            return inner
        if number := self.match(_NUMBER):
            return Number(int(number) if number.isdigit() else float(number))
        if statistic := self.match(_STATISTIC):
            return Path(statistic, statistic=True)
        name = self.match(_NAME)
        if not name:
            self.fail("a value")
        if self.take("("):
            return Call(name, self.arguments())
        if self.text.startswith(".", self.at):
            self.at += 1
            variable = self.match(_NAME)
            if not variable:
                self.fail(f"the name of a variable after {name}.")
            return Path(name, variable)
        return Path(name)

    def arguments(self) -> tuple[str, ...]:
        """The words between parentheses, of which the opening one has been read."""
        found = self.words("),", until=")")
        return tuple(found) if found != [""] else ()

    def words(self, ends: str, *, until: str) -> list[str]:
        """Words separated by commas up to a closing bracket, which is read too; quotes and brackets nest."""
        words, start, depth, quoted = [], self.at, 0, False
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == '"':
                quoted = not quoted
            elif not quoted and not depth and sign in ends:
                words.append(self.text[start : self.at].strip())
                start = self.at + 1
                if sign == until:
                    self.at += 1
                    return words
            elif not quoted:
                depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
            self.at += 1
        return self.fail(f"a closing {until}")

    def choices(self) -> Iterator[Choice]:
        for word in self.words("],", until="]"):
            found = _CHOICE.match(word)
            if found is None:
                raise ExpressionError(
                    f"expected a choice such as depth=12 in {self.text!r}, got {word!r}"
                )
            axis, sign, label = found[1], found[2], found[3].strip()
            if label.startswith("(") and label.endswith(")"):
                inner = _Parser(label[1:])
                labels = inner.words("),", until=")")
                yield Choice(axis, sign, tuple(map(unquoted, labels)), several=True)
            elif sign == "=" and ".." in label and not label.startswith('"'):
                low, _, high = label.partition("..")
                yield Choice(axis, "..", (low.strip(), high.strip()))
            else:
                yield Choice(axis, sign, (unquoted(label),))


def unquoted(word: str) -> str:
    """A word without the double quotes around it, where there are any."""
    word = word.strip()
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] == '"' else word


def split_format(text: str) -> tuple[str, str]:
    """An expression and the format that follows its last colon outside of brackets; empty where none does.

    >>> split_format("race.steps[arm=pre]|mean:.2f")
    ('race.steps[arm=pre]|mean', '.2f')
    """
    depth, quoted = 0, False
    for index, sign in enumerate(text):
        quoted ^= sign == '"'
        depth += 0 if quoted else {"[": 1, "]": -1, "(": 1, ")": -1}.get(sign, 0)
        if sign == ":" and not depth and not quoted:
            return text[:index].strip(), text[index + 1 :].strip()
    return text.strip(), ""


def in_words(node: Node) -> str:
    """A part of an expression in short words, for errors."""
    match node:
        case Number():
            return str(node.value)
        case Path():
            return str(node)
        case Selection():
            return f"{in_words(node.of)}[{', '.join(map(str, node.choices))}]"
        case Call():
            return (
                f"{node.name}(...)" if node.first is None else f"{in_words(node.first)}|{node.name}"
            )
        case Operation():
            return f"{in_words(node.left)} {node.sign} {in_words(node.right)}"
