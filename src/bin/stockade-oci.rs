//! The door that container engines use: the command line of an OCI runtime.

fn main() -> std::process::ExitCode {
    stockade::oci::main()
}
