"""`bert-jax serve`: models behind HTTP, for clients of OpenAI and Hugging Face, and curl."""

import argparse
import os
from pathlib import Path

from bert_jax.cli.common import Parser, directory, fields_from, local_mesh
from bert_jax.errors import OptionError, UserError
from bert_jax.process import say
from bert_jax.serving.limits import ServerLimits

SUMMARY = "models behind HTTP"

API_KEY = "BERT_JAX_API_KEY"
"""The environment variable of the API key."""

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    models = "a model directory or hub id, and a name (default: of the directory); may be repeated"
    add("--model", action="append", required=True, metavar="[NAME=]DIR", help=models)
    add("--index", type=directory, metavar="INDEX", help="an index, for /search")
    add("--host", default="127.0.0.1", help="address (default: 127.0.0.1, this machine alone)")
    add("--port", type=int, default=8000, metavar="N", help="port (default: 8000; 0: a free one)")
    add("--precision", default="float32", help="float32 (default), bfloat16, or auto")
    tasks = "a task whose programs are compiled at the start (default: all); may be repeated"
    add("--warm-up", action="append", default=[], metavar="TASK", help=tasks)
    add("--no-warm-up", action="store_true", help="compile each shape with its first request")
    add("--no-access-log", action="store_true", help="no line on stderr for each request")
    host_names = "a name by which clients reach the server, besides --host; may be repeated"
    add("--allowed-host", action="append", default=[], metavar="NAME", help=host_names)
    origin = "a site whose pages may send requests, as https://example.org; may be repeated"
    add("--cors-origin", action="append", default=[], metavar="ORIGIN", help=origin)
    limits = parser.add_argument_group("limits")
    length = "maximum tokens of a row (default: as in the model's files)"
    limits.add_argument("--max-length", type=int, metavar="N", help=length)
    for flag, default, what in (
        ("--batch-size", ServerLimits.batch_size, "rows computed together"),
        ("--max-waiting", ServerLimits.max_waiting, "examples that may wait; more are refused"),
        ("--max-texts", ServerLimits.max_texts, "texts of a request"),
        ("--max-tokens", ServerLimits.max_tokens, "tokens of a request"),
        ("--max-bytes", ServerLimits.max_bytes, "bytes of a request"),
    ):
        limits.add_argument(flag, type=int, metavar="N", help=f"{what} (default {default:,})")
    given_up = f"after so long, a request is given up (default {ServerLimits.timeout:g})"
    limits.add_argument("--timeout", type=float, metavar="SECONDS", help=given_up)


def run(options: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM; then answers what was accepted. That is no failure: 0."""
    limits = fields_from(ServerLimits, options)
    paths = named_paths(options.model)
    if not 0 <= options.port <= 65_535:
        raise OptionError("port", options.port, "it must be at least 0 and at most 65,535")
    try:
        from bert_jax.serving.app import make_app
        from bert_jax.serving.models import Models
        from bert_jax.serving.server import bind
        from bert_jax.serving.server import run as serve
        from bert_jax.serving.service import Service
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing; pip install 'bert_jax[serve]'") from error
    from bert_jax.inference.index import Index
    from bert_jax.inference.loading import load
    from bert_jax.sharding.stopping import StopSignals
    from bert_jax.tasks import find_task

    for task in options.warm_up:
        find_task(task, "PREDICT")
    listener = bind(options.host, options.port)  # a port in use is said before models are loaded
    key = os.environ.get(API_KEY)
    if options.host not in ("127.0.0.1", "::1", "localhost") and not key:
        say(f"{options.host}: everyone who reaches this address may use the models; see {API_KEY}")
    with StopSignals() as stop:
        mesh = local_mesh()
        models = {
            name: load(path, precision=options.precision, mesh=mesh) for name, path in paths.items()
        }
        index = Index.load(options.index, mesh=mesh) if options.index else None
        if index:
            index.share(models.values())
        service = Service(Models(models, limits, index), limits)
        if not options.no_warm_up:
            service.warm_up(options.warm_up, lambda: stop.requested)
        app = make_app(
            service,
            api_key=key,
            cors_origins=options.cors_origin,
            allowed_hosts=allowed_hosts(options.host, options.allowed_host),
            access_log=not options.no_access_log,
        )
        if not stop.requested:
            serve(app, service, listener, stop)
    return 0


def allowed_hosts(address: str, names: list[str]) -> list[str]:
    """The hosts that requests may name, see `make_app`; all, if the address is that of all."""
    if address in ("0.0.0.0", "::") and not names:
        return ["*"]
    return [*_LOOPBACK, f"[{address}]" if ":" in address else address, *names]


def named_paths(models: list[str]) -> dict[str, str]:
    """The directory of each model by its name.

    Raises:
        OptionError: a name is given twice, or empty.
    """
    paths: dict[str, str] = {}
    for each in models:
        name, equals, path = each.partition("=")
        if not equals or "/" in name:
            name, path = Path(each).name, each
        if not name or not path:
            raise OptionError("model", each, "give NAME=DIR")
        if name in paths:
            raise OptionError("model", each, f"the name {name} is given twice; give another NAME=")
        paths[name] = path
    return paths
