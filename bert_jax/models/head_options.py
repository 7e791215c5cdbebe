"""The base of the options of heads, and of what few families have."""

import dataclasses
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True)
class HeadOptions:
    """Options of one head, or of an input that few families have.

    A subclass has the fields, which families, files and configs set.
    """

    keys: ClassVar[tuple[str, ...]] = ()
    """The fields that are keys of `config.json` and of section `model`; families set the rest."""

    output_keys: ClassVar[tuple[str, ...]] = ()
    """The keys that choose what the outputs are; Hugging Face's models have the defaults."""

    def check(self, config: Any) -> None:
        """Checks the options with the sizes of the encoder, an `EncoderConfig`.

        Raises:
            OptionError: they contradict each other.
        """
