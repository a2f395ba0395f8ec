//! The door `stockade`, built with the feature that lets one layer be left out. Never shipped.
#![no_main]

stockade::door!(stockade::cli::main);
