#!/usr/bin/env python3
"""Reads real traces and dumps of public repositories, and compares what is read of each with `real-files.tsv`.

    python3 testdata/thirdparty/real_files.py FOLDER --agent target/release/fleet-agent

clones into FOLDER what is missing there, about 200 MB. With --print the table is printed instead.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

TABLE = pathlib.Path(__file__).with_name("real-files.tsv")
READ = ["files", "world_size", "collectives", "transfers", "verdict"]


def git(clone, *arguments):
    return subprocess.run(["git", "-C", clone, *arguments], check=True, capture_output=True).stdout


def cloned(folder, repository, commit):
    """Returns a clone that has the commit."""
    clone = folder / repository.replace("/", "+")
    if not clone.exists():
        print(f"cloning {repository}", file=sys.stderr)
        clone.mkdir(parents=True)
        git(clone, "init", "--quiet", "--bare")
        git(clone, "fetch", "--quiet", "--depth", "1", f"https://github.com/{repository}", commit)
    return clone


def is_read(name):
    return name.endswith((".json", ".json.gz")) or name.startswith("_dump_")


def read(agent, clone, row):
    """Imports the files at the path of a row as one job, and returns what was read."""
    names = git(clone, "ls-tree", "-r", "--name-only", row["commit"], "--", row["path"]).decode().split("\n")
    with tempfile.TemporaryDirectory() as job:
        for name in filter(None, names):
            file = pathlib.PurePosixPath(name).name
            if is_read(file):
                content = git(clone, "show", f"{row['commit']}:{name}")
                (pathlib.Path(job) / file).write_bytes(content)
        command = [agent, "import", "--json", "--endpoint", "none", "--cluster", "real", job]
        summary = json.loads(subprocess.run(command, check=False, capture_output=True).stdout)
    report = summary["report"]
    return {**{name: str(report[name]) for name in READ[:-1]}, "verdict": verdict(report)}


def verdict(report):
    if report["hang"]:
        behind = {rank for operation in report["hang"]["blocked"] for rank in operation["behind"]}
        return "hang: " + " ".join(map(str, sorted(behind)))
    if report["refusal"]:
        return report["refusal"].split(":")[0]
    return "late: " + " ".join(str(late["rank"]) for late in report["late"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="folder of the clones")
    parser.add_argument("--agent", default="fleet-agent", help="program to read with")
    parser.add_argument("--print", action="store_true", help="print the table")
    arguments = parser.parse_args()
    with TABLE.open(newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    wrong = 0
    if arguments.print:
        print("\t".join([*rows[0]]))
    for row in rows:
        found = read(arguments.agent, cloned(arguments.folder, row["repository"], row["commit"]), row)
        if arguments.print:
            print("\t".join({**row, **found}.values()))
        elif expected := {name: row[name] for name in READ if row[name] != found[name]}:
            wrong += 1
            print(f"{row['repository']} {row['path']}: {found} instead of {expected}")
    if not arguments.print:
        print(f"{len(rows) - wrong} of {len(rows)} as expected")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
