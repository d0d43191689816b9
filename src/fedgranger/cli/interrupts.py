"""Ctrl-C at any moment: one line and exit status 130.

An import cannot be trusted with a `KeyboardInterrupt`: libraries catch whatever goes wrong while
they look for others. In a finaliser or in a callback of the collector of garbage it would be
printed and forgotten. So the handler ends the process at once in the first case, when nothing is
half done, and in the second asks again a moment later.

Nothing here needs more than the interpreter itself, because it must be there before the rest.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType
    from typing import NoReturn
else:
    import _signal as signal  # `signal` itself reads others first, a moment without a handler

INTERRUPTED = 130
AGAIN_SECONDS = 0.05
LOST_IN = ("__del__", "_xla_gc_callback")
"""Functions whose exceptions Python prints and forgets."""


def end_at_once(*_: object) -> NoReturn:
    """Say so in one line and leave, whatever is under way."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def handle(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt` where it will be seen."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            end_at_once()
        if code.co_name in LOST_IN:
            import threading

            threading.Timer(AGAIN_SECONDS, signal.raise_signal, (number,)).start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def watch_over() -> None:
    """Take over Ctrl-C, unless the process was started to ignore it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)


def leave(status: object) -> NoReturn:
    """End the process; Ctrl-C in its last moments changes nothing."""
    if signal.getsignal(signal.SIGINT) is handle:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)  # type: ignore[arg-type]
