//! The program `stockade-oci`, built with the feature that can omit one layer. Never shipped.
#![no_main]

stockade::door!(stockade::oci::main);
