"""Calls every tool that an Echo lists with each argument of its schema.

    mcp_tools.py URL
"""

import asyncio
import json
import re
import sys

from jsonschema import Draft202012Validator
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

CLUSTER = "lab"


def expect(condition, *about):
    """Fails with what is known."""
    if not condition:
        raise SystemExit(f"unexpected: {about}")


async def call(client, name, arguments):
    """The structured answer of a tool, which must not be an error."""
    answer = await client.call_tool(name, arguments)
    expect(not answer.is_error, name, arguments, answer.content)
    return answer.structured_content


async def facts(client, names):
    """Arguments that have to name something that exists."""
    tool = {name.replace(".", "_"): name for name in names}
    lab = {"cluster": CLUSTER, "window": "all"}
    found = await call(client, tool["fleet_cluster_find_outlier_nodes"], lab)
    late = found["outliers"][0]
    calls = await call(client, tool["fleet_host_get_trace_stats"], lab)
    return {
        "cluster": CLUSTER,
        "node": late["node_id"],
        "rank": late["rank"],
        "job": late["job"],
        "pid": calls["functions"][0]["pid"],
        "from": found["window"]["from"],
        "to": found["window"]["to"],
        "window": "all",
        "sql": "SELECT * FROM verdicts LIMIT 1",
        "op": "AllReduce",
        "metric": "nccl.operation.duration_ms",
    }


def values(name, schema, known):
    """Values of an argument: all that a client could take from its schema."""
    if "default" in schema:
        yield schema["default"]
    if name in known:
        yield known[name]
        return
    yield from schema.get("enum", [])
    limits = [schema[limit] for limit in ("minimum", "maximum") if limit in schema]
    yield from limits
    if not limits and schema.get("type") in ("integer", "number"):
        # Echo lists shortened schemas, whose numbers have no limits.
        said = re.search(r"Default: (\d+)", schema.get("description", ""))
        yield int(said[1]) if said else 1
    if schema.get("type") == "boolean":
        yield from [False, True]
    if schema.get("type") == "string" and "enum" not in schema:
        expect(False, "no value is known for", name, schema)


async def check(client, tool, known):
    """Calls a tool with each of its arguments. Returns the number of calls."""
    schema = tool.input_schema
    properties = schema.get("properties", {})
    expect(properties, "a tool without arguments", tool.name, schema)
    validator = Draft202012Validator(schema)
    expected = {name: known[name] for name in schema.get("required", [])}
    everything = {"window": "all"} if "window" in properties else {}
    calls = 0
    for name, property in properties.items():
        if name == "cursor":
            first = await call(client, tool.name, {**expected, **everything, "limit": 1})
            cursor = first["next_cursor"]
            used = [cursor] if cursor else []
            base = expected
        else:
            used = list(values(name, property, known))
            expect(used, "no value for", tool.name, name, property)
            base = expected if name in ("from", "to") else {**expected, **everything}
        if name == "to":
            base = {**base, "from": known["from"]}
        for value in used:
            arguments = {**base, name: value}
            errors = [error.message for error in validator.iter_errors(arguments)]
            expect(not errors, "does not fit its own schema", tool.name, arguments, errors)
            await call(client, tool.name, arguments)
            calls += 1
    return calls


async def main(url):
    """Checks all tools."""
    async with Client(streamable_http_client(url)) as client:
        tools = (await client.list_tools()).tools
        known = await facts(client, [tool.name for tool in tools])
        calls = [await check(client, tool, known) for tool in tools]
    print(json.dumps({"tools": len(tools), "calls": sum(calls)}))


asyncio.run(asyncio.wait_for(main(sys.argv[1]), timeout=300))
