"""What a JSON schema cannot say of Echo's arguments, said to schemathesis: such requests are left out.

Valid by the schema and refused all the same: a window beside its ends, a beginning after the end, 30 February, a cursor
that no answer gave, a name of more than 256 bytes, a report without a day or two ends, or of a day that is not over. Invalid by the schema and taken all the same: a number or a truth value
as text, and null for what is left out. Valid by the schema and without an answer: a text that is no SQL, and a rank that
never reported, so that a statement and a rank take their places. Addresses that no server takes are refused before Echo sees them,
without a body.
"""

import re
from datetime import datetime
from urllib.parse import quote

import schemathesis
from schemathesis import GenerationMode

RANKS = 4
MAX_ADDRESS = 8_000
PLAIN = re.compile(r"\s*(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false)\s*")


def arguments(case):
    """Query and body together; only one of them is there."""
    found = dict(case.query or {})
    if isinstance(case.body, dict):
        found.update(case.body)
    return found


def is_day(text):
    """Whether what looks like a date is one."""
    match = re.match(r"\d{4}-\d{2}-\d{2}", text)
    if not match:
        return True
    try:
        datetime.strptime(match[0], "%Y-%m-%d")
    except ValueError:
        return False
    return True


def is_contradictory(given):
    """Whether only the tool can tell that something is wrong."""
    ends = "from" in given or "to" in given
    texts = [value for name, value in given.items() if isinstance(value, str) and name != "sql"]
    return (
        ("window" in given and ends)
        or ends
        and not is_ordered(given)
        or "cursor" in given
        or any(len(text.encode("utf-8", "surrogatepass")) > 256 for text in texts)
        or not all(is_day(text) for text in texts)
    )


def is_ordered(given):
    """Whether the window certainly ends after it begins: one end, which lies where the other is meant to be."""
    if "from" in given and "to" in given:
        return False
    begin = given.get("from")
    return begin is None or isinstance(begin, str) and re.fullmatch(r"now-\d+[smhd]", begin) is not None


def lacks_its_window(case, given):
    """Whether a report is asked for without saying of when: it needs a day, or both ends of a window in its place."""
    ends = "from" in given or "to" in given
    return is_report(case) and (ends or "day" not in given)


def is_report(case):
    return case.operation.path.startswith("/api/v1/cost.")


def is_taken_anyway(value):
    """Whether Echo understands a value that the schema does not list."""
    return value is None or isinstance(value, str) and PLAIN.fullmatch(value) is not None


@schemathesis.hook
def filter_case(context, case):
    given = arguments(case)
    if len(quote(str(case.query))) > MAX_ADDRESS:
        return False
    mode = case.meta.generation.mode if case.meta else None
    if mode == GenerationMode.POSITIVE:
        return not (is_contradictory(given) or lacks_its_window(case, given))
    return not any(is_taken_anyway(value) for value in given.values())


@schemathesis.hook
def map_case(context, case):
    if case.meta and case.meta.generation.mode == GenerationMode.POSITIVE:
        for given in (case.query, case.body):
            if isinstance(given, dict):
                make_answerable(given)
        if is_report(case):
            case.query["open"] = "true"
    return case


def make_answerable(given):
    """Puts a statement of the same length for a text, and a rank that reported, of any job, for a rank."""
    if isinstance(given.get("sql"), str):
        given["sql"] = "SELECT 1 -- ".ljust(len(given["sql"]), "x")
    if "rank" in given:
        given["rank"] = int(given["rank"]) % RANKS
        given.pop("job", None)
