"""The page at `GET /`: its files, which are served as they are in the package."""

import hashlib
from collections.abc import Callable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bert_jax.serving.errors import RequestError

_PREFIX = "/page/"
_INDEX = "index.html"
# Drawn by both this page and those that `predict` writes.
_PICTURE_FILES = ("page.css", "attention.css", "attention.js", "elements.js")
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_HTML = ("text/html", "text/*", "*/*")

# Nothing from elsewhere, no script or style in the markup, no markup made of text by a script.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # kept, and asked for again: it is another after an update
}


def is_page(path: str) -> bool:
    """Whether the path is one of the page's files, if the method is GET."""
    return path == "/" or path.startswith(_PREFIX)


def page_routes() -> list[Route]:
    """The page at `/` for those who take HTML, and its other files."""
    files = {file.name: _answer(file) for file in _files()}
    index = files.pop(_INDEX)

    async def page(request: Request) -> Response:
        accepted = request.headers.get("accept", "*/*")
        if not any(kind in accepted for kind in _HTML):
            message = "GET / is a page; accept text/html, or POST inputs in Hugging Face's form"
            raise RequestError(406, message)
        return index(request)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise RequestError(404, "Not Found")
        return files[name](request)

    return [Route("/", page), Route(_PREFIX + "{name}", file)]


def _answer(file: Traversable) -> Callable[[Request], Response]:
    """Answers with a file, which is in memory; if the client has it, with 304 without it."""
    content, media_type = file.read_bytes(), _TYPES[PurePath(file.name).suffix]
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": tag}

    def answer(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return answer


def _files() -> list[Traversable]:
    package = resources.files("bert_jax")
    pictures = package / "pictures"
    own = (package / "serving" / "page").iterdir()
    return [*own, *(pictures / name for name in _PICTURE_FILES)]
