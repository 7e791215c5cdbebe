"""Models behind HTTP: `bert-jax serve`.

Starlette, uvicorn, Pydantic and prometheus-client (the extra `serve`) are imported only here.
"""
