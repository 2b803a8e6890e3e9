"""What stands in a data directory, read beside the server and after its death, without changing
what the next one finds.
"""

import json
import shutil
import sqlite3
import tempfile


def _copy(house, name):
    """A database as it lies there, its log included, in a directory of its own: opening the
    files themselves would tidy them up.
    """
    place = tempfile.TemporaryDirectory()
    for suffix in ("", "-wal"):
        path = house.data / f"{name}.db{suffix}"
        if path.exists():
            shutil.copy(path, place.name)
    return place, sqlite3.connect(f"{place.name}/{name}.db")


def state(house, job):
    """The secondary status of a job as the journal's rows have it."""
    place, database = _copy(house, "shoal")
    with place:
        return database.execute(
            "SELECT key_1 FROM resource WHERE kind = 'training-job' AND name = ?", [job]
        ).fetchone()[0]


def live_state(house):
    """A quick look for the same while the server runs: a function of the job."""
    database = sqlite3.connect(f"file:{house.data}/shoal.db?mode=ro", uri=True)

    def look(job):
        found = database.execute(
            "SELECT key_1 FROM resource WHERE kind = 'training-job' AND name = ?", [job]
        ).fetchone()
        return found and found[0]

    return look


def points(house, job, metric):
    """All values of a metric of a job, in order of time."""
    place, database = _copy(house, "telemetry")
    select = "SELECT value FROM point JOIN series ON series.id = point.series WHERE job = ? AND metric = ? ORDER BY at_ms, position"
    with place:
        return [value for (value,) in database.execute(select, [job, metric])]


def receipts(house, job):
    """`{path: SHA-256}` of a job's checkpoint receipts."""
    place, database = _copy(house, "shoal")
    with place:
        return dict(database.execute("SELECT path, sha256 FROM checkpoint WHERE job = ?", [job]))


def objects(house, prefix):
    """`{key below the prefix: ETag}` of all objects there."""
    place, database = _copy(house, "objects")
    with place:
        found = dict(database.execute("SELECT key, etag FROM object"))
    return {key.removeprefix(prefix): etag for key, etag in found.items() if key.startswith(prefix)}


def study(house, tuning):
    """What a tuning job's studies have recorded, in order."""
    place, database = _copy(house, "shoal")
    with place:
        rows = database.execute("SELECT bytes FROM tuner_record WHERE tuning = ? ORDER BY seq", [tuning])
        return [json.loads(row[0]) for row in rows]


def paused(house, tuning):
    """Names of the training jobs of a tuning job's paused trials."""
    place, database = _copy(house, "shoal")
    with place:
        rows = database.execute("SELECT job, view FROM trial WHERE tuning = ?", [tuning])
        return {job for job, view in rows if json.loads(view).get("paused")}
