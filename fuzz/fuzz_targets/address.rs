#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("address"), |data: &[u8]| moteseal_fuzz::address::run(data));
