"""A runner whose output, files and errors have no value of a secret in them.

This is the one place where values are masked: what a script prints or writes comes out of its runner here, and
everything behind it (events, results, artifacts, logs, every surface) only ever sees `[secret NAME]`. Text is masked,
and a file that is not text and has a value in it is not kept. What a script writes into a project is not changed.
"""

from dataclasses import replace

from metier.errors import MetierError
from metier.files.digests import digest_of
from metier.running.sandbox import HostAttempt, Job, OnOutput, Outcome, Runner, Stream, WrittenFile
from metier.running.secrets.masking import Mask, StreamMask


class MaskedRunner:
    """Wraps a runner for one run."""

    def __init__(self, runner: Runner, mask: Mask) -> None:
        self._runner, self._mask = runner, mask
        self.name = runner.name

    def problem(self) -> str | None:
        return self._runner.problem()

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        output = _MaskedOutput(self._mask, on_output)
        try:
            outcome = self._runner.run(self._masked(job), output.take if on_output is not None else None)
        except MetierError as error:
            error.args = tuple(self._mask.value(argument) for argument in error.args)
            for name, value in vars(error).items():
                if isinstance(value, str):
                    setattr(error, name, self._mask.text(value))
            raise
        output.end(outcome)
        return masked_outcome(outcome, self._mask)

    def _masked(self, job: Job) -> Job:
        """The job, whose attempts to connect to a host do not tell a value that is part of a host's name."""
        tell = job.on_attempt
        if tell is None:
            return job

        def masked(attempt: HostAttempt) -> None:
            tell(replace(attempt, host=self._mask.text(attempt.host)))

        return replace(job, on_attempt=masked)


class _MaskedOutput:
    """Passes output on without values. A value may come in two pieces."""

    def __init__(self, mask: Mask, on_output: OnOutput | None) -> None:
        self._on_output = on_output
        self._streams: dict[Stream, StreamMask] = {"stdout": StreamMask(mask), "stderr": StreamMask(mask)}

    def take(self, stream: Stream, data: bytes) -> None:
        self._pass(stream, self._streams[stream].feed(data))

    def end(self, outcome: Outcome) -> None:
        for stream, masked in self._streams.items():
            self._pass(stream, masked.end(cut=outcome.ended != "exit"))

    def _pass(self, stream: Stream, data: bytes) -> None:
        if data and self._on_output is not None:
            self._on_output(stream, data)


def masked_outcome(outcome: Outcome, mask: Mask) -> Outcome:
    """The outcome without values. What was changed because of that is said in a note."""
    cut = outcome.ended != "exit"
    files: list[WrittenFile] = []
    left_out, notes = list(outcome.left_out), list(outcome.notes)
    for file in outcome.files:
        names = ", ".join(mask.found(file.path.encode("utf-8", "surrogateescape")))
        if names:
            left_out.append(f"{mask.text(file.path)}: its name has the value of the secret {names} in it")
            continue
        names = ", ".join(mask.found(file.data, cut=True))
        if names and not _is_text(file.data):
            left_out.append(f"{file.path}: it is not text, and has the value of the secret {names} in it")
            continue
        if names:
            data = mask.data(file.data, cut=True)
            file = WrittenFile(file.path, len(data), digest_of(data), data)
            notes.append(f"the value of the secret {names} was masked in {file.path}")
        files.append(file)
    return replace(
        outcome,
        stdout=mask.data(outcome.stdout, cut=cut),
        stderr=mask.data(outcome.stderr, cut=cut),
        files=tuple(files),
        left_out=tuple(map(mask.text, left_out)),
        notes=tuple(map(mask.text, notes)),
        changes=tuple(replace(change, path=mask.text(change.path)) for change in outcome.changes),
        refused=tuple(map(mask.text, outcome.refused)),
    )


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False
