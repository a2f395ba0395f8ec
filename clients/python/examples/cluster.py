"""Many jobs over workers: the same `stockade.run` by Dask or Ray. Results and reports come back; a worker dies in between."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Dict, List

import stockade


def job(number: int) -> Dict[str, Any]:
    """One job in a sandbox of its own, on whatever worker: its answer, and what it used."""
    result = stockade.run(["sh", "-c", f"echo $(({number} * {number}))"], timeout=60, network="none")
    return {"answer": int(result.stdout), "wall_us": result.usage.wall_us, "report": result.report["id"]}


def by_dask(count: int) -> List[Dict[str, Any]]:
    from distributed import Client, LocalCluster, as_completed

    options = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": None}
    with LocalCluster(host="127.0.0.1", **options) as cluster, Client(cluster) as client:
        jobs = client.map(job, range(count), pure=False, retries=3)
        next(iter(as_completed(jobs)))
        os.kill(client.run(os.getpid).popitem()[1], signal.SIGKILL)  # its jobs run again on the other one
        return list(client.gather(jobs))


def by_ray(count: int) -> List[Dict[str, Any]]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        remote = ray.remote(max_retries=3)(job)
        pid = ray.get(ray.remote(lambda: os.getpid()).remote())
        jobs = [remote.remote(number) for number in range(count)]
        ray.wait(jobs)
        os.kill(pid, signal.SIGKILL)
        return list(ray.get(jobs))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    by = {"dask": by_dask, "ray": by_ray}[sys.argv[1]]
    results = by(int(sys.argv[2]))
    assert [result["answer"] for result in results] == [number * number for number in range(len(results))]
    print(f"{len(results)} jobs, {len({result['report'] for result in results})} reports")
