//! Budgets hold for the whole process tree, and the report describes their effect: on cgroup v2 in the virtual machine, on v1
//! where the host has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::common;
use crate::common::clock::{PATIENCE, eventually};
use crate::common::{Caller, Live, Outcome, Run, TempDir, is_root, skip, unique};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The cgroup version with this host's controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The version that enforces a memory budget for root here; `None` and a skip if there is none.
fn host() -> Option<Version> {
    let v2 = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").is_ok_and(|text| text.contains("memory"));
    match () {
        () if !is_root() => skip("not root"),
        () if v2 => return Some(Version::V2),
        () if Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() => return Some(Version::V1),
        () => skip("no cgroup has a memory controller"),
    }
    None
}

/// Like [`host`], for budgets that v1 lacks.
fn host_v2() -> Option<()> {
    match host()? {
        Version::V2 => Some(()),
        Version::V1 => {
            skip("cgroup v1 does not have it");
            None
        }
    }
}

fn root() -> Run {
    Run::new(Caller::Root)
}

fn number(outcome: &Outcome, pointer: &str) -> u64 {
    let value = outcome.report().pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("{pointer} is not a number: {outcome}"))
}

/// The run's cgroup, on v1 that of the named controller. It exists as long as the run.
fn cgroup_of(run: &Live, controller: &str) -> PathBuf {
    let name = format!("stockade.{}.", run.marker());
    let (v1, v2) = (Path::new("/sys/fs/cgroup").join(controller), PathBuf::from("/sys/fs/cgroup"));
    let mut places = vec![if v1.join("cgroup.procs").exists() { v1 } else { v2 }];
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(place).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
            if entry.file_name().to_string_lossy().starts_with(&name) {
                return entry.path();
            }
            places.push(entry.path());
        }
    }
    panic!("no cgroup {name}* with {controller}")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
}

const MIB: u64 = 1 << 20;

// --- Memory ----------------------------------------------------------------------------------------------------------

#[test]
fn a_memory_bomb_ends_as_oom_whatever_it_is_made_of() {
    if host().is_none() {
        return;
    }
    let heap = "kept = []\nwhile True: kept.append(bytearray(1 << 20))";
    let shared = "f = open('/dev/shm/bomb', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()";
    let scratch = "f = open('/big/bomb', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()";
    let memfd = "import os\nf = os.memfd_create('bomb')\nwhile True: os.write(f, bytes(1 << 20))";
    let pipes = "import fcntl, os\nkept = []\n\
        while len(kept) < 63:\n  r, w = os.pipe2(os.O_NONBLOCK); kept.append(r)\n  size = fcntl.fcntl(w, 1031, 1 << 20)\n\
        \x20 os.write(w, bytes(size))";
    let sockets = "import socket\nkept = []\n\
        while len(kept) < 400:\n  a, b = socket.socketpair(); kept += [a, b]\n  for s in (a, b):\n    s.setblocking(False)\n\
        \x20   try:\n      while True: s.send(bytes(64 << 10))\n    except BlockingIOError: pass";
    // An empty page in every 2 MiB: the page tables grow.
    let page_tables = "import mmap\nkept = []\n\
        while len(kept) < 64:\n  m = mmap.mmap(-1, 1 << 30, flags=0x4022, prot=mmap.PROT_READ); kept.append(m)\n\
        \x20 for at in range(0, 1 << 30, 2 << 20): m[at]";
    let made_of = [
        ("heap", heap),
        ("shared memory", shared),
        ("scratch", scratch),
        ("memfd", memfd),
        ("pipes", pipes),
        ("sockets", sockets),
        ("page tables", page_tables),
    ];
    for (name, bomb) in made_of {
        let options = ["-m", "32M", "--tmpfs", "/big:size=2G", "--tmpfs", "/dev/shm:size=2G"];
        let outcome = root().opts(options).python(bomb).go();
        let outcome = outcome.expect(128 + libc::SIGKILL).expect_status("oom");
        assert!(number(&outcome, "/usage/memory/oom_kills") >= 1, "{name}: {outcome}");
        assert_eq!(number(&outcome, "/usage/memory/limit_bytes"), 32 * MIB, "{name}");
        let peak = number(&outcome, "/usage/memory/peak_bytes");
        assert!((24 * MIB..=32 * MIB).contains(&peak), "{name}: {peak}");
    }
}

#[test]
fn a_workload_within_its_budget_runs_and_its_peak_is_reported() {
    let Some(version) = host() else { return };
    let python = "b = bytearray(40 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint('fits')";
    let outcome = root().opts(["-m", "96M"]).python(python).go().expect(0).expect_status("ok");
    assert_eq!(outcome.text(), "fits\n");
    let peak = number(&outcome, "/usage/memory/peak_bytes");
    assert!((40 * MIB..=96 * MIB).contains(&peak), "{peak}");
    assert_eq!(number(&outcome, "/usage/memory/oom_kills"), 0);
    let source = if version == Version::V2 { "cgroup2" } else { "cgroup1" };
    assert_eq!(outcome.report().pointer("/usage/memory/source").unwrap(), source);
    assert_eq!(outcome.report().pointer("/usage/cpu/source").unwrap(), source);
}

/// A parent that survives its children would make a failed job look like a slow one.
#[test]
fn a_child_that_takes_all_memory_takes_the_tree_with_it() {
    let Some(()) = host_v2() else { return };
    let script = "import subprocess, sys, time\n\
        subprocess.Popen([sys.executable, '-I', '-S', '-c', 'x = bytearray(1 << 30)'])\ntime.sleep(1000)";
    let outcome = root().opts(["-m", "64M"]).python(script).go().expect(128 + libc::SIGKILL).expect_status("oom");
    assert!(outcome.wall < PATIENCE, "{outcome}");
}

/// An exit code of 137 alone does not prove an OOM kill.
#[test]
fn dying_of_sigkill_is_not_called_oom() {
    if host().is_none() {
        return;
    }
    root().opts(["-m", "64M"]).sh("kill -9 $$").go().expect(137).expect_status("signaled");
    root().opts(["-m", "64M"]).sh("exit 137").go().expect(137).expect_status("nonzero");
}

#[test]
fn a_budget_too_small_to_start_in_is_reported() {
    if host().is_none() {
        return;
    }
    let outcome = root().opts(["-m", "64K"]).cmd(["true"]).go().expect(125).expect_status("setup_error");
    assert!(outcome.stderr.contains("memory budget: is too small"), "{outcome}");
    assert_eq!(outcome.report()["enforced"], Value::Null, "nothing ran: {outcome}");
}

/// At whatever point of the start the OOM killer strikes, the error names the budget.
#[test]
fn a_budget_near_the_minimum_is_reported_as_too_small_or_enforced() {
    if host().is_none() {
        return;
    }
    if common::host::is_uml() {
        return skip("a User-Mode kernel dies where it looks at the path of a process that was just killed");
    }
    for kib in (80..=400).step_by(8) {
        for more in [&[][..], &["--time-namespace"]] {
            let limit = format!("{kib}K");
            let outcome = root().opts(["-m", &limit]).opts(more.iter().copied()).cmd(["true"]).go();
            let status = match outcome.code() {
                0 => "ok",
                125 => "setup_error",
                _ => "oom",
            };
            assert_eq!(outcome.report()["status"], status, "{limit} {more:?}: {outcome}");
            let named = outcome.stderr.contains("memory budget: is too small");
            assert!(named || status != "setup_error", "{limit} {more:?}: {outcome}");
        }
    }
}

/// A file on a loop device, both removed on drop; `None` where devices cannot be created.
struct Disk {
    device: String,
    _image: TempDir,
}

impl Disk {
    fn new(size: u64) -> Option<Self> {
        let image = TempDir::new(Caller::Root);
        // Not sparse: its pages would be charged to the cgroup that writes to it, which may be at its limit.
        let file = image.file("image", vec![0; usize::try_from(size).expect("a small one")]);
        let output = std::process::Command::new("losetup").args(["--find", "--show"]).arg(&file).output().ok()?;
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if device.is_empty() {
            skip("no loop device is available");
            return None;
        }
        Some(Self { device, _image: image })
    }

    fn tool<const N: usize>(&self, words: [&str; N]) {
        let done = std::process::Command::new(words[0]).args(&words[1..]).arg(&self.device).output();
        let done = done.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

#[test]
fn swap_is_disabled_unless_requested() {
    let Some(()) = host_v2() else { return };
    let Some(disk) = Disk::new(128 << 20) else { return };
    disk.tool(["mkswap"]);
    disk.tool(["swapon"]);
    let python = "b = bytearray(40 << 20)\nfor i in range(0, len(b), 4096): b[i] = i & 255\nprint('fits')";
    let none = root().opts(["-m", "32M"]).python(python).go();
    let some = root().opts(["-m", "32M", "--swap", "64M"]).python(python).go();
    disk.tool(["swapoff"]);
    let none = none.expect(128 + libc::SIGKILL).expect_status("oom");
    assert_eq!(number(&none, "/usage/memory/swap_peak_bytes"), 0);
    let some = some.expect(0);
    assert!((8 * MIB..=64 * MIB).contains(&number(&some, "/usage/memory/swap_peak_bytes")), "{some}");
}

#[test]
fn disk_traffic_is_bounded_and_counted() {
    let Some(()) = host_v2() else { return };
    let Some(disk) = Disk::new(64 << 20) else { return };
    disk.tool(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0"]);
    let dir = TempDir::new(Caller::Root);
    let at = common::text(dir.path()).to_owned();
    let write = "import mmap, os\n\
        f = os.open('/disk/x', os.O_CREAT | os.O_WRONLY | os.O_DIRECT)\nm = mmap.mmap(-1, 1 << 20)\n\
        for i in range(4): os.write(f, m)\nos.fsync(f)";
    let mount = format!("mount {} {at} && chmod 777 {at} || exit 9", disk.device);
    let bound = format!("{}:wbps=1M", disk.device);
    let run = |options: &[&str]| {
        let options = options.iter().copied().chain(["--mount", "PLACE"]);
        let options = options.map(|word| word.replace("PLACE", &format!("type=bind,source={at},destination=/disk")));
        let run = root().opts(options).python(write).via(["unshare", "-m", "--propagation", "private"]);
        run.after_sh(&mount).go().expect(0)
    };
    let free = run(&["--cgroup-set", "io.weight=default 50"]);
    let slow = run(&["--io-max", &bound]);
    for outcome in [&free, &slow] {
        let written = number(outcome, "/usage/io/write_bytes");
        assert!((4 * MIB..6 * MIB).contains(&written), "{written}: {outcome}");
    }
    assert!(number(&slow, "/usage/wall_us") >= 2_500_000, "4 MiB at 1 MiB a second: {slow}");
}

// --- Processes -------------------------------------------------------------------------------------------------------

const FORK_BOMB: &str = "import os, sys, time\n\
    n = 0\n\
    while True:\n\
    \x20   try:\n\
    \x20       if os.fork() == 0: time.sleep(60)\n\
    \x20   except BlockingIOError:\n\
    \x20       print(n, flush=True); sys.exit(3)\n\
    \x20   n += 1\n\
    \x20   if n > 200: print('free'); sys.exit(0)";

#[test]
fn a_fork_bomb_is_a_line_in_the_report() {
    let Some(version) = host() else { return };
    let outcome = root().opts(["--pids-limit", "30"]).python(FORK_BOMB).go().expect(3).expect_status("pids_limit");
    assert_eq!(outcome.text(), "28\n", "30 processes less init and the bomb");
    assert_eq!(number(&outcome, "/usage/pids/limit"), 30);
    assert!(number(&outcome, "/usage/pids/max_events") >= 1, "{outcome}");
    if version == Version::V2 && outcome.report()["usage"]["pids"]["peak"] != Value::Null {
        assert_eq!(number(&outcome, "/usage/pids/peak"), 30);
    }
}

#[test]
fn a_neighbour_of_a_fork_bomb_goes_on_on_time() {
    if host().is_none() {
        return;
    }
    let median = || {
        let mut walls: Vec<Duration> = (0..9).map(|_| root().cmd(["true"]).go().expect(0).wall).collect();
        walls.sort();
        walls[4]
    };
    let alone = median();
    let forks = "import os\nprint('on', flush=True)\nwhile True:\n    try: os.fork()\n    except OSError: pass";
    let bomb = root().opts(["--pids-limit", "64", "--cpus", "0.25", "--timeout", "50s"]).python(forks).spawn();
    bomb.wait_for("on");
    let beside = median();
    bomb.signal(Signal::SIGTERM);
    bomb.finish().expect(143);
    // The load of the machine may have changed meanwhile.
    let alone = alone.max(median());
    assert!(beside < alone * 3 + Duration::from_millis(100), "{alone:?} alone, {beside:?} beside it");
}

#[test]
fn a_workload_that_copes_with_the_limit_ended_well() {
    if host().is_none() {
        return;
    }
    let copes = FORK_BOMB.replace("sys.exit(3)", "sys.exit(0)");
    let outcome = root().opts(["--pids-limit", "30"]).python(&copes).go().expect(0).expect_status("ok");
    assert!(number(&outcome, "/usage/pids/max_events") >= 1, "{outcome}");
}

// --- CPU -------------------------------------------------------------------------------------------------------------

#[test]
fn a_tenth_of_a_cpu_is_a_tenth_of_a_cpu_on_time() {
    if host().is_none() {
        return;
    }
    let spin = "import time\nend = time.monotonic() + 5\nwhile time.monotonic() < end: pass";
    let outcome = root().opts(["--cpus", "0.1"]).python(spin).go().expect(0);
    let (used, wall) = (number(&outcome, "/usage/cpu/total_us"), number(&outcome, "/usage/wall_us"));
    // The margin covers quota of the first and the last period, and time that a guest's kernel counts as use while it waits
    // itself.
    assert!(used <= wall / 5, "{used} of {wall} µs");
    // On a busy machine it gets less than its tenth, and is never throttled.
    if used > wall / 12 {
        assert!(number(&outcome, "/usage/cpu/throttled_periods") > 1, "it was not throttled: {outcome}");
        assert!(number(&outcome, "/usage/cpu/throttled_us") > 0);
    }
}

/// A killed process must run to exit: a thousand processes with a hundredth of a CPU take ten seconds for that.
#[test]
fn a_tree_that_has_no_cpu_time_left_is_killed_on_time() {
    if host().is_none() {
        return;
    }
    let forks = "import os, signal\n\
        for number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\n\
        while True:\n    try: os.fork()\n    except OSError: pass";
    let options = ["--cpus", "0.01", "--pids-limit", "1000", "--timeout", "3s", "--kill-after", "200ms"];
    let outcome = root().opts(options).python(forks).go().expect(124);
    let outcome = outcome.expect_status("timeout_wall");
    assert!(outcome.wall < Duration::from_secs(6) + outcome.allowance, "{outcome}");
}

#[test]
fn weights_share_a_cpu_between_runs_on_time() {
    let Some(version) = host() else { return };
    let spin = |weight: &str| {
        let options = ["--cpuset-cpus", "0", "--cpu-weight", weight];
        root().opts(options).python("print('on', flush=True)\nwhile True: pass").spawn()
    };
    let (light, heavy) = (spin("100"), spin("300"));
    let used = |run: &Live| match version {
        Version::V2 => {
            let stat = read(&cgroup_of(run, "cpu").join("cpu.stat"));
            stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap().parse::<u64>().unwrap()
        }
        Version::V1 => read(&cgroup_of(run, "cpuacct").join("cpuacct.usage")).parse::<u64>().unwrap() / 1_000,
    };
    light.wait_for("on");
    heavy.wait_for("on");
    let before = (used(&light), used(&heavy));
    sleep(Duration::from_secs(4));
    let after = (used(&light), used(&heavy));
    for run in [light, heavy] {
        run.signal(Signal::SIGTERM);
        run.finish();
    }
    let ratio = (after.1 - before.1) as f64 / (after.0 - before.0) as f64;
    assert!((3.0 * 0.85..=3.0 * 1.15).contains(&ratio), "{ratio}: {before:?} {after:?}");
}

#[test]
fn the_workload_runs_on_the_cpus_it_was_given() {
    if host().is_none() {
        return;
    }
    let outcome = root().opts(["--cpuset-cpus", "0"]).python("import os; print(sorted(os.sched_getaffinity(0)))").go();
    assert_eq!(outcome.expect(0).text(), "[0]\n");
}

#[test]
fn processor_time_of_the_whole_tree_ends_it() {
    if host().is_none() {
        return;
    }
    let script = "for i in 1 2 3; do (while :; do :; done) & done; wait";
    let outcome = root().opts(["--cpu-time", "500ms", "--cpus", "2"]).sh(script).go();
    let outcome = outcome.expect(124).expect_status("timeout_cpu");
    let used = number(&outcome, "/usage/cpu/total_us");
    assert!((500_000..3_000_000).contains(&used), "{used}");
}

// --- What is written, and what is refused ----------------------------------------------------------------------------

#[test]
fn every_limit_is_in_the_kernel_while_the_workload_runs() {
    let Some(version) = host() else { return };
    let mut options = vec!["-m", "64M", "--pids-limit", "17", "--cpus", "1.5", "--cpu-weight", "50"];
    options.extend(["--cpuset-cpus", "0", "--cpuset-mems", "0"]);
    if version == Version::V2 {
        options.extend(["--memory-high", "48M", "--cgroup-set", "memory.low=4M", "--cgroup-set", "memory.min=1M"]);
    }
    let run = root().opts(options).sh("echo on; cat >/dev/null; sleep 5").spawn();
    run.wait_for("on");
    let expected: &[(&str, &str, &str)] = match version {
        Version::V2 => &[
            ("memory", "memory.max", "67108864"),
            ("memory", "memory.high", "50331648"),
            ("memory", "memory.low", "4194304"),
            ("memory", "memory.min", "1048576"),
            ("memory", "memory.oom.group", "1"),
            ("pids", "pids.max", "17"),
            ("cpu", "cpu.max", "150000 100000"),
            ("cpu", "cpu.weight", "50"),
            ("cpuset", "cpuset.cpus", "0"),
            ("cpuset", "cpuset.mems", "0"),
            ("memory", "cgroup.max.descendants", "0"),
        ],
        Version::V1 => &[
            ("memory", "memory.limit_in_bytes", "67108864"),
            ("pids", "pids.max", "17"),
            ("cpu", "cpu.cfs_quota_us", "150000"),
            ("cpu", "cpu.cfs_period_us", "100000"),
            ("cpu", "cpu.shares", "512"),
            ("cpuset", "cpuset.cpus", "0"),
            ("cpuset", "cpuset.mems", "0"),
        ],
    };
    for (controller, file, value) in expected {
        assert_eq!(read(&cgroup_of(&run, controller).join(file)), *value, "{file}");
    }
    let swap = cgroup_of(&run, "memory").join("memory.swap.max");
    assert!(version == Version::V1 || !swap.exists() || read(&swap) == "0", "no swap unless asked for");
    // The cgroup contains the whole tree with init, but not the supervisor.
    let mut tree: Vec<i32> = run.processes().into_iter().filter(|pid| *pid != run.pid()).collect();
    let inside = read(&cgroup_of(&run, "memory").join("cgroup.procs"));
    let inside: Vec<i32> = inside.lines().map(|line| line.parse().unwrap()).collect();
    assert!(!inside.contains(&run.pid()), "{inside:?}");
    tree.retain(|pid| common::leaks::stat(*pid).is_some_and(|(state, _)| state != 'Z')); // it may have ended meanwhile
    assert!(tree.len() >= 2 && tree.iter().all(|pid| inside.contains(pid)), "{tree:?} in {inside:?}");
    run.signal(Signal::SIGTERM);
    let outcome = run.finish();
    let controllers = outcome.report().pointer("/enforced/cgroup/controllers").unwrap().to_string();
    for name in ["memory", "pids", "cpu", "cpuset"] {
        assert!(controllers.contains(name), "{controllers}");
    }
}

#[test]
fn the_workload_sees_no_cgroup_but_its_own() {
    if host().is_none() {
        return;
    }
    let outcome = root().opts(["-m", "64M", "--pids-limit", "20"]).sh("cat /proc/self/cgroup; ls /sys").go();
    assert!(!outcome.text().contains("stockade."), "the name of the cgroup is the host's: {outcome}");
}

#[test]
fn the_workload_reads_its_limits_and_changes_nothing() {
    let Some(version) = host() else { return };
    let (file, directory) = match version {
        Version::V2 => ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup"),
        Version::V1 => ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory"),
    };
    // Whatever the mode of the files says: the mount is read-only. A cgroup of another run would be a directory.
    let script = format!(
        "cat {file}; for write in 'echo 1 >{file}' 'echo $$ >{directory}/cgroup.procs' 'mkdir {directory}/new' 'rmdir {directory}'; do
         (eval \"$write\") 2>/dev/null && echo \"done: $write\"; done
         find {directory} -mindepth 1 -type d; awk '$5 ~ /cgroup/ && $6 !~ /^ro,/ || $5 ~ /cgroup/ && $4 != \"/\"' /proc/self/mountinfo"
    );
    let neighbour = root().opts(["-m", "96M"]).sh("echo on; sleep 60").spawn();
    neighbour.wait_for("on");
    for options in [&["-m", "64M"][..], &["-m", "64M", "--landlock", "off"]] {
        let outcome = root().opts(options.iter().copied()).sh(&script).go();
        assert_eq!(outcome.text(), "67108864\n", "{outcome}");
    }
    neighbour.signal(Signal::SIGTERM);
    neighbour.finish();
    let rootfs = common::TempDir::new(Caller::Root);
    for name in ["usr", "sys", "proc", "dev", "tmp"] {
        rootfs.dir(name);
    }
    for name in ["bin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), rootfs.join(name)).unwrap();
    }
    let options = ["--rootfs", rootfs.path().to_str().unwrap(), "-v", "/usr:/usr:ro", "-m", "64M"];
    assert_eq!(root().opts(options).sh(&script).go().text(), "67108864\n", "on a root from the host too");
    let covered = root().opts(["-m", "64M", "--tmpfs", "/sys/fs/cgroup"]).sh("ls -A /sys/fs/cgroup").go();
    assert_eq!(covered.expect(0).text(), "", "a mount that was asked for prevails");
}

#[test]
fn programs_plan_with_the_memory_and_processors_of_their_budget() {
    if host().is_none() {
        return;
    }
    let numbers = |program: &str, script: &str| {
        if !common::has_program(program) {
            common::skip_part(program, "it is not installed");
            return Vec::new();
        }
        let outcome = root().opts(["-m", "256M", "--cpus", "1"]).sh(script).go().expect(0);
        outcome.text().split_whitespace().map(|word| word.parse::<u64>().unwrap()).collect()
    };
    // The JVM takes half of so little memory, node all of it.
    let java =
        "java -XX:+PrintFlagsFinal -XX:-UseSerialGC -version 2>/dev/null | awk '$2 == \"MaxHeapSize\" {print $4}'";
    for heap in numbers("java", java) {
        assert!((64 * MIB..=128 * MIB).contains(&heap), "java: {heap}");
    }
    let node = "node -p '[v8.getHeapStatistics().heap_size_limit, process.constrainedMemory()].join(\" \")'";
    if let [heap, constrained] = numbers("node", node)[..] {
        assert!(heap <= 300 * MIB && constrained == 256 * MIB, "node: {heap} {constrained}");
    }
}

#[test]
fn a_budget_that_the_kernel_would_not_enforce_is_refused() {
    let Some(version) = host() else { return };
    let mut refused: Vec<(&[&str], &[&str])> = vec![
        (&["--cpuset-cpus", "0-99"], &["cpuset.cpus"]),
        (&["--cpuset-cpus", "4000"], &["cpuset.cpus"]),
        (&["--cpuset-mems", "9"], &["cpuset.mems"]),
        (&["--cgroup-set", "memory.nonsense=1"], &["memory.nonsense"]),
        (&["--io-max", "/dev/null:rbps=1M"], if version == Version::V2 { &["/dev/null"] } else { &["io budget"] }),
    ];
    if version == Version::V2 {
        refused.push((&["--cgroup-set", "memory.low=lots"], &["memory.low", "lots"]));
        refused.push((&["--cgroup-set", "cpu.max=100 10"], &["cpu.max"]));
        if !fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap().contains("hugetlb") {
            refused.push((&["--hugetlb", "2M=64M"], &["hugetlb"]));
        }
        // A value so large that the kernel takes it for unlimited.
        refused.push((&["-m", "9223372036854775807"], &["memory.max", "has \"max\""]));
    }
    for (options, expected) in refused {
        let outcome = root().opts(options.iter().copied()).sh("echo ran").go().expect(125).expect_status("setup_error");
        assert!(outcome.text().is_empty(), "{outcome}");
        for text in expected {
            assert!(outcome.stderr.contains(text), "{text}: {outcome}");
        }
    }
}

/// A requested budget is enforced, or the run does not start. A missing default is left out, and the report says so.
#[test]
fn without_a_cgroup_a_budget_is_refused_unless_it_may_lack() {
    let outcome = Run::new(Caller::Unprivileged).opts(["-m", "64M", "--pids-limit", "9"]).sh("echo ran").go();
    let outcome = outcome.expect(125).expect_status("setup_error");
    for text in ["memory, pids budgets", "cannot be enforced", "--allow-degraded memory --allow-degraded pids"] {
        assert!(outcome.stderr.contains(text), "{text}: {outcome}");
    }
    assert!(outcome.text().is_empty());
    let options = ["-m", "64M", "--allow-degraded", "memory"];
    let outcome = Run::new(Caller::Unprivileged).opts(options).sh("echo ran").go().expect(0);
    let degraded = |outcome: &Outcome, what: &str| {
        let list = outcome.report()["enforced"]["degraded"].as_array().unwrap().clone();
        list.into_iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("{what} is not degraded: {outcome}"))
    };
    assert!(degraded(&outcome, "memory")["wanted"].as_str().unwrap().contains("64"), "{outcome}");
    let outcome = Run::new(Caller::Unprivileged).sh("echo ran").go().expect(0);
    assert_eq!(degraded(&outcome, "memory")["got"], "unlimited");
    assert!(degraded(&outcome, "pids")["got"].as_str().unwrap().starts_with("RLIMIT_NPROC 512 "), "{outcome}");
    let none = serde_json::json!({"what": "memory", "by": "none", "limit": null});
    assert_eq!(outcome.report()["enforced"]["budget"][0], none, "{outcome}");
    assert_eq!(outcome.report()["enforced"]["budget"][1]["by"], "rlimit", "{outcome}");
    assert_eq!(outcome.report().pointer("/usage/memory/limit_bytes"), Some(&Value::Null));
}

/// An unprivileged caller may not have a cgroup here: limits for each process replace it, and the report lists them.
#[test]
fn a_budget_that_may_be_missing_becomes_limits_of_each_process() {
    let run = |options: &[&str]| Run::new(Caller::Unprivileged).opts(options.iter().copied());
    let (memory, pids) =
        (["-m", "64M", "--allow-degraded", "memory"], ["--pids-limit", "9", "--allow-degraded", "pids"]);
    let got = |outcome: &Outcome, what: &str| {
        let list = outcome.report()["enforced"]["degraded"].as_array().unwrap().clone();
        list.into_iter().find(|one| one["what"] == what).map(|one| one["got"].as_str().unwrap().to_owned())
    };
    let large = "try: print(len(bytearray(10**9)))\nexcept MemoryError: print('refused')\n\
                 print(len(bytearray(10**7)), open('/proc/self/oom_score_adj').read().strip())";
    let outcome = run(&memory).python(large).go().expect(0);
    let Some(took_over) = got(&outcome, "memory") else { return skip("an unprivileged caller has a cgroup here") };
    assert_eq!(outcome.text(), "refused\n10000000 500\n", "{outcome}");
    assert_eq!(took_over, format!("RLIMIT_DATA {} for each process", 64 * MIB));
    let many = "import os, time\nmade = 0\ntry:\n  while made < 50:\n    if os.fork() == 0: time.sleep(30); os._exit(0)\n    \
                made += 1\nexcept BlockingIOError: print('refused')\nprint(made < 9)";
    let outcome = run(&pids).python(many).go().expect(0);
    assert_eq!(outcome.text(), "refused\nTrue\n", "{outcome}");
    assert_eq!(got(&outcome, "pids").unwrap(), "RLIMIT_NPROC 9 for the processes of its user");
    // A stricter limit stays. Default memory is not replaced: threads, JVMs and sanitizers would fail.
    let outcome = run(&memory).opts(["--ulimit", "data=32M:48M"]).sh("ulimit -d; ulimit -Hd").go().expect(0);
    assert_eq!(outcome.text(), format!("{}\n{}\n", 32 << 10, 48 << 10), "{outcome}");
    let outcome = run(&[]).sh("ulimit -d; cat /proc/self/oom_score_adj").go().expect(0);
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse::<i32>().unwrap().max(0);
    assert_eq!(outcome.text(), format!("unlimited\n{own}\n"), "{outcome}");
}

/// Without a cgroup, one line says what is not limited. A caller who reads a report or accepts the lack gets none.
#[test]
fn what_nothing_limits_is_said_in_one_line_and_may_be_refused() {
    let run = |options: &[&str]| {
        Run::new(Caller::Unprivileged).without_report().opts(options.iter().copied()).sh("echo ran").go()
    };
    let reported = Run::new(Caller::Unprivileged).cmd(["true"]).go().expect(0);
    if reported.report()["enforced"]["budget"][0]["by"] == "cgroup" {
        return skip("an unprivileged caller has a cgroup here");
    }
    assert!(run(&["--require-budget"]).expect(125).text().is_empty());
    let plain = run(&[]).expect(0);
    assert_eq!(plain.stderr.lines().count(), 1, "{plain}");
    for text in ["warning: memory is not limited: ", "--require-budget", "--allow-degraded memory"] {
        assert!(plain.stderr.contains(text), "{text}: {plain}");
    }
    let requested = run(&["-m", "64M", "--allow-degraded", "memory"]).expect(0);
    assert!(requested.stderr.contains("RLIMIT_DATA 67108864 for each process"), "{requested}");
    assert_eq!(run(&["--allow-degraded", "memory"]).expect(0).stderr, "");
    assert_eq!(reported.stderr, "", "it has a report");
    // A policy can ask for it too, and a flag can still accept that one limit is missing.
    let outcome = run(&["--require-budget", "--allow-degraded", "memory"]).expect(125);
    assert!(outcome.stderr.contains("pids budget: cannot be enforced"), "{outcome}");
    run(&["--require-budget", "--allow-degraded", "memory", "--allow-degraded", "pids"]).expect(0);
}

/// Root has default budgets on cgroup v2. On v1 they are left out for the time that they take, and could be had: no line each time.
#[test]
fn root_is_told_of_no_lack_where_it_can_have_every_budget() {
    if host().is_none() {
        return;
    }
    assert_eq!(root().without_report().cmd(["true"]).go().expect(0).stderr, "");
    let outcome = root().cmd(["true"]).go().expect(0);
    let lacking = outcome.report()["enforced"]["degraded"].to_string();
    let is_listed = lacking.contains("cgroup v1 takes longer than a start");
    assert_eq!(is_listed, outcome.report()["enforced"]["budget"][0]["by"] != "cgroup", "{outcome}");
}

#[test]
fn a_required_budget_is_enforced_by_a_cgroup() {
    if host().is_none() {
        return;
    }
    let outcome = root().opts(["--require-budget"]).cmd(["true"]).go().expect(0);
    let budget = outcome.report()["enforced"]["budget"].as_array().unwrap().clone();
    assert_eq!(budget.iter().map(|one| &one["by"]).collect::<Vec<_>>(), ["cgroup", "cgroup"], "{outcome}");
    assert!(budget[0]["limit"].as_str().unwrap().starts_with("memory.max 2147483648"), "{outcome}");
    assert_eq!(number(&outcome, "/usage/pids/limit"), 512);
}

/// A default limit on processes holds without a cgroup: each user namespace has a count of its own. The caller's other processes,
/// a second sandbox of the same user among them, do not count.
#[test]
fn a_fork_bomb_without_a_cgroup_is_bounded_by_the_default_limit() {
    let bomb = "import os, time\nmade = 0\ntry:\n  while made < 1000:\n    if os.fork() == 0: time.sleep(300); os._exit(0)\n    \
                made += 1\nexcept BlockingIOError: pass\nprint(made, flush=True)\ntime.sleep(WAIT)";
    let run = |wait: &str| Run::new(Caller::Unprivileged).python(&bomb.replace("WAIT", wait));
    let first = run("300").spawn();
    first.wait_for("\n");
    let second = run("0").go().expect(0);
    first.signal(Signal::SIGTERM);
    let first = first.finish();
    for outcome in [first, second] {
        let made: u32 = outcome.text().trim().parse().unwrap();
        assert!((480..512).contains(&made), "{made}: {outcome}");
    }
}

#[test]
fn every_run_has_a_budget_where_it_costs_nothing() {
    let Some(()) = host_v2() else { return };
    let outcome = root().cmd(["true"]).go().expect(0);
    assert_eq!(number(&outcome, "/usage/memory/limit_bytes"), 2 << 30);
    assert_eq!(number(&outcome, "/usage/pids/limit"), 512);
    let outcome = root().opts(["-p", "strict"]).cmd(["true"]).go().expect(0);
    assert_eq!(number(&outcome, "/usage/memory/limit_bytes"), 512 * MIB);
    assert_eq!(number(&outcome, "/usage/pids/limit"), 64);
    let outcome = root().opts(["-m", "unlimited", "--pids-limit", "-1"]).cmd(["true"]).go().expect(0);
    assert_eq!(outcome.report()["enforced"]["cgroup"], Value::Null);
}

#[test]
fn a_policy_file_gives_a_budget() {
    if host().is_none() {
        return;
    }
    let dir = TempDir::new(Caller::Root);
    let policy = dir.file("p.toml", "version = 1\n[budget]\nmemory = '48M'\npids = 12\ncpus = 0.75\n");
    let outcome = root().opts(["-p", common::text(&policy)]).cmd(["true"]).go().expect(0);
    assert_eq!(number(&outcome, "/usage/memory/limit_bytes"), 48 * MIB);
    assert_eq!(number(&outcome, "/usage/pids/limit"), 12);
    // A flag wins.
    let outcome = root().opts(["-p", common::text(&policy), "-m", "40M"]).cmd(["true"]).go().expect(0);
    assert_eq!(number(&outcome, "/usage/memory/limit_bytes"), 40 * MIB);
}

// --- A subtree of the user's own -------------------------------------------------------------------------------------

/// A delegated subtree with one process, as an engine or a login manager creates it.
struct Subtree(PathBuf);

impl Subtree {
    fn new(caller: Caller) -> Self {
        Self::below(Path::new("/sys/fs/cgroup"), &unique(), caller)
    }

    fn below(parent: &Path, name: &str, caller: Caller) -> Self {
        let path = parent.join(name);
        fs::create_dir(&path).expect("root can make a cgroup");
        for controller in ["+memory", "+pids", "+cpu"] {
            fs::write(parent.join("cgroup.subtree_control"), controller).expect("the controller can be turned on");
        }
        for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            let (uid, gid) = caller.ids();
            std::os::unix::fs::chown(path.join(file), Some(uid), Some(gid)).expect("its owner can be changed");
        }
        Self(path)
    }
}

impl Drop for Subtree {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let _ = eventually(|| remove_cgroups(&self.0).is_ok());
    }
}

fn remove_cgroups(path: &Path) -> std::io::Result<()> {
    let children = fs::read_dir(path).into_iter().flatten().flatten();
    children.filter(|entry| entry.path().is_dir()).try_for_each(|entry| remove_cgroups(&entry.path()))?;
    fs::remove_dir(path)
}

#[test]
fn a_delegated_subtree_gives_budgets_without_root() {
    let Some(()) = host_v2() else { return };
    let caller = Caller::Unprivileged;
    let subtree = Subtree::new(caller);
    let bomb = "kept = []\nwhile True: kept.append(bytearray(1 << 20))";
    // The first run finds the subtree as it was delegated; the others start in the leaf that the first one's caller was moved to.
    let leaf = subtree.0.join("stockade.callers");
    for place in [&subtree.0, &leaf, &leaf] {
        let outcome = Run::new(caller).within(place).opts(["-m", "64M"]).python(bomb).go();
        let outcome = outcome.expect(128 + libc::SIGKILL).expect_status("oom");
        let path = outcome.report().pointer("/enforced/cgroup/path").unwrap().as_str().unwrap().to_owned();
        assert_eq!(Path::new(&path).parent().unwrap(), subtree.0, "beside the caller's own leaf");
        let outcome = Run::new(caller).within(&leaf).opts(["--pids-limit", "30"]).python(FORK_BOMB).go();
        outcome.expect(3).expect_status("pids_limit");
    }
    let left: Vec<_> = fs::read_dir(&subtree.0).unwrap().flatten().filter(|entry| entry.path().is_dir()).collect();
    assert!(left.len() <= 1, "only the caller's own leaf: {left:?}");
}

/// `systemd --user`, as it runs for a session, in a delegated subtree of its own.
#[test]
fn the_users_systemd_gives_budgets() {
    let Some(()) = host_v2() else { return };
    const SYSTEMD: &str = "/usr/lib/systemd/systemd";
    if !Path::new(SYSTEMD).exists() {
        return skip("systemd is not installed");
    }
    let caller = Caller::Unprivileged;
    let outer = Subtree::new(Caller::Root);
    let subtree = Subtree::below(&outer.0, &format!("user@{}.service", caller.ids().0), caller);
    let runtime = TempDir::new(caller);
    let home = runtime.dir("home");
    common::set_mode(runtime.path(), 0o700);
    // It runs only if it believes that systemd booted the system.
    let enter = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";
    let mut manager = std::process::Command::new("unshare");
    manager.args(["-m", "--propagation", "private", "sh", "-c", enter, "sh"]).arg(&subtree.0);
    manager.args(caller.become_words()).args([SYSTEMD, "--user"]);
    manager.env_clear().env("PATH", common::PATH).env("HOME", &home).env("XDG_RUNTIME_DIR", runtime.path());
    manager.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut manager = common::leaks::spawn(&mut manager);
    let has_socket = eventually(|| runtime.join("systemd/private").exists());
    assert!(has_socket, "systemd has no socket: {:?}", manager.try_wait());
    // The caller's cgroup beside the manager's, where a terminal would be.
    let (uid, gid) = caller.ids();
    let terminal = subtree.0.join("terminal.scope");
    fs::create_dir(&terminal).unwrap();
    for file in ["", "cgroup.procs"] {
        std::os::unix::fs::chown(terminal.join(file), Some(uid), Some(gid)).unwrap();
    }
    let run = || Run::new(caller).within(&terminal).env("XDG_RUNTIME_DIR", runtime.path());
    let bomb = "kept = []\nwhile True: kept.append(bytearray(1 << 20))";
    let outcomes = [run().opts(["-m", "64M"]).python(bomb).go(), run().opts(["-m", "64M"]).cmd(["true"]).go()];
    let default = run().cmd(["true"]).go();
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(manager.id() as i32), Signal::SIGKILL);
    let _ = manager.wait();
    common::leaks::forget(&manager);
    let [oom, ok] = outcomes;
    let oom = oom.expect(128 + libc::SIGKILL).expect_status("oom");
    let path = oom.report().pointer("/enforced/cgroup/path").unwrap().as_str().unwrap().to_owned();
    assert!(
        path.starts_with(common::text(&subtree.0)) && path.contains("/stockade-") && path.contains(".scope/"),
        "not in a scope of systemd: {path}"
    );
    ok.expect(0);
    let default = default.expect(0);
    assert_eq!(number(&default, "/usage/memory/limit_bytes"), 2 << 30, "a default budget is that of a scope too");
    assert_eq!(default.report()["enforced"]["budget"][0]["by"], "cgroup");
}

// --- The end ---------------------------------------------------------------------------------------------------------

#[test]
fn gc_removes_leftovers_of_killed_supervisors_and_nothing_else() {
    let Some(version) = host() else { return };
    let sleeper = || root().opts(["-m", "64M"]).sh("echo on; sleep 60").spawn();
    let (mut killed, alive) = (sleeper(), sleeper());
    killed.wait_for("on");
    alive.wait_for("on");
    let (gone, stays) = (cgroup_of(&killed, "memory"), cgroup_of(&alive, "memory"));
    let parent = gone.parent().unwrap();
    let strangers: Vec<_> = ["stockade.x.1.2", "stockade.callers", "other.a.1.2.3"]
        .iter()
        .map(|name| parent.join(format!("{name}{}", if name.starts_with("other") { unique() } else { String::new() })))
        .filter(|path| fs::create_dir(path).is_ok())
        .collect();
    killed.kill_supervisor();
    killed.finish(); // runs `stockade gc`, and fails if a cgroup of that run is left
    assert!(!gone.exists());
    assert!(stays.exists(), "the cgroup of a living run was removed: {version:?}");
    for path in strangers {
        assert!(path.exists(), "{} was removed, but may belong to others", path.display());
        fs::remove_dir(path).unwrap();
    }
    alive.signal(Signal::SIGTERM);
    alive.finish();
}

/// All system calls of the supervisor that use cgroups: name, and count among calls of that name.
fn steps_with_cgroups(options: &[&str]) -> Vec<(String, usize)> {
    let outcome = root().via(["strace", "-o", "../trace"]).opts(options.iter().copied()).cmd(["true"]).go().expect(0);
    let trace = read(&outcome.home.join("trace"));
    let lines: Vec<&str> = trace.lines().collect();
    let cloned = lines.iter().position(|line| line.starts_with("clone3(")).unwrap();
    let first = lines.iter().position(|line| line.contains("/proc/self/cgroup")).unwrap();
    let counted = ["\"cpu.stat\"", "\"memory.", "\"pids.", "\"cpuacct."];
    let after = (cloned..).find(|at| counted.iter().any(|file| lines[*at].contains(file))).unwrap();
    let last = lines.iter().rposition(|line| line.starts_with("rmdir(")).unwrap();
    let mut seen = std::collections::HashMap::<&str, usize>::new();
    let mut steps = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((name, _)) = line.split_once('(') else { continue };
        let nth = seen.entry(name).or_default();
        *nth += 1;
        // Not tried: freeing memory and closing files, whose failure has no remedy.
        let memory = ["mmap", "munmap", "brk", "madvise", "mprotect", "mremap", "close"].contains(&name);
        if ((first..=cloned).contains(&at) || (after..=last).contains(&at)) && !memory && !line.starts_with("---") {
            steps.push((name.to_owned(), *nth));
        }
    }
    steps
}

#[test]
fn no_fault_in_a_step_with_cgroups_leaves_anything() {
    if host().is_none() || !common::has_program("strace") {
        return;
    }
    let options = ["-m", "64M", "--pids-limit", "20", "--cpus", "1"];
    let steps = steps_with_cgroups(&options);
    assert!(steps.len() > 20, "{steps:?}");
    eprintln!("{} steps", steps.len());
    // Tracing is slow in UML: the kernel itself traces all processes.
    let every = if common::host::is_uml() && std::env::var_os("STOCKADE_SWEEP").is_none_or(|wanted| wanted != "all") {
        3
    } else {
        1
    };
    for (name, nth) in steps.iter().step_by(every) {
        eprintln!("{name} {nth}"); // the message of a leak does not contain it
        let step = |fault: &str| format!("inject={name}:{fault}:when={nth}");
        let run = root().via(["strace", "-o", "/dev/null", "-e", &step("error=EIO")]);
        let mut run = run.opts(options).cmd(["true"]).spawn();
        if name == "rmdir" {
            run.expect_killed(); // `stockade gc` removes the rest
        }
        let outcome = run.finish(); // fails if anything is left
        assert!([0, 125].contains(&outcome.code()), "{name} {nth}: {outcome}");
        assert!(outcome.code() == 0 || outcome.stderr.starts_with("stockade: "), "{name} {nth}: {outcome}");
        let run = root().via(["strace", "-o", "/dev/null", "-e", &step("signal=KILL")]);
        let mut killed = run.opts(options).cmd(["true"]).spawn();
        killed.expect_killed();
        killed.finish();
    }
}

#[test]
fn a_deadline_ends_a_frozen_tree() {
    let Some(()) = host_v2() else { return };
    let options = ["-m", "64M", "--timeout", "2s", "--kill-after", "100ms"];
    let run = root().opts(options).sh("echo on; sleep 60").spawn();
    run.wait_for("on");
    fs::write(cgroup_of(&run, "memory").join("cgroup.freeze"), "1").unwrap();
    run.finish().expect(124).expect_status("timeout_wall");
}

#[test]
fn usage_is_told_while_it_runs() {
    if host().is_none() {
        return;
    }
    let dir = TempDir::new(Caller::Root);
    let lines = dir.join("lines");
    let python = "import time\nb = bytearray(24 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\n\
        end = time.monotonic() + 1.5\nwhile time.monotonic() < end or time.process_time() < 0.5: pass";
    let run = root().without_report().opts(["-m", "96M", "--stats", "100ms", "--report", "fd:9"]).python(python);
    run.after_sh(&format!("exec 9>{}", lines.display())).go().expect(0);
    let text = fs::read_to_string(&lines).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (report, samples) = lines.split_last().unwrap();
    assert_eq!(report["status"], "ok");
    assert!(samples.len() >= 5, "{text}");
    let cpu = |line: &Value| line.pointer("/usage/cpu/total_us").unwrap().as_u64().unwrap();
    assert!(samples.windows(2).all(|pair| cpu(&pair[0]) <= cpu(&pair[1])), "{text}");
    assert!(cpu(samples.last().unwrap()) <= cpu(report) && cpu(samples.last().unwrap()) > 300_000, "{text}");
    for sample in samples {
        let part = |name: &str| sample["usage"]["cpu"][name].as_u64().unwrap();
        assert_eq!(part("user_us") + part("system_us"), part("total_us"), "{sample}");
    }
    let memory = |line: &Value| line.pointer("/usage/memory/current_bytes").unwrap().as_u64().unwrap();
    // The last sample may come after the peak.
    assert!(samples.iter().any(|line| memory(line) >= 24 * MIB), "{text}");
    assert!(samples.iter().all(|line| line["schema"] != report["schema"]), "samples and report have different schemas");
}

/// The pages of the scratch space count against the budget: the scratch space is full long before the host's memory is.
#[test]
fn a_disk_filler_fills_its_scratch_space_alone() {
    let filler = "import errno\nf = open('/tmp/x', 'wb')\nn = 0\ntry:\n  while True: f.write(bytes(1 << 20)); f.flush(); n += 1\n\
        except OSError as e: print(errno.errorcode[e.errno], n)";
    common::for_each_caller(|caller| {
        let outcome = Run::new(caller).opts(["--tmpfs", "/tmp:size=8M"]).python(filler).go().expect(0);
        assert_eq!(outcome.text(), "ENOSPC 8\n");
    });
}

#[test]
fn a_plan_marks_every_writable_bind_that_nothing_caps() {
    let options = ["plan", "--rw", "/opt", "--ro", "/srv", "--tmpfs", "/cache", "-v", "/var:/data:rw", "--", "true"];
    let outcome = Run::new(Caller::Unprivileged).plain().opts(options).go().expect(0);
    let marked: Vec<_> = outcome.lines().into_iter().filter(|line| line.contains("is not limited")).collect();
    assert!(
        marked.len() == 2 && marked.iter().all(|line| line.contains("/opt") || line.contains("/data")),
        "{outcome}"
    );
}

/// The supervisor's name is read back from the kernel, which truncates it within a character.
#[test]
fn a_program_with_any_name_has_a_budget() {
    if host().is_none() {
        return;
    }
    let script = "cp \"$1\" ../aaaaaaaaaaaaaaé; shift; exec ../aaaaaaaaaaaaaaé \"$@\"";
    let run = root().via(["/bin/sh", "-c", script, "sh"]).opts(["-m", "64M"]).cmd(["true"]).go().expect(0);
    assert_eq!(number(&run, "/usage/memory/limit_bytes"), 64 * MIB);
}
