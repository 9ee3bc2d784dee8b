"""A seccomp filter that refuses system calls that scripts do not need and attacks often use.

Namespaces already separate a script from the host. The filter reduces the kernel interface that a script can use, and
covers what namespaces do not: keyrings, memory outside every limit, the terminal. A call of another architecture ends
the process. A call newer than the tables fails as if the kernel did not know it. The invariant: only the lower half of
an `int` argument is compared, because the kernel ignores the upper half and a script may set it.
"""

import errno
import functools
import os
import struct
from collections.abc import Mapping
from typing import Final

# One instruction: code, jump if true, jump if false, operand (struct sock_filter).
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_ABOVE: Final = 0x25  # BPF_JMP | BPF_JGT | BPF_K
_BITS: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000  # the whole process, not only the thread
_ERRNO: Final = 0x00050000

_NUMBER_AT: Final = 0  # struct seccomp_data: nr, arch, instruction_pointer, args[6]; both machines are little endian
_ARCH_AT: Final = 4
_ARGS_AT: Final = 16

ARCHITECTURES: Final[Mapping[str, int]] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Read with this module: a program that gives up root later may not be able to read its own files any more.
with open(os.path.join(os.path.dirname(__file__), "system_calls.txt"), encoding="utf-8") as _file:
    _TABLE: Final = [line.split() for line in _file if line.strip() and not line.startswith("#")]
HIGHEST: Final = 462
"""The newest call in the tables (mseal, Linux 6.10). Numbers from 424 on are the same on every architecture."""

_BY_ARGUMENT: Final = frozenset(
    ("clone", "clone3", "ioctl", "socket", "socketpair", "setsockopt", "fcntl", "personality")
)
"""The calls whose arguments decide. All others in the table are always refused."""

NAMESPACE_FLAGS: Final = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TERMINAL_IOCTLS: Final = (0x5412, 0x541C, 0x541D, 0x540E)  # TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSCTTY

_SOL_SOCKET: Final = 1
_BUFFER_OPTIONS: Final = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF and their forced variants
_F_SETPIPE_SZ: Final = 1031

AF_UNIX: Final = 1
AF_INET: Final = 2
AF_INET6: Final = 10

_STREAMS: Final = (0x1, 0x801, 0x80001, 0x80801)  # SOCK_STREAM, with SOCK_NONBLOCK and SOCK_CLOEXEC
_TCP: Final = (0, 6)

_Instruction = tuple[int, int, int, int]


def _numbers(machine: str) -> dict[str, int]:
    """The numbers of the calls in the table on an architecture."""
    column = list(ARCHITECTURES).index(machine) + 1
    return {row[0]: int(row[column]) for row in _TABLE if row[column] != "-"}


def denied(machine: str) -> dict[str, int]:
    """The calls that are always refused: their names, and their numbers on an architecture."""
    return {name: number for name, number in _numbers(machine).items() if name not in _BY_ARGUMENT}


def program(machine: str, *, network: bool, proxy: bool = False) -> bytes:
    """Build the filter for an architecture, in the form that the kernel takes.

    Without the network, only pairs of connected sockets can be created: a Unix socket is a file, and a service of the
    host may listen at one in the project. With the network, Internet sockets can be created too, and with a proxy on
    the sandbox's own loopback interface only TCP sockets over IPv4. Buffers of sockets and pipes keep their default
    size, because no limit of a process counts them.
    """
    call = _numbers(machine)
    refuse = _ERRNO | errno.EPERM
    unknown = _ERRNO | errno.ENOSYS
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        # Also refuses the x32 variant of every call, whose number has bit 30 set.
        (_ABOVE, 0, 1, HIGHEST),
        (_RETURN, 0, 0, unknown),
        # Its flags are in memory, which a filter cannot read. The C library falls back to clone.
        *_when(call["clone3"], [(_RETURN, 0, 0, unknown)]),
    ]
    for number in denied(machine).values():
        code += _when(number, [(_RETURN, 0, 0, refuse)])
    code += _when(call["clone"], [_argument(0), (_BITS, 0, 1, NAMESPACE_FLAGS), (_RETURN, 0, 0, refuse)])
    code += _when(call["ioctl"], _refuse_any(1, _TERMINAL_IOCTLS, refuse))
    families = (AF_INET, AF_INET6) if network else (AF_INET,) if proxy else ()
    sockets = _refuse_other(0, families, _ERRNO | errno.EAFNOSUPPORT)
    if proxy and not network:
        sockets += _refuse_other(1, _STREAMS, _ERRNO | errno.ESOCKTNOSUPPORT)
        sockets += _refuse_other(2, _TCP, _ERRNO | errno.EPROTONOSUPPORT)
    code += _when(call["socket"], sockets)
    code += _when(call["socketpair"], _refuse_other(0, (AF_UNIX,), _ERRNO | errno.EAFNOSUPPORT))
    # Success is pretended, because programs treat the size as a wish. The kernel also chooses another size silently.
    sizes = _refuse_any(2, _BUFFER_OPTIONS, _ERRNO)
    code += _when(call["setsockopt"], [_argument(1), (_EQUAL, 0, len(sizes), _SOL_SOCKET), *sizes])
    code += _when(call["fcntl"], _refuse_any(1, (_F_SETPIPE_SZ,), refuse))
    # Reading it (0xffffffff) and the default (0) are harmless. Other values disable address randomisation and more.
    code += _when(call["personality"], _refuse_other(0, (0, 0xFFFFFFFF), refuse))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


@functools.cache
def machine() -> str | None:
    """The architecture of this machine, if there is a filter for it."""
    found = os.uname().machine
    return found if found in ARCHITECTURES else None


def _argument(index: int) -> _Instruction:
    return (_LOAD, 0, 0, _ARGS_AT + 8 * index)


def _when(number: int, then: list[_Instruction]) -> list[_Instruction]:
    """Handle one call. The block always returns, so that later blocks can rely on the loaded number."""
    if then[-1][0] != _RETURN or len(then) > 1:
        then = [*then, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(then), number), *then]


def _refuse_any(index: int, values: tuple[int, ...], answer: int) -> list[_Instruction]:
    code = [_argument(index)]
    for value in values:
        code += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, answer)]
    return code


def _refuse_other(index: int, values: tuple[int, ...], answer: int) -> list[_Instruction]:
    """Go on, to be allowed in the end, only if an argument has one of the values."""
    code = [_argument(index)]
    for position, value in enumerate(values):
        code.append((_EQUAL, len(values) - position, 0, value))
    return [*code, (_RETURN, 0, 0, answer)]
