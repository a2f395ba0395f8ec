//! Builds the workload's environment from nothing; it inherits no variable.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::settings::EnvSettings;
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Identity};

/// Longest single string of an environment or an argv, `MAX_ARG_STRLEN` without its NUL, `execve(2)`.
pub const MAX_STRING: usize = 131_071;

/// Variables that make a program load or run code, that redirect where it looks for files, or that belong to the caller's
/// session. They are passed only if named one by one: neither a `*` nor `keep` includes them. A `*` in this list matches
/// any text.
#[rustfmt::skip]
const NAMED_ONLY: &[&str] = &[
    // The loader, the C library and its helpers.
    "LD_*", "DYLD_*", "GLIBC_TUNABLES", "MALLOC_*", "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "LOCALDOMAIN",
    "RES_OPTIONS", "RESOLV_*", "GETCONF_DIR", "MEMUSAGE_*", "SEGFAULT_*", "PCPROFILE_*", "LIBC_*",
    // Shells.
    "BASH_ENV", "BASH_FUNC_*", "BASH_XTRACEFD", "BASHOPTS", "SHELLOPTS", "ENV", "ZDOTDIR", "IFS", "CDPATH", "PS4",
    "PROMPT_COMMAND", "FPATH", "GLOBIGNORE", "HISTFILE",
    // Interpreters and virtual machines.
    "PYTHON*", "NODE_*", "NPM_*", "npm_*", "DENO_*", "BUN_*", "PERL*", "RUBY*", "GEM_*", "BUNDLE_*", "JAVA_*", "_JAVA_*",
    "JDK_*", "CLASSPATH", "MAVEN_*", "GRADLE_*", "LUA_*", "PHP*", "TCL*", "R_*", "GUILE_*", "ERL_*", "ELIXIR_*", "GHC*",
    "DOTNET_*", "COMPlus_*", "CORECLR_*", "COR_*", "MONO_*", "JULIA_*", "OCAML*", "GO*", "CARGO*", "RUST*",
    // Build and version control tools that run commands from variables.
    "GIT_*", "SVN_*", "HG*", "SSH_*", "MAKE*", "MFLAGS", "CC", "CXX", "LD", "AR", "EDITOR", "VISUAL", "PAGER", "MANPAGER",
    "LESS*", "BROWSER", "PKG_CONFIG*", "CMAKE_*", "GCC_*", "COMPILER_PATH", "LIBRARY_PATH", "CPATH", "*_INCLUDE_PATH",
    // Libraries that load modules, and the locations of the session's credentials and sockets.
    "GTK_*", "GIO_*", "QT_*", "OPENSSL_*", "SSLKEYLOGFILE", "SSL_*", "KRB5*", "TERMINFO*", "TERMCAP", "TMPDIR", "TEMP", "TMP",
    "XDG_*", "DBUS_*", "XAUTHORITY", "DISPLAY", "WAYLAND_*", "GPG_*", "DOCKER_*", "KUBECONFIG", "AWS_*", "SUDO_*",
    // Variables that the sandbox sets, and those that describe the caller's shell.
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "MAIL", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME",
];

/// The `NAME=value` strings of the workload, sorted by name.
///
/// Later sources override earlier ones: the sandbox's own HOME, USER and LOGNAME; the caller's variables under `keep`; those
/// that a `*` matches; those passed by name; those set. `caller` is the caller's environment; if it has a name twice, the
/// first one wins.
pub fn build(settings: &EnvSettings, identity: &Identity, caller: &[(OsString, OsString)]) -> Result<Vec<Bytes>> {
    let mut env: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let own =
        [("HOME", identity.home.clone()), ("USER", (&identity.user).into()), ("LOGNAME", (&identity.user).into())];
    for (name, value) in own {
        env.insert(Bytes::from(name), value);
    }
    let keep = settings.keep == Some(true);
    for (name, value) in caller.iter().rev() {
        let name = Bytes::from(name);
        let passed = |pattern: &Bytes| matches(pattern.as_bytes(), name.as_bytes());
        let exact = settings.pass.iter().any(|pattern| pattern.0 == name);
        let by_rule = keep || settings.pass.iter().any(|pattern| passed(&pattern.0));
        if exact || (by_rule && !named_only(name.as_bytes())) {
            env.insert(name, Bytes::from(value));
        }
    }
    for (name, value) in &settings.set {
        env.insert(name.0.clone(), value.0.clone());
    }
    env.into_iter().map(|(name, value)| entry(&name, &value)).collect()
}

fn entry(name: &Bytes, value: &Bytes) -> Result<Bytes> {
    let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
    if entry.len() > MAX_STRING {
        let reason = format!("is {} bytes long; execve accepts at most {MAX_STRING}", entry.len());
        return Err(Error::new(Step::Plan, format!("env {name}"), reason));
    }
    Ok(entry.into())
}

fn named_only(name: &[u8]) -> bool {
    NAMED_ONLY.iter().any(|pattern| matches(pattern.as_bytes(), name))
}

/// Whether the pattern matches the name. A `*` at either end matches any text.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [b'*', ending @ ..] => name.ends_with(ending),
        [beginning @ .., b'*'] => name.starts_with(beginning),
        _ => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::IdMapping;
    use crate::policy::value::{EnvName, EnvPattern, EnvValue, Value as _};

    fn built(settings: &EnvSettings, caller: &[(&str, &str)]) -> Vec<String> {
        let identity = Identity {
            uid: 1000,
            gid: 1000,
            mapping: IdMapping::Single,
            user: "sandbox".into(),
            home: "/home/sandbox".into(),
        };
        let caller: Vec<_> = caller.iter().map(|(name, value)| (name.into(), value.into())).collect();
        build(settings, &identity, &caller).unwrap().iter().map(Bytes::to_string).collect()
    }

    #[test]
    fn variables_that_are_not_named_are_not_inherited() {
        let own = ["HOME=/home/sandbox", "LOGNAME=sandbox", "USER=sandbox"];
        assert_eq!(built(&EnvSettings::default(), &[("SECRET", "x"), ("LD_PRELOAD", "y"), ("HOME", "/root")]), own);
    }

    #[test]
    fn code_loading_variables_are_passed_only_by_name() {
        let caller = [("LD_PRELOAD", "a"), ("LC_ALL", "C"), ("BASH_ENV", "b"), ("NODE_OPTIONS", "c"), ("PLAIN", "d")];
        let wide = EnvSettings { keep: Some(true), ..EnvSettings::default() };
        let text = built(&wide, &caller).join(" ");
        assert_eq!(text, "HOME=/home/sandbox LC_ALL=C LOGNAME=sandbox PLAIN=d USER=sandbox");
        let pattern = |text: &str| EnvPattern::parse(text.as_bytes()).unwrap();
        let starred = EnvSettings { pass: vec![pattern("LD_*"), pattern("LC_*")], ..EnvSettings::default() };
        assert!(!built(&starred, &caller).join(" ").contains("LD_PRELOAD"));
        let named = EnvSettings { pass: vec![pattern("LD_PRELOAD")], ..EnvSettings::default() };
        assert!(built(&named, &caller).join(" ").contains("LD_PRELOAD=a"));
    }

    #[test]
    fn a_value_that_execve_refuses_is_refused_here() {
        let name = EnvName::parse(b"BIG").unwrap();
        let fits = EnvValue("x".repeat(MAX_STRING - 4).into_bytes().into());
        let not = EnvValue("x".repeat(MAX_STRING - 3).into_bytes().into());
        assert!(entry(&name.0, &fits.0).is_ok());
        assert!(entry(&name.0, &not.0).is_err());
    }
}
