"""A plain server of sentence-transformers: Starlette, and one request at a time.

python -m benchmarks.peers_serving MODEL LENGTH
"""

import argparse
import socket
import sys
from pathlib import Path

import sentence_transformers
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.contender import Step
from benchmarks.load import Server, measured
from benchmarks.texts import requests


def clients(options: argparse.Namespace) -> Step:
    """Vectors for many clients at the same time."""
    model = options.model or f"{options.output}/model-{options.size}"
    words = (model, str(options.length), options.dtype)
    log = Path(options.output, f"{options.name}-{options.contender}-server.log")
    server = Server([sys.executable, "-m", "benchmarks.peers_serving", *words], log)
    texts = requests(options)
    return lambda number: measured(server, texts, options, options.clients)


def serve(model: str, length: str, dtype: str) -> None:
    """Serves `POST /embed` with `{"inputs": [TEXT, …]}` on a free port."""
    encoder = sentence_transformers.SentenceTransformer(
        model, model_kwargs={"dtype": getattr(torch, dtype)}
    )
    encoder.max_seq_length = int(length)

    async def embed(request: Request) -> JSONResponse:
        vectors = encoder.encode((await request.json())["inputs"], convert_to_tensor=True)
        return JSONResponse(vectors.float().tolist())

    app = Starlette(routes=[Route("/embed", embed, methods=["POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"serving on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, access_log=False)).run([listener])


if __name__ == "__main__":
    serve(*sys.argv[1:])
