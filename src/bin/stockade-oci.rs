//! The program `stockade-oci`: the command line of an OCI runtime, for container engines.
#![no_main]

stockade::door!(stockade::oci::main);
