#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("reading"), |data: &[u8]| moteseal_fuzz::reading::run(data));
