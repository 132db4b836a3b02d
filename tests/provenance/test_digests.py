"""The digest: what changes a value changes it, and nothing else does."""

import functools
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from measured_transformer.provenance import (
    CodeUnknownError,
    digest,
    digest_source,
    plain,
    reach,
    unchanging,
    versions,
)
from measured_transformer.provenance import digests as digests_module
from measured_transformer.provenance.modules import source_of

LIBRARY = Path(__file__).parents[2] / "lib"
FILES = {
    "shop/__init__.py": '"""A package."""\nfrom shop.counter import sell\n',
    "shop/counter.py": '''
        """Selling."""
        from shop.tools import weigh
        from shop import prices

        EPSILON = 1e-5
        KINDS = {"apple": 1}
        KINDS.update(pear=2)


        class Base:
            """A base."""

            factor = 2

            def price(self, x, more=1.0):
                """What it costs."""
                return weigh(x) * self.factor + more

            def never_asked(self):
                return 1


        class Till(Base):
            def total(self, x):
                return self.price(x) + EPSILON


        def sell(x):
            """Sell."""
            if x < 0:
                raise ValueError(f"expected no debt, got {x}")
            return Till().total(x) + prices.of("apple") + KINDS["apple"]


        def give(x):
            return prices.of(x)


        def even(n):
            return n == 0 or odd(n - 1)


        def odd(n):
            return n != 0 and even(n - 1)
        ''',
    "shop/tools.py": """
        import numpy as np


        def weigh(x):
            return grams(x) / 1000


        def grams(x, scale=np.float64(2)):
            total = x
            return np.sum(total) * scale


        def beside(x):
            return x
        """,
    "shop/prices.py": """
        from shop.registry import register

        TABLE = {}


        @register
        def of(name):
            return TABLE.get(name, 3)
        """,
    "shop/registry.py": """
        KNOWN = []


        def register(function):
            KNOWN.append(function)
            return function
        """,
}
ROOTS = ("shop.counter:sell", "shop.counter:give", "shop.tools:weigh", "shop.counter:even")


class Shop:
    """A throw-away package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in FILES.items():
            self.write(name, textwrap.dedent(text))

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def digests(self, roots: tuple[str, ...] = ROOTS) -> list[str]:
        with unchanging(self.folder):
            return [digest(root) for root in roots]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def docstring(shop: Shop) -> None:
    shop.edit(
        "shop/counter.py", '"""What it costs."""', '"""Said better.\n\n    At length.\n    """'
    )
    shop.edit("shop/counter.py", '    """Sell."""\n', "")


def comment(shop: Shop) -> None:
    shop.edit("shop/tools.py", "total = x", "total = (\n        x  # all of it\n    )")


def unused_function(shop: Shop) -> None:
    shop.edit("shop/tools.py", "def beside", "def unused(x):\n    return -x\n\n\ndef beside")


def unused_method(shop: Shop) -> None:
    shop.edit(
        "shop/counter.py", "return 1\n", "return 7\n\n    def nor_this(self):\n        pass\n"
    )


def order(shop: Shop) -> None:
    text = (shop.folder / "shop/tools.py").read_text()
    head, weigh, rest = text.partition("def weigh(x):\n    return grams(x) / 1000\n")
    shop.write("shop/tools.py", head + rest + "\n\n" + weigh)


def error_words(shop: Shop) -> None:
    shop.edit("shop/counter.py", "expected no debt, got {x}", "a debt of {x} cannot be paid")


def import_style(shop: Shop) -> None:
    shop.edit("shop/tools.py", "import numpy as np", "import numpy as numbers")
    shop.edit("shop/tools.py", "np.", "numbers.")


def annotations(shop: Shop) -> None:
    shop.edit("shop/tools.py", "def weigh(x):", 'def weigh(x: "Mass") -> float:')


def function_renamed(shop: Shop) -> None:
    shop.edit("shop/tools.py", "grams", "in_grams")


def constant_renamed(shop: Shop) -> None:
    shop.edit("shop/counter.py", "EPSILON", "TINY")


@pytest.mark.parametrize(
    "change",
    [
        docstring,
        comment,
        unused_function,
        unused_method,
        order,
        error_words,
        import_style,
        annotations,
        function_renamed,
        constant_renamed,
    ],
)
def test_what_changes_no_value_changes_no_digest(
    shop: Shop, change: Callable[[Shop], None]
) -> None:
    before = shop.digests()
    change(shop)
    assert shop.digests() == before


def test_a_module_may_get_another_name_and_another_place(shop: Shop) -> None:
    before = shop.digests()
    (shop.folder / "shop/deep").mkdir()
    shop.write("shop/deep/__init__.py", "")
    shutil.move(shop.folder / "shop/tools.py", shop.folder / "shop/deep/scales.py")
    shop.edit("shop/counter.py", "from shop.tools import", "from shop.deep.scales import")
    roots = tuple(root.replace("shop.tools", "shop.deep.scales") for root in ROOTS)
    assert shop.digests(roots) == before


NAMED = {
    # what names shop.tools:weigh by a text
    "constant": 'HOW = "shop.tools:weigh"\n\n\ndef use():\n    return HOW\n',
    "table": 'HOW = {"it": ("shop.tools:weigh", 1)}\n\n\ndef use():\n    return HOW\n',
    "default": 'def use(how="shop.tools:weigh"):\n    return how\n',
    "argument": 'def use():\n    return print("shop.tools:weigh")\n',
}


@pytest.mark.parametrize("case", NAMED)
def test_a_text_that_names_a_definition_stands_for_its_content(shop: Shop, case: str) -> None:
    shop.write("user.py", NAMED[case])
    before = shop.digests(("user:use",))
    with unchanging(shop.folder):
        assert "shop.tools:grams" in reach("user:use")
    shop.edit("shop/tools.py", "/ 1000", "/ 1024")
    assert shop.digests(("user:use",)) != before
    shop.edit("shop/tools.py", "/ 1024", "/ 1000")
    assert shop.digests(("user:use",)) == before
    (shop.folder / "shop/deep").mkdir()
    shutil.move(shop.folder / "shop/tools.py", shop.folder / "shop/deep/scales.py")
    shop.edit("shop/counter.py", "from shop.tools import", "from shop.deep.scales import")
    shop.edit("user.py", "shop.tools:weigh", "shop.deep.scales:weigh")
    assert shop.digests(("user:use",)) == before
    shop.edit("shop/deep/scales.py", "weigh", "weigh_it")
    shop.edit("shop/counter.py", "weigh", "weigh_it")
    shop.edit("user.py", ":weigh", ":weigh_it")
    assert shop.digests(("user:use",)) == before


def test_a_text_is_told_apart_from_what_it_names(shop: Shop) -> None:
    shop.write("user.py", "from shop.tools import weigh\n\n\ndef use():\n    return weigh\n")
    before = shop.digests(("user:use",))
    shop.edit("user.py", "return weigh", 'return "shop.tools:weigh"')
    assert shop.digests(("user:use",)) != before


@pytest.mark.parametrize("text", ["shop.tools:nothing", "no.such:thing", "figure:one", "os:sep"])
def test_a_text_that_names_nothing_is_a_constant(shop: Shop, text: str) -> None:
    shop.write("user.py", f"def use():\n    return {text!r}\n")
    before = shop.digests(("user:use",))
    with unchanging(shop.folder):
        assert set(reach("user:use")) == {"user:use"}
    shop.edit("shop/tools.py", "/ 1000", "/ 1024")
    assert shop.digests(("user:use",)) == before
    shop.edit("user.py", text, f"{text}s")
    assert shop.digests(("user:use",)) != before


def test_a_name_that_is_passed_on_leads_to_what_it_names(shop: Shop) -> None:
    shop.write("user/__init__.py", "from shop import sell\n\n\ndef use():\n    return sell(1)\n")
    (before,) = shop.digests(("user:use",))
    shop.edit("shop/tools.py", "1000", "1001")
    assert shop.digests(("user:use",)) != [before]


SELL, GIVE, WEIGH, EVEN = range(4)


@pytest.mark.parametrize(
    ("file", "old", "new", "stale"),
    [
        ("counter", "EPSILON = 1e-5", "EPSILON = 1e-6", {SELL}),
        ("counter", "pear=2", "pear=3", {SELL}),
        ("counter", "more=1.0", "more=2.0", {SELL}),
        ("counter", "factor = 2", "factor = 3", {SELL}),
        ("counter", "self.price(x) +", "self.price(x) -", {SELL}),
        ("counter", "class Till(Base)", "class Till(Base, dict)", {SELL}),
        ("counter", "return n == 0 or odd", "return n <= 0 or odd", {EVEN}),
        ("counter", "return n != 0 and even", "return n > 0 and even", {EVEN}),
        ("tools", "/ 1000", "/ 1024", {SELL, WEIGH}),
        ("tools", "np.float64(2)", "np.float64(3)", {SELL, WEIGH}),
        ("tools", "np.sum", "np.max", {SELL, WEIGH}),
        ("prices", "TABLE = {}", "TABLE = dict(apple=1)", {SELL, GIVE}),
        ("prices", "@register\n", "", {SELL, GIVE}),
        ("registry", "KNOWN.append(function)", "KNOWN.insert(0, function)", {SELL, GIVE}),
        ("prices", "TABLE = {}", "TABLE = {}\nprint('here')", {SELL, GIVE}),
        ("tools", "def beside(x):\n    return x", "def beside(x):\n    return 2 * x", set()),
    ],
)
def test_a_change_is_seen_by_exactly_those_that_reach_it(
    shop: Shop, file: str, old: str, new: str, stale: set[int]
) -> None:
    before = shop.digests()
    shop.edit(f"shop/{file}.py", old, new)
    after = shop.digests()
    assert {i for i in range(4) if before[i] != after[i]} == stale


BY_INSTANCE = """
    class Scales:
        factor: int = 2

        def weigh(self, x):
            return x * self.factor

        @property
        def halved(self):
            return self.factor / 2
    """
CASES = {
    # what is reached in a roundabout way: files, and an edit that the digest of m.a:use must show
    "method of an instance": (
        {
            "m/a.py": "from m.b import make\n\n\ndef use(x):\n    return make().weigh(x)\n",
            "m/b.py": "from m.c import Scales\n\n\ndef make():\n    return Scales()\n",
            "m/c.py": BY_INSTANCE,
        },
        ("m/c.py", "x * self", "x + self"),
    ),
    "class attribute": (
        {
            "m/a.py": "from m.c import Scales\n\n\ndef use(x):\n    return Scales().weigh(x)\n",
            "m/c.py": BY_INSTANCE,
        },
        ("m/c.py", "int = 2", "int = 3"),
    ),
    "property": (
        {
            "m/a.py": "from m.c import Scales\n\n\ndef use(x):\n    return Scales().halved\n",
            "m/c.py": BY_INSTANCE,
        },
        ("m/c.py", "/ 2", "/ 4"),
    ),
    "table of functions": (
        {
            "m/a.py": "from m.b import TABLE\n\n\ndef use(x, kind='up'):\n    return TABLE[kind](x)\n",
            "m/b.py": "from m.c import up, down\n\nTABLE = {'up': up, 'down': down}\n",
            "m/c.py": "def up(x):\n    return x + 1\n\n\ndef down(x):\n    return x - 1\n",
        },
        ("m/c.py", "x - 1", "x - 2"),
    ),
    "a name asked for by a text": (
        {
            "m/a.py": "from m.b import B\n\n\ndef use(x):\n    return getattr(B(), 'go')(x)\n",
            "m/b.py": "class B:\n    def go(self, x):\n        return x + 1\n",
        },
        ("m/b.py", "x + 1", "x + 2"),
    ),
    "a name put together": (
        {
            "m/a.py": "from m.b import B\n\n\ndef use(x, k):\n    return B().run(x, k)\n",
            "m/b.py": """
                class B:
                    def run(self, x, kind):
                        name = f"_{kind}_way"
                        return getattr(self, name)(x)

                    def _long_way(self, x):
                        return x + 1
                """,
        },
        ("m/b.py", "x + 1", "x + 2"),
    ),
    "a method above the one that calls it": (
        {
            "m/a.py": "from m.b import B\n\n\ndef use(x):\n    return B().run(x)\n",
            "m/b.py": """
                class B:
                    def near(self, x):
                        return x + 1

                    def run(self, x):
                        return self.near(x)
                """,
        },
        ("m/b.py", "x + 1", "x + 2"),
    ),
    "an import on a condition": (
        {
            "m/a.py": """
                import sys

                if sys.platform == "linux":
                    from m.fast import go
                else:
                    from m.slow import go


                def use(x):
                    return go(x)
                """,
            "m/fast.py": "def go(x):\n    return x + 1\n",
            "m/slow.py": "def go(x):\n    return x + 1.0\n",
        },
        ("m/fast.py", "x + 1", "x + 2"),
    ),
    "an import on a condition, within": (
        {
            "m/a.py": """
                def use(x):
                    if x:
                        from m.fast import go
                    else:
                        from m.slow import go
                    return go(x)
                """,
            "m/fast.py": "def go(x):\n    return x + 1\n",
            "m/slow.py": "def go(x):\n    return x + 1.0\n",
        },
        ("m/fast.py", "x + 1", "x + 2"),
    ),
    "an import that may fail": (
        {
            "m/a.py": """
                try:
                    from m.fast import go
                except ImportError:
                    def go(x):
                        return x


                def use(x):
                    return go(x)
                """,
            "m/fast.py": "def go(x):\n    return x + 1\n",
        },
        ("m/fast.py", "x + 1", "x + 2"),
    ),
    "everything imported": (
        {
            "m/a.py": "from m.b import *\n\n\ndef use(x):\n    return go(x)\n",
            "m/b.py": "from m.c import *\n",
            "m/c.py": "def go(x):\n    return x + 1\n",
        },
        ("m/c.py", "x + 1", "x + 2"),
    ),
    "a name made at run time": (
        {
            "m/a.py": "from m import b\n\n\ndef use(x):\n    return b.old(x)\n",
            "m/b.py": "from m import c\n\n\ndef __getattr__(name):\n    return getattr(c, 'new')\n",
            "m/c.py": "def new(x):\n    return x + 1\n",
        },
        ("m/c.py", "x + 1", "x + 2"),
    ),
    "what an error carries": (
        {
            "m/a.py": """
                class Found(Exception):
                    pass


                def use(x):
                    try:
                        raise Found(x + 1)
                    except Found as found:
                        return found.args
                """,
        },
        ("m/a.py", "x + 1", "x + 2"),
    ),
    "a lambda": (
        {
            "m/a.py": "from m.b import go\n\n\ndef use(x):\n    return go(x)\n",
            "m/b.py": "go = lambda x, by=1: x + by\n",
        },
        ("m/b.py", "by=1", "by=2"),
    ),
    "a default of a field with a constant": (
        {
            "m/a.py": "from m.b import B\n\n\ndef use():\n    return B().size\n",
            "m/b.py": """
                from dataclasses import dataclass


                @dataclass(frozen=True)
                class B:
                    size: int = 1
                """,
        },
        ("m/b.py", "= 1", "= 2"),
    ),
    "a field that is passed": (
        {
            "m/a.py": "from m.b import B\n\n\ndef use():\n    return vars(B(size=3))\n",
            "m/b.py": """
                from dataclasses import dataclass


                @dataclass(frozen=True)
                class B:
                    size: int = 1
                    other: int = 1
                """,
        },
        ("m/b.py", "size: int = 1", "size: float = 1.0"),
    ),
    "the order of fields that are read": (
        {
            "m/a.py": "from m.b import B\n\n\ndef use(x, y):\n    b = B(x, y)\n    return b.p + 2 * b.q\n",
            "m/b.py": """
                from dataclasses import dataclass


                @dataclass
                class B:
                    p: int = 1
                    q: int = 1
                """,
        },
        ("m/b.py", "p: int = 1\n    q", "q: int = 1\n    p"),
    ),
    "a default of a field": (
        {
            "m/a.py": "from m.b import B\n\n\ndef use():\n    return B().sizes\n",
            "m/b.py": """
                from dataclasses import dataclass, field


                @dataclass
                class B:
                    sizes: list = field(default_factory=lambda: [1])
                """,
        },
        ("m/b.py", "[1]", "[2]"),
    ),
    "a method of a base": (
        {
            "m/a.py": "from m.b import B\n\n\ndef use(x):\n    return B().go(x)\n",
            "m/b.py": "from m.c import C\n\n\nclass B(C):\n    pass\n",
            "m/c.py": "class C:\n    def go(self, x):\n        return x + 1\n",
        },
        ("m/c.py", "x + 1", "x + 2"),
    ),
    "a statement of the module": (
        {
            "m/a.py": "import m.b\n\n\ndef use(x):\n    return m.b.B().go(x)\n",
            "m/b.py": """
                class B:
                    def go(self, x):
                        return x


                B.go = lambda self, x: x + 1
                """,
        },
        ("m/b.py", "x + 1", "x + 2"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_reached_in_a_roundabout_way_counts(case: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    files, (file, old, new) = CASES[case]
    shop.write("m/__init__.py", "")
    for name, text in files.items():
        shop.write(name, textwrap.dedent(text))
    before = shop.digests(("m.a:use",))
    shop.edit(file, old, new)
    assert shop.digests(("m.a:use",)) != before
    shop.edit(file, new, old)
    assert shop.digests(("m.a:use",)) == before


def test_an_error_in_words_may_be_said_otherwise(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    text = "class BadError(Exception):\n    pass\n\n\ndef use(x):\n    raise BadError(f'got {x}')\n"
    shop.write("m/a.py", text)
    before = shop.digests(("m.a:use",))
    shop.edit("m/a.py", "f'got {x}'", "f'expected less, ' f'got {x}'")
    assert shop.digests(("m.a:use",)) == before


def test_versions_are_those_of_the_packages_that_are_reached() -> None:
    import platform

    import numpy

    loop = "measured_transformer.training.loop:train"
    train = versions(loop)
    assert train["torch"] == torch.__version__.partition("+")[0]
    assert train["numpy"] == numpy.__version__
    assert not {"python", "scipy", "tokenizers"} & set(train)
    text = versions(loop, "measured_transformer.tasks.text:TextLM")
    assert text["python"] == platform.python_version()
    assert "tokenizers" in text
    assert versions("measured_book.evidence.seeds:seed_offset") == {}


def test_a_value_that_stands_on_a_text_of_python_is_of_that_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = "measured_transformer.training.loop:train"
    text, reversal = (
        "measured_transformer.tasks.text:TextLM",
        "measured_transformer.tasks.reversal:Reversal",
    )

    def all_of_them() -> list[str]:
        return [
            digest(loop, text, settings={"seed": 0}),
            digest(loop, reversal, settings={"seed": 0}),
            digest(loop, text),
        ]

    before = all_of_them()
    monkeypatch.setattr(digests_module.platform, "python_version", lambda: "3.11.99")
    after = all_of_them()
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True, True]
    monkeypatch.setattr(digests_module, "_version", lambda package: "0.0.1")
    assert digest(loop, text, settings={"seed": 0}) != after[0]  # tokenizers cut the text


def test_no_module_of_the_library_changes_another_while_it_is_imported() -> None:
    """What the digest takes for granted; the library's first lines, which look at versions, apart."""
    found = []
    files = [*LIBRARY.glob("measured_transformer/**/*.py"), *LIBRARY.glob("measured_book/**/*.py")]
    for path in sorted(files):
        name = ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__")
        source = source_of(name)
        if source is not None and source.loose is not None:
            found.append(name)
    assert found == ["measured_transformer"]


def test_a_local_name_hides_that_of_the_module(shop: Shop) -> None:
    shop.edit(
        "shop/counter.py", "def give(x):\n", "def give(x):\n    EPSILON = 3\n    x = EPSILON or x\n"
    )
    before = shop.digests()
    shop.edit("shop/counter.py", "EPSILON = 1e-5", "EPSILON = 1e-6")
    after = shop.digests()
    assert after[GIVE] == before[GIVE]
    assert after[SELL] != before[SELL]


def test_reach_names_what_changed(shop: Shop) -> None:
    with unchanging(shop.folder):
        before = reach("shop.counter:sell")
    assert "shop.tools:grams" in before
    assert "shop.tools:beside" not in before
    shop.edit("shop/tools.py", "np.sum", "np.max")
    with unchanging(shop.folder):
        after = reach("shop.counter:sell")
    assert {name for name in before if before[name] != after[name]} == {"shop.tools:grams"}


def test_settings_and_data_count(tmp_path: Path) -> None:
    file = tmp_path / "data.txt"
    file.write_text("a")
    root = "measured_transformer.parts.norms:RMSNorm"
    first = digest(root, settings={"width": 8}, data=[file])
    assert digest(root, settings={"width": 8}, data=[file]) == first
    assert digest(root, settings={"width": 9}, data=[file]) != first
    file.write_text("b")
    assert digest(root, settings={"width": 8}, data=[file]) != first


def test_code_that_cannot_be_read_has_no_digest() -> None:
    for thing in (lambda: 1, functools.partial(lambda: 1), "no.such:thing"):
        with pytest.raises(CodeUnknownError):
            digest(thing)


def test_cells_count_without_their_import_lines(shop: Shop) -> None:
    def of(*cells: str) -> str:
        with unchanging(shop.folder):
            return digest_source(cells)

    first = of("from shop.counter import sell", "# why\nprice = sell(3)", "%matplotlib inline")
    assert of("from shop import sell as it", "price = it(3)  # said", "%matplotlib inline") == first
    assert of("from shop import sell", "price = sell(4)", "%matplotlib inline") != first
    assert of("from shop import sell", "price = sell(3)", "%matplotlib agg") != first
    shop.edit("shop/tools.py", "np.sum", "np.max")
    assert of("from shop.counter import sell", "price = sell(3)", "%matplotlib inline") != first


# The library itself -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__", "results", "provenance")
    for name in ("measured_transformer", "measured_book"):
        shutil.copytree(LIBRARY / name, folder / name, ignore=ignored)
    return folder


TRAIN = "measured_transformer.training.loop:train"
COPY = "measured_transformer.tasks.copying:Copying"


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("measured_transformer/parts/norms.py", "eps: float = 1e-5", "eps: float = 1e-6", True),
        ("measured_transformer/parts/masks.py", "def causal_mask(", "def causal_mask_(", None),
        (
            "measured_transformer/training/losses.py",
            "label_smoothing: float = 0.0",
            "label_smoothing: float = 0.1",
            True,
        ),
        (
            "measured_transformer/training/seeding.py",
            "(start + seed) % 2**32",
            "(start + seed + 1) % 2**32",
            True,
        ),
        ("measured_transformer/analysis/lens.py", "import torch", "import torch\n\nNEW = 1", False),
        ("measured_book/evidence/rules.py", "1e-9", "1e-8", False),
    ],
)
def test_a_mutation_of_the_library_is_seen_by_what_trains(
    library: Path, file: str, old: str, new: str, changes: bool | None
) -> None:
    path = library / file
    text = path.read_text()
    assert old in text

    def digests() -> list[str]:
        with unchanging(library):
            return [digest(TRAIN), digest(COPY)]

    before = digests()
    path.write_text(text.replace(old, new) if changes is not None else f"# a comment\n{text}")
    try:
        after = digests()
    finally:
        path.write_text(text)
    assert (after[0] != before[0]) is bool(changes)
    assert after[1] == before[1]


STACKED = "measured_transformer.training.stacked:train_stacked"


def test_the_module_that_trains_may_move_though_texts_name_it(
    library: Path, tmp_path: Path
) -> None:
    """Its name is a text in what asks for runs, and in what chooses learning rates."""
    moved = tmp_path / "measured_transformer"
    shutil.copytree(library / "measured_transformer", moved)
    shutil.move(moved / "training/loop.py", moved / "training/steps.py")
    for path in moved.rglob("*.py"):
        text = path.read_text()
        path.write_text(
            text.replace(
                "measured_transformer.training.loop", "measured_transformer.training.steps"
            )
        )
    tuning = "measured_transformer.training.tuning:_CODE"
    with unchanging(library):
        before = [digest(STACKED), digest(tuning)]
        reached = reach(STACKED)
    assert {TRAIN, "measured_transformer.training.jobs:_TRAINS"} <= set(reached)
    with unchanging(tmp_path):
        assert [digest(STACKED), digest(tuning)] == before
        assert TRAIN not in reach(STACKED)


NEW_FIELDS = {
    "at the end": (
        "    dropout: float = 0.0\n",
        "    dropout: float = 0.0\n    halved: bool = False\n",
    ),
    "in the middle": (
        "    norm_eps: float = 1e-5\n",
        "    halved: bool = False\n    norm_eps: float = 1e-5\n",
    ),
}


@pytest.mark.parametrize(("old", "new"), NEW_FIELDS.values(), ids=NEW_FIELDS)
def test_a_field_that_nobody_asks_for_changes_no_digest(tmp_path: Path, old: str, new: str) -> None:
    """The library may grow: a field of `Config` with a default leaves everything that trains as it is."""
    shutil.copytree(LIBRARY / "measured_transformer", tmp_path / "measured_transformer")
    roots = (
        "measured_transformer.training.loop:train",
        "measured_transformer.models.config:Config",
    )
    with unchanging(tmp_path):
        before = [digest(root) for root in roots]
    path = tmp_path / "measured_transformer" / "models" / "config.py"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with unchanging(tmp_path):
        assert [digest(root) for root in roots] == before
    path.write_text(text.replace("norm_eps: float = 1e-5", "norm_eps: float = 1e-6"))
    with unchanging(tmp_path):
        assert digest(roots[1]) != before[1]  # which somebody asks for


def test_a_field_with_its_default_is_left_out_of_the_words() -> None:
    @dataclass
    class Small:
        size: int
        more: float = 1.0
        parts: list = field(default_factory=list)

    assert plain(Small(1)) == plain(Small(1, 1.0, [])) == {"type": Small.__qualname__, "size": 1}
    assert plain(Small(1, 2.0)) == {"type": Small.__qualname__, "size": 1, "more": 2.0}
    assert plain(Small(1, 1)) != plain(Small(1))  # another type, which may count
    assert plain(Small(1, parts=[3]))["parts"] == [3]


def test_settings_are_told_in_words_without_places() -> None:
    from measured_transformer.models.config import Config
    from measured_transformer.training.schedules import Constant

    told = plain({"config": Config(vocab=4), "schedule": Constant(warmup=3), "made": Config})
    assert told["config"]["type"] == "Config"
    assert told["schedule"] == {"type": "Constant", "warmup": 3}
    assert told["made"] == "Config"
    with pytest.raises(ValueError, match="can be written down"):
        plain(object())
