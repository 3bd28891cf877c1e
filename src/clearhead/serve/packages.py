"""The packages that serving needs beside the library itself."""

from clearhead.errors import MissingPackageError

__all__ = ["need_packages"]


def need_packages(what: str) -> None:
    """Say which packages `what` needs, where they are not installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            f"{what} needs the packages 'fastapi' and 'uvicorn': install clearhead[serve]"
        ) from error
