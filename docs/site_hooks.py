"""What the site's build adds to Markdown; mkdocs.yml names this file."""

import logging
import re
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert

LOG = logging.getLogger("mkdocs.hooks.site")
DOCS = Path(__file__).parent
LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)\)")
NAMED_FENCE = re.compile(r"^(```\w+) [\w-]+$", re.MULTILINE)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_markdown(markdown, page, **_):
    """Make plain fences of named ones, and paths of links to files that the site does not hold."""
    folder = (DOCS / page.file.src_path).parent
    plain = NAMED_FENCE.sub(r"\1", markdown)
    return LINK.sub(lambda found: _path(found, folder), plain)


def _path(found, folder):
    target = (folder / found[2]).resolve()
    outside = target.exists() and DOCS.resolve() not in target.parents
    return f"`{target.relative_to(DOCS.resolve().parent)}`" if outside else found[0]


def on_page_content(html, page, **_):
    """Replace every formula by MathML, which browsers draw without a script."""
    return FORMULA.sub(lambda found: _mathml(found, page.file.src_path), html)


def _mathml(found, source):
    kind, latex = found[2], unescape(found[3])
    drawn = convert(latex, display="block" if kind == "[" else "inline")
    if "\\" in drawn:
        LOG.warning("%s: a formula has a command that MathML lacks: %s", source, latex)
    return drawn
