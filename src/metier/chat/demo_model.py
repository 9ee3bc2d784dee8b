"""The offline guide: what answers while no model is set up. It says so, and uses the same tools by the same loop.

It is no language model: it finds the fitting skill by a search, loads it, reads the file and runs the script that a
message names, and shows the steps of the skill. What it does next follows from the messages alone.
"""

import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

INTRODUCTION: Final = (
    "I am the offline guide, not a language model: I find, load and show skills, and I write nothing of my own. "
    "Set up a model in the settings to have one do the work."
)
CALLED: Final = 'The user calls the skill "{name}" explicitly.'
"""The sentence by which a model is told of a command in a message."""

STEPS: Final = 12
"""Steps of a skill that are shown."""

_CALLED: Final = re.compile(re.escape(CALLED).replace(r"\{name\}", r"([^\"\n]+)"))
_PATH: Final = r"[`\"']?((?:[\w.-]+/)+[\w.-]+)[`\"']?"
_READ: Final = re.compile(rf"\b(?:read|show|open)\s+(?:me\s+)?(?:the\s+)?(?:file\s+)?{_PATH}", re.IGNORECASE)
_RUN: Final = re.compile(rf"\b(?:run|execute)\s+(?:the\s+)?(?:script\s+)?{_PATH}([^\n]*)", re.IGNORECASE)
_OF: Final = re.compile(r"\b(?:of|from|in)\s+(?:the\s+skill\s+)?[`\"']?([a-z0-9][\w-]*)[`\"']?[\s.!]*$")
_HIT: Final = re.compile(r"^- ([^\s:]+):", re.MULTILINE)
_HEADING: Final = re.compile(r"^#{2,4}\s+(?:\d+[.)]\s+)?(.+)$", re.MULTILINE)
_STEP: Final = re.compile(r"^\d+[.)]\s+(.+)$", re.MULTILINE)
_FILE: Final = re.compile(r"\b((?:references|assets|scripts)/[\w./-]*\w)")


@dataclass(slots=True)
class _Done:
    """One call and what came of it."""

    tool: str
    args: Mapping[str, Any]
    text: str
    ok: bool


@dataclass(slots=True)
class _Scene:
    """What the messages say: the question, what was done about it, and what was loaded before."""

    question: str = ""
    called: str = ""
    given: str = ""
    """The instructions of the skill that was called, where they came with the message."""
    done: list[_Done] = field(default_factory=list[_Done])
    earlier: list[_Done] = field(default_factory=list[_Done])
    instructions: str = ""
    first: bool = True


class Guide(FunctionModel):
    """See the module. `roles` maps what a tool is for to its name."""

    def __init__(self, roles: Mapping[str, str]) -> None:
        self._roles = roles
        super().__init__(stream_function=self._stream, model_name="offline guide")

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, Any]]:
        scene = _scene(messages, info.instructions or "")
        call = self._next(scene) if self._roles else None
        if call is not None:
            tool, args = call
            yield {0: DeltaToolCall(tool, json.dumps(args, ensure_ascii=False))}
            return
        for piece in _pieces("\n\n".join(self._said(scene))):
            yield piece

    # --- what to do next ---

    def _next(self, scene: _Scene) -> tuple[str, dict[str, Any]] | None:
        if scene.done and not scene.done[-1].ok:
            return None
        skill = self._skill(scene)
        if skill is None:
            searched = any(one.tool == self._roles.get("search") for one in scene.done)
            if searched or "search" not in self._roles:
                return None
            return self._roles["search"], {"query": scene.question, "limit": 5}
        if not self._loaded(scene, skill):
            return self._load(skill)
        for role, pattern in (("read", _READ), ("run", _RUN)):
            wanted = pattern.search(scene.question)
            if wanted and role in self._roles:
                tool, args = self._use(role, skill, wanted)
                if not any((one.tool, one.args) == (tool, args) for one in scene.done):
                    return tool, args
        return None

    def _load(self, skill: str) -> tuple[str, dict[str, Any]] | None:
        if "load" in self._roles:
            return self._roles["load"], {"name": skill}
        return (self._roles["read"], {"path": f"skill://{skill}"}) if "read" in self._roles else None

    def _use(self, role: str, skill: str, wanted: re.Match[str]) -> tuple[str, dict[str, Any]]:
        if role == "run":
            return self._roles["run"], {"name": skill, "script": wanted[1], "arguments": _words(wanted[2])}
        if "load" in self._roles:
            return self._roles["read"], {"name": skill, "path": wanted[1]}
        return self._roles["read"], {"path": f"skill://{skill}/{wanted[1]}"}

    def _skill(self, scene: _Scene) -> str | None:
        """The skill that the message is about: named, found, or the one that was loaded last."""
        if scene.called:
            return scene.called
        of = _OF.search(scene.question)
        known = [name for one in (*scene.earlier, *scene.done) if (name := self._name(one))]
        if of and (of[1] in known or f'"{of[1]}"' in scene.instructions or f">{of[1]}<" in scene.instructions):
            return of[1]
        if (_READ.search(scene.question) or _RUN.search(scene.question)) and known:
            return known[-1]
        for one in reversed(scene.done):
            if one.tool == self._roles.get("search"):
                hit = _HIT.search(one.text)
                return hit[1] if hit else None
        words = set(re.findall(r"[a-z0-9][a-z0-9-]+", scene.question.lower()))
        listed = re.findall(r'"name": ?"([a-z0-9-]+)"', scene.instructions)
        return next((name for name in listed if name in words), None) if "search" not in self._roles else None

    def _name(self, one: _Done) -> str:
        """The skill that a call was about, if it was one that loads."""
        if not one.ok or one.tool == self._roles.get("search"):
            return ""
        path = str(one.args.get("path", ""))
        return str(one.args.get("name") or (path[8:].partition("/")[0] if path.startswith("skill://") else ""))

    def _loaded(self, scene: _Scene, skill: str) -> bool:
        known = any(self._name(one) == skill for one in (*scene.earlier, *scene.done))
        return known or bool(scene.given and scene.called == skill)

    # --- what to say ---

    def _said(self, scene: _Scene) -> Iterator[str]:
        if scene.first:
            yield INTRODUCTION
        if not self._roles:
            yield "There is no skill here that I could use. Put a folder with a SKILL.md where skills are looked for."
            return
        if scene.given:
            yield f"You called the skill {scene.called}. Its steps:"
            yield _outline(scene.given)
        for one in scene.done:
            yield from self._told(one)
        known = [one for one in scene.earlier if scene.called and self._name(one) == scene.called and _is_load(one)]
        if not scene.done and not scene.given and known:
            yield from self._told(known[-1])
        elif not scene.done and not scene.given:
            yield "Say what you need, name a skill with `/name`, or ask me to `read` a file or `run` a script of one."

    def _told(self, one: _Done) -> Iterator[str]:
        if not one.ok:
            yield f"That did not work: {one.text}"
        elif one.tool == self._roles.get("search"):
            hits = _HIT.findall(one.text)
            if hits:
                others = f" Others that may fit: {', '.join(hits[1:])}." if hits[1:] else ""
                yield f"The skill that fits best is {hits[0]}.{others}"
            else:
                yield "No skill fits that. Say it in other words, or type `/` to see the skills by name."
        elif one.tool == self._roles.get("run"):
            yield f"I ran {one.args.get('script')}. Its output:"
            yield f"```\n{one.text[:2_000]}\n```"
        elif _is_load(one):
            yield f"I loaded {self._name(one)}. Its steps:"
            yield _outline(one.text)
        else:
            yield f"I read {one.args.get('path')}; it is in the card above."


def _is_load(one: _Done) -> bool:
    path = str(one.args.get("path", ""))
    return not path or (path.startswith("skill://") and path.count("/") == 2)


def _scene(messages: Sequence[ModelMessage], instructions: str) -> _Scene:
    scene = _Scene(instructions=instructions)
    calls: dict[str, ToolCallPart] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            calls.update((part.tool_call_id, part) for part in message.parts if isinstance(part, ToolCallPart))
            scene.first = scene.first and not message.text
        else:
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    if scene.given:
                        scene.earlier.append(_Done("", {"name": scene.called}, scene.given, True))
                    scene.earlier += scene.done
                    scene.done = []
                    _hear(scene, str(part.content))
                elif isinstance(part, ToolReturnPart) and part.tool_call_id in calls:
                    call = calls[part.tool_call_id]
                    text = str(part.content)
                    scene.done.append(_Done(call.tool_name, call.args_as_dict(), text, part.outcome == "success"))
    return scene


def _hear(scene: _Scene, text: str) -> None:
    """Take in a user's message: the words, and the skill that was called with its instructions."""
    called = _CALLED.search(text)
    scene.question = text[: called.start()].strip() if called else text
    scene.given = text[called.end() :] if called else ""
    named = called or _CALLED.search(scene.instructions)
    scene.called = named[1] if named else ""


def _outline(text: str) -> str:
    """The steps of a skill: its headings, or where it has none its numbered lines; and what can be read or run."""
    found = _HEADING.findall(text)
    steps = [" ".join(step.split()) for step in (found if len(found) > 1 else _STEP.findall(text) or found)]
    lines = [f"{number}. {step}" for number, step in enumerate(steps[:STEPS], 1)]
    if len(steps) > STEPS:
        lines.append(f"and {len(steps) - STEPS} more; the card above has all of it.")
    named = (file for file in _FILE.findall(text) if ".." not in file)  # a skill may speak of what must be refused
    files = list(dict.fromkeys(named))[:STEPS]
    asks = [f"`{'run' if file.startswith('scripts/') else 'read'} {file}`" for file in files]
    more = f"\n\nYou can ask me to {', '.join(asks)}." if asks else ""
    return ("\n".join(lines) or "It has no headings or numbered steps; the card above has its text.") + more


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text.strip().strip("`"))
    except ValueError:
        return text.split()


def _pieces(text: str) -> list[str]:
    """A text in the pieces in which it is streamed: words with the blanks behind them."""
    return re.findall(r"\S+\s*|\s+", text) or [""]
