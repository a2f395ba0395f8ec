//! The door `stockade`.

fn main() -> std::process::ExitCode {
    stockade::cli::main()
}
