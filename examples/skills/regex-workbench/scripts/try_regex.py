#!/usr/bin/env python3
"""Try a regular expression against cases that say what it must do.

Cases live in a JSON file, so that the expression can change while they stay. Python's engine cannot be interrupted
reliably, therefore each match happens in a worker process: this process gives it one case at a time and ends it when
the time limit is over. Start-up does not count against the limit.

Examples:
  try_regex.py cases.json
  try_regex.py cases.json --pattern '[a-z]+' --mode search --timeout 0.5
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import queue
import re
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any

MODES = ("fullmatch", "search", "match", "findall")
FLAGS = {name: getattr(re, name) for name in ("IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE", "ASCII")}
CASE_KEYS = {"text", "repeat", "suffix", "match", "groups", "all", "replace", "note"}
FILE_KEYS = {"pattern", "flags", "mode", "cases"}
MAX_TEXT = 2_000_000  # characters
MAX_CASES = 10_000
START_SECONDS = 60.0


class InputError(Exception):
    """Something the caller can put right; shown as one line."""


@dataclass(frozen=True)
class Result:
    """What one case came to; `outcome` is pass, fail or timeout."""

    number: int
    outcome: str
    text: str
    detail: str
    note: str


# --- the worker: reads one JSON request a line, answers with one JSON line ---------------------------------------


def work() -> int:
    """Answer requests until the input ends. Only this process ever runs the expression."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            answer = answer_request(request)
        except re.error as error:
            answer = {"error": str(error)}
        except (IndexError, OverflowError, RecursionError, MemoryError, ValueError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.buffer.write(json.dumps(answer).encode("ascii") + b"\n")
        sys.stdout.buffer.flush()
    return 0


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = re.compile(request["pattern"], request["flags"])
    answer: dict[str, Any] = {
        "warnings": [str(item.message) for item in caught],
        "names": list(compiled.groupindex),
        "count": compiled.groups,
    }
    text = request.get("text")
    if text is None:
        return answer
    if request["mode"] == "findall" or request["all"]:
        answer["all"] = [found[0] for found in compiled.finditer(text)]
    find = compiled.search if request["mode"] == "findall" else getattr(compiled, request["mode"])
    found = find(text)
    answer["found"] = None
    if found:
        groups = {str(i): found[i] for i in range(compiled.groups + 1)}
        answer["found"] = {"span": found.span(), "groups": {**groups, **found.groupdict()}}
    if request["replace"] is not None:
        answer["replaced"] = compiled.sub(request["replace"], text)
    return answer


class Worker:
    """One worker process; `ask` gives an answer, or None after ending the process at the time limit."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.answers: queue.Queue[bytes] = queue.Queue()

    def start(self) -> None:
        command = [sys.executable, "-B", "-I", os.path.abspath(__file__), "--worker"]
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise InputError(f"cannot start the worker process: {error.strerror or error}") from error
        self.answers = queue.Queue()
        threading.Thread(target=self.pump, args=(self.process, self.answers), daemon=True).start()
        answer = self.send({"pattern": "", "flags": 0}, START_SECONDS)
        if answer is None or "error" in answer:
            raise InputError("the worker process does not start")

    @staticmethod
    def pump(process: subprocess.Popen[bytes], answers: queue.Queue[bytes]) -> None:
        if process.stdout is not None:
            for line in process.stdout:
                answers.put(line)
        answers.put(b"")  # the process has ended

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        if self.process is None:
            self.start()
        return self.send(request, seconds)

    def send(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=seconds)
        except queue.Empty:
            self.stop()
            return None
        except OSError:
            line = b""
        if not line:
            self.stop()
            return {"error": "the worker process ended unexpectedly; is memory short?"}
        return dict(json.loads(line))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self.process.wait()
            self.process = None


# --- reading the cases --------------------------------------------------------------------------------------------


def expect(value: Any, kind: type | tuple[type, ...], where: str, wanted: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise InputError(f"{where}: expected {wanted}, found {json.dumps(value)[:60]}")
    return value


def refuse_unknown(mapping: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(mapping) - known)
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}")


def read_cases(name: str) -> dict[str, Any]:
    try:
        if name == "-":
            raw = sys.stdin.buffer.read()
        else:
            with open(name, "rb") as file:
                raw = file.read()
        data = json.loads(raw.decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        hint = "; in JSON each backslash is doubled" if "escape" in error.msg else ""
        raise InputError(f"{name}: line {error.lineno}, column {error.colno}: {error.msg}{hint}") from error
    except RecursionError as error:
        raise InputError(f"{name}: nested too deeply") from error
    expect(data, dict, name, "an object with pattern and cases")
    refuse_unknown(data, FILE_KEYS, name)
    return dict(data)


def check_case(case: Any, where: str) -> dict[str, Any]:
    expect(case, dict, where, "an object")
    refuse_unknown(case, CASE_KEYS, where)
    if "text" not in case:
        raise InputError(f"{where}: 'text' is missing")
    expect(case["text"], str, f"{where}.text", "a string")
    expect(case.get("suffix", ""), str, f"{where}.suffix", "a string")
    expect(case.get("note", ""), str, f"{where}.note", "a string")
    repeat = expect(case.get("repeat", 1), int, f"{where}.repeat", "a whole number")
    size = len(case["text"]) * repeat + len(case.get("suffix", ""))
    if repeat < 0 or size > MAX_TEXT:
        raise InputError(f"{where}.repeat: the text must have between 0 and {MAX_TEXT} characters, not {size}")
    if "match" in case:
        expect(case["match"], bool, f"{where}.match", "true or false")
    for key, value in expect(case.get("groups", {}), dict, f"{where}.groups", "an object").items():
        expect(value, (str, type(None)), f"{where}.groups.{key}", "a string or null")
    for value in expect(case.get("all", []), list, f"{where}.all", "a list of strings"):
        expect(value, str, f"{where}.all", "a list of strings")
    if "replace" in case:
        replace = expect(case["replace"], dict, f"{where}.replace", "an object")
        refuse_unknown(replace, {"with", "result"}, f"{where}.replace")
        for key in ("with", "result"):
            expect(replace.get(key), str, f"{where}.replace.{key}", "a string")
    if not {"match", "groups", "all", "replace"} & set(case):
        raise InputError(f"{where}: says nothing to expect; add match, groups, all or replace")
    if case.get("match") is False and ("groups" in case or case.get("all")):
        raise InputError(f"{where}: expects no match, and at the same time groups or matches")
    return dict(case)


def read_flags(value: Any, where: str) -> int:
    flags = 0
    for name in expect(value, list, where, "a list of names"):
        if not isinstance(name, str) or name.upper() not in FLAGS:
            raise InputError(f"{where}: unknown flag {name!r}; known: {', '.join(FLAGS)}")
        flags |= FLAGS[name.upper()]
    return int(flags)


# --- judging ------------------------------------------------------------------------------------------------------


def judge(case: dict[str, Any], answer: dict[str, Any]) -> str:
    """What is wrong with an answer; empty when the case passes."""
    if "error" in answer:
        return str(answer["error"])
    found = answer["found"]
    if "match" in case and bool(found) != case["match"]:
        if found:
            return f"must not match, but matches {show(found['groups']['0'])} at {found['span'][0]}"
        return "must match, but does not"
    for key, wanted in case.get("groups", {}).items():
        if not found:
            return "groups are expected, but there is no match"
        if key not in found["groups"]:
            known = [*answer["names"], *(str(i) for i in range(answer["count"] + 1))]
            return f"the pattern has no group {key!r}; it has {', '.join(known)}"
        if found["groups"][key] != wanted:
            return f"group {key!r} is {show(found['groups'][key])}, expected {show(wanted)}"
    if "all" in case and answer["all"] != case["all"]:
        return f"finds {show(answer['all'])}, expected {show(case['all'])}"
    if "replace" in case and answer["replaced"] != case["replace"]["result"]:
        return f"replaces to {show(answer['replaced'])}, expected {show(case['replace']['result'])}"
    return ""


def show(value: Any, width: int = 70) -> str:
    """A value as JSON, without control characters, shortened in the middle."""
    text = json.dumps(value, ensure_ascii=False)
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return text if len(text) <= width else f"{text[: width - 12]} … {text[-8:]}"


def run(options: argparse.Namespace) -> int:
    data = read_cases(options.file)
    pattern = options.pattern if options.pattern is not None else data.get("pattern")
    if pattern is None:
        raise InputError(f"{options.file}: no 'pattern', and no --pattern given")
    expect(pattern, str, "pattern", "a string")
    flags = read_flags(options.flag or data.get("flags", []), "flags")
    mode = options.mode or data.get("mode", "fullmatch")
    if mode not in MODES:
        raise InputError(f"mode: {mode!r} is unknown; known: {', '.join(MODES)}")
    cases = [check_case(c, f"cases[{i}]") for i, c in enumerate(expect(data.get("cases"), list, "cases", "a list"))]
    if not 0 < len(cases) <= MAX_CASES:
        raise InputError(f"cases: expected 1 to {MAX_CASES} cases, found {len(cases)}")
    worker = Worker()
    try:
        base = {"pattern": pattern, "flags": flags}
        compiled = worker.ask(base, max(options.timeout, 2.0))
        if compiled is None:
            raise InputError("pattern: takes too long to compile; are large counts nested?")
        if "error" in compiled:
            raise InputError(f"pattern: {compiled['error']}")
        results = []
        for number, case in enumerate(cases, 1):
            text = case["text"] * case.get("repeat", 1) + case.get("suffix", "")
            replacement = case["replace"]["with"] if "replace" in case else None
            request = {**base, "mode": mode, "text": text, "all": "all" in case, "replace": replacement}
            answer = worker.ask(request, options.timeout)
            note = case.get("note", "")
            if answer is None:
                detail = f"no answer within {options.timeout:g} s: catastrophic backtracking?"
                results.append(Result(number, "timeout", text, detail, note))
            else:
                detail = judge(case, answer)
                results.append(Result(number, "fail" if detail else "pass", text, detail, note))
    finally:
        worker.stop()
    report(pattern, mode, compiled["warnings"], results, options.json)
    return 0 if all(result.outcome == "pass" for result in results) else 1


def report(pattern: str, mode: str, notices: list[str], results: list[Result], as_json: bool) -> None:
    counts = {name: sum(r.outcome == name for r in results) for name in ("pass", "fail", "timeout")}
    if as_json:
        rows = [{**vars(r), "text": r.text[:200], "length": len(r.text)} for r in results]
        data = {"pattern": pattern, "mode": mode, "warnings": notices, "counts": counts, "results": rows}
        print(json.dumps(data, indent=2))
        return
    print(f"pattern ({mode}): {show(pattern, 200)}")
    for notice in notices:
        print(f"warning: {notice}")
    for result in results:
        line = f"{result.outcome.upper():7} {result.number:3}  {show(result.text)}"
        note = f" ({show(result.note, 120)[1:-1]})" if result.note and result.detail else ""
        print(line + (f"\n             {result.detail}{note}" if result.detail else ""))
    print(f"{len(results)} cases: {counts['pass']} passed, {counts['fail']} failed, {counts['timeout']} over the limit")


def seconds_option(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0.01 and 600")
    return value


def build_parser() -> argparse.ArgumentParser:
    idea, examples = (__doc__ or "").split("\n\nExamples:\n")
    parser = argparse.ArgumentParser(
        description=idea.split("\n")[0],
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="JSON file with the cases; - reads standard input")
    parser.add_argument("--pattern", help="try this expression instead of the one in the file")
    parser.add_argument(
        "--flag", action="append", metavar="NAME", help="a flag by name, instead of the file's; repeatable"
    )
    parser.add_argument("--mode", choices=MODES, help="instead of the file's mode")
    parser.add_argument("--timeout", type=seconds_option, default=2.0, metavar="S", help="seconds per case (default 2)")
    parser.add_argument("--json", action="store_true", help="print data instead of text")
    return parser


def main() -> int:
    if sys.argv[1:] == ["--worker"]:
        return work()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = run(build_parser().parse_args())
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"try_regex: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


if __name__ == "__main__":
    sys.exit(main())
