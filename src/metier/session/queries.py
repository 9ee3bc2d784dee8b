"""The operations of a session that only show something: prompts, slash commands, and what may be used now.

They are operations like the others, but the record does not have them. It has the skills that a prompt showed, in a
stream of its own, and what a message added to a prompt, by `Choose`, since later prompts show that, too.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self, cast

from metier.files.text import storable_text
from metier.hosts.formats import Text
from metier.hosts.schema import Profile
from metier.record.events import SkillsChosen
from metier.record.offers import SkillOffer, of_prompt
from metier.session import listing, system_prompt
from metier.session.context import SessionContext, Steps
from metier.session.operation import Operation, about
from metier.values.results import Prompt, WholePrompt
from metier.values.value import Value


class CatalogPrompt(Operation[Prompt], kw_only=True):
    """Show the part of a system prompt that lists the skills"""

    operation: ClassVar[str] = "prompt"
    recorded: ClassVar[bool] = False

    message: Annotated[str | None, about("The user's message; it adds skills where the list is cut.", nul=True)] = None
    budget: Annotated[
        int | None,
        about("At most this many characters (bytes in codelia); by default the host's limit, or 50,000.", minimum=0),
    ] = None
    files: Annotated[Sequence[str] | None, about("The files being worked on; they decide about skills with paths.")] = (
        None
    )

    def perform(self, context: SessionContext) -> Steps[Prompt]:
        yield
        return listing.prompt(context, self.message, self.budget, self.files)

    def listed(self, result: Prompt) -> Prompt:
        return result

    def offer(self, result: Prompt) -> SkillOffer:
        return of_prompt(result)


class SystemPrompt(Operation[WholePrompt], kw_only=True):
    """Show a whole system prompt"""

    operation: ClassVar[str] = "system_prompt"
    recorded: ClassVar[bool] = False

    base: Annotated[str, about("The host's own prompt, which comes first.", nul=True)] = ""
    message: Annotated[str | None, about("The user's message; it adds skills where the list is cut.", nul=True)] = None
    budget: Annotated[
        int | None,
        about(
            "At most this many characters for the list of skills; by default the host's limit, or 50,000.", minimum=0
        ),
    ] = None
    files: Annotated[Sequence[str] | None, about("The files being worked on; they decide about skills with paths.")] = (
        None
    )

    def perform(self, context: SessionContext) -> Steps[WholePrompt]:
        return system_prompt.system_prompt(context, self.base, self.message, self.budget, self.files)

    def listed(self, result: WholePrompt) -> Prompt | None:
        return result.listed

    def offer(self, result: WholePrompt) -> SkillOffer:
        return of_prompt(result)


class Choose(Operation[Text], kw_only=True):
    """Record which skills a message added to a prompt. No surface offers it."""

    operation: ClassVar[str] = "choose"

    skills: Annotated[Sequence[Mapping[str, object]], about("The name and the path of each.")] = ()
    replaces: Annotated[bool, about("Whether earlier ones are no longer shown.")] = False

    def check(self) -> None:
        return  # it is made here, and not from what somebody sent

    @classmethod
    def of(cls, listed: Prompt) -> Self:
        skills = [{"name": storable_text(skill.name), "path": storable_text(skill.path)} for skill in listed.chosen]
        return cls(skills=skills, replaces=listed.replaces)

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        skills = cast("Sequence[Mapping[str, object]]", values["skills"])
        return cls(skills=skills, replaces=bool(values.get("replaces")))

    def perform(self, context: SessionContext) -> Steps[Text]:
        yield
        known = () if self.replaces else context.state.chosen
        new = tuple(skill for skill in self.skills if skill["path"] not in known)
        if new:
            context.recorder.note(SkillsChosen(new, self.replaces or None))
        return Text("")


class CommandList(Value):
    """The slash commands of a host, one per skill."""

    commands: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.commands)


class Commands(Operation[CommandList], kw_only=True):
    """List the slash commands that a host may offer to a user"""

    operation: ClassVar[str] = "commands"
    recorded: ClassVar[bool] = False

    def perform(self, context: SessionContext) -> Steps[CommandList]:
        yield
        form = command_form(context.profile)
        named = [s.name for s in context.skills.catalog.skills if context.visibility.callable_by_user(s)]
        return CommandList(tuple(form.replace("name", name) for name in named) if form else ())


def command_form(profile: Profile) -> str:
    """How a user calls a skill by a slash command, such as `/name`; empty where the host has no commands."""
    rules = profile.invocation
    return next((form for form in rules.forms if form.startswith("/")), "") if rules.commands else ""


class Allowance(Value):
    """Whether a tool of the host may be used now."""

    allowed: bool

    @property
    def text(self) -> str:
        return "allowed" if self.allowed else "refused"


class MayUse(Operation[Allowance], kw_only=True):
    """Say whether a tool of the host may be used now, by policy and the skills that are active"""

    operation: ClassVar[str] = "may_use"
    recorded: ClassVar[bool] = False

    tool: Annotated[str, about("The tool of the host.", minLength=1)]
    command: Annotated[str, about("The command that it would run.", nul=True)] = ""

    def perform(self, context: SessionContext) -> Steps[Allowance]:
        yield
        return Allowance(context.may_use(self.tool, self.command))

    def exit_code(self, result: Allowance) -> int:
        return 0 if result.allowed else 3
