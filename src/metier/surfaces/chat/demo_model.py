"""The offline guide, which answers while no model is set up. It uses the same tools through the same loop.

It is not a language model. It searches for a skill, loads it, reads the file or runs the script that the message names,
and says what came of it. Like any model it knows only the messages.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from metier.surfaces.chat.history import CALLED, INSTRUCTIONS
from metier.values.results import UNLOADED, WEAK_MATCHES

_ABOUT: Final = "I am the offline guide, not a language model: set up a model in the settings to get real answers."
_NOTHING: Final = "There are no skills here. Put a folder with a SKILL.md into one of the folders that are searched."
_ASK: Final = "Tell me what you need, call a skill with `/name`, or ask me to `read` a file or `run` a script."
_CANNOT_RUN: Final = "I cannot run scripts here. `metier doctor` says why, and what to do about it."
_CALLED: Final = re.compile(re.escape(CALLED).replace(r"\{name\}", r"([^\"\n]+)"))
_UNLOADED: Final = re.compile(re.escape(UNLOADED).replace(r"\{name\}", "(.+)"))
_ADDED: Final = re.compile(r"^\[The user added the file (.+) \([\d,]+ bytes\)\. [^\n]*\]$", re.MULTILINE)
_USE: Final = re.compile(r"\b(read|run)\s+`?((?:[\w.-]+/)+[\w.-]+)`?([^\n]*)", re.IGNORECASE)
_HIT: Final = re.compile(r"^- ([^\s:]+):[^\n]*(?:\n  (?:scope: [^\n]*, )?path: ([^\n]+))?", re.MULTILINE)
_WORD: Final = re.compile(r"'([^']*)'|(\S+)")
_FILE: Final = re.compile(r"\b(?:references|assets|scripts)/(?:[\w-]+[./])+\w+")


class _Done(NamedTuple):
    args: Mapping[str, Any]
    text: str
    ok: bool


class DemoModel(FunctionModel):
    """The offline guide as a model. `roles` maps the role of each tool to its name. `nothing` says why none is."""

    def __init__(self, roles: Mapping[str, str], nothing: str = "") -> None:
        self._roles, self._nothing = roles, nothing or _NOTHING
        super().__init__(stream_function=self._stream, model_name="offline guide")

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        parts = [part for message in messages for part in message.parts]
        prompts = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
        calls = {part.tool_call_id: part.args_as_dict() for part in parts if isinstance(part, ToolCallPart)}
        asked = max(at for at, part in enumerate(parts) if isinstance(part, UserPromptPart))
        results = [part for part in parts[asked:] if isinstance(part, ToolReturnPart)]
        done = [_Done(calls[one.tool_call_id], str(one.content), one.outcome == "success") for one in results]
        known = [name for text in prompts[:-1] for name in _CALLED.findall(text)] + [*map(_skill, calls.values())]
        files = [name for text in prompts for name in _ADDED.findall(text)]
        role, args, said = self._next(prompts[-1], files[-1:], [name for name in known if name], done)
        if role in self._roles:
            yield {0: DeltaToolCall(self._roles[role], json.dumps(args, ensure_ascii=False))}
            return
        is_first = not any(isinstance(part, TextPart) for part in parts)
        for piece in re.findall(r"\S+\s*", f"{_ABOUT}\n\n{said}" if is_first else said):
            yield piece

    def _next(
        self, prompt: str, file: list[str], known: Sequence[str], done: Sequence[_Done]
    ) -> tuple[str, Mapping[str, Any], str]:
        """The role and the arguments of the next call, and what is said if no tool has that role."""
        told = "\n\n".join(map(_said, done)) if self._roles else self._nothing
        if gone := _UNLOADED.fullmatch(prompt):
            return "", {}, f"I put {gone[1]} aside. Call it again when you need it."
        called = _CALLED.search(prompt)
        question = _ADDED.sub("", prompt[: called.start()] if called else prompt).strip()
        wanted = _USE.search(question)
        found = _HIT.search(done[0].text) if done and not done[0].text.startswith(WEAK_MATCHES) else None
        skill = called[1] if called else found[1] if found else known[-1] if wanted and known else ""
        if done and (not skill or not done[-1].ok):
            return "", {}, told
        if not skill:
            return "search", {"query": question, "limit": 5}, told or _ASK
        if skill not in known and INSTRUCTIONS not in prompt:
            if "load" not in self._roles:
                return "read", {"path": f"skill://{skill}"}, told
            return "load", {"name": skill, "path": found[2]} if found and found[2] else {"name": skill}, told
        if not wanted or any(wanted[2] in str(one.args) for one in done):
            return "", {}, told or _ASK
        if wanted[1].lower() == "run":
            words = [quoted or word for quoted, word in _WORD.findall(wanted[3])] or file
            return "run", {"name": skill, "script": wanted[2], "arguments": words}, f"{_CANNOT_RUN}\n\n{told}"
        whole = {"path": f"skill://{skill}/{wanted[2]}"}
        return "read", {"name": skill, "path": wanted[2]} if "load" in self._roles else whole, told


def _skill(args: Mapping[str, Any]) -> str:
    """The skill that a call loaded or read from."""
    return str(args.get("name") or str(args.get("path", "")).removeprefix("skill://").partition("/")[0])


def _said(one: _Done) -> str:
    """What is said of a call and its result."""
    path, hits = str(one.args.get("path", "")), _HIT.findall(one.text)
    if not one.ok:
        return f"That did not work: {one.text}"
    if "query" in one.args:
        fits = hits and not one.text.startswith(WEAK_MATCHES)
        return f"The best match is {hits[0][0]}." if fits else "No skill matches that. Type `/` to see them by name."
    if "script" in one.args:
        return f"I ran {one.args['script']}. Its output:\n\n```\n{one.text[:2_000]}\n```"
    if not path.startswith("/") and "/" in path.removeprefix("skill://"):
        return f"I read {path}; it is in the card above."
    files = ", ".join(f"`{file}`" for file in dict.fromkeys(_FILE.findall(one.text)))
    return f"I loaded {_skill(one.args)}; the card above has it." + (f" It mentions {files}." if files else "")
