"""The output of the processes of one run."""

import re


def printed_lines(output: str) -> list[str]:
    """The lines printed by bert_jax itself.

    Gloo, the collectives of CPUs, says how many ranks are connected, and its threads tear the line.
    """
    return [
        line
        for line in output.splitlines()
        if not re.search(r"\[Gloo\]|ranks|connected|^[\d .]*$", line)
    ]
