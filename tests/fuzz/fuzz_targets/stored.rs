//! Any bytes as what storage, or a caller, may hold for the parser that the first byte names (`lancekeep::fuzzing`).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lancekeep::fuzzing::run(data));
