//! Why a profile or a program cannot be used.

use crate::bpf::MAX_INSTRUCTIONS;

/// Why a profile or a program cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An error in the profile's text, with its place.
    #[error(transparent)]
    Text(#[from] stockade_json::Error),
    /// The program is longer than the kernel's limit.
    #[error("needs {length} instructions, {} more than the {MAX_INSTRUCTIONS} the kernel takes{}", length - MAX_INSTRUCTIONS, most_go_to(most))]
    TooLong {
        /// How many instructions it has.
        length: usize,
        /// The calls that need the most instructions, each with the number.
        most: Vec<(&'static str, usize)>,
    },
    /// The seccompiler crate rejects the rules.
    #[error("seccompiler: {0}")]
    Seccompiler(seccompiler::BackendError),
    /// A filter in seccompiler's format has rules with different actions, which the format cannot express.
    #[error("has rules with different actions, but the format allows only one")]
    SeveralActions,
    /// The size of a compiled program is not a multiple of an instruction's size, or too large.
    #[error("{0}")]
    Size(String),
    /// The kernel would reject an instruction of a compiled program.
    #[error("instruction {index}: {reason}")]
    Instruction {
        /// Its index.
        index: usize,
        /// The reason.
        reason: &'static str,
    },
}

impl Error {
    /// The place of the error, empty for the whole file, and the reason.
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
