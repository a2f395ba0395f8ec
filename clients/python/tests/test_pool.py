from __future__ import annotations

import gc
import os
import signal
import time

import pytest
from conftest import eventually, is_alive, supervisor

import stockade


def test_sandboxes_are_fresh_warm_and_refilled() -> None:
    with stockade.Pool(size=2, setup="import json; ready = 1", hostname="pooled") as pool:
        assert eventually(lambda: pool.ready() == 2)
        with pool.acquire() as one:
            assert one.run_code("json.dumps(ready)").text == "'1'"
            assert one.commands.run(["hostname"]).stdout == "pooled\n"
            one.run_code("ready = 2; open('/tmp/left', 'w').close()")
            assert eventually(lambda: pool.ready() == 2)
            with pool.acquire(timeout=30) as two:
                assert two.sandbox_id != one.sandbox_id
                assert two.run_code("import os; ready, os.path.exists('/tmp/left')").text == "(1, False)"
        pids = [supervisor(sandbox) for sandbox in pool._shelf.waiting]
    assert eventually(lambda: not any(map(is_alive, pids)))
    with pytest.raises(stockade.Error, match="closed"):
        pool.acquire()


def test_the_setup_is_no_call() -> None:
    with stockade.Pool(size=1, setup="x = 1", max_calls=1) as pool, pool.acquire() as sandbox:
        assert sandbox.run_code("x").text == "1"
        with pytest.raises(stockade.RateLimit):
            sandbox.run_code("x")


def test_a_dead_sandbox_is_not_given_out() -> None:
    with stockade.Pool(size=1) as pool:
        assert eventually(lambda: pool.ready() == 1)
        os.kill(supervisor(pool._shelf.waiting[0]), signal.SIGKILL)
        time.sleep(0.1)
        with pool.acquire() as sandbox:
            assert sandbox.run_code("1").text == "1"


def test_a_setup_that_fails_is_told() -> None:
    with stockade.Pool(size=1, setup="import nonesuch") as pool, pytest.raises(stockade.SetupError, match="nonesuch"):
        pool.acquire()
    with stockade.Pool(size=1, volumes="/no/such:/x") as pool, pytest.raises(stockade.SetupError, match="/no/such"):
        pool.acquire(timeout=30)


def test_a_pool_that_is_forgotten_leaves_nothing() -> None:
    pools = [stockade.Pool(size=1)]
    assert eventually(lambda: pools[0].ready() == 1)
    pid = supervisor(pools[0]._shelf.waiting[0])
    pools.clear()
    gc.collect()
    assert eventually(lambda: not is_alive(pid))
