//! Programs that use more than files and processes: servers, sanitizers, tracers. They run with the defaults.

use crate::common;
use crate::common::{Caller, Outcome, Run, TempDir, for_each_caller, has_program, outside, skip_part, text};

/// The last program of a shell script decides.
fn bash(caller: Caller, options: &[&str], script: &str) -> Outcome {
    Run::new(caller).opts(options.iter().copied()).cmd(["/bin/bash", "-c", script]).go()
}

#[test]
fn nginx_serves_files_with_sendfile() {
    if !has_program("nginx") {
        return common::skip("nginx is not installed");
    }
    let script = r#"
mkdir -p /tmp/www; head -c 300000 /dev/zero | tr '\0' a > /tmp/www/a
cat > /tmp/conf <<END
daemon off; worker_processes 1; pid /tmp/pid; error_log /tmp/errors info;
events { worker_connections 64; }
http { access_log off; sendfile on; client_body_temp_path /tmp/1; proxy_temp_path /tmp/2; fastcgi_temp_path /tmp/3;
uwsgi_temp_path /tmp/4; scgi_temp_path /tmp/5; server { listen 127.0.0.1:8080; root /tmp/www; } }
END
/usr/sbin/nginx -c /tmp/conf -e /tmp/errors &
for i in $(seq 100); do
    /usr/bin/python3 -c "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8080/a').read().count(b'a'))" 2>/dev/null && break
    sleep 0.1
done
kill $!; wait; grep -E '\[(alert|crit|emerg|error)\]' /tmp/errors; true
"#;
    for_each_caller(|caller| {
        let outcome = bash(caller, &[], script).expect(0);
        assert_eq!(outcome.text(), "300000\n", "{outcome}");
    });
}

#[test]
fn postgresql_stores_and_answers() {
    let Some(bin) = std::fs::read_dir("/usr/lib/postgresql").ok().and_then(|mut all| Some(all.next()?.ok()?.path()))
    else {
        return common::skip("PostgreSQL is not installed");
    };
    let script = |memory: &str| {
        format!(
            r#"
PATH={}/bin:$PATH
initdb -D /tmp/data -A trust >/tmp/log 2>&1 || {{ tail -3 /tmp/log; exit 1; }}
pg_ctl -D /tmp/data -w -o "-k /tmp -c shared_memory_type={memory}" -l /tmp/log2 start >/dev/null || {{ cat /tmp/log2; exit 1; }}
psql -h 127.0.0.1 -d postgres -qAtc 'create table t as select generate_series(1,100000) x; checkpoint; select sum(x) from t'
pg_ctl -D /tmp/data -w -m fast stop >/dev/null; grep -iE 'warning|not permitted|not implemented' /tmp/log2; true
"#,
            text(&bin)
        )
    };
    for_each_caller(|caller| {
        for memory in ["mmap", "sysv"] {
            let outcome = bash(caller, &[], &script(memory)).expect(0);
            assert_eq!(outcome.text(), "5000050000\n", "{memory}: {outcome}");
        }
    });
}

#[test]
fn the_address_sanitizer_finds_leaks() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let source = dir.file(
            "leak.c",
            "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(10); p = 0; return 0; }\n",
        );
        let program = dir.join("leak");
        if outside(caller, ["gcc", "-g", "-fsanitize=address", text(&source), "-o", text(&program)]).0 != 0 {
            return skip_part("the sanitizer", "gcc has no address sanitizer here");
        }
        let outcome = Run::new(caller).opts(["--ro", text(dir.path())]).cmd([text(&program)]).go();
        assert!(outcome.stderr.contains("10 byte(s) leaked in 1 allocation(s)"), "{outcome}");
        let outcome = outcome.expect(1);
        assert!(!outcome.stderr.contains("fatal error"), "{outcome}");
    });
}

/// Calls that every threaded program, node and Java try and do without are not listed as denied.
#[test]
fn what_programs_try_and_do_without_is_not_listed() {
    let thread = "import threading, shutil\nt = threading.Thread(target=print); t.start(); t.join()\n\
                  open('/tmp/a', 'w').write('x'); shutil.copyfile('/tmp/a', '/tmp/b')";
    let mut programs =
        vec![vec!["/usr/bin/python3", "-c", thread], vec!["/bin/sh", "-c", "echo a | grep a >/dev/null"]];
    if has_program("node") {
        programs.push(vec!["node", "-e", "require('fs').promises.readFile('/etc/passwd').then(() => {})"]);
    }
    if has_program("java") {
        programs.push(vec!["java", "-Xmx64m", "-version"]);
    }
    for_each_caller(|caller| {
        for program in &programs {
            let outcome = Run::new(caller).opts(["--explain-denials"]).cmd(program.iter().copied()).go();
            if outcome.code() == 127 {
                continue; // this program is not below /usr
            }
            let outcome = outcome.expect(0);
            let denials = outcome.report()["denials"].as_array().unwrap().clone();
            let seccomp: Vec<_> = denials.iter().filter(|denial| denial["layer"] == "seccomp").collect();
            assert!(seccomp.is_empty(), "{program:?}: {seccomp:?}");
        }
    });
}
