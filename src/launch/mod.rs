//! What a run and a container share between the plan and the running process: the channels to the new process, its standard
//! streams and terminal, verification from outside, and the steps that `--debug` prints.

#[cfg(feature = "ablate")]
pub mod ablate;
pub mod channels;
pub mod executed;
pub mod failures;
pub mod namespaces;
pub mod pump;
pub mod requests;
pub mod signals;
pub mod standard;
pub mod steps;
pub mod streams;
pub mod terminal;
pub mod times;
pub mod verify;
