"""A self-contained HTML page for light and dark, and figures of matplotlib inside of it.

Nothing is fetched: a policy in the page (CSP) forbids it, and all scripts but the page's own.
"""

import base64
import dataclasses
import hashlib
import html
import io
import json
import re
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.data.outputs import Layout, resumable_outputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that can be read on white and on black. The ink is replaced by the page's colour of text.
COLOURS = ("#3d85e0", "#d9730d", "#2f9e63", "#a35bd1", "#d1495b", "#8a8d2d", "#2aa1b3", "#8d6e63")
_INK = "#012345"
_FIGURE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), _INK),
    "svg.fonttype": "none",  # the browser has fonts for all scripts
    "svg.hashsalt": "bert_jax",  # the same picture is the same file
    "font.size": 9,
    "axes.facecolor": "none",
    "legend.framealpha": 0,
    "text.parse_math": False,  # a dollar sign in a name does not start a formula
}
_SIZE = re.compile(r'width="[\d.]+pt" height="[\d.]+pt" (viewBox)')
_NOTEBOOK_HEIGHT = "38em"


@dataclasses.dataclass(frozen=True)
class Page:
    """A page; a notebook shows it.

    Attributes:
        title: the title.
        body: HTML, see `text`.
        style: CSS after that of all pages.
        script: a module of JavaScript, which runs after the body.
    """

    title: str
    body: str
    style: str = ""
    script: str = ""

    @property
    def layout(self) -> Layout:
        """What stands before and after the body."""
        digest = base64.b64encode(hashlib.sha256(self.script.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'"
        )
        head = (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{text(self.title)}</title>\n"
            f"<style>\n{asset('page.css')}{self.style}</style>\n</head>\n<body>\n"
            f"<h1>{text(self.title)}</h1>\n"
        )
        script = f'<script type="module">{self.script}</script>\n' if self.script else ""
        tail = f"{script}</body>\n</html>\n"
        return Layout(head=head, tail=tail, empty=head + tail)

    @property
    def html(self) -> str:
        """The whole page."""
        return self.layout.head + self.body + self.layout.tail

    def save(self, path: str | Path) -> None:
        """Writes the page; "-" is stdout.

        Raises:
            UserError: it cannot be written, or the path is of a file that is not from bert_jax.
        """
        layout = self.layout
        with resumable_outputs(path, [layout], None) as outputs:
            outputs.write(layout.prefix, self.body)

    def _repr_html_(self) -> str:
        """For notebooks: a frame, so that style and script of the page concern nothing else."""
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{text(self.html)}" title="{text(self.title)}"'
            f' style="width: 100%; height: {_NOTEBOOK_HEIGHT}; border: 0"></iframe>'
        )


def asset(name: str) -> str:
    """A file of this package: style or script."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def modules(*names: str) -> str:
    """JavaScript files of this package as one module; each stands after those that it imports."""
    return re.sub(r"^import .*;\n", "", "".join(map(asset, names)), flags=re.MULTILINE)


def text(content: object) -> str:
    """Any text as HTML, also in a quoted attribute."""
    return html.escape(str(content))


def name(content: object) -> str:
    """A text of a user inside of a line: its direction of writing changes nothing around it."""
    return f"<bdi>{text(content)}</bdi>"


def data(value: Any) -> str:
    """JSON for a script element: no text in it ends the element or begins another."""
    encoded = json.dumps(value, ensure_ascii=True)
    return re.sub("[<>&]", lambda character: f"\\u{ord(character[0]):04x}", encoded)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table that scrolls by itself where it is too wide.

    Args:
        head: HTML of the names of the columns.
        rows: HTML of the cells.
        caption: HTML above the table.
    """
    title = f"<caption>{caption}</caption>" if caption else ""
    names = "".join(f"<th scope=col>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{c}</td>' for c in row)}</tr>\n" for row in rows)
    table = f"<table>{title}<thead><tr>{names}</tr></thead>\n<tbody>\n{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>\n'


def figure(
    draw: Callable[["Figure"], None], description: str, *, width: float = 6, height: float = 3
) -> str:
    """A figure of matplotlib as SVG in the page, in its colour of text.

    Args:
        draw: draws on an empty figure.
        description: what is seen, for those who do not see it.
        width: inches.
        height: inches.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler

    with matplotlib.rc_context({**_FIGURE, "axes.prop_cycle": cycler(color=list(COLOURS))}):
        made, file = Figure(figsize=(width, height), layout="constrained"), io.StringIO()
        draw(made)
        unnamed = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        made.savefig(file, format="svg", transparent=True, metadata=unnamed)
    svg = file.getvalue()
    svg = _SIZE.sub(r"\1", svg[svg.index("<svg") :]).replace(_INK, "currentColor")
    label = f'<svg role="img" aria-label="{text(description)}" style="max-width: {width}in"'
    return f"<figure>{svg.replace('<svg', label, 1)}</figure>\n"
