"""What can go wrong, as one tree of exceptions.

    ClearheadError                everything below; the command line prints it as one sentence, exit code 1
    ├── ConfigError               a setting that cannot be: an unknown key, a size below one
    ├── ShapeError                sizes or tensors that do not fit together
    ├── DataError                 a file of the user's that cannot be read as what it should be (names file and line)
    ├── CheckpointError           a model or run directory that is missing, broken or of another kind
    ├── DecodingError             a request that no decoding can meet
    ├── MissingPackageError       an optional package that this needs and that is not installed
    ├── RefusedError              a request that is not answered                      (defined in serve/guards.py)
    ├── DivergenceError           the loss or its gradient is no longer a number      (defined in train/step.py)
    └── InterruptionError         Ctrl-C or SIGTERM, after a checkpoint was written   (defined in train/interrupt.py)

Each message is one sentence: what, where, and what to do about it; the offending value is in it. `unwritten` is that
sentence for what the operating system does not let be written.
"""

import errno

__all__ = [
    "FULL",
    "CheckpointError",
    "ClearheadError",
    "ConfigError",
    "DataError",
    "DecodingError",
    "MissingPackageError",
    "ShapeError",
    "unwritten",
]

FULL = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})  # what the system says of a full disk


class ClearheadError(Exception):
    """Whatever clearhead itself refuses; its message is meant for the user."""


class ConfigError(ClearheadError, ValueError):
    """A setting that cannot be."""


class ShapeError(ClearheadError, ValueError):
    """Sizes or tensors that do not fit together."""


class DataError(ClearheadError, ValueError):
    """A user's file that cannot be read as what it should be."""


class CheckpointError(ClearheadError, ValueError):
    """A model or run directory that is missing, broken or of another kind."""


class DecodingError(ClearheadError, ValueError):
    """A request that no decoding can meet."""


class MissingPackageError(ClearheadError, ImportError):
    """An optional package that is needed here and not installed."""


def unwritten(target: object, error: OSError) -> str:
    """That a file, or whatever `target` is, could not be written, and why."""
    full = "the disk is full: make room, or write elsewhere"
    why = full if error.errno in FULL else f"the system says {error.strerror or str(error)!r}"
    return f"{target} could not be written because {why}"
