//! The door that container engines use: the command line of an OCI runtime.
#![no_main]

stockade::door!(stockade::oci::main);
