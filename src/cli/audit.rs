//! `stockade audit verify`: verifies the hash chain of an audit log.

use std::fmt::Write as _;

use crate::args::Args;
use crate::audit::{Chain, verify};
use crate::error::{Error, Result, Step, printable};
use crate::plan::unhex;

/// Prints a summary of the log. If the chain is broken, prints the first bad line and returns 1.
pub fn main(args: &Args) -> Result<u8> {
    let head = args.value("head").map(|word| {
        let text = word.to_str().filter(|text| unhex(text).is_some_and(|hash| hash.len() == 32));
        text.ok_or_else(|| Error::new(Step::Usage, "--head", "is not a SHA-256 in hexadecimal"))
    });
    match verify(&args.words[0], head.transpose()?) {
        Ok(chain) => super::say(&summary(&chain)),
        Err(error) if error.step == Step::AuditChain => {
            super::print_error(&error);
            Ok(1)
        }
        Err(error) => Err(error),
    }
}

fn summary(chain: &Chain) -> String {
    let Chain { runs, torn, first, last, head } = chain;
    let (Some(first), Some(last), Some(head)) = (first, last, head) else { return "intact: no runs\n".to_owned() };
    let runs = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    let mut text = format!("intact: {runs}, from {} to {}\nhead: {head}\n", printable(first), printable(last));
    for line in torn {
        let _ = writeln!(text, "torn: line {line}, recorded by the line after it");
    }
    text
}
