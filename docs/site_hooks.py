"""What the site's build adds to Markdown; mkdocs.yml names this file."""

import json
import logging
import re
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

LOG = logging.getLogger("mkdocs.hooks.site")
DOCS = Path(__file__).parent
LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)\)")
NAMED_FENCE = re.compile(r"^(```\w+) [\w-]+$", re.MULTILINE)
STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files, config):
    """Add a page for every notebook; the notebook itself is beside it, to download."""
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        name = path.relative_to(DOCS).with_suffix(".md").as_posix()
        files.append(File.generated(config, name, content=notebook_page(path)))
    return files


def notebook_page(path):
    """A notebook as Markdown: its texts, code and outputs."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = [part for cell in cells for part in _cell_parts(cell)]
    parts.insert(1, f"*A notebook: [{path.name}]({path.name}) to run it yourself.*")
    return "\n\n".join(parts) + "\n"


def _cell_parts(cell):
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        first, _, rest = source.partition("\n\n")  # the title stands alone
        return [first, rest] if first.startswith("# ") else [source]
    return [_fenced(source, "python"), *map(_output, cell["outputs"])]


def _output(output):
    """The picture, else the table, else the text."""
    if output["output_type"] == "stream":
        return _fenced("".join(output["text"]), "text")
    data = {kind: "".join(part) for kind, part in output["data"].items()}
    if "image/png" in data:
        picture = data["image/png"].replace("\n", "")
        return f'<p><img alt="output" src="data:image/png;base64,{picture}"></p>'
    if "text/html" in data:  # no line may be blank or indented: Markdown would read it
        lines = STYLE.sub("", data["text/html"]).splitlines()
        table = " ".join(line.strip() for line in lines)
        return f'<div style="overflow-x: auto">{table}</div>'
    return _fenced(data["text/plain"], "text")


def _fenced(text, language):
    return f"```{language}\n{text.rstrip()}\n```"


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
