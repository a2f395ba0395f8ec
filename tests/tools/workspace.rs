//! A policy in the workspace that a run writes to.

use std::fs;

use crate::common::host::idmappable_dir;
use crate::common::{Run, for_each_caller, text};

/// Tries to change what stands at a path, and to put something else there. Prints the names of what worked.
const REPLACE: &str = "\
import os, ctypes, sys\n\
libc = ctypes.CDLL(None, use_errno=True)\n\
def write(p): open(p, 'a').write('x')\n\
def truncate(p): os.truncate(p, 0)\n\
def chmod(p): os.chmod(p, 0o777)\n\
def times(p): os.utime(p, (0, 0))\n\
def unlink(p): os.unlink(p)\n\
def rename(p): os.rename(p, p + '.away')\n\
def over(p): open('new', 'w').write('evil'); os.rename('new', p)\n\
def exchange(p):\n\
\x20   open('other', 'w').write('evil')\n\
\x20   if libc.renameat2(-100, b'other', -100, p.encode(), 2): raise OSError(ctypes.get_errno(), '')\n\
def link(p): os.link(p, 'second'); open('second', 'a').write('x')\n\
def link_fd(p): os.link(f'/proc/self/fd/{os.open(p, os.O_RDONLY)}', 'third', follow_symlinks=True); open('third', 'a').write('x')\n\
def again(p): open(f'/proc/self/fd/{os.open(p, os.O_RDONLY)}', 'a').write('x')\n\
def parent(p):\n\
\x20   top = p.split('/')[0]\n\
\x20   if top == p: raise OSError(0, 'none')\n\
\x20   os.rename(top, top + '.moved'); os.makedirs(os.path.dirname(p)); open(p, 'w').write('evil')\n\
def within(p):\n\
\x20   d = os.path.dirname(p)\n\
\x20   if not d: raise OSError(0, 'none')\n\
\x20   os.rename(d, d + '.moved'); os.makedirs(d); open(p, 'w').write('evil')\n\
for path in sys.argv[1:] or os.environ['PATHS'].split():\n\
\x20   for attempt in (write, truncate, chmod, times, link, link_fd, again, exchange, over, rename, unlink, within, parent):\n\
\x20       try: attempt(path); print(path, attempt.__name__)\n\
\x20       except OSError as error: pass\n";

#[test]
fn a_policy_in_the_workspace_can_be_neither_changed_nor_replaced() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let policy = "version = 1\nextends = './ci/deep/base.toml'\n";
        dir.dir("ci");
        dir.dir("ci/deep");
        dir.dir("free");
        dir.dir("free/deep");
        for (name, content) in
            [("own.toml", policy), ("ci/deep/base.toml", "version = 1\n"), ("stockade.toml", "version = 1\n")]
        {
            dir.file(name, content);
        }
        dir.file("free/deep/file", "version = 1\n");
        let own = text(&dir.join("own.toml")).to_owned();
        let run = Run::new(caller).opts(["--workspace", text(dir.path()), "-p", &own]);
        let paths = "own.toml stockade.toml ci/deep/base.toml free/deep/file";
        let outcome = run.opts(["-e", &format!("PATHS={paths}")]).python(REPLACE).go().expect(0);
        let (free, protected): (Vec<_>, Vec<_>) =
            outcome.lines().into_iter().partition(|line| line.starts_with("free"));
        assert_eq!(protected, [""; 0], "{outcome}");
        assert!(free.len() >= 10, "the attempts work on another file: {outcome}");
        assert_eq!(fs::read_to_string(dir.join("own.toml")).unwrap(), policy);
        for name in ["ci/deep/base.toml", "stockade.toml"] {
            assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), "version = 1\n", "{name}");
        }
        // Without a policy in it, the rest of the workspace is the workload's as before.
        let outcome = Run::new(caller).opts(["--workspace", text(dir.path())]).sh("echo x >>ci/deep/base.toml").go();
        outcome.expect(0);
    });
}
