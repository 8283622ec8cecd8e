"""Tables as earlier versions left them: delta-rs wrote their files, and logged statistics that it rounds."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
from deltalake import write_deltalake

from airflow_cdc.pipeline.target.table_properties import EXACT_STATISTICS


def as_of_delta_rs(table: Path) -> int:
    """Write all files of a table again, by delta-rs, under their names and in the commits that added them; return their number."""
    files = 0
    # Delta's checksums of versions hold the table's properties and files too; Hadoop's are of what changes here.
    for checksum in table.rglob("*.crc"):
        checksum.unlink()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
        for action in actions:
            if "metaData" in action:
                for name in EXACT_STATISTICS:
                    action["metaData"]["configuration"].pop(name, None)
            if "add" in action and (table / action["add"]["path"]).exists():
                action["add"] |= _written_again(table / action["add"]["path"])
                files += 1
        commit.write_text("".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in actions), encoding="utf-8")
    return files


def _written_again(file: Path) -> dict[str, object]:
    """Write a file, and return what delta-rs logs of it."""
    with TemporaryDirectory() as folder:
        write_deltalake(folder, pq.read_table(file))
        log = (Path(folder) / "_delta_log" / f"{0:020d}.json").read_text(encoding="utf-8")
        (add,) = [json.loads(line)["add"] for line in log.splitlines() if line.startswith('{"add"')]
        (Path(folder) / add["path"]).replace(file)
    return {"size": add["size"], "stats": add["stats"]}
