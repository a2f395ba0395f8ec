"""Shows the view of a program. Run it with and without stockade and compare."""

import os
import socket
import sqlite3
import sys
from multiprocessing import Pool


def attempt(what, action):
    try:
        print(f"{what:<42} {action()}")
    except Exception as error:  # a refusal is the expected result inside
        print(f"{what:<42} refused: {error}")


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


if __name__ == "__main__":
    with Pool(2) as pool:
        primes = sum(pool.map(is_prime, range(50_000), chunksize=5_000))
    database = sqlite3.connect("/tmp/primes.db")
    database.execute("create table if not exists primes (below integer, number integer)")
    database.execute("insert into primes values (?, ?)", (50_000, primes))
    print(f"python {sys.version.split()[0]} found {primes} primes below 50000 and stored them")

    attempt("read /etc/shadow", lambda: open("/etc/shadow").read(9))
    attempt("list the homes of this machine", lambda: os.listdir("/root"))
    attempt("write to /usr", lambda: open("/usr/planted", "w").close())
    attempt("connect to the outside", lambda: socket.create_connection(("192.0.2.1", 80), 1))
    attempt("see the processes of this machine", lambda: f"{sum(p.isdigit() for p in os.listdir('/proc'))} visible")
