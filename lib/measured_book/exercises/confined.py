"""A process that can neither end others nor leave its group behind: a filter of its system calls.

What a copy starts belongs to the copy's group, and goes when the group is ended. A process that makes a group
of its own would stay, and one that knows the number of its parent could end the parent. Linux lets every
process give up such calls for good, itself and what it starts (seccomp with a filter, since 3.17): they then
fail with "Operation not permitted". Where the machine has another kernel or processor, nothing is given up.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # prctl's PR_SET_*, and its SECCOMP_MODE_FILTER
# Of the filter's language: to load a word, two comparisons, a verdict.
_LOAD, _EQUALS, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _MACHINE, _FIRST = (
    0,
    4,
    16,
)  # where a call's number, kind of machine and first argument stand
_OTHER_WORDS = 0x40000000  # from here on, numbers of the same calls with words of 32 bits
_ALLOWED, _REFUSED = 0x7FFF0000, 0x00050000 | errno.EPERM

# By machine: its kind for the filter; calls that are refused; calls that take a process's own number, or 0.
# They are setpgid, setsid, ptrace, process_vm_readv and _writev, rt_tgsigqueueinfo, pidfd_send_signal,
# pidfd_open, pidfd_getfd; and kill, tkill, tgkill, rt_sigqueueinfo, prlimit64.
_CALLS = {
    "x86_64": (
        0xC000003E,
        (109, 112, 101, 310, 311, 297, 424, 434, 438),
        (62, 200, 234, 129, 302),
    ),
    "aarch64": (
        0xC00000B7,
        (154, 157, 117, 270, 271, 240, 424, 434, 438),
        (129, 130, 131, 138, 261),
    ),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def confine() -> bool:
    """Give up, for good, what would reach other processes; return whether the system can.

    A process can still end itself and what is in its group.
    """
    known = _CALLS.get(platform.machine())
    if known is None:
        return False
    steps = _steps(*known, own=os.getpid())
    code = b"".join(struct.pack("<HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    library = ctypes.CDLL(None)
    if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return bool(library.prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) == 0)


def _steps(
    machine: int, refused: tuple[int, ...], own_only: tuple[int, ...], *, own: int
) -> list[tuple[int, int, int, int]]:
    """The filter: for each step what it does, how far to jump where it holds and where not, and a number."""
    steps = [(_LOAD, 0, 0, _MACHINE), (_EQUALS, 1, 0, machine), (_RETURN, 0, 0, _REFUSED)]
    steps += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _OTHER_WORDS), (_RETURN, 0, 0, _REFUSED)]
    for call in refused:
        steps += [(_EQUALS, 0, 1, call), (_RETURN, 0, 0, _REFUSED)]
    asks = len(own_only)
    for i, call in enumerate(own_only):
        steps.append((_EQUALS, asks - i, 0, call))  # to the look at the first argument
    steps += [
        (_RETURN, 0, 0, _ALLOWED),
        (_LOAD, 0, 0, _FIRST),
        (_EQUALS, 1, 0, own),
        (_EQUALS, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOWED),
        (_RETURN, 0, 0, _REFUSED),
    ]
    return steps
