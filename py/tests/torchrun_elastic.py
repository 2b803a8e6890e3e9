"""A rank of elastic_ranks.py under torchrun, or one that joins those from outside. Writes its
number and environment, and what it prints, to files of a directory.
"""

import json
import os
import sys
from pathlib import Path

import elastic_ranks

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    name = "joined" if os.environ.get("SHOAL_COMM_JOINS") == "1" else os.environ["RANK"]
    new = directory / f"new.{name}"
    new.write_text(json.dumps({"pid": os.getpid(), "environment": dict(os.environ)}))
    new.rename(directory / f"process.{name}")
    sys.stdout = open(directory / f"lines.{name}", "w")  # noqa: SIM115 (open until the end)
    elastic_ranks.main(0.02, str(directory / "go"))
