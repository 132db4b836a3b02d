"""What every task keeps: the same batch from the same seed, wherever; nothing that training could peek at."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer import tasks
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.bit_pairs import BitPairs
from measured_transformer.tasks.bit_table import BitTable
from measured_transformer.tasks.brackets import Brackets
from measured_transformer.tasks.byte_pairs import BytePairs
from measured_transformer.tasks.continuations import Continuations
from measured_transformer.tasks.copying import Copying
from measured_transformer.tasks.counting import Counting
from measured_transformer.tasks.delay import Delay
from measured_transformer.tasks.facts import Facts
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.gap_recall import GapRecall
from measured_transformer.tasks.grammar import Grammar
from measured_transformer.tasks.hidden_markov import HiddenMarkov
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.markov import Markov
from measured_transformer.tasks.masked_chain import MaskedChain
from measured_transformer.tasks.masked_words import MaskedWords
from measured_transformer.tasks.modular import ModularAddition
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.numbers import NumberTranslation
from measured_transformer.tasks.opened_text import OpenedText
from measured_transformer.tasks.order import Duplicates, PlaceMap
from measured_transformer.tasks.overwritten_recall import OverwrittenRecall
from measured_transformer.tasks.people import People
from measured_transformer.tasks.permutations import PermutationProducts
from measured_transformer.tasks.permuted_answers import PermutedAnswers
from measured_transformer.tasks.raffle import Raffle
from measured_transformer.tasks.recall import AssociativeRecall, TwoHopRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.rewriting import (
    CopyED,
    CopyLM,
    ReversalED,
    ReversalLM,
    SortED,
    SortLM,
)
from measured_transformer.tasks.running_parity import RunningParity
from measured_transformer.tasks.seen_lately import SeenLately
from measured_transformer.tasks.shift import CyclicShift
from measured_transformer.tasks.shuffled import ShuffledSentences
from measured_transformer.tasks.skill_tables import SkillTables
from measured_transformer.tasks.sooner_again import SoonerAgain
from measured_transformer.tasks.spaced_recall import SpacedRecall
from measured_transformer.tasks.split import split_items
from measured_transformer.tasks.task import Batch, SourceTask, SplitTask, Task, held_out
from measured_transformer.tasks.text import TextLM
from measured_transformer.tasks.text_file import TextFile
from measured_transformer.tasks.two_hop import JoinedTwoHop
from measured_transformer.tasks.two_places import TwoPlaces
from measured_transformer.tasks.variable_reversal import VariableReversal
from measured_transformer.tasks.word_text import WordText
from measured_transformer.training.loop import evaluate, make_model, train

TASKS = [
    AssociativeRecall(),
    AssociativeRecall(pairs=4, queries=3, keys=6, values=5),
    Brackets(),
    BytePairs(merges=20, length=12),
    Continuations(),
    CopyED(),
    CopyLM(),
    Copying(),
    Counting(),
    CyclicShift(),
    Delay(),
    Duplicates(),
    Facts(count=40, subjects=12, relations=6, objects=8),
    FixedSet(NoisyTranslation(), size=300),
    FixedSet(Reversal(), size=9, part="test"),
    GapRecall(gaps=(1, 3)),
    Grammar(),
    HiddenMarkov(),
    Induction(),
    JoinedRecall(pairs=3, queries=2, between=3),
    JoinedTwoHop(),
    Lag(),
    Markov(),
    MaskedChain(Markov(), side="both"),
    MaskedWords(),
    ShuffledSentences(Grammar()),
    BitPairs(bits=4, length=6),
    BitTable(bits=4, answers=5, length=6, mirrored=True),
    ModularAddition(),
    NoisyTranslation(),
    NumberTranslation(below=100),
    OpenedText(length=12),
    People(people=12, relations=2),
    PermutationProducts(),
    PermutationProducts(objects=4, length=5, moves="all", asked="order"),
    PermutedAnswers(Continuations(vocab=8, string=5, questions=2)),
    OverwrittenRecall(told=5, queries=2),
    Raffle(),
    PlaceMap(),
    Reversal(),
    ReversalED(),
    ReversalLM(),
    RunningParity(length=6),
    SeenLately(),
    SkillTables(skills=3, items=6, answers=4, length=5),
    SoonerAgain(),
    SortED(),
    SortLM(),
    SpacedRecall(pairs=3, queries=2, before=1, between=3, fillers=2),
    TextFile(tasks.__file__, merges=20, length=12),
    TextFile(tasks.__file__, level="character", length=12),
    TextLM(level="word", vocab=500, length=16),
    TwoHopRecall(),
    TwoPlaces(),
    VariableReversal(),
    WordText(vocab=200, length=12),
]
every_task = pytest.mark.parametrize("task", TASKS, ids=repr)


def drawn(task: Task, seed: int = 0, size: int = 5) -> Batch:
    return task.batch(torch.Generator().manual_seed(seed), size)


def tensors(batch: Batch) -> dict[str, torch.Tensor]:
    names = [field.name for field in dataclasses.fields(batch) if field.name != "gold"]
    found = {name: getattr(batch, name) for name in names} | dict(batch.gold)
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def same(a: Batch, b: Batch) -> bool:
    left, right = tensors(a), tensors(b)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


@every_task
def test_the_same_seed_gives_the_same_batch(task: Task) -> None:
    state = torch.random.get_rng_state()
    first = drawn(task)
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator is not touched"
    torch.rand(3)
    assert same(first, drawn(task))
    assert same(first, drawn(copy.deepcopy(task)))
    assert same(first, drawn(pickle.loads(pickle.dumps(task))))
    assert not same(first, drawn(task, seed=1))
    generator = torch.Generator().manual_seed(0)
    task.batch(generator, 5)
    assert not same(first, task.batch(generator, 5)), "a stream moves on"


@every_task
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 9))
def test_shapes_and_tokens_are_those_that_a_model_takes(task: Task, seed: int, size: int) -> None:
    batch = drawn(task, seed, size)
    assert batch.inputs.shape == batch.targets.shape == batch.scored.shape == (size, task.length)
    for tokens in (batch.inputs, batch.targets):
        assert tokens.dtype == torch.int64
        assert 0 <= int(tokens.min()) <= int(tokens.max()) < task.vocab
    assert batch.scored.any(1).all(), "every sequence counts"
    if batch.padding_mask is not None:
        assert batch.padding_mask[batch.scored].all(), "nothing is asked of padding"
    assert isinstance(task, SourceTask) == (batch.source is not None)
    if isinstance(task, SourceTask):
        assert task.causal
        assert batch.source.shape == (size, task.source_length)
        assert 0 <= int(batch.source.min()) <= int(batch.source.max()) < task.vocab
    for tensor in batch.gold.values():
        assert len(tensor) == size
    assert {tensor.device.type for tensor in tensors(batch).values()} == {"cpu"}


@every_task
def test_a_model_that_must_not_see_ahead_is_asked_for_the_next_token(task: Task) -> None:
    """All but the tasks that ask about tokens of the past, or whose answers stand in no sequence."""
    asked_apart = OverwrittenRecall | PermutedAnswers
    others = asked_apart | Delay | SeenLately | PermutationProducts | RunningParity | SkillTables
    if task.causal and not isinstance(task, others):
        batch = drawn(task)
        assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])


@every_task
def test_no_batch_shares_memory_with_another_or_with_itself(task: Task) -> None:
    batch, untouched = drawn(task), drawn(task)
    batch.scored.logical_not_()
    assert torch.equal(batch.inputs, untouched.inputs)
    if batch.padding_mask is not None:
        assert torch.equal(batch.padding_mask, untouched.padding_mask)
    assert same(drawn(task), untouched)


@every_task
def test_the_name_of_a_task_tells_all_of_its_settings(task: Task) -> None:
    scope = {type(each).__name__: type(each) for each in TASKS}
    assert eval(repr(task), scope) == task  # what a record of a run holds
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.part = "test"


@every_task
def test_a_task_says_what_it_is(task: Task) -> None:
    assert isinstance(task, Task)
    assert len(inspect.getdoc(type(task)).splitlines()) > 2


@every_task
def test_floors_are_finite_costs(task: Task) -> None:
    names = [
        name for name in dir(task) if name.endswith(("_loss", "_rate")) and name != "ideal_loss"
    ]
    known = (
        BitTable
        | BytePairs
        | HiddenMarkov
        | FixedSet
        | OpenedText
        | PermutedAnswers
        | Raffle
        | ShuffledSentences
        | SkillTables
    )
    assert names or isinstance(task, known)
    for name in names:
        assert 0 <= getattr(task, name)() <= math.log(task.vocab) + 1e-9, name


@every_task
def test_impossible_batches_are_refused(unhooked, task: Task) -> None:
    for size in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match=r"size must be a positive whole number, got"):
            task.batch(torch.Generator(), size)
    for length in (0, -4):
        with pytest.raises(ValueError, match="got"):
            task.batch(torch.Generator(), 2, length=length)


def test_a_batch_moves_as_a_whole() -> None:
    for task in (NoisyTranslation(), AssociativeRecall(), Reversal()):
        batch = drawn(task)
        moved = batch.to("meta")
        assert tensors(moved).keys() == tensors(batch).keys()
        assert {tensor.device.type for tensor in tensors(moved).values()} == {"meta"}
        assert same(batch.to("cpu"), batch)


# --- items that are divided -----------------------------------------------------------------------


@given(
    count=st.integers(10, 3000),
    train_share=st.floats(0.2, 0.8),
    seed=st.integers(0, 1000),
)
def test_every_item_belongs_to_one_part(count: int, train_share: float, seed: int) -> None:
    parts = [
        split_items(count, part, train_share=train_share, seed=seed).tolist()
        for part in ("train", "validation", "test")
    ]
    assert sorted(itertools.chain(*parts)) == list(range(count))
    assert len(parts[0]) == round(train_share * count)
    assert abs(len(parts[1]) - len(parts[2])) <= 1
    assert all(part == sorted(part) for part in parts)


def test_the_split_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    first = split_items(100, "test")
    torch.manual_seed(2)
    assert torch.equal(first, split_items(100, "test"))
    assert not torch.equal(first, split_items(100, "test", seed=1))
    assert first.tolist() != list(range(90, 100)), "it is a permutation that divides them"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_items(10, "dev"), "one of train, validation, test, got 'dev'"),
        (lambda: split_items(10, "train", train_share=1.0), "10 items .* leave nothing"),
        (lambda: split_items(10, "train", train_share=0.0), "10 items .* leave nothing"),
        (lambda: split_items(2, "train"), "2 items .* leave nothing"),
        (lambda: ModularAddition(part="all"), "got 'all'"),
    ],
)
def test_impossible_splits_are_refused(unhooked, call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_held_out_items_are_those_that_training_never_draws() -> None:
    task = ModularAddition(modulus=11, train_share=0.5)
    assert isinstance(task, SplitTask)

    def asked(task: Task) -> set[tuple[int, ...]]:
        return set(map(tuple, drawn(task, size=4000).inputs[:, :2].tolist()))

    train, validation, test = (asked(t) for t in (task, held_out(task), held_out(task, "test")))
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert len(train | validation | test) == 121
    assert held_out(Reversal()) == Reversal(), "elsewhere it is the generator that keeps them apart"
    assert not isinstance(Reversal(), SplitTask)


def test_every_task_of_the_library_is_checked_here() -> None:
    import importlib
    import pkgutil

    # No data, fetched, or a text that only one release of Python has.
    elsewhere = {"PairTask", "SentenceTranslation", "StandardLibrary", "SubwordTranslation"}
    found = set()
    for module in pkgutil.iter_modules(tasks.__path__):
        loaded = importlib.import_module(f"{tasks.__name__}.{module.name}")
        found |= {
            name
            for name, value in vars(loaded).items()
            if inspect.isclass(value)
            and not name.startswith("_")
            and hasattr(value, "batch")
            and "Protocol" not in {base.__name__ for base in value.__bases__}
        }
    assert found - elsewhere == {type(task).__name__ for task in TASKS}


@every_task
def test_a_model_of_the_right_kind_learns_from_it(task: Task) -> None:
    config = Config(vocab=task.vocab, d_model=16, n_layers=1, n_heads=2)
    run = train(config, task, steps=25, learning_rate=1e-2, seed=0, batch_size=8, evaluate_every=25)
    expected = (
        EncoderDecoder if isinstance(task, SourceTask) else Decoder if task.causal else Encoder
    )
    assert type(run.model) is expected
    assert not run.diverged
    fresh = make_model(config, causal=task.causal, source=isinstance(task, SourceTask), seed=0)
    before, after = (evaluate(model, task, seed=0).loss for model in (fresh, run.model))
    assert after < before - 0.02
    assert run.evaluation_losses[0] == pytest.approx(after, rel=1e-5)
