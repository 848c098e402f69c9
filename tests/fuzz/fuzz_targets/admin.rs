//! Requests to the admin socket.

#![no_main]

use bbs_fuzz::admin::Command;
use bbs_fuzz::read_command;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let rate = line.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    for command in [
        read_command(line),
        Some(Command::Rate {
            units_per_second: rate,
        }),
    ] {
        let Some(command) = command else { continue };
        let written = serde_json::to_vec(&command).expect("a command is plain data");
        assert_eq!(read_command(&written), Some(command));
    }
});
