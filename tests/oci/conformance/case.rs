//! A case as data.

use serde_json::{Value, json};

use super::Runtime;

/// What one case asks for and expects.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) needs: Vec<Need>,
    pub(super) edits: Vec<(String, Edit)>,
    /// The commands: a script for the host's shell in the bundle's directory, with the functions of `prelude.sh`.
    pub(super) host: &'static str,
    expected: Outcome,
    differences: Vec<(Runtime, Option<Outcome>, &'static str)>,
}

/// A change of one place in `config.json`.
pub(super) enum Edit {
    Set(Value),
    Push(Value),
    Remove,
}

/// What the host must have; a case is skipped elsewhere.
#[derive(Clone, Copy)]
pub(super) enum Need {
    CgroupV1,
    CgroupV2,
    /// A file of the host, such as a controller's.
    File(&'static str),
    /// Not User-Mode Linux, for this reason.
    NotUml(&'static str),
}

/// What is seen of a case.
#[derive(Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) code: i32,
    pub(super) out: Out,
    pub(super) says: Vec<&'static str>,
}

/// The expected standard output, with `{dir}` and `{id}` of the bundle.
#[derive(Clone, PartialEq)]
pub(super) enum Out {
    Is(String),
    Has(Vec<&'static str>),
}

impl Outcome {
    /// The commands' exit code.
    pub(super) fn exits(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    /// The whole standard output.
    pub(super) fn prints(mut self, text: impl Into<String>) -> Self {
        self.out = Out::Is(text.into());
        self
    }

    /// Parts of the standard output.
    pub(super) fn prints_parts(mut self, parts: &[&'static str]) -> Self {
        self.out = Out::Has(parts.to_vec());
        self
    }

    /// A part of the standard error.
    pub(super) fn says(mut self, text: &'static str) -> Self {
        self.says.push(text);
        self
    }

    /// The runtime fails and prints nothing. Only our own words are compared.
    pub(super) fn fails(self) -> Self {
        self.exits(1).prints("")
    }
}

/// A case that runs `true` with the configuration of `spec`, succeeds and prints nothing.
pub(super) fn case(name: &'static str) -> Case {
    let expected = Outcome { code: 0, out: Out::Is(String::new()), says: Vec::new() };
    Case { name, needs: Vec::new(), edits: Vec::new(), host: "run", expected, differences: Vec::new() }
}

impl Case {
    pub(super) fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Sets a field, such as `process.user.uid`.
    pub(super) fn set(mut self, path: &str, value: Value) -> Self {
        self.edits.push((path.to_owned(), Edit::Set(value)));
        self
    }

    /// Appends to an array.
    pub(super) fn push(mut self, path: &str, value: Value) -> Self {
        self.edits.push((path.to_owned(), Edit::Push(value)));
        self
    }

    /// Removes a field.
    pub(super) fn without(mut self, path: &str) -> Self {
        self.edits.push((path.to_owned(), Edit::Remove));
        self
    }

    /// The program is this shell script.
    pub(super) fn inside(self, script: &str) -> Self {
        self.set("process.args", json!(["sh", "-c", script]))
    }

    /// The root is writable.
    pub(super) fn writable(self) -> Self {
        self.set("root.readonly", json!(false))
    }

    pub(super) fn mount(self, destination: &str, kind: &str, source: &str, options: &[&str]) -> Self {
        let mount = json!({ "destination": destination, "type": kind, "source": source, "options": options });
        self.push("mounts", mount)
    }

    /// A bind mount of a path of the bundle's directory or of the host.
    pub(super) fn bind(self, destination: &str, source: &str, options: &[&str]) -> Self {
        let options: Vec<&str> = ["bind"].iter().chain(options).copied().collect();
        let mount = json!({ "destination": destination, "type": "bind", "source": source, "options": options });
        self.push("mounts", mount)
    }

    /// The commands, instead of `run`.
    pub(super) fn host(mut self, script: &'static str) -> Self {
        self.host = script;
        self
    }

    pub(super) fn exits(mut self, code: i32) -> Self {
        self.expected = self.expected.exits(code);
        self
    }

    pub(super) fn prints(mut self, text: impl Into<String>) -> Self {
        self.expected = self.expected.prints(text);
        self
    }

    pub(super) fn prints_parts(mut self, parts: &[&'static str]) -> Self {
        self.expected = self.expected.prints_parts(parts);
        self
    }

    /// Our error contains this.
    pub(super) fn says(mut self, text: &'static str) -> Self {
        self.expected = self.expected.says(text);
        self
    }

    /// Every runtime fails, ours with this in its message.
    pub(super) fn fails(mut self, text: &'static str) -> Self {
        self.expected = self.expected.fails().says(text);
        self
    }

    /// A control's outcome differs from the expected one, and the reason why ours does not do the same.
    pub(super) fn but(mut self, control: Runtime, change: fn(Outcome) -> Outcome, because: &'static str) -> Self {
        let common = Outcome { says: Vec::new(), ..self.expected.clone() };
        self.differences.push((control, Some(change(common)), because));
        self
    }

    /// A control cannot run this case.
    pub(super) fn not_on(mut self, control: Runtime, because: &'static str) -> Self {
        self.differences.push((control, None, because));
        self
    }

    /// Whether this runtime has an expectation of its own.
    pub(super) fn differs(&self, runtime: Runtime) -> bool {
        self.differences.iter().any(|(other, ..)| *other == runtime)
    }

    /// What is expected of this runtime and, if that differs, why. Messages are compared where they are ours or a difference's.
    pub(super) fn expected(&self, runtime: Runtime) -> (Option<Outcome>, &'static str) {
        if let Some((_, outcome, because)) = self.differences.iter().find(|(other, ..)| *other == runtime) {
            return (outcome.clone(), because);
        }
        let says = if runtime == Runtime::Ours { self.expected.says.clone() } else { Vec::new() };
        (Some(Outcome { says, ..self.expected.clone() }), "")
    }
}
