"""Runs a script of a skill in a session: policy first, then the sandbox, and every step in the record."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from metier.errors import MetierError
from metier.files import beneath
from metier.policy.asking import NOBODY
from metier.policy.decide import By
from metier.running import scripts
from metier.running.execution import Execution, refusal
from metier.running.grants import RunGrant
from metier.running.scripts import Script, WantedRun
from metier.session.context import SessionContext, Steps
from metier.values.results import Request, RunResult
from metier.values.skill import Skill


def run(
    context: SessionContext,
    skill: Skill,
    path: str,
    arguments: Sequence[str],
    stdin: str | None,
    *,
    files: Mapping[str, str | bytes] | None,
    write: bool,
    write_paths: Sequence[str],
    by: By,
) -> Steps[RunResult]:
    """Run a script of a loaded skill, if policy allows it."""
    script: Script | None = None
    given: tuple[RunGrant, ...] = ()
    world, redact = context.world, context.policy.redact
    try:
        script = _taken(context, skill, path, arguments)
        scripts.check(script, context.policy, context.skills.catalog, context.state.windows)
        wanted = WantedRun(
            script=script,
            by=by,
            policy=context.policy,
            settings=context.skills.settings,
            files=files or {},
            write=write or bool(write_paths),
            write_paths=write_paths,
            folder=context.folder,
            uploads=context.uploads,
            artifact=context.recorder.store.get_artifact,
            looked_up=context.asked.looked_up,
        )
        given = world.grants(wanted)
        request = wanted.run_request(given)
        if by == "model" and (less := tuple(grant.withheld(wanted) for grant in given)) != given:
            plain = wanted.run_request(less)
            if _is_unanswerable(context, request, plain):
                given, request = less, plain
        yield request
        yield
        runner = scripts.runner_for(request, world.runner, context.profile.run)
    except MetierError as error:
        failed = refusal(skill.name, redact(path), error, script, given)
        context.recorder.note(replace(failed, detail=redact(failed.detail)), artifacts=_kept(script, given))
        raise
    context.recorder.note(artifacts=_kept(script, given))
    context.commit()
    return Execution(wanted, given, runner, context.note_now, world.process()).run(stdin)


def _taken(context: SessionContext, skill: Skill, path: str, arguments: Sequence[str]) -> Script:
    """The script at a path of a skill, as the question showed it if there was one. Raises `ResourceError`."""
    relative = beneath.check_relative(path, context.profile.resources.parents)
    taken, key = context.asked.scripts, (skill.path, skill.folder, relative)
    if key not in taken:
        taken[key] = context.world.script(skill, relative)
    return Script(
        skill=skill,
        path=relative,
        arguments=tuple(arguments),
        files=taken[key],
        config_folder=context.skills.settings.config_folder,
    )


def _kept(script: Script | None, given: Sequence[RunGrant]) -> dict[str, bytes] | None:
    if script is None:
        return None
    return script.artifacts | {digest: data for grant in given for digest, data in grant.artifacts.items()}


def _is_unanswerable(context: SessionContext, request: Request, plain: Request) -> bool:
    """Whether nobody can be asked about what a model's run could also do without. `plain` is the request without it."""
    answers = context.asked.answers
    nobody = context.approve is None or answers.get(request) == NOBODY
    if not nobody or context.policy.decide(request).verdict != "ask":
        return False
    if request in answers:
        context.use_answers(replace(context.asked, answers={**answers, plain: NOBODY}))
    return True
