"""The peer of `cargo xtask bench xgboost`: xgboost.dask on a LocalCluster, from the same CSV files.
Prints what it took as one line of JSON.

    bench_dask.py DIR WORKERS ROUNDS [NAME=VALUE ...]

DIR has train-*.csv and validation-*.csv, label first, one file per worker.
"""

import json
import resource
import sys
import time


def main(directory, workers, rounds, *pairs):
    started = time.monotonic()
    import dask
    import dask.dataframe as dd
    import xgboost
    from distributed import Client, LocalCluster
    from xgboost import dask as dxgb

    # Workers that die noisily at the end would hide the numbers.
    dask.config.set({"distributed.scheduler.worker-ttl": None, "dataframe.convert-string": False})
    params = dict(pair.split("=", 1) for pair in pairs)
    # xgboost.dask sets it for the whole process, by its type.
    params["nthread"] = int(params.get("nthread", 1))
    with LocalCluster(n_workers=int(workers), threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.wait_for_workers(int(workers))
            ready = time.monotonic()
            with open(f"{directory}/train-0.csv", encoding="ascii") as file:
                features = [f"f{number}" for number in range(file.readline().count(","))]
            sets = {}
            for name in ("train", "validation"):
                files = f"{directory}/{name}-*.csv"
                frame = dd.read_csv(files, header=None, names=["label", *features], blocksize=None, dtype="float32")
                # Else the files would be read twice, for the features and for the label.
                frame = client.persist(frame)
                reference = {"ref": sets["train"]} if sets else {}
                sets[name] = dxgb.DaskQuantileDMatrix(client, frame[features], frame["label"], **reference)
            trained = dxgb.train(
                client,
                params,
                sets["train"],
                num_boost_round=int(rounds),
                evals=[(matrix, name) for name, matrix in sets.items()],
            )
            trained["booster"].save_model(f"{directory}/dask.ubj")
            done = time.monotonic()
    ended = time.monotonic()
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(
        json.dumps(
            {
                "version": xgboost.__version__,
                "work_s": done - ready,
                "whole_s": ended - started,
                "cpu_s": sum(each.ru_utime + each.ru_stime for each in usage),
                "logloss": trained["history"]["validation"]["logloss"][-1],
                "rounds": trained["booster"].num_boosted_rounds(),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
