"""Which program runs a script, which files are refused, and what the system call filter allows."""

import errno
import os
import re
import struct
from pathlib import Path

import pytest

from metier.files.tree import take
from metier.running.sandbox import ScriptRefused, interpreter, seccomp
from metier.running.sandbox.interpreter import Program


def find_program(folder: str, script: str) -> Program:
    opened = os.open(folder, os.O_RDONLY)
    try:
        return interpreter.find_program(take(opened), script)
    finally:
        os.close(opened)


def write(folder: Path, name: str, text: str | bytes, mode: int = 0o755) -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return name


PROGRAMS: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("a.py", "print()", "python", ()),
    ("A.PY", "print()", "python", ()),
    ("a", "#!/usr/bin/env python3\n", "python", ()),
    ("a", "#!/usr/bin/python3.12 -u\n", "python", ("-u",)),
    ("a", "#!/usr/bin/env -S python3 -I -S\r\n", "python", ("-I", "-S")),
    ("a", "#!/usr/bin/env -S uv run --script\n", "python", ()),
    ("a.py", "#!/bin/sh\n", "sh", ()),
    ("a", "#! /bin/sh -eu\n", "sh", ("-eu",)),
    ("a.sh", "echo", "bash", ()),
    ("a", "#!/usr/bin/env A=b bash", "bash", ()),
]
REFUSED: list[tuple[str, str | bytes, int, str]] = [
    ("a", "#!/bin/sh\n", 0o644, "not-executable"),
    ("a", "echo", 0o755, "unknown-interpreter"),
    ("a.rb", "puts", 0o755, "unknown-interpreter"),
    ("a.py", "#!/usr/bin/env ruby\n", 0o755, "unknown-interpreter"),
    ("a", "#!\n", 0o755, "unknown-interpreter"),
    ("a", "#!'\n", 0o755, "unknown-interpreter"),
    ("a", b"\x7fELF\x02\x01", 0o755, "binary"),
    ("a.exe", b"MZ\x90", 0o755, "binary"),
]


def test_the_first_line_decides_then_the_suffix_and_all_else_is_refused(tmp_path: Path) -> None:
    for name, text, kind, flags in PROGRAMS:
        program = find_program(str(tmp_path), write(tmp_path, name, text))
        assert (program.kind, program.flags, program.inside[0]) == (kind, flags, "/"), (name, text)
    for name, data, mode, reason in REFUSED:
        with pytest.raises(ScriptRefused, match=f"^{name}: ") as caught:
            find_program(str(tmp_path), write(tmp_path, name, data, mode))
        assert caught.value.reason == reason, (name, data)


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ScriptRefused, match="needs node, which is not installed"):
        find_program(str(tmp_path), write(tmp_path, "a.js", "1"))
    shown = find_program(str(tmp_path), write(tmp_path, "a.py", "1"))
    assert shown.mount is not None
    assert shown.inside.startswith("/opt/python/bin/")


# --- the filter, in a small interpreter for its instructions ---


def judge(program: bytes, arch: int, number: int, *arguments: int) -> int:
    data = struct.pack("=IIQ6Q", number, arch, 0, *(*arguments, *[0] * (6 - len(arguments))))
    loaded = position = 0
    while True:
        code, yes, no, operand = struct.unpack_from("=HBBI", program, 8 * position)
        position += 1
        if code == 0x20:
            loaded = struct.unpack_from("=I", data, operand)[0]
        elif code == 0x06:
            return operand
        else:
            holds = {0x15: loaded == operand, 0x25: loaded > operand, 0x45: bool(loaded & operand)}[code]
            position += yes if holds else no


ALLOW, KILL, REFUSE, UNKNOWN = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
NO_FAMILY, PRETEND = 0x50000 | errno.EAFNOSUPPORT, 0x50000
CALLS = ("read", "clone", "ioctl", "socket", "socketpair", "setsockopt", "fcntl", "personality", "execve")
NUMBERS = {
    "x86_64": dict(zip(CALLS, (0, 56, 16, 41, 53, 54, 72, 135, 59), strict=True)),
    "aarch64": dict(zip(CALLS, (63, 220, 29, 198, 199, 208, 25, 92, 221), strict=True)),
}


@pytest.mark.parametrize("machine", list(seccomp.ARCHITECTURES))
def test_the_filter_refuses_what_it_should_and_nothing_else(machine: str) -> None:
    arch = seccomp.ARCHITECTURES[machine]
    other = next(value for name, value in seccomp.ARCHITECTURES.items() if name != machine)
    call = NUMBERS[machine]
    closed, open_ = seccomp.program(machine, network=False), seccomp.program(machine, network=True)
    for program in (closed, open_):
        assert len(program) // 8 < 4096
        for number in seccomp.denied(machine).values():
            assert judge(program, arch, number) == REFUSE
        for name in ("read", "execve", "socketpair"):
            assert judge(program, arch, call[name], 1) == ALLOW
        assert judge(program, other, call["read"]) == KILL
        assert judge(program, 0x40000003, call["read"]) == KILL
        assert judge(program, arch, 0x40000000 | call["read"]) == UNKNOWN
        assert judge(program, arch, seccomp.HIGHEST + 1) == UNKNOWN
        assert judge(program, arch, 435) == UNKNOWN
        assert judge(program, arch, call["clone"], 0x01200011) == ALLOW  # a fork, as the C library makes it
        assert judge(program, arch, call["clone"], 0x003D0F00) == ALLOW  # a thread
        for bit in (17, 25, 26, 27, 28, 29, 30):
            assert judge(program, arch, call["clone"], 1 << bit | 17) == REFUSE
        assert judge(program, arch, call["ioctl"], 0, 0x5401) == ALLOW
        for request in (0x5412, 0x541C, 1 << 32 | 0x5412):
            assert judge(program, arch, call["ioctl"], 0, request) == REFUSE
        assert judge(program, arch, call["personality"], 0xFFFFFFFF) == ALLOW
        assert judge(program, arch, call["personality"], 0x40000) == REFUSE
        for family in (16, 17, 38, 40, 1 << 32 | 16):
            assert judge(program, arch, call["socket"], family) == NO_FAMILY
        assert judge(program, arch, call["socket"], 1) == NO_FAMILY
        assert judge(program, arch, call["socketpair"], 2) == NO_FAMILY
        for option in (7, 8, 32, 33):
            assert judge(program, arch, call["setsockopt"], 3, 1, option) == PRETEND
            assert judge(program, arch, call["setsockopt"], 3, 6, option) == ALLOW
        assert judge(program, arch, call["setsockopt"], 3, 1, 9) == ALLOW
        assert judge(program, arch, call["fcntl"], 3, 1031) == REFUSE
        assert judge(program, arch, call["fcntl"], 3, 1032) == ALLOW
    for family in (2, 10, 1 << 32 | 2):
        assert judge(closed, arch, call["socket"], family) == NO_FAMILY
        assert judge(open_, arch, call["socket"], family) == ALLOW


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h")],
)
def test_the_numbers_are_those_of_the_kernel_headers(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip("the kernel's headers are not installed")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
    for name, number in seccomp.denied(machine).items():
        assert int(known[name]) == number, name
