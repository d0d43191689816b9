"""Docstrings end with `Example:`; griffe knows the section by the name `Examples:`."""

import re

from griffe import Extension

TITLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)


class DocstringExamples(Extension):
    """Rename the section, so that the site shows it as code."""

    def on_object(self, *, obj, **_):
        """Change the text of one docstring, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = TITLE.sub(r"\1Examples:", obj.docstring.value)
