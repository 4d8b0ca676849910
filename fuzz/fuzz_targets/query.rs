#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("query"), |data: &[u8]| moteseal_fuzz::query::run(data));
