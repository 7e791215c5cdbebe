"""Lists in the cells of a table, as Python, JSON and NumPy write them.

    ['joy', 'fear']   ('joy',)   {'joy'}   ["joy"]   [True, False]   [np.int64(0), np.True_]
    ['joy' 'fear']    [0 1 0]    [0. 1. 0.]   array([0, 1])   tensor([0., 1.])

A cell is read part by part and never evaluated.
"""

import ast
import re
from collections.abc import Iterator

# A list is enclosed in brackets; or begins with a bracket and a quotation mark; or has parentheses
# or braces around a comma, or around nothing but numbers: "(other)" is a class.
_LIST = re.compile(
    r"\[.*\]|[\[({]\s*['\"].*|[({](?:[^,]*,.*|[\s\d.]*)[)}]",
    re.DOTALL,
)
_CALL = re.compile(
    r"(?:np\.)?(?:array|tensor|(?:frozen)?set)\((?:(?P<list>[\[({].*[\])}])[^\])}]*)?\)",
    re.DOTALL,
)
_PART = re.compile(
    r"\s*(?:np\.\w+\()?"
    r"(?:(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<bare>[^\s,'\"()\[\]{}]+))"
    r"\)?(?P<gap>\s*,|\s+|$)\s*",
    re.DOTALL,
)
_BIT = r"(?:[01](?:\.0*)?|true|false)"
_VECTOR = re.compile(rf"{_BIT}(?:(?:\s*[,;|]\s*|\s+){_BIT})+", re.IGNORECASE)
_NUMBERS = re.compile(r"\d+(\s*[,;|]\s*\d+)+")


def parse_list(text: str) -> tuple[str, ...] | None:
    """The parts of a cell that is a list; None if it does not look like one.

    Quoted parts are the texts between the quotation marks; numbers are as written, "1." as "1.0";
    booleans are "true" and "false".

    Raises:
        ValueError: it looks like a list but is none; the message says why.
    """
    text = text.strip()
    if call := _CALL.fullmatch(text):
        text = call["list"] or "[]"
    if not _LIST.fullmatch(text):
        return None
    if text[0] + text[-1] not in ("[]", "()", "{}"):
        raise ValueError("it does not end like one")
    return tuple(_parts(text[1:-1].strip()))


def parse_vector(text: str) -> tuple[str, ...] | None:
    """The numbers of a cell such as "0 1 0", "0,1,0" or "True|False"; None if it is none.

    Raises:
        ValueError: it has several numbers as "2,10", which may be one class.
    """
    text = text.strip()
    if _VECTOR.fullmatch(text):
        return tuple(re.split(r"[\s,;|]+", text.lower()))
    if _NUMBERS.fullmatch(text):
        raise ValueError("it has no brackets")
    return None


def _parts(inside: str) -> Iterator[str]:
    position, commas = 0, set()
    while position < len(inside):
        part = _PART.match(inside, position)
        if part is None:
            raise ValueError(f"{inside[position:]!r:.20} is neither quoted nor a number")
        position = part.end()
        if position < len(inside):
            commas.add("," in part["gap"])
        yield _unquoted(part["quoted"]) if part["quoted"] else _number(part["bare"])
    if len(commas) > 1:
        raise ValueError("only some of its parts have commas between them")


def _unquoted(part: str) -> str:
    if "\\" not in part:
        return part[1:-1]
    try:
        text: str = ast.literal_eval(part.replace(r"\/", "/"))  # PHP's JSON escapes it
        return text.encode("utf-16", "surrogatepass").decode("utf-16")  # JSON has pairs
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{part:.20} has an invalid escape sequence") from error


def _number(part: str) -> str:
    word = part.removeprefix("np.").removesuffix("_").lower()
    if word in ("true", "false") or re.fullmatch(r"[+-]?\d+", word):
        return word
    try:
        return str(float(word))
    except ValueError as error:
        raise ValueError(f"{part!r:.20} is neither quoted nor a number") from error
