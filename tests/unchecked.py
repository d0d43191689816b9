"""Compute at full speed in the tests' own process."""

from contextlib import contextmanager

import jaxtyping
import pytest


@contextmanager
def unchecked():
    """Without the tests' run-time type checks, for thousands of short calls.

    A process of its own would have none either, but takes two seconds to import everything.
    """
    typed = jaxtyping.jaxtyped

    def typed_unless_inner(*, typechecker):
        """Modules that are imported meanwhile are typed as ever, functions in functions are not."""

        def decorate(one):
            is_inner = "<locals>" in one.__qualname__
            return one if is_inner else typed(one, typechecker=typechecker)

        return decorate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping, "jaxtyped", typed_unless_inner)
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield
