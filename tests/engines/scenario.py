"""The parts of all scenarios: commands with an expected status and output, and daemons that are stopped by pid.

A scenario is a function of an engine. It runs first with runc, as the control, and then with the runtime under test. If the
control fails, the scenario counts as skipped, with the control's error as the reason. If it returns something, it has to
return the same with both.
"""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

# Emulated machines are slower; every time limit is multiplied by this.
PATIENCE = float(os.environ.get("STOCKADE_ENGINES_PATIENCE", "1"))


class Failed(Exception):
    """A scenario's expectation failed."""


class Absent(Exception):
    """The engine, or something that a scenario needs, is missing on this machine."""


class Scenarios(list):
    """The scenarios of one engine, in the order of its file."""

    def add(self, name, long=False):
        """Registers a scenario. A long one is left out of the bounded form."""

        def register(function):
            self.append((name, function, long))
            return function

        return register


def run(argv, status=0, says=None, lacks=None, stdin=None, timeout=60, env=None, **rest):
    """Runs a command to its end and returns what it printed; another status, or a text that is missing, is a failure.

    `status` may be None (any) or a tuple of statuses; `says` one text or a tuple of them, all of which must be there."""
    shown = " ".join(str(word) for word in argv)
    # The scenario tests the end of the output; engines print long prefixes.
    shown = shown if len(shown) < 200 else "… " + shown[-200:]
    try:
        done = subprocess.run(
            [str(word) for word in argv], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout * PATIENCE, env=env, text=True,
            errors="replace", **rest)
    except subprocess.TimeoutExpired as expired:
        said = (expired.stdout or b"").decode(errors="replace") if isinstance(expired.stdout, bytes) else expired.stdout
        raise Failed(f"{shown}: did not end within {timeout * PATIENCE:.0f} s; said: {said}") from None
    except FileNotFoundError as error:
        raise Absent(f"not installed: {error.filename}") from None
    out = done.stdout
    statuses = status if isinstance(status, tuple) else (status,)
    if status is not None and done.returncode not in statuses:
        raise Failed(f"{shown}: status {done.returncode}, not {status}; said: {out.strip()[-700:]}")
    for text in (says,) if isinstance(says, str) else says or ():
        if text not in out:
            raise Failed(f"{shown}: did not say {text!r}, but: {out.strip()[-700:]}")
    if lacks is not None and lacks in out:
        raise Failed(f"{shown}: said {lacks!r}: {out.strip()[-700:]}")
    return out


def eventually(what, check, timeout=15):
    """Waits until `check` returns a true value, and returns it. On a timeout the last failure is reported."""
    deadline = time.monotonic() + timeout * PATIENCE
    last = None
    while time.monotonic() < deadline:
        try:
            found = check()
            if found:
                return found
        except Failed as failed:
            last = failed
        time.sleep(0.1)
    raise Failed(f"{what}: not within {timeout * PATIENCE:.0f} s" + (f": {last}" if last else ""))


def expect(holds, what):
    """A failure unless something holds."""
    if not holds:
        raise Failed(what)


def refusal(function, *words, **more):
    """What something says that has to fail."""
    try:
        function(*words, **more)
    except Failed as failed:
        return str(failed)
    raise Failed(f"succeeded: {words} {more}")


def on_terminal(argv, dialogue, status, timeout=30, env=None):
    """Runs a command on a new terminal of 33 lines of 99. `dialogue` is pairs: a text to wait for, and the input to type."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
            os.execvpe(argv[0], [str(word) for word in argv], env or os.environ)
        finally:
            os._exit(127)
    said, seen = b"", 0
    deadline = time.monotonic() + timeout * PATIENCE
    left = list(dialogue)
    code = None
    try:
        while code is None:
            while left and left[0][0].encode() in said[seen:]:
                seen = said.index(left[0][0].encode(), seen) + len(left[0][0])
                os.write(terminal, left.pop(0)[1].encode())
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    said += os.read(terminal, 65536)
                except OSError:
                    pass
            ended, how = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(how)
            elif time.monotonic() > deadline:
                raise Failed(f"{' '.join(map(str, argv))}: did not end on a terminal; said: {said.decode(errors='replace')}")
        while select.select([terminal], [], [], 0)[0]:
            try:
                more = os.read(terminal, 65536)
            except OSError:
                break
            if not more:
                break
            said += more
    finally:
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)
    text = said.decode(errors="replace")
    while left and left[0][0].encode() in said[seen:]:  # its last words
        seen = said.index(left[0][0].encode(), seen) + len(left.pop(0)[0])
    for wanted, _ in left:
        raise Failed(f"{' '.join(map(str, argv))}: never said {wanted!r} on its terminal, but: {text}")
    if code != status:
        raise Failed(f"{' '.join(map(str, argv))}: status {code}, not {status}, on a terminal; said: {text}")
    return text


def differences(one, other, path=""):
    """Where two values differ, as short texts."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [text for key in sorted({*one, *other}, key=str) for text in differences(one.get(key), other.get(key), f"{path}/{key}")]
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and one != other:
        if len(one) == len(other) and any(isinstance(part, (dict, list, tuple)) for part in one):
            return [text for at, pair in enumerate(zip(one, other)) for text in differences(*pair, f"{path}/{at}")]
        missing, new = [str(x) for x in one if x not in other], [str(x) for x in other if x not in one]
        return [f"{path}: not {missing}, but {new}" if missing or new else f"{path}: in another order: {one} and {other}"]
    return [] if one == other else [f"{path}: not {one!r}, but {other!r}"]


class Daemon:
    """A daemon that the test starts with a log, and stops by pid."""

    def __init__(self, argv, log, env=None):
        if not shutil.which(argv[0]):
            raise Absent(f"not installed: {argv[0]}")
        self.name, self.log = os.path.basename(argv[0]), log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True)

    def wait_for(self, ready, timeout=30):
        """Waits until `ready` returns something true."""

        def check():
            if self.process.poll() is not None:
                raise Absent(f"{self.name} ended with status {self.process.returncode}: {self.last_words()}")
            return ready()

        try:
            eventually(f"{self.name} comes up", check, timeout)
        except Failed as failed:
            raise Absent(f"{failed}: {self.last_words()}") from None

    def last_words(self):
        """The end of its log."""
        with open(self.log, errors="replace") as log:
            return log.read()[-600:].strip()

    def reload(self):
        """Makes it reload its configuration."""
        self.process.send_signal(signal.SIGHUP)

    def stop(self, how=signal.SIGTERM):
        """Stops it, with force if it does not stop by itself."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(20 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Engine:
    """One engine: it is started once, and then runs the scenarios with one runtime after another."""

    name = ""
    scenarios = Scenarios()
    # Whether the control always runs, because scenarios return what has to be the same with both runtimes.
    compared = False

    def __init__(self, house):
        self.house = house
        # The name by which containers of this round go, and the runtime's program.
        self.runtime, self.program = "", ""
        self.started = []
        self.count = 0

    def up(self):
        """Starts the engine; raises Absent if it is missing."""

    def down(self):
        """Stops everything that `up` and `use` started."""

    def use(self, runtime, program):
        """Selects the runtime for the following containers."""
        self.runtime, self.program = runtime, program

    def remove(self, name):
        """Removes a container that a scenario left."""

    def fresh(self):
        """A name for a container, which is removed after the scenario if it is still there."""
        self.count += 1
        name = f"{self.runtime}-{self.count}"
        self.started.append(name)
        return name

    def sweep(self):
        """Removes what the last scenario left."""
        while self.started:
            self.remove(self.started.pop())

    def versions(self):
        """Programs and versions, for the record."""
        return []


def version(argv, line=0):
    """The line with a program's version; empty if it is not installed."""
    try:
        return run(argv, status=None).strip().splitlines()[line].strip()
    except (Absent, Failed, IndexError):
        return ""


def parallel(jobs):
    """Runs functions at the same time, and raises the first failure."""
    import threading

    failures = []

    def one(job):
        try:
            job()
        except (Failed, Absent) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=one, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
