"""Molecules as graphs: read from SMILES, joined by a reaction, and written in an order of one's own.

SMILES writes a molecule as a walk over its atoms: branches stand in parentheses, and two atoms with the same
digit close a ring. One molecule has many such strings. Of the language no more is read here than the book's
reactions need: no charges, no stereochemistry, no brackets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
)
"""What a piece of a SMILES string is, as Schwaller et al. (2019) cut it."""
_ORDERS = {"-": 1, "=": 2, "#": 3}
_AROMATIC = 0  # the order of a bond in an aromatic ring, which no symbol names


@dataclass
class Molecule:
    """Atoms and bonds.

    Attributes:
        atoms: their symbols; small letters in aromatic rings.
        bonds: for each atom its neighbours, each with the order of the bond: 1 to 3, and 0 in aromatic rings.
    """

    atoms: list[str] = field(default_factory=list)
    bonds: list[dict[int, int]] = field(default_factory=list)

    def bind(self, one: int, other: int, order: int) -> None:
        """Add a bond."""
        self.bonds[one][other] = self.bonds[other][one] = order


def is_atom(token: str) -> bool:
    """Whether a piece of a SMILES string is an atom.

    >>> [token for token in TOKEN.findall("CC(=O)Oc1ccccc1") if not is_atom(token)]
    ['(', '=', ')', '1', '1']
    """
    return token[0].isalpha()


def element(atom: str) -> str:
    """The element of an atom, in or out of an aromatic ring."""
    return atom.capitalize()


def read(smiles: str) -> Molecule:
    """The molecule that a string writes; its atoms are in the string's order.

    Raises:
        ValueError: when the string holds what is not read here, or a ring or branch stays open.

    >>> read("CC(=O)N").bonds
    [{1: 1}, {0: 1, 2: 2, 3: 1}, {1: 2}, {1: 1}]
    """
    molecule, last, order = Molecule(), -1, None
    branches: list[int] = []
    rings: dict[str, int] = {}
    tokens = TOKEN.findall(smiles)
    if "".join(tokens) != smiles:
        raise ValueError(f"expected a SMILES string, got {smiles!r}")

    def bind(one: int, other: int) -> None:
        both = molecule.atoms[one].islower() and molecule.atoms[other].islower()
        molecule.bind(one, other, order if order is not None else _AROMATIC if both else 1)

    for token in tokens:
        if is_atom(token):
            molecule.atoms.append(token)
            molecule.bonds.append({})
            if last >= 0:
                bind(last, len(molecule.atoms) - 1)
            last, order = len(molecule.atoms) - 1, None
        elif token in _ORDERS:
            order = _ORDERS[token]
        elif token == "(":
            branches.append(last)
        elif token == ")" and branches:
            last = branches.pop()
        elif token.isdigit():
            if token in rings:
                bind(rings.pop(token), last)
                order = None
            else:
                rings[token] = last
        else:
            raise ValueError(
                f"expected atoms, bonds, branches and rings, got {token!r} in {smiles!r}"
            )
    if branches or rings:
        raise ValueError(f"expected all branches and rings closed, got {smiles!r}")
    return molecule


def write(molecule: Molecule, start: int) -> tuple[str, list[int]]:
    """A string for a connected molecule, and its atoms in the string's order.

    At each atom the smallest branch is written first, as programs of chemistry do.

    Args:
        molecule: is left as it is.
        start: the atom to begin with.

    >>> write(read("CC(=O)N"), 3)
    ('NC(C)=O', [3, 1, 0, 2])
    """
    order: list[int] = []
    children: dict[int, list[int]] = {}
    closures: list[tuple[int, int]] = []
    _walk(molecule, start, -1, order, children, closures)
    place = {atom: i for i, atom in enumerate(order)}
    closures = [tuple(sorted(pair, key=place.__getitem__)) for pair in closures]  # type: ignore[misc]
    digits: dict[tuple[int, int], int] = {}

    def text(atom: int, before: int) -> str:
        found = "" if before < 0 else _bond(molecule, before, atom)
        found += molecule.atoms[atom]
        for pair in closures:
            if pair[1] == atom:
                found += _bond(molecule, *pair) + str(digits.pop(pair))
        for pair in closures:
            if pair[0] == atom:
                digits[pair] = min(set(range(1, 10)) - set(digits.values()))
                found += str(digits[pair])
        *branches, main = children[atom] or [-1]
        found += "".join(f"({text(child, atom)})" for child in branches)
        return found if main < 0 else found + text(main, atom)

    return text(start, -1), order


def _walk(
    molecule: Molecule,
    atom: int,
    before: int,
    order: list[int],
    children: dict[int, list[int]],
    closures: list[tuple[int, int]],
) -> None:
    """Visit what hangs on an atom, depth first, and note the bonds that close rings."""
    order.append(atom)
    children[atom] = []
    near = [other for other in molecule.bonds[atom] if other != before]
    for other in sorted(near, key=lambda one: (_reach(molecule, one, order), one)):
        if other not in children:
            children[atom].append(other)
            _walk(molecule, other, atom, order, children, closures)
        elif (other, atom) not in closures:
            closures.append((atom, other))


def _reach(molecule: Molecule, atom: int, without: Collection[int]) -> int:
    """The number of atoms that are reached from one without some."""
    seen, left = set(without), [atom]
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += molecule.bonds[one]
    return len(seen) - len(set(without))


def _bond(molecule: Molecule, one: int, other: int) -> str:
    order = molecule.bonds[one][other]
    if order == 1:  # between two aromatic rings a single bond has to be said
        return "-" if molecule.atoms[one].islower() and molecule.atoms[other].islower() else ""
    return {_AROMATIC: "", 2: "=", 3: "#"}[order]


def join(
    one: Molecule,
    other: Molecule,
    bond: tuple[int, int],
    leaving: tuple[Sequence[int], Sequence[int]],
) -> tuple[Molecule, list[tuple[int, int]]]:
    """The molecule that two make when a bond is formed and some atoms leave.

    Args:
        one, other: the two.
        bond: the atom of each that the new bond holds.
        leaving: the atoms of each that are not in the product.

    Returns:
        the product, and for each of its atoms which of the two it was in (0 or 1), and which atom it was there.

    >>> acid, amine = read("CC(=O)O"), read("NC")
    >>> product, origins = join(acid, amine, (1, 0), ((3,), ()))
    >>> write(product, 0)[0], origins
    ('CC(=O)NC', [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])
    """
    origins = [
        (which, atom)
        for which, molecule in enumerate((one, other))
        for atom in range(len(molecule.atoms))
        if atom not in leaving[which]
    ]
    number = {origin: i for i, origin in enumerate(origins)}
    both = (one, other)
    product = Molecule([both[w].atoms[a] for w, a in origins], [{} for _ in origins])
    for (which, atom), i in number.items():
        for near, order in both[which].bonds[atom].items():
            if (which, near) in number:
                product.bind(i, number[which, near], order)
    product.bind(number[0, bond[0]], number[1, bond[1]], 1)
    return product, origins


def alike(molecules: Sequence[Molecule]) -> list[list[int]]:
    """A class for each atom of each molecule: atoms that no walk through bonds tells apart share one.

    Colours are refined until as many are left as a step before; the two neighbours of a ring's substituent
    share a class, and so do the methyl groups of a tert-butyl group.

    >>> alike([read("CC(C)C"), read("CCC")])
    [[0, 1, 0, 0], [2, 3, 2]]
    """
    colours: list[list[object]] = [list(one.atoms) for one in molecules]
    while True:
        names: dict[object, int] = {}
        found = [
            [
                names.setdefault(
                    (
                        colours[i][atom],
                        tuple(
                            sorted((order, str(colours[i][near])) for near, order in bonds.items())
                        ),
                    ),
                    len(names),
                )
                for atom, bonds in enumerate(molecule.bonds)
            ]
            for i, molecule in enumerate(molecules)
        ]
        if len(names) == len({colour for one in colours for colour in one}):
            return found
        colours = [list(one) for one in found]
