//! Why a profile or a program cannot be used.

use crate::bpf::MAX_INSTRUCTIONS;

/// Why a profile or a program cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The profile's text: the error names the place in it.
    #[error(transparent)]
    Text(#[from] stockade_json::Error),
    /// The program is longer than the kernel takes.
    #[error("needs {length} instructions, {} more than the {MAX_INSTRUCTIONS} the kernel takes{}", length - MAX_INSTRUCTIONS, most_go_to(most))]
    TooLong {
        /// How many instructions it has.
        length: usize,
        /// The calls that take the most of them, each with how many.
        most: Vec<(&'static str, usize)>,
    },
    /// The seccompiler crate does not compile the rules.
    #[error("seccompiler: {0}")]
    Seccompiler(seccompiler::BackendError),
    /// A filter in seccompiler's format has rules with different actions, which its text cannot say.
    #[error("has rules with different actions, where the format has one for all of them")]
    SeveralActions,
    /// The size of a compiled program fits no array of instructions, or one that is too long.
    #[error("{0}")]
    Size(String),
    /// The kernel would not take an instruction of a compiled program.
    #[error("instruction {index}: {reason}")]
    Instruction {
        /// Its index.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Error {
    /// The place the error is about, empty for the whole file, and what is wrong there.
    pub fn place_and_reason(&self) -> (String, String) {
        match self {
            Self::Text(error) => (error.path.clone(), error.message()),
            Self::Instruction { index, reason } => (format!("instruction {index}"), (*reason).to_owned()),
            _ => (String::new(), self.to_string()),
        }
    }
}

fn most_go_to(most: &[(&str, usize)]) -> String {
    let most: Vec<String> = most.iter().map(|(name, count)| format!("{name} ({count})")).collect();
    if most.is_empty() { String::new() } else { format!("; the most go to {}", most.join(", ")) }
}

impl From<seccompiler::BackendError> for Error {
    fn from(error: seccompiler::BackendError) -> Self {
        Self::Seccompiler(error)
    }
}
