"""Files that only their owner can read, whatever the umask, and that are never half written."""

from __future__ import annotations

import stat
from pathlib import Path

from fedgranger.disk import create_private, write_atomically
from fedgranger.errors import RunError

OTHERS = 0o077


def write_private(path: Path, content: bytes) -> None:
    """Write a file for its owner only; a reader finds the old content or the new, never a part."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, lambda part: create_private(part, content))


def restrict(folder: Path) -> None:
    """Make a folder and all that is in it readable by its owner only."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)


def check_private(*paths: Path) -> None:
    """Refuse a path that others than its owner can read or change."""
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & OTHERS:
            remedy = f"chmod -R go= '{path}'"
            raise RunError(f"{path}: others on this machine can read it ({mode:04o}); {remedy}")
