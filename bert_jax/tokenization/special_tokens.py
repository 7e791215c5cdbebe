"""Which pieces of a vocabulary are the five special tokens of BERT."""

from collections.abc import Callable, Sequence

from bert_jax.errors import UserError
from bert_jax.tokenization.interface import SpecialIds

# Both spellings stand in the order of the fields of SpecialIds, which is also the order of the
# ids that vocabulary training gives them.
BRACKETED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ANGLED = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")


def find_special_ids(
    token_to_id: Callable[[str], int | None],
    spellings: Sequence[tuple[str, ...]],
    origin: str,
) -> SpecialIds:
    """Looks the five special tokens up.

    Args:
        token_to_id: the id of a piece, None where the vocabulary has no such piece.
        spellings: some of `BRACKETED` and `ANGLED`; for each token the first one found counts.
        origin: the file to name in an error.

    Raises:
        UserError: the vocabulary lacks one of the five.
    """
    found = []
    for alternatives in zip(*spellings, strict=True):
        ids = (token_to_id(token) for token in alternatives)
        special_id = next((token_id for token_id in ids if token_id is not None), None)
        if special_id is None:
            raise UserError(
                f"{origin}: the vocabulary has no {' or '.join(alternatives)}; BERT needs "
                f"{' '.join(spellings[0])}: add it, or train the tokenizer anew"
            )
        found.append(special_id)
    return SpecialIds(*found)
