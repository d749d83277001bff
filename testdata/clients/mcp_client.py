"""Asks an Echo with the Python SDK of the Model Context Protocol, in every mode.

    mcp_client.py http URL
    mcp_client.py stdio PROGRAM ARGUMENT...
"""

import asyncio
import json
import sys

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

MODES = ["auto", "legacy", "2026-07-28"]


def transport(arguments):
    """A new connection to the Echo that the arguments name."""
    kind, target, *rest = arguments
    if kind == "http":
        return streamable_http_client(target)
    return stdio_client(StdioServerParameters(command=target, args=rest))


def expect(condition, *about):
    """Fails with what is known."""
    if not condition:
        raise SystemExit(f"unexpected: {about}")


async def ask(arguments, mode):
    """Lists, calls, makes a mistake, reads and prompts."""
    async with Client(transport(arguments), mode=mode) as client:
        tools = (await client.list_tools()).tools
        names = [tool.name for tool in tools]
        expect(len(tools) >= 4 and all(tool.annotations.read_only_hint for tool in tools), names)
        name = next(name for name in names if name.endswith("get_cost"))

        answer = await client.call_tool(name, {"cluster": "lab", "window": "all"})
        expect(not answer.is_error, answer)
        expect(json.loads(answer.content[-1].text) == answer.structured_content, answer)

        wrong = await client.call_tool(name, {"clustre": "lab"})
        expect(wrong.is_error, wrong)
        error = json.loads(wrong.content[-1].text)["error"]
        expect(error["details"][0]["pointer"] == "/clustre", error)

        for resource in (await client.list_resources()).resources:
            content = (await client.read_resource(str(resource.uri))).contents[0]
            json.loads(content.text)
        prompts = (await client.list_prompts()).prompts
        expect(len(prompts) == 2, prompts)
        prompt = await client.get_prompt("investigate_stragglers", {"cluster": "lab"})
        expect("lab" in prompt.messages[0].content.text, prompt)
    print(f"{mode}: {len(tools)} tools")


for mode in MODES:
    asyncio.run(asyncio.wait_for(ask(sys.argv[1:], mode), timeout=60))
