#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("owner"), |data: &[u8]| moteseal_fuzz::owner::run(data));
