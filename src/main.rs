//! The program `stockade`.
#![no_main]

stockade::door!(stockade::cli::main);
