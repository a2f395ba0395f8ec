//! The program `stockade`, built with the feature that can omit one layer. Never shipped.
#![no_main]

stockade::door!(stockade::cli::main);
