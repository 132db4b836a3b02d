"""Corpora: fetched once from a server on this machine, checked, kept; and clear errors when that fails."""

import gzip
import hashlib
import http.server
import subprocess
import sys
import threading

import pytest
import torch
from measured_transformer.tasks import corpora, sentences, text
from measured_transformer.tasks.corpora import corpus_file, data_folder, multi30k, python_reference
from measured_transformer.tasks.sentences import SentenceTranslation
from measured_transformer.tasks.task import held_out
from measured_transformer.tasks.text import TextLM, byte_tokenizer, part_text, word_tokenizer

PLAY = "".join(f"Speaker {i % 7}:\nLine {i} is 'spoken', aye.\n\n" for i in range(400))
PLAY += "Nobody:\nNo more.\n"


def captions(part, language):
    noun, verb = {"en": ("dog", "runs"), "de": ("Hund", "läuft")}[language]
    first = {"train": 0, "val": 4, "test_2016_flickr": 100}[part]
    return "".join(f"A {noun} {i} {verb}.\n" for i in range(first, first + 6))


FAKES = {"tinyshakespeare.txt": PLAY.encode()} | {
    f"multi30k-{part}.{language}.gz": gzip.compress(captions(part, language).encode(), mtime=0)
    for part in ("train", "val", "test_2016_flickr")
    for language in ("en", "de")
}


def forget():
    for module in (sentences, text):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@pytest.fixture(autouse=True)
def fresh():
    forget()
    yield
    forget()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MEASURED_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def server(monkeypatch, folder):
    """Serve small files under the names of the real ones and note which are asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path[1:])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(FAKES[self.path[1:]])

        def log_message(self, *args):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{running.server_port}/"
    fakes = {name: (here + name, hashlib.sha256(b).hexdigest()) for name, b in FAKES.items()}
    assert fakes.keys() == corpora.FILES.keys()
    monkeypatch.setattr(corpora, "FILES", fakes)
    yield asked
    running.shutdown()
    running.server_close()


@pytest.fixture
def nowhere(monkeypatch, folder):
    """Name a port of this machine at which nobody listens."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as gone:
        port = gone.server_port
    files = {
        name: (f"http://127.0.0.1:{port}/{name}", sha) for name, (_, sha) in corpora.FILES.items()
    }
    monkeypatch.setattr(corpora, "FILES", files)


# --- fetching -------------------------------------------------------------------------------------


def test_a_file_is_fetched_once_and_kept(server, folder):
    path = corpus_file("tinyshakespeare.txt")
    assert path == folder / "tinyshakespeare.txt"
    assert path.read_bytes() == FAKES["tinyshakespeare.txt"]
    assert corpora.shakespeare() == PLAY
    assert corpus_file("tinyshakespeare.txt") == path
    assert server == ["tinyshakespeare.txt"]


def test_a_file_that_already_lies_there_is_not_fetched(server, folder):
    folder.mkdir()
    name = "multi30k-train.en.gz"
    (folder / name).write_bytes(FAKES[name])
    folder.chmod(0o500)  # it may be a folder that nobody can write to
    assert multi30k("train", "en")[0] == "A dog 0 runs."
    folder.chmod(0o700)
    assert server == []


def test_another_file_under_the_name_is_refused_and_left_alone(server, folder):
    folder.mkdir()
    other = folder / "tinyshakespeare.txt"
    other.write_text("something else")
    with pytest.raises(ValueError, match=r"expected SHA-256 \w{64}, got \w{64}; remove it"):
        corpora.shakespeare()
    assert other.read_text() == "something else"
    assert server == []


def test_which_files_are_missing_is_told_without_fetching(server, folder):
    names = ["multi30k-train.en.gz", "multi30k-train.de.gz"]
    assert corpora.missing_files(names) == names
    folder.mkdir()
    (folder / names[0]).touch()
    assert corpora.missing_files(names) == names[1:]
    assert server == []


def test_all_files_are_fetched_by_one_command(server, folder, monkeypatch, capsys):
    assert corpora._main() == 0
    assert capsys.readouterr().out.split() == [str(folder / name) for name in corpora.FILES]
    assert corpora.missing_files(corpora.FILES) == []
    (folder / "multi30k-val.en.gz").write_bytes(b"something else")
    assert corpora._main() == 1
    assert "multi30k-val.en.gz is not the file" in capsys.readouterr().err


def test_a_file_that_arrives_damaged_is_not_kept(server, folder, monkeypatch):
    monkeypatch.setitem(FAKES, "tinyshakespeare.txt", b"cut off")
    with pytest.raises(ValueError, match="SHA256"):
        corpus_file("tinyshakespeare.txt")
    assert not (folder / "tinyshakespeare.txt").exists()


def test_without_network_the_error_says_both_ways_out(nowhere, folder):
    with pytest.raises(ConnectionError, match="connect to the network") as error:
        corpora.shakespeare()
    for said in ("tinyshakespeare.txt", str(folder), "MEASURED_DATA_DIR", "86c4e6aa"):
        assert said in str(error.value)


def test_without_pooch_the_error_says_what_to_install(nowhere, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pooch, or set MEASURED_DATA_DIR"):
        corpus_file("tinyshakespeare.txt")


def test_without_a_named_folder_the_users_cache_is_used(monkeypatch):
    monkeypatch.delenv("MEASURED_DATA_DIR", raising=False)
    assert data_folder().name == "measured-transformer"
    monkeypatch.setenv("MEASURED_DATA_DIR", "~/somewhere")
    assert data_folder().name == "somewhere"
    assert "~" not in str(data_folder())


def test_importing_the_tasks_fetches_and_loads_nothing():
    code = (
        "import sys, measured_transformer.tasks.sentences, measured_transformer.tasks.text, "
        "measured_transformer.tasks.numbers\n"
        "print([n for n in ('pooch', 'tokenizers', 'num2words', 'pydoc_data') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_file_has_an_address_and_a_checksum():
    assert len(corpora.FILES) == 7
    for url, sha256 in corpora.FILES.values():
        assert url.startswith("https://")
        assert len(bytes.fromhex(sha256)) == 32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corpus_file("war-and-peace.txt"), "expected one of tinyshakespeare.txt"),
        (lambda: multi30k("dev", "en"), "train, validation, test in en or de, got 'dev'"),
        (lambda: multi30k("train", "fr"), "got 'train' in 'fr'"),
        (lambda: SentenceTranslation("en", "en"), "en and de, got 'en' and 'en'"),
        (lambda: SentenceTranslation(most_words=0), "most_words .* got 0"),
        (lambda: TextLM(corpus="bible"), "one of python, shakespeare, got 'bible'"),
        (lambda: TextLM(level="letter"), "one of byte, word, got 'letter'"),
        (lambda: TextLM(part="all"), "one of train, validation, test, got 'all'"),
        (lambda: TextLM(vocab=100), "at least 256, got 100"),
        (lambda: TextLM().batch(torch.Generator(), 2, length=10**6), "too few .* length=1000000"),
        (lambda: TextLM().batch(torch.Generator(), 0), "size .* got 0"),
    ],
)
def test_what_does_not_exist_is_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- sentences ------------------------------------------------------------------------------------


def test_sentences_are_pairs_of_captions(server):
    task = SentenceTranslation("en", "de", most_tokens=6)
    assert len(task.pairs()) == 6
    batch = task.batch(torch.Generator().manual_seed(0), 50)
    for i in range(50):
        source, target = task.text(batch.source[i]), task.text(batch.targets[i])
        assert source.startswith("a dog ")
        assert target == source.replace("dog", "hund").replace("runs", "läuft")
    assert batch.source.shape == batch.inputs.shape == (50, 7)
    assert SentenceTranslation("en", "de", most_tokens=3).pairs() == ()


def test_rare_words_and_words_of_the_test_are_unknown(server):
    task = SentenceTranslation("en", "de", most_words=4)
    assert set(task.words()) == {".", "a", "dog", "runs", "hund", "läuft"}
    batch = task.batch(torch.Generator().manual_seed(0), 5)
    assert (batch.source[:, 2] == task.unknown).all()
    test = held_out(SentenceTranslation("en", "de", most_tokens=6), "test")
    row = test.batch(torch.Generator().manual_seed(0), 1).source[0]
    assert test.text(row) == "a dog <unknown> runs ."


def test_held_out_sentences_are_none_of_training(server):
    task = SentenceTranslation("en", "de")
    train = {source for source, _ in task.pairs()}
    validation = held_out(task).pairs()
    assert [source[2] for source, _ in validation] == ["6", "7", "8", "9"], (
        "4 and 5 were in training"
    )
    assert not train & {source for source, _ in validation}


# --- text -----------------------------------------------------------------------------------------


def test_the_reference_is_long_and_says_nothing_twice():
    text_ = python_reference()
    assert text_ == python_reference()
    assert len(text_) > 200_000
    assert "assert_stmt" in text_
    paragraphs = [paragraph.strip() for paragraph in text_.split("\n\n")]
    assert len(set(paragraphs)) == len(paragraphs)


@pytest.mark.parametrize("corpus", ["python", "shakespeare"])
def test_the_parts_make_up_the_text_and_share_no_paragraph(server, corpus):
    whole = python_reference() if corpus == "python" else PLAY
    parts = [part_text(corpus, part) for part in ("train", "validation", "test")]
    assert "".join(parts) == whole
    for part, share in zip(parts, (0.8, 0.1, 0.1), strict=True):
        assert abs(len(part) / len(whole) - share) < 0.02
    seen = [{p.strip() for p in part.split("\n\n")} - {""} for part in parts]
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]


def test_bytes_are_the_bytes():
    made = byte_tokenizer("some text to learn from, some text")
    for line in ("plain", "  spaces\n\tand\n\nmore ", "Größe, naïve, 日本 \x00", "unseen ☃"):
        ids = made.encode(line).ids
        assert len(ids) == len(line.encode())
        assert made.decode(ids) == line
    assert made.get_vocab_size() == 256
    more = byte_tokenizer("some text to learn from, some text", 260)
    assert len(more.encode("some text").ids) < len("some text")
    assert more.decode(more.encode("other ☃ text").ids) == "other ☃ text"


def test_words_are_the_most_frequent_ones():
    made = word_tokenizer("b a b c, b a. d", 4)
    assert made.get_vocab_size() == 4
    assert made.get_vocab()["<unk>"] == 0
    assert {"a", "b"} < set(made.get_vocab())
    assert made.encode("b, x").ids[0] == made.get_vocab()["b"]
    assert made.encode("x y").ids == [0, 0]


@pytest.mark.parametrize(
    "task",
    [
        TextLM(length=20),
        TextLM(level="word", vocab=500, length=20),
        TextLM("shakespeare", length=20),
    ],
    ids=repr,
)
def test_a_batch_is_windows_of_the_part(server, task):
    for part in ("train", "validation", "test"):
        here = held_out(task, part)
        whole = " " + " ".join(map(str, here.tokens().tolist())) + " "
        batch = here.batch(torch.Generator().manual_seed(0), 8)
        assert batch.inputs.shape == (8, 20)
        assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
        for row, last in zip(batch.inputs.tolist(), batch.targets[:, -1].tolist(), strict=True):
            assert " " + " ".join(map(str, [*row, last])) + " " in whole
        assert batch.scored.all()
        assert int(here.tokens().max()) < task.vocab
    again = task.batch(torch.Generator().manual_seed(0), 8)
    assert torch.equal(again.inputs, task.batch(torch.Generator().manual_seed(0), 8).inputs)
    assert eval(repr(task)) == task


def test_every_window_can_be_drawn(server):
    task = TextLM("shakespeare", length=1, part="test")
    tokens = task.tokens()
    generator = torch.Generator().manual_seed(0)
    starts = torch.cat([task.batch(generator, 5000, length=len(tokens) - 3).inputs[:, 0]])
    assert set(starts.tolist()) == set(tokens[:3].tolist())


def test_bytes_of_a_part_are_its_text(server):
    task = TextLM("shakespeare", part="validation")
    assert task.text(task.tokens()) == part_text("shakespeare", "validation")


def test_the_tokenizer_learns_from_training_alone(server):
    known = TextLM("shakespeare", "word", vocab=5000).tokenizer().get_vocab()
    assert "Nobody" not in known, "who speaks at the very end only"
    assert "Speaker" in known


def test_a_tokenizer_is_the_same_each_time(server):
    first = TextLM(level="word", vocab=300).tokenizer().to_str()
    forget()
    assert TextLM(level="word", vocab=300).tokenizer().to_str() == first


def test_the_unigram_loss_is_that_of_counting(server):
    for task in (TextLM("shakespeare"), TextLM("shakespeare", "word", vocab=50, part="test")):
        seen = held_out(task, "train").tokens().tolist()
        costs = []
        for token in task.tokens().tolist():
            share = (seen.count(token) + 1) / (len(seen) + task.vocab)
            costs.append(-torch.tensor(share, dtype=torch.float64).log().item())
            if len(costs) == 300:
                break
        counts = torch.bincount(torch.tensor(seen), minlength=task.vocab).double() + 1
        exact = -(counts / counts.sum()).log()[task.tokens()]
        assert exact[:300].tolist() == pytest.approx(costs)
        assert task.unigram_loss() == pytest.approx(exact.mean().item())


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tokenizers"):
        byte_tokenizer("text")


def test_a_python_without_its_topics_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ModuleNotFoundError, match="without pydoc_data"):
        python_reference()
