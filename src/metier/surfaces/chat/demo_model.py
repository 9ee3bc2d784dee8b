"""The offline guide, which answers while no model is set up. It uses the same tools through the same loop.

It is not a language model. It searches for a skill, loads it, reads the file and runs the script that the message
names, and shows the steps of the skill. Like any model it knows only the messages, so it reads results as text.
"""

import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from metier.files.json_text import part_of
from metier.values.results import WEAK_MATCHES

INTRODUCTION: Final = (
    "I am the offline guide, not a language model. I find, load and show skills, but I write nothing myself. "
    "Set up a model in the settings to get real answers."
)
CALLED: Final = 'The user calls the skill "{name}" explicitly.'
"""The sentence that tells a model about a command in a message."""
INSTRUCTIONS: Final = " Its instructions:\n\n"
"""What follows that sentence where the skill was loaded already."""

NOTHING: Final = "There are no skills here. Put a folder with a SKILL.md into one of the folders that are searched."

CANNOT_RUN: Final = "I cannot run scripts here. `metier doctor` says why, and what to do about it."

STEPS: Final = 12
"""Steps of a skill that are shown."""

_CALLED: Final = re.compile(re.escape(CALLED).replace(r"\{name\}", r"([^\"\n]+)"))
_ADDED: Final = re.compile(r"^\[The user added the file (.+) \([\d,]+ bytes\)\. [^\n]*\]$\s*", re.MULTILINE)
_PATH: Final = r"[`\"']?((?:[\w.-]+/)+[\w.-]+)[`\"']?"
_READ: Final = re.compile(rf"\b(?:read|show|open)\s+(?:me\s+)?(?:the\s+)?(?:file\s+)?{_PATH}", re.IGNORECASE)
_RUN: Final = re.compile(rf"\b(?:run|execute)\s+(?:the\s+)?(?:script\s+)?{_PATH}([^\n]*)", re.IGNORECASE)
_OF: Final = re.compile(r"\b(?:of|from|in)\s+(?:the\s+skill\s+)?[`\"']?([a-z0-9][\w-]*)[`\"']?[\s.!]*$")
_HIT: Final = re.compile(r"^- ([^\s:]+):[^\n]*(?:\n  (?:scope: [^\n]*, )?path: ([^\n]+))?", re.MULTILINE)
"""A skill that a search found, and its path, if the result says it."""
_HEADING: Final = re.compile(r"^#{2,4}\s+(?:\d+[.)]\s+)?(.+)$", re.MULTILINE)
_STEP: Final = re.compile(r"^\d+[.)]\s+(.+)$", re.MULTILINE)
_PARTS: Final = (("body",), ("content",), ("data", "content"), ("error", "message"))
_FILE: Final = re.compile(r"\b((?:references|assets|scripts)/[\w./-]*\w)")


@dataclass(slots=True)
class _Done:
    """One call and its result."""

    tool: str
    args: Mapping[str, object]
    text: str
    ok: bool


@dataclass(slots=True)
class _Conversation:
    """What the messages contain: the question, the calls made for it, and the calls of earlier turns."""

    question: str = ""
    called: str = ""
    given: str = ""
    """The instructions of the called skill, if the message contains them."""
    done: list[_Done] = field(default_factory=list[_Done])
    earlier: list[_Done] = field(default_factory=list[_Done])
    instructions: str = ""
    files: list[str] = field(default_factory=list[str])
    """The files that the user added, the latest last."""
    first: bool = True


class DemoModel(FunctionModel):
    """The offline guide as a model. `roles` maps the role of each tool to its name. `nothing` says why none is."""

    def __init__(self, roles: Mapping[str, str], nothing: str = "") -> None:
        self._roles, self._nothing = roles, nothing or NOTHING
        super().__init__(stream_function=self._stream, model_name="offline guide")

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        so_far = _conversation(messages, info.instructions or "")
        call = self._next(so_far) if self._roles else None
        if call is not None:
            tool, args = call
            yield {0: DeltaToolCall(tool, json.dumps(args, ensure_ascii=False))}
            return
        for piece in _pieces("\n\n".join(self._paragraphs(so_far))):
            yield piece

    # --- the next call ---

    def _next(self, so_far: _Conversation) -> tuple[str, dict[str, object]] | None:
        if so_far.done and not so_far.done[-1].ok:
            return None
        skill = self._skill(so_far)
        if skill is None:
            searched = any(one.tool == self._roles.get("search") for one in so_far.done)
            if searched or "search" not in self._roles:
                return None
            return self._roles["search"], {"query": so_far.question, "limit": 5}
        if not self._loaded(so_far, skill):
            return self._load(skill, self._path(so_far, skill))
        for role, pattern in (("read", _READ), ("run", _RUN)):
            wanted = pattern.search(so_far.question)
            if wanted and role in self._roles:
                tool, args = self._use(role, skill, wanted, so_far.files)
                if not any((one.tool, one.args) == (tool, args) for one in so_far.done):
                    return tool, args
        return None

    def _path(self, so_far: _Conversation, skill: str) -> str:
        """The path of a skill, where a search says it: its name may be that of another one, too."""
        searches = (one for one in reversed(so_far.done) if one.tool == self._roles.get("search"))
        found = (hit for one in searches for hit in _HIT.finditer(one.text) if hit[1] == skill)
        return next((hit[2] or "" for hit in found), "")

    def _load(self, skill: str, path: str = "") -> tuple[str, dict[str, object]] | None:
        if "load" in self._roles:
            return self._roles["load"], {"name": skill, "path": path} if path else {"name": skill}
        return (self._roles["read"], {"path": f"skill://{skill}"}) if "read" in self._roles else None

    def _use(self, role: str, skill: str, wanted: re.Match[str], files: Sequence[str]) -> tuple[str, dict[str, object]]:
        if role == "run":
            words = _words(wanted[2]) or list(files[-1:])  # a script without arguments gets the user's last file
            return self._roles["run"], {"name": skill, "script": wanted[1], "arguments": words}
        if "load" in self._roles:
            return self._roles["read"], {"name": skill, "path": wanted[1]}
        return self._roles["read"], {"path": f"skill://{skill}/{wanted[1]}"}

    def _skill(self, so_far: _Conversation) -> str | None:
        """The skill that the message is about: named in it, found by search, or loaded last."""
        if so_far.called:
            return so_far.called
        of = _OF.search(so_far.question)
        known = [name for one in (*so_far.earlier, *so_far.done) if (name := self._name(one))]
        if of and (of[1] in known or f'"{of[1]}"' in so_far.instructions or f">{of[1]}<" in so_far.instructions):
            return of[1]
        if (_READ.search(so_far.question) or _RUN.search(so_far.question)) and known:
            return known[-1]
        for one in reversed(so_far.done):
            if one.tool == self._roles.get("search"):
                hit = _HIT.search(one.text)
                return hit[1] if hit and not one.text.startswith(WEAK_MATCHES) else None
        words = set(re.findall(r"[a-z0-9][a-z0-9-]+", so_far.question.lower()))
        listed = re.findall(r'"name": ?"([a-z0-9-]+)"', so_far.instructions)
        return next((name for name in listed if name in words), None) if "search" not in self._roles else None

    def _name(self, one: _Done) -> str:
        """The skill that a call loaded or read from."""
        if not one.ok or one.tool == self._roles.get("search"):
            return ""
        path = str(one.args.get("path", ""))
        return str(one.args.get("name") or (path[8:].partition("/")[0] if path.startswith("skill://") else ""))

    def _loaded(self, so_far: _Conversation, skill: str) -> bool:
        known = any(self._name(one) == skill for one in (*so_far.earlier, *so_far.done))
        return known or bool(so_far.given and so_far.called == skill)

    def _is_load(self, one: _Done) -> bool:
        path = str(one.args.get("path", ""))
        whole = not path or (path.startswith("skill://") and path.count("/") == 2)
        return whole or one.tool == self._roles.get("load")

    # --- the answer ---

    def _paragraphs(self, so_far: _Conversation) -> Iterator[str]:
        if so_far.first:
            yield INTRODUCTION
        if not self._roles:
            yield self._nothing
            return
        if so_far.given:
            yield f"You called the skill {so_far.called}. Its steps:"
            yield _outline(so_far.given, runs="run" in self._roles)
        for one in so_far.done:
            yield from self._describe(one)
        if "run" not in self._roles and _RUN.search(so_far.question):
            yield CANNOT_RUN
        known = [
            one for one in so_far.earlier if so_far.called and self._name(one) == so_far.called and self._is_load(one)
        ]
        if not so_far.done and not so_far.given and known:
            yield from self._describe(known[-1])
        elif not so_far.done and not so_far.given:
            yield "Tell me what you need, call a skill with `/name`, or ask me to `read` a file or `run` a script."

    def _describe(self, one: _Done) -> Iterator[str]:
        if not one.ok:
            yield f"That did not work: {one.text}"
        elif one.tool == self._roles.get("search"):
            hits = list(dict.fromkeys(hit[1] for hit in _HIT.finditer(one.text)))
            if one.text.startswith(WEAK_MATCHES):
                yield f"No skill fits that well. The nearest are: {', '.join(hits)}. Call one with `/name` if it fits."
            elif hits:
                others = f" Others that may match: {', '.join(hits[1:])}." if hits[1:] else ""
                yield f"The best match is {hits[0]}.{others}"
            else:
                yield "No skill matches that. Try other words, or type `/` to see the skills by name."
        elif one.tool == self._roles.get("run"):
            yield f"I ran {one.args.get('script')}. Its output:"
            yield f"```\n{one.text[:2_000]}\n```"
        elif self._is_load(one):
            yield f"I loaded {self._name(one)}. Its steps:"
            yield _outline(one.text, runs="run" in self._roles)
        else:
            yield f"I read {one.args.get('path')}; it is in the card above."


def _conversation(messages: Sequence[ModelMessage], instructions: str) -> _Conversation:
    so_far = _Conversation(instructions=instructions)
    calls: dict[str, ToolCallPart] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            calls.update((part.tool_call_id, part) for part in message.parts if isinstance(part, ToolCallPart))
            so_far.first = so_far.first and not message.text
        else:
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    if so_far.given:
                        so_far.earlier.append(_Done("", {"name": so_far.called}, so_far.given, ok=True))
                    so_far.earlier += so_far.done
                    so_far.done = []
                    _read_prompt(so_far, str(part.content))
                elif isinstance(part, ToolReturnPart) and part.tool_call_id in calls:
                    call = calls[part.tool_call_id]
                    text = _readable(str(part.content))
                    so_far.done.append(_Done(call.tool_name, call.args_as_dict(), text, part.outcome == "success"))
    return so_far


def _readable(text: str) -> str:
    """The text in a result. Some hosts answer in JSON: a body, a content, or an error with its message."""
    return next((part for keys in _PARTS if (part := part_of(text, keys)) != text), text)


def _read_prompt(so_far: _Conversation, text: str) -> None:
    """Read a user's message: the text, and the called skill with its instructions."""
    called = _CALLED.search(text)
    so_far.question = text[: called.start()].strip() if called else text
    rest = text[called.end() :] if called else ""
    so_far.given = rest if rest.startswith(INSTRUCTIONS) else ""
    so_far.called = called[1] if called else ""
    so_far.files += _ADDED.findall(so_far.question)
    so_far.question = _ADDED.sub("", so_far.question).strip()


def _outline(text: str, *, runs: bool) -> str:
    """The steps of a skill (its headings, or else its numbered lines) and the files that it mentions."""
    found = _HEADING.findall(text)
    steps = [" ".join(step.split()) for step in (found if len(found) > 1 else _STEP.findall(text) or found)]
    lines = [f"{number}. {step}" for number, step in enumerate(steps[:STEPS], 1)]
    if len(steps) > STEPS:
        lines.append(f"and {len(steps) - STEPS} more; the card above shows all of them.")
    named = (
        file for file in _FILE.findall(text) if ".." not in file
    )  # instructions may mention paths that are refused
    files = list(dict.fromkeys(named))[:STEPS]
    asks = [f"`{'run' if runs and file.startswith('scripts/') else 'read'} {file}`" for file in files]
    more = f"\n\nYou can ask me to {', '.join(asks)}." if asks else ""
    return ("\n".join(lines) or "It has no headings or numbered steps; the card above shows its text.") + more


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text.strip().strip("`"))
    except ValueError:
        return text.split()


def _pieces(text: str) -> list[str]:
    """The pieces in which a text is streamed: words with the space after them."""
    return re.findall(r"\S+\s*|\s+", text) or [""]
