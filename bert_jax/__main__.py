"""`python -m bert_jax` is `bert-jax`."""

import sys

from bert_jax.cli import main

sys.exit(main())
