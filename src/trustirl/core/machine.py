"""What is installed here, how to install what is not, and how many cores there are."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version


def installed(package: str) -> str | None:
    """The version of a package, None where it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """The command that installs one of our extras on this machine."""
    if extra == "box2d" and not _has_box2d_wheel():  # its build finds swig only in the environment it is built in
        return "pip install setuptools wheel swig pygame-ce && pip install --no-build-isolation box2d-py"
    return f"pip install 'trustirl[{extra}]'"


def _has_box2d_wheel() -> bool:
    """As the markers of the extra in pyproject.toml say."""
    return sys.version_info < (3, 14) and (sys.platform != "linux" or platform.machine() == "x86_64")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
