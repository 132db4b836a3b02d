"""An answer in a process of its own, and the checker's end of the line to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from measured_book.exercises.answers import Answer, Fault
from measured_book.exercises.processes import EndedError, Line, Process
from measured_book.exercises.wire import Function, decode, dumps, encode, loads, pack, unpack


class Elsewhere(Answer):
    """An answer that is kept, and called, in another process; a checker sees no difference.

    Args:
        process: one that runs `serve`.
        name: which of its answers.

    Raises:
        Fault: when the process ends before it has the answer.
    """

    def __init__(self, process: Process, name: str = "") -> None:
        self._process = process
        super().__init__(None)
        self._send(("answer", name))
        kind, tree = self._next()
        if kind != "value":
            raise Fault(str(tree), at_an_input=False)
        self.value = self._decoded(tree, ())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function gives for these arguments; as for any answer."""
        return self._called(None, args, kwargs)[0]

    def watched(self, watcher: Callable[[], Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The same while something watches what the function does, in its own process."""
        return self._called(watcher, args, kwargs)

    def _called(self, watcher: Callable[[], Any] | None, args: Any, kwargs: Any) -> tuple[Any, Any]:
        modules, kept = _modules(args, kwargs), list[Function]()
        self._send(("call", (watcher, args, kwargs)), kept)
        while True:
            kind, tree = self._next()
            if kind == "input":
                self.calls += 1
                self.input = str(tree)
            elif kind == "ask":
                self._send(self._asked(tree, kept), kept)
            elif kind == "fault":
                message, at_an_input = tree
                raise Fault(str(message), at_an_input=bool(at_an_input))
            else:
                found, seen = tree
                return self._decoded(found, modules), self._decoded(seen, ())

    def _asked(self, tree: Any, kept: list[Function]) -> tuple[str, Any]:
        """What one of the arguments, a function, gives when the answer calls it."""
        number, given, named = tree
        args = self._decoded(given, ())
        kwargs = self._decoded(named, ())
        try:
            return "value", kept[number](*args, **kwargs)
        except Fault:
            raise
        except Exception as error:
            return "raised", f"{type(error).__name__}: {error}"

    def _send(self, content: Any, kept: list[Function] | None = None) -> None:
        try:
            self._process.send(pack(content, kept))
        except EndedError as error:
            raise Fault(f"the function {error}") from None

    def _next(self) -> tuple[str, Any]:
        """The kind and content of the next message."""
        try:
            kind, tree = loads(self._process.receive())
        except EndedError as error:
            raise Fault(f"the function {error}") from None
        except (ValueError, TypeError, RecursionError):
            raise Fault("what the function gives back cannot be read") from None
        return str(kind), tree

    def _decoded(self, tree: Any, modules: tuple[nn.Module, ...]) -> Any:
        try:
            return decode(tree, modules)
        except (ValueError, RecursionError):
            raise Fault("what the function gives back cannot be read") from None


def serve(line: Line, given: Callable[[str], Any]) -> None:
    """Say what an answer is, then call it with what comes, until the line is closed.

    Args:
        line: to the checker.
        given: name of an answer -> the answer; what it raises is the end of the process, but for a `Fault`.
    """
    answer = Answer(None)
    while (message := line.receive()) is not None:
        kind, content = unpack(message, lambda *asked: _ask(line, *asked))
        if kind == "call":
            line.send(_reply(line, answer, *content))
            continue
        try:
            answer = Answer(given(content))
            line.send(dumps(["value", encode(answer.value)]))
        except Fault as fault:
            line.send(dumps(["fault", str(fault)]))


def _ask(line: Line, number: int, args: Any, kwargs: Any) -> Any:
    """Call a function that the checker keeps."""
    line.send(dumps(["ask", [number, encode(args), encode(kwargs)]]))
    message = line.receive()
    kind, content = ("raised", "the checker has left") if message is None else unpack(message)
    if kind == "raised":
        raise RuntimeError(content)
    return content


def _reply(
    line: Line, answer: Answer, watcher: Callable[[], Any] | None, args: Any, kwargs: Any
) -> bytes:
    local, seen = _Telling(answer.value, line), None
    try:
        if watcher is None:
            found = local(*args, **kwargs)
        else:
            found, seen = local.watched(watcher, *args, **kwargs)
        return dumps(["result", [encode(found, _modules(args, kwargs)), encode(seen)]])
    except Fault as fault:
        return dumps(["fault", [str(fault), fault.at_an_input]])
    except KeyboardInterrupt:
        return dumps(["fault", ["the function raises KeyboardInterrupt", True]])
    except BaseException as error:  # what it gives back does strange things when it is read
        text = f"what the function gives back cannot be read ({type(error).__name__})"
        return dumps(["fault", [text, True]])


class _Telling(Answer):
    """An answer that sends the words on its input before it computes: it may never come back."""

    def __init__(self, value: Any, line: Line) -> None:
        super().__init__(value)
        self._line = line

    def _begin(self, args: Any, kwargs: Any) -> list[str]:
        names = super()._begin(args, kwargs)
        self._line.send(dumps(["input", self.input]))
        return names


def _modules(args: Any, kwargs: Any) -> tuple[nn.Module, ...]:
    return tuple(one for one in (*args, *kwargs.values()) if isinstance(one, nn.Module))
