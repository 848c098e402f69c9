//! The executable. Diego's post-start script looks for a process of this name, so it is called `bbs`.

fn main() -> std::process::ExitCode {
    let cli = bbs::cli::Cli::of(std::env::args_os());
    bbs::tls::choose_cryptography();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    match runtime.block_on(cli.run()) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

/// Errors never print their own sources, so the whole chain is printed here, once.
fn failed(error: &anyhow::Error) -> std::process::ExitCode {
    eprintln!("bbs: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
    std::process::ExitCode::FAILURE
}
