//! The options of `learn`: those of `plan`, with what becomes of the lesson.

use super::why::Group;
use crate::args::{switch, value};

/// The last group.
pub const OUTPUT: Group = (
    "Policy",
    &[
        value("output", "FILE", "Write the policy to FILE, which the command cannot reach; required").short('o'),
        switch(
            "check",
            "Run the command a second time, under the policy, and say whether it ends as before and whether more is denied",
        ),
    ],
);
