"""The one exception a person may read: what was wrong, where, and what to do about it."""

from __future__ import annotations


class AtlasError(Exception):
    """A problem that the user can understand and remedy.

    problem : what was wrong and where (file, line, column, record), one sentence without a full stop.
    remedy : what to do about it, one sentence without a full stop.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}.")
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[AtlasError], tuple[str, str]]:
        """Both sentences, so that another process can raise it too."""
        return type(self), (self.problem, self.remedy)


class StoppedError(AtlasError):
    """Somebody cancelled before there was enough for an answer."""


class ServerError(AtlasError):
    """The server cannot do what it should; the request is not to blame."""


class OtherResultError(AtlasError):
    """A whole result of another test than the one that was asked about."""


class ChangedResultError(OtherResultError):
    """The same, whose own hash does not agree."""
