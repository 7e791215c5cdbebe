"""Compiled programs on disk: the second start of the same training compiles nothing."""

import hashlib
import os
import platform

import jax

from bert_jax.files import user_cache
from bert_jax.models.kernels.cpu_features import cpu_flags


def use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache directory.

    `JAX_COMPILATION_CACHE_DIR` names another place, as everywhere in JAX; set to nothing, it turns
    the cache off. A program for one kind of processor may not run on another that shares the home
    directory, so each kind has a folder of its own.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    directory = user_cache() / "compiled" / _processor()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a home that cannot be written to: compile each time
    jax.config.update("jax_compilation_cache_dir", str(directory))
    # What compiles faster than this is not worth a file.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _processor() -> str:
    """8 hex digits for a kind of processor."""
    features = " ".join(sorted(cpu_flags())) or platform.processor()
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:8]
