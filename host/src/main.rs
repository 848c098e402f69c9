//! The executable. Diego's post-start script looks for a process of this name, so it is called
//! `bbs`.

/// With it lists take 5 to 15 % less time than with glibc's allocator. That of musl takes one lock
/// for all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let cli = bbs::Cli::of(std::env::args_os());
    // Before the runtime, whose threads would count as memory of the compiler.
    if let Some(code) = cli.compile_component() {
        return code;
    }
    bbs::choose_cryptography();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return bbs::failed(&error.into()),
    };
    let outcome = runtime.block_on(cli.run());
    // Blocking tasks are abandoned at exit; nothing awaits their result.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => code,
        Err(error) => bbs::failed(&error),
    }
}
