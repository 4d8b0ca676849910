#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("keys"), |data: &[u8]| moteseal_fuzz::keys::run(data));
