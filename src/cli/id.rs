//! Names of runs.

use std::hash::{BuildHasher as _, Hasher as _};

use crate::args::Args;
use crate::error::{Error, Result, Step};

/// The name that `--name` gives, or a random one.
pub fn of(args: &Args) -> Result<String> {
    match args.value("name") {
        Some(name) => {
            let name = name.to_str().ok_or_else(|| Error::new(Step::Usage, "--name", "is not UTF-8"))?;
            Ok(name.to_owned())
        }
        None => Ok(fresh()),
    }
}

/// 64 random bits in hexadecimal. The standard library seeds `RandomState` from getrandom(2).
pub fn fresh() -> String {
    format!("{:016x}", std::hash::RandomState::new().build_hasher().finish())
}
