"""What processes of one run print."""

import re


def spoken(output: str) -> list[str]:
    """The lines that we print ourselves.

    Gloo, the collectives of CPUs, says how many ranks are connected, and its threads tear the line.
    """
    return [
        line for line in output.splitlines() if not re.search(r"\[Gloo\]|ranks|connected", line)
    ]
