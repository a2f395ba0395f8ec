"""Many jobs over workers: the same `stockade.run` by Dask or Ray. Results and reports come back; a worker dies in between."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Dict, List

import stockade


def job(number: int) -> Dict[str, Any]:
    """One job in a sandbox of its own, on whatever worker: its answer, and its report."""
    result = stockade.run(["sh", "-c", f"echo $(({number} * {number}))"], timeout=60, network="none")
    return {"answer": int(result.stdout), "report": result.report, "worker": os.getpid()}


def by_dask(count: int) -> List[Dict[str, Any]]:
    from distributed import Client, LocalCluster, as_completed

    options = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": None}
    with LocalCluster(host="127.0.0.1", **options) as cluster, Client(cluster) as client:
        jobs = client.map(job, range(count), pure=False, retries=3)
        *_, (_, last) = zip(range(count // 4), as_completed(jobs))
        os.kill(last.result()["worker"], signal.SIGKILL)  # what it ran, and results that it still had, are run again
        return list(client.gather(jobs))


def by_ray(count: int) -> List[Dict[str, Any]]:
    import ray

    memory = 100 << 20
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1", object_store_memory=memory)
    try:
        remote = ray.remote(max_retries=3)(job)
        jobs = [remote.remote(number) for number in range(count)]
        ended, _ = ray.wait(jobs, num_returns=count // 4)
        os.kill(ray.get(ended[-1])["worker"], signal.SIGKILL)  # what it ran is run again by a new one
        return list(ray.get(jobs))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    by = {"dask": by_dask, "ray": by_ray}[sys.argv[1]]
    results = by(int(sys.argv[2]))
    assert [result["answer"] for result in results] == [number * number for number in range(len(results))]
    reports, workers = {result["report"]["id"] for result in results}, {result["worker"] for result in results}
    cpu = sum(result["report"]["usage"]["cpu"]["total_us"] for result in results) / 1e6
    print(f"{len(results)} jobs, {len(reports)} reports, {len(workers)} workers, {cpu:.1f} s of CPU time")
