//! The door `stockade-oci`, built with the feature that lets one layer be left out. Never shipped.

fn main() -> std::process::ExitCode {
    stockade::oci::main()
}
