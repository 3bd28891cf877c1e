"""The allocator: large blocks are kept for the next step instead of being given back to the system."""

import ctypes
import sys

__all__ = ["keep_freed_memory"]

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 1 << 30


def keep_freed_memory() -> bool:
    """Let glibc keep freed blocks of up to a gigabyte; says whether it could.

    By default every block over 32 MB goes back to the system when it is freed, and its pages are zeroed again at the
    next step: a tenth to a quarter of the time of an encoder–decoder's step on a CPU. The price is peak memory.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, such as musl
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, 2 * LARGEST - 1))
