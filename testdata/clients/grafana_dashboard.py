"""Reads a dashboard with Grafana's own model of it, and compares what was read with the file.

grafana_dashboard.py FILE
"""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel, RowPanel

with open(sys.argv[1], encoding="utf-8") as file:
    written = json.load(file)

dashboard = Dashboard.from_json(written)
read = json.loads(JSONEncoder(sort_keys=True).encode(dashboard))

assert read["uid"] == written["uid"] and read["schemaVersion"] == 41, read
assert all(isinstance(panel, (Panel, RowPanel)) for panel in dashboard.panels)

# What the model does not know is dropped on reading. Nothing of ours may be.
for field in ("title", "templating", "time", "refresh"):
    assert field in read, field
for mine, theirs in zip(written["panels"], read["panels"], strict=True):
    unknown = {field for field in mine if field not in theirs and mine[field] not in (None, [], {}, "")}
    assert not unknown, (mine["title"], unknown)
for mine, theirs in zip(written["templating"]["list"], read["templating"]["list"], strict=True):
    unknown = {field for field in mine if field not in theirs and mine[field] not in (None, [], {}, "")}
    assert not unknown, (mine["name"], unknown)

print(f"{len(dashboard.panels)} panels")
