"""Which failures went wrong in the same way: one fingerprint for each subscription, reason and normalised error text.

The text is normalised by replacing what differs from message to message. What tells causes apart stays: words, names of
exceptions and fields, and numbers that are codes, such as `status 503` or `SQLSTATE 40001`. Where to draw the line is a
matter of judgement, so the version is part of a fingerprint: when these rules change, groups begin anew and never mix.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from itertools import pairwise

from holdfast.model.failed_message import FailedMessage

VERSION = "1"
FINGERPRINT_LETTERS = 16

# A cause shows at the beginning; what is longer is a dump of data or a stack.
LONGEST_READ = 1000
# Well below the 512 letters that a consumer's header holds: where those are cut depends on the lengths of the values.
LONGEST_TEXT = 200

# Stands for a number or an id: an id of digits alone must not look different from one with letters.
ID = "#"
QUOTED = "'#'"

# What follows one of these in quotes is a name in somebody's code or schema and not a value.
_NAMED_BY = (
    r"field|column|property|attribute|parameter|argument|table|relation|constraint|index|function|method|module|"
    r"schema|collection|type|enum|header|package|class|variable|keyerror:|reading|required:"
)

# The value of such a key, in an error that is JSON, is the error itself.
_SAID_IN = "message|msg|error|errors|detail|details|reason|description|title|status|code|type|kind"

# Numbers after these are codes. A code of something else, as in `zip code 90210`, is a value.
_CODE = r"""
    (?: \b (?: last[ ]status | status (?:[ _-]?code)? | http (?:/[\d.]+)? ) [ ]?[:=]?[ ]? \(? [1-5]\d\d
      | \b (?: returned | responded | answered | responded[ ]with | returned[ ]status ) [ ] [1-5]\d\d
            (?![ ](?: rows | records | items | bytes | results | messages | of )\b)
      | \b (?: error | exit | response | return | result | grpc | sql )[ _-]?code [ ]?[:=]?[ ]? \(? -?\d{1,5}
      | (?: ^ | [(\[{,;] ) \s* ["']? code ["']? [ ]?[:=][ ]? ["']? [0-9A-Z]{1,5}
      | \b error [ ] \(? \d{3,5}
      | \b errno [ ]? [:=]? [ ]? \d{1,3}
      | \b sqlstate [ ]? [:=]? [ ]? [\[(]? [0-9A-Z]{5}
      | \b (?: ORA | TNS | PLS | SQL | DB2 ) -? \d{4,5} N?
      | \b E\d{4,5} (?=[: ])
      | \b (?: u?int | float | utf-? | base | sha-? | ipv ) \d{1,3}
    ) (?!\w)
"""

_TIME_OF_DAY = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?(?:Z|UTC|GMT|[AP]M|[+-]\d{2}:?\d{2}))?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DATE = rf"(?:\d{{4}}[-/.]\d{{2}}[-/.]\d{{2}}|\d{{1,2}}[ -]{_MONTH}[ -]\d{{4}}|{_MONTH}\ \d{{1,2}},?\ \d{{4}})"
_UNIT = r"(?:[nuµμm]?s|sec(?:ond)?s?|min(?:ute)?s?|hours?|days?|[mhd]|%|[KMGT]i?B|[kKMGT]|bytes?|B)"

_OTHER_QUOTES = "|".join(
    rf"{first}[^{last}\n]{{0,500}}[{last}]"
    for first, last in (("«", "»"), ("„", "\u201c\u201d"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("「", "」"))
)

_VARIABLE = re.compile(
    rf"""
      (?P<code> {_CODE} )
    | (?P<email> (?<![\w.+-]) [\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}})+ )
    | (?P<time> (?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\ )? (?<!\d) {_DATE} (?:(?:T|,?\s) {_TIME_OF_DAY})?
              | (?<![\d:]) \d{{1,2}}:\d{{2}}:\d{{2}}(?:[.,]\d+)?(?:Z|[+-]\d{{2}}:?\d{{2}})? (?![\d:]) )
    | (?P<saying> ["'](?:{_SAID_IN})["']\s?[:=]\s?["'] )
    | (?P<name> (?: (?<=[{{,\s]) | ^ ) "[A-Za-z_][A-Za-z_.]{{0,60}}" (?=\s*:)
              | \b (?:{_NAMED_BY}) [ ] (?P<quote>["'`]) [A-Za-z_][\w.\[\]]{{0,60}} (?P=quote) (?!\w) )
    | (?P<quoted> (?<!\w) (?: '(?:\\.|[^'\\\n]|(?<=\w)'(?=\w)){{0,500}}(?:'(?!\w)|\Z)
                            | "(?:\\.|[^"\\\n]){{0,500}}(?:"|\Z)
                            | `[^`\n]{{0,500}}(?:`|\Z) )
                | {_OTHER_QUOTES} )
    | (?P<address> (?<![\w.]) \d{{1,3}}(?:\.\d{{1,3}}){{3}} (?![\w.]*\d)
                 | \[? (?<![\w:]) (?:[0-9a-f]{{0,4}}:){{3,7}}[0-9a-f]{{0,4}} (?![\w:]*\w) \]? )
    | (?P<port> (?:(?<=localhost)|(?<=<address>)|(?<=\d)|(?<=\])) :\d{{2,5}} (?!\d) )
    | (?P<query> (?<=[\w/]) \?[\w%.~+\[\]-]{{1,100}}=[^\s'")>]* )
    | (?P<temporary> /tmp/[^\s'":,)]+ )
    | (?P<uuid> \b [0-9a-f]{{8}}-(?:[0-9a-f]{{4}}-){{3}}[0-9a-f]{{12}} \b )
    | (?P<hex> \b (?:0x[0-9a-f]+ | [a-f]{{8,}}) \b )
    | (?P<number> (?<![\w.]) [-+]? \d[\d.,_]* (?<![.,]) (?:e[-+]?\d+)?
                  (?:\ ?{_UNIT})? (?:\d+(?:\.\d+)?{_UNIT})* (?!\w) )
    | (?P<word> (?<![^\W_]) [^\W_]*\d[^\W_]* )
    | (?P<token> (?<![\w-]) [A-Za-z]{{16,}} (?![\w-]) )
    """,
    re.VERBOSE | re.IGNORECASE,
)

# Stack frames, as Python, the JVM, JavaScript and Go print them: a caller more or less is the same cause.
_FRAMES = re.compile(
    r"""^Traceback\ \(most\ recent\ call\ last\):\n
      | ^[ \t]*File\ ".*",\ line\ \d+.*\n(?:[ \t]+.*\n)*
      | ^[ \t]+at\ .*(?:\n|\Z)
      | ^[ \t]*\.\.\.\ \d+\ more.*(?:\n|\Z)
      | ^goroutine\ \d+\ \[(?s:.*)\Z
    """,
    re.VERBOSE | re.MULTILINE,
)

_RUN_OF_IDS = re.compile(rf"{ID}(?:\s?[-_.:/,]\s?{ID})+")
_SPACE = re.compile(r"\s+")

# Below 32768 it is a service's port; above, mostly one that the system gave for a single connection.
_FIRST_EPHEMERAL_PORT = 32768


def in_group(failure: FailedMessage) -> FailedMessage:
    return replace(failure, fingerprint=fingerprint(failure))


def fingerprint(failure: FailedMessage) -> str:
    told = [VERSION, failure.route, failure.failure_reason, example_of(failure)]
    digest = hashlib.sha256(json.dumps(told).encode())
    return digest.hexdigest()[:FINGERPRINT_LETTERS]


def example_of(failure: FailedMessage) -> str:
    """The text that all failures of its group share."""
    text = failure.error_details
    for own in (failure.message_id, failure.ordering_key):
        if len(own) >= 3 and own in text:  # a shorter one would be found within words
            text = re.sub(rf"(?<!\w){re.escape(own)}(?!\w)", ID, text)
    return normalised(text)


def normalised(text: str) -> str:
    """Without what differs from message to message; 200 characters at most."""
    text = text[:LONGEST_READ]
    without_frames = _FRAMES.sub("", text)
    text = _VARIABLE.sub(_placeholder, without_frames if without_frames.strip() else text)
    text = _RUN_OF_IDS.sub(ID, text)
    return _SPACE.sub(" ", text).strip().lower()[:LONGEST_TEXT]


def _placeholder(found: re.Match[str]) -> str:
    text = found[0]
    match found.lastgroup:
        case "code" | "name" | "quote" | "saying":
            return text
        case "quoted":
            return QUOTED
        case "email" | "time" | "address":
            return f"<{found.lastgroup}>"
        case "port":
            return text if int(text[1:]) < _FIRST_EPHEMERAL_PORT else f":{ID}"
        case "query":
            return f"?{ID}"
        case "temporary":
            return f"/tmp/{ID}"  # noqa: S108 - a text, not a file
        case "word":
            return _word(text)
        case "token":
            return ID if _looks_random(text) else text
        case _:
            return ID


def _word(text: str) -> str:
    """With a digit. What is long, or mixes digits and letters, is an id as a whole; else a name with a number."""
    if len(text) >= 10 or len(re.findall(r"\d+|\D+", text)) > 2 or re.fullmatch(r"[0-9a-fA-F]{6,}", text):
        return ID
    return re.sub(r"\d+", ID, text)


def _looks_random(letters: str) -> bool:
    """Upper and lower case change places far more often in a random text than in a NameOfSomething."""
    changes = sum(a.isupper() is not b.isupper() for a, b in pairwise(letters))
    return changes > 0.4 * len(letters)
