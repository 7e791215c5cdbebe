"""What a server takes: sizes of requests, of its queue and of its batches."""

import dataclasses

from bert_jax.errors import OptionError, require_at_least, require_between


@dataclasses.dataclass(frozen=True)
class ServerLimits:
    """The limits of a server.

    Attributes:
        batch_size: maximum number of rows computed together.
        max_length: maximum number of tokens of a row; None: as in the files of each model.
        max_waiting: examples that may wait; further requests are refused with 429.
        max_texts: maximum number of examples of a request.
        max_tokens: maximum number of tokens of a request, after its texts are cut.
        max_bytes: maximum size of the body of a request.
        timeout: seconds after which a request is given up.
    """

    batch_size: int = 32
    max_length: int | None = None
    max_waiting: int = 1024
    max_texts: int = 256
    max_tokens: int = 65_536
    max_bytes: int = 4_000_000
    timeout: float = 60.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "timeout":
                require_at_least(field.name, getattr(self, field.name), 1)
        require_between("timeout", self.timeout, 0, 86_400, without_low=True)
        if self.max_texts > self.max_waiting:
            rule = f"at most {{max_waiting}}, {self.max_waiting}, or no such request is ever taken"
            raise OptionError("max_texts", self.max_texts, rule)
