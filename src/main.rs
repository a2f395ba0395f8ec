//! The door `stockade`.

fn main() -> std::process::ExitCode {
    let arguments = clap::Command::new("stockade")
        .subcommand_required(true)
        .subcommand(stockade::cli::doctor::command())
        .get_matches();
    match arguments.subcommand() {
        Some(("doctor", arguments)) => stockade::cli::doctor::run(arguments).into(),
        _ => 125.into(),
    }
}
