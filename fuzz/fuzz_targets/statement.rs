#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("statement"), |data: &[u8]| moteseal_fuzz::statement::run(data));
